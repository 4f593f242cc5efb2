"""The rules about optimizers: which of them a stack supports, and which sharding they forbid.

Answers: which conditions must an optimizer, its stack and a plan satisfy, why, and which edit fixes a
violation?
Elsewhere: the states and the bytes of each optimizer (optimizers.py), what a rule is (checks.py).
"""

from flopcast.spec.checks import Case, Rule
from flopcast.spec.offload import used_in_steps
from flopcast.spec.optimizers import OPTIMIZERS, moved_bytes, state_bytes


def _least(case: Case) -> tuple[float, float]:
    """Return the least bytes kept and moved for a parameter, by the stack's numbers."""
    name, kept = case.structure.optimizer, case.stack.optimizer
    return state_bytes(name, kept), moved_bytes(name, kept)


RULES: tuple[Rule, ...] = (
    Rule(
        field="plan.optimizer",
        holds=lambda c: not (OPTIMIZERS[c.structure.optimizer].factored and c.structure.zero >= 1),
        allowed=(
            "adamw, adamw_8bit, adamw_fp8, adamw_4bit, muon, sgd or sgd_momentum, because ZeRO shards the "
            "states"
        ),
        because=("ZeRO shards flattened tensors, but Adafactor needs the rows and columns of matrices"),
        fix=({"zero": 0}, {"optimizer": "adamw"}),
    ),
    Rule(
        field="plan.optimizer",
        holds=lambda c: (
            not (OPTIMIZERS[c.structure.optimizer].orthogonal and used_in_steps(c.structure.offload))
        ),
        allowed="an optimizer other than muon, because optimizer states are offloaded",
        because="Muon with offloaded states is not supported yet",
        fix={"optimizer": "adamw"},
    ),
    Rule(
        field="stack.optimizer.state_bytes",
        holds=lambda c: _least(c)[0] >= 0,
        allowed=lambda c: f"at least {c.stack.optimizer.state_bytes - _least(c)[0]:g} bytes",
        because=(
            "this field is the size of AdamW's states in fp32; set smaller data types in other fields "
            "of stack.optimizer"
        ),
        fix={"state_bytes": "12 B"},
    ),
    Rule(
        field="stack.optimizer.moved_bytes",
        holds=lambda c: c.stack.optimizer.moved_bytes == 0 or _least(c)[1] > 0,
        allowed=lambda c: f"0, or more than {c.stack.optimizer.moved_bytes - _least(c)[1]:g} bytes",
        because=(
            "this field is AdamW's memory traffic with states in fp32; set smaller data types in other "
            "fields of stack.optimizer"
        ),
        fix={"moved_bytes": "30 B"},
    ),
)
