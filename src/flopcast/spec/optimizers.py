"""Optimizers: what each keeps and moves for a parameter.

Answers: how many bytes of states does one parameter need, how many pass through memory in an update?
Elsewhere: which optimizer (plan.py), how software keeps its states (stack.py), who holds which parameters
(workload/gradient_reduction.py), how long the pass takes (cost/).

A stack states both numbers for AdamW with an fp32 master weight and two fp32 moments. Every other choice is
derived from these: what changes in bytes that are kept is read once and written once in an update. Whatever
a stack does besides (reading gradients, casting weights) stays.
"""

from collections.abc import Mapping

from flopcast.dtypes import ELEMENT_BYTES
from flopcast.records import dataclass
from flopcast.spec.stack import Optimizer

FP32_BYTES = ELEMENT_BYTES["fp32"]
EIGHT_BITS_BYTES = 1 + FP32_BYTES / 256  # a code, and its part of the block's scale
FOUR_BITS_BYTES = 0.5 + FP32_BYTES / 128


@dataclass(frozen=True, kw_only=True, slots=True)
class OptimizerKind:
    """One optimizer.

    `moments` counts the full-size tensors beside the weight: in the stack's dtypes, or of `moment_bytes`
    an element, the fp32 scales of its blocks included. `factored`: a second moment of which only the means
    over rows and over columns are kept. `orthogonal`: the momentum of a matrix of a block is made
    orthogonal (workload/muon.py); all other tensors have a second moment. `passes` counts fp32 tensors that
    are written or read besides.
    """

    moments: int
    moment_bytes: float = 0.0
    factored: bool = False
    orthogonal: bool = False
    passes: int = 0


OPTIMIZERS: Mapping[str, OptimizerKind] = {
    "adamw": OptimizerKind(moments=2),  # arXiv:1711.05101
    # arXiv:2110.02861; blocks: bitsandbytes since 0.44
    "adamw_8bit": OptimizerKind(moments=2, moment_bytes=EIGHT_BITS_BYTES),
    # pytorch/ao, torchao/optim: FP8 with blocks of 256, 4 bits with blocks of 128
    "adamw_fp8": OptimizerKind(moments=2, moment_bytes=EIGHT_BITS_BYTES),
    "adamw_4bit": OptimizerKind(moments=2, moment_bytes=FOUR_BITS_BYTES),
    # arXiv:1804.04235, algorithm 4, no momentum
    "adafactor": OptimizerKind(moments=0, factored=True, passes=3),
    "lion": OptimizerKind(moments=1),  # arXiv:2302.06675, algorithm 2: a momentum, and no second moment
    "lion_8bit": OptimizerKind(moments=1, moment_bytes=EIGHT_BITS_BYTES),  # bitsandbytes
    "muon": OptimizerKind(moments=1, orthogonal=True),  # kellerjordan.github.io/posts/muon
    "sgd": OptimizerKind(moments=0),
    "sgd_momentum": OptimizerKind(moments=1),
}


def state_bytes(name: str, kept: Optimizer) -> float:
    """Return bytes of master weight and moments per parameter, without factored moments.

    Of Muon, those of a matrix of a block.

    Examples
    --------
    >>> [state_bytes(name, Optimizer()) for name in ("adamw", "sgd_momentum", "sgd", "adafactor")]
    [12.0, 8.0, 4.0, 4.0]
    >>> [state_bytes(name, Optimizer()) for name in ("adamw_8bit", "adamw_fp8", "adamw_4bit")]
    [6.03125, 6.03125, 5.0625]
    """
    return kept.state_bytes - _saved_bytes(name, kept)


def moved_bytes(name: str, kept: Optimizer) -> float:
    """Return bytes that the update of one parameter reads and writes.

    Adafactor writes its update and reads it twice: its mean square is needed before it can be applied. If
    states have 16 bits, an update moves half of the bytes. A stack with 0 bytes leaves out the update.

    Examples
    --------
    >>> [moved_bytes(name, Optimizer(moved_bytes=30.0)) for name in ("adamw", "sgd", "adafactor")]
    [30.0, 14.0, 26.0]
    >>> moved_bytes("adamw", Optimizer(moved_bytes=28.0, state_bytes=4.0))
    14.0
    """
    if kept.moved_bytes == 0:
        return 0.0
    passes_bytes = OPTIMIZERS[name].passes * FP32_BYTES
    width = ELEMENT_BYTES[kept.states_dtype] / FP32_BYTES
    return width * (kept.moved_bytes - 2 * _saved_bytes(name, kept) + passes_bytes)


def _saved_bytes(name: str, kept: Optimizer) -> float:
    """Return bytes per parameter that are kept less than by AdamW in fp32."""
    kind = OPTIMIZERS[name]
    moments = (ELEMENT_BYTES[kept.exp_avg_dtype], ELEMENT_BYTES[kept.exp_avg_sq_dtype])
    if kind.moment_bytes:
        moments = (kind.moment_bytes, kind.moment_bytes)
    master = FP32_BYTES - kept.main_parameter_bytes
    return master + 2 * FP32_BYTES - sum(moments[: kind.moments])
