"""The rules about encoder-decoder models: their lengths, and what is not supported with an encoder yet.

Elsewhere: the order of blocks (layers/block_order.py), heads (rules_heads.py), what a rule is (checks.py).
"""

from math import inf

from flopcast.spec.checks import Case, Rule, first
from flopcast.spec.rules_context import exchanges, parts


def _unsupported(case: Case) -> tuple[str, str]:
    """Return the first part of a job that has an encoder and needs what is not supported, and its value."""
    model, batch = case.model, case.batch
    parts = (
        ("model.mtp", str(model.mtp) if model.mtp else ""),
        ("model.reference", "" if model.reference == "none" else model.reference),
        ("batch.documents", f"{len(batch.documents)} documents" if batch.documents else ""),
        ("batch.micro_batches", "micro-batches" if batch.micro_batches else ""),
        ("batch.ranks", "ranks" if batch.ranks else ""),
        ("batch.shared_by", str(batch.shared_by) if batch.shared_by > 1 else ""),
    )
    found = [(field, value) for field, value in parts if value and model.has_encoder]
    return found[0] if found else ("", "")


def _positions(case: Case) -> float:
    """Return the number of positions of a table that is learned; any number otherwise."""
    return case.model.learned_positions or inf


def _encoder_beside_teacher(case: Case) -> bool:
    """Return whether a teacher is distilled and it or the trained model has an encoder."""
    teacher = case.model.teacher
    return teacher is not None and (teacher.has_encoder or case.model.has_encoder)


RULES: tuple[Rule, ...] = (
    Rule(
        field="batch.source_length",
        holds=lambda c: c.model.has_encoder or c.batch.source_length is None,
        allowed="no value, because the model has no encoder",
        because="source_length is the length of the sequences that an encoder reads",
        fix="remove batch.source_length",
    ),
    Rule(
        field="batch.source_length",
        holds=lambda c: not c.model.has_encoder or c.batch.source_tokens <= _positions(c),
        value=lambda c: c.batch.source_tokens,
        allowed=lambda c: f"at most learned_positions ({c.model.learned_positions})",
        because="the encoder's position-embedding table has learned_positions rows, one per position",
        fix=lambda c: {"source_length": c.model.learned_positions},
    ),
    Rule(
        field=lambda c: _unsupported(c)[0],
        holds=lambda c: not _unsupported(c)[0],
        value=lambda c: _unsupported(c)[1],
        allowed="no value, because the model has an encoder",
        because="this field is not supported yet for encoder-decoder models",
        fix=lambda c: f"remove {_unsupported(c)[0]}",
    ),
    Rule(
        field="model.teacher",
        holds=lambda c: not _encoder_beside_teacher(c),
        value=lambda c: c.model.teacher and c.model.teacher.name,
        allowed="no value, because one of the two models has an encoder",
        because="distillation of encoder-decoder models is not supported yet",
        fix="remove model.teacher",
    ),
    Rule(
        field="plan.context_exchange",
        holds=lambda c: (
            (c.plans.context_parallel == 1) | (not c.model.has_encoder or not exchanges(c, "ring"))
        ),
        allowed="all_gather or all_to_all, because the model has an encoder",
        because="ring attention is not supported yet for cross-attention",
        fix={"context_exchange": "all_gather"},
    ),
    Rule(
        field="plan.context_parallel",
        holds=lambda c: (
            (c.plans.context_parallel == 1)
            | (not c.model.has_encoder)
            | (c.batch.source_tokens % parts(c) == 0)
        ),
        allowed=lambda c: (
            f"a degree for which the number of slices (now {first(parts(c))}) divides "
            f"source_length = {c.batch.source_tokens}"
        ),
        because=(
            "context parallelism divides the encoder's sequence into slices of equal length; a rank "
            "holds one slice, or two in zigzag order"
        ),
        fix={"context_parallel": 1},
    ),
    Rule(
        field="plan.sequence_parallel",
        holds=lambda c: (
            not (c.structure.sequence_parallel and c.model.has_encoder)
            or c.batch.source_tokens % c.plans.tensor_parallel == 0
        ),
        allowed="false, unless tensor_parallel divides source_length",
        because="sequence parallelism also divides the encoder's sequence evenly over the ranks",
        fix={"sequence_parallel": False},
    ),
)
