"""Every rule: those of the nouns, and those about what a stack may name.

Answers: can this job be predicted, and if not, what is wrong with it; which plans are possible?
Elsewhere: the rules of the nouns (spec/rules.py), how rules are applied (spec/checks.py). The names of
rewrites are known here, above the nouns, so that a new rewrite is one file and one line.
"""

import numpy as np

from flopcast.errors import Problem
from flopcast.spec.checks import Case, Rule, broken, kept
from flopcast.spec.job import Job
from flopcast.spec.rules import RULES as RULES_OF_NOUNS
from flopcast.workload.rewrites import REWRITES


def _unknown(case: Case) -> str:
    """Rewrites that the stack names and nobody wrote."""
    return ", ".join(name for name in case.stack.rewrites if name not in REWRITES)


RULES: tuple[Rule, ...] = (
    *RULES_OF_NOUNS,
    Rule(
        field="stack.rewrites",
        holds=lambda case: not _unknown(case),
        value=_unknown,
        allowed=lambda _: ", ".join(REWRITES),
        because="a stack runs rewrites that are built",
        fix=lambda case: f"remove {_unknown(case)}",
    ),
)


def check(job: Job) -> tuple[Problem, ...]:
    """Every rule that the job breaks; empty where it can be predicted."""
    return broken(job, RULES)


def valid(case: Case) -> np.ndarray:
    """Mask of shape (plans, 1): plans that keep every rule."""
    return kept(case, RULES)
