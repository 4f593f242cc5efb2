"""The rules about frozen reference and teacher models, and about heads that compute scores.

Answers: which reference and teacher models can a job have, under which plans, and why?
Elsewhere: their cost (workload/companions.py), adapters (rules_adapters.py), what a rule is (checks.py).

A model without reference and teacher, and with a head that predicts tokens, breaks none of these rules.
"""

import numpy as np

from flopcast.layers.attention import Attention
from flopcast.spec.checks import Case, Rule
from flopcast.spec.model import Model


def _models(case: Case) -> list[Model]:
    """Return the teacher, if there is one."""
    return [] if case.model.teacher is None else [case.model.teacher]


def _nested(case: Case) -> str:
    """Return the first field of the teacher that only a trained model may have, or ""."""
    usual = {"adapters": None, "reference": "none", "teacher": None, "mtp": 0}
    found = (name for one in _models(case) for name, value in usual.items() if getattr(one, name) != value)
    return next(found, "")


def _heads(case: Case) -> int:
    """Return the key/value heads that all attention layers of the teacher have in common; 0 without."""
    mixers = [block.mixer for one in _models(case) for block in one.blocks]
    return int(np.gcd.reduce([mixer.heads for mixer in mixers if isinstance(mixer, Attention)] or [0]))


def _spread_experts(case: Case) -> np.ndarray:
    """Return plans that spread experts, if the teacher has any, (plans, 1)."""
    routed = any(one.has_experts for one in _models(case))
    return np.asarray((case.plans.expert_parallel > 1) & routed)


RULES: tuple[Rule, ...] = (
    Rule(
        field="model.reference",
        holds=lambda c: c.model.reference != "shared" or c.model.adapters is not None,
        allowed="none or separate, because the model has no adapters",
        because=(
            "the reference model can share the weights only if training does not change them, as with "
            "adapters"
        ),
        fix={"reference": "separate"},
    ),
    Rule(
        field="model.reference_passes",
        holds=lambda c: c.model.reference_passes == 1 or c.model.reference != "none",
        allowed="1, because reference is none",
        because=(
            "reference_passes counts the forward passes of a reference model, but this job has no "
            "reference model"
        ),
        fix=({"reference_passes": 1}, {"reference": "separate"}),
    ),
    Rule(
        field="model.teacher",
        holds=lambda c: not _nested(c),
        value=lambda c: f"a teacher with {_nested(c)}",
        allowed="a model without adapters, reference, teacher or mtp",
        because="a teacher runs only forward passes",
        fix=lambda c: f"remove {_nested(c)} from the teacher",
    ),
    Rule(
        field="model.teacher",
        holds=lambda c: c.model.teacher is None or c.model.teacher.vocabulary == c.model.vocabulary,
        value=lambda c: f"a vocabulary of {_models(c)[0].vocabulary}",
        allowed=lambda c: f"a vocabulary of {c.model.vocabulary}, as the trained model has",
        because="the distillation loss compares probabilities of the same tokens",
        fix=lambda c: {"model.teacher.vocabulary": c.model.vocabulary},
    ),
    Rule(
        field="plan.pipeline_parallel",
        holds=lambda c: c.plans.pipeline_parallel <= (np.inf if c.model.teacher is None else 1),
        allowed="1, because the model has a teacher",
        because="a teacher together with pipeline stages is not supported yet",
        fix={"pipeline_parallel": 1},
    ),
    Rule(
        field="plan.tensor_parallel",
        holds=lambda c: _heads(c) % c.plans.tensor_parallel == 0,
        allowed=lambda c: f"a divisor of {_heads(c)} (the number of heads of the teacher)",
        because="the teacher has the same tensor-parallel degree as the trained model",
        fix={"tensor_parallel": 1},
    ),
    Rule(
        field="plan.expert_parallel",
        holds=lambda c: ~_spread_experts(c),
        allowed="1, because the teacher has experts",
        because="expert parallelism of a teacher is not supported yet",
        fix={"expert_parallel": 1},
    ),
    Rule(
        field="model.head",
        holds=lambda c: c.model.head == "tokens" or not (c.model.mtp or c.model.teacher),
        allowed="tokens, because the model has mtp or a teacher",
        because="multi-token prediction and distillation need a head that predicts tokens",
        fix={"head": "tokens"},
    ),
)
