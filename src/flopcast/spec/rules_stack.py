"""The rules about a stack: the names that it may contain, and what its overlap requires of a plan.

Answers: which conditions must a stack, a model and a plan satisfy, why, and which edit fixes a violation?
Elsewhere: the rules about all other parts (rules.py), modules that recompute names (rules_recompute.py),
what a rule is (checks.py). The rules about rewrites and about the division of layers over stages need
modules of higher folders: workload/checks.py.
"""

from collections.abc import Callable, Iterable

from flopcast.operators.memory_bound import KINDS
from flopcast.spec.checks import Case, Rule
from flopcast.spec.stack import Stack


def names_operators(field: str, names_of: Callable[[Stack], Iterable[str]]) -> Rule:
    """Return the rule that a field of the stack lists only kinds of memory-bound operators."""

    def unknown(case: Case) -> str:
        return ", ".join(sorted(set(names_of(case.stack)) - KINDS.keys()))

    return Rule(
        field=field,
        holds=lambda c: not unknown(c),
        value=unknown,
        allowed=lambda _: ", ".join(sorted(KINDS)),
        because="each name must be a kind of memory-bound operator that flopcast knows",
        fix=lambda c: f"remove {unknown(c)}",
    )


RULES: tuple[Rule, ...] = (
    names_operators("stack.gradients.copies", lambda stack: stack.gradients.copies),
    Rule(
        field="stack.contention.reserved_multiprocessors",
        holds=lambda c: c.stack.contention.reserved_multiprocessors < c.cluster.node.device.multiprocessors,
        allowed=lambda c: (
            f"fewer than {c.cluster.node.device.multiprocessors} (the number of multiprocessors of the"
            f" device)"
        ),
        because="GEMMs and attention run on the multiprocessors that are not reserved for communication",
        fix={"reserved_multiprocessors": 0},
    ),
    Rule(
        field="stack.attention_generation",
        holds=lambda c: c.stack.fuses_attention or c.stack.attention_generation == "newest",
        allowed="newest, because attention_kernel is materialised",
        because=(
            "attention_generation selects a version of the fused attention kernel, which this stack does "
            "not use"
        ),
        fix="remove attention_generation, or set stack.attention_kernel to flash",
    ),
    Rule(
        field="stack.gradients.returns",
        holds=lambda c: c.stack.gradients.returns == "gathers" or not c.stack.gradients.overlap_gather,
        allowed="gathers, because overlap_gather is true",
        because="all-gathers of parameters can overlap with the next forward pass, but broadcasts cannot",
        fix=({"stack.gradients.returns": "gathers"}, {"overlap_gather": False}),
    ),
    Rule(
        field="stack.tensor_overlap",
        holds=lambda c: (
            (c.plans.tensor_parallel == 1)
            | (c.stack.tensor_overlap == "none")
            | c.structure.sequence_parallel
        ),
        allowed="the value none, because sequence_parallel is false",
        because=(
            "tensor_overlap overlaps GEMMs with the all-gathers and reduce-scatters of sequence parallelism"
        ),
        fix=({"sequence_parallel": True}, {"stack.tensor_overlap": "none"}),
    ),
)
