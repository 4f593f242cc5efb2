"""Optimizers: which states each of them stores for a parameter, and how many bytes it moves.

Answers: how many bytes of states does a parameter need, and how many bytes does an update read and write?
Elsewhere: which optimizer a plan uses (plan.py), how software stores states (stack.py), which rank has
which parameters (workload/gradient_reduction.py), how long the update takes (cost/).

A stack states both numbers for AdamW with an fp32 main weight and two fp32 moments. The numbers of all
other optimizers are derived from them: an update reads and writes each stored byte once. Everything else
that a stack does (reading gradients, casting weights) does not change.
"""

from collections.abc import Mapping

from flopcast.dtypes import ELEMENT_BYTES
from flopcast.records import Record
from flopcast.spec.stack import Optimizer

FP32_BYTES = ELEMENT_BYTES["fp32"]
EIGHT_BITS_BYTES = 1 + FP32_BYTES / 256  # a code, and its part of the block's scale
FOUR_BITS_BYTES = 0.5 + FP32_BYTES / 128


class OptimizerKind(Record):
    """One optimizer.

    `moments` is the number of tensors of full size that it stores in addition to the weight, in the dtypes
    of the stack or with `moment_bytes` per element, including the fp32 scales of blocks. `factored`: of a
    second moment, only the means over rows and over columns are stored. `orthogonal`: the momentum of a
    block's matrix is orthogonalised (workload/muon.py); all other tensors have a second moment. `passes` is
    the number of additional fp32 tensors that an update writes or reads.
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
    """Return the bytes of main weight and moments per parameter, without factored moments. For Muon, return
    those of a block's matrix.

    Examples
    --------
    >>> [state_bytes(name, Optimizer()) for name in ("adamw", "sgd_momentum", "sgd", "adafactor")]
    [12.0, 8.0, 4.0, 4.0]
    >>> [state_bytes(name, Optimizer()) for name in ("adamw_8bit", "adamw_fp8", "adamw_4bit")]
    [6.03125, 6.03125, 5.0625]
    """
    return kept.state_bytes - _saved_bytes(name, kept)


def moved_bytes(name: str, kept: Optimizer) -> float:
    """Return the bytes that the update of one parameter reads and writes.

    Adafactor writes its update and reads it twice, because it needs the mean square of the update before it
    applies it. If states have 16 bits, an update moves half of the bytes. If the stack states 0 bytes, the
    time of the update is omitted.

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
    """Return by how many bytes per parameter the optimizer stores less than AdamW in fp32."""
    kind = OPTIMIZERS[name]
    moments = (ELEMENT_BYTES[kept.exp_avg_dtype], ELEMENT_BYTES[kept.exp_avg_sq_dtype])
    if kind.moment_bytes:
        moments = (kind.moment_bytes, kind.moment_bytes)
    master = FP32_BYTES - kept.main_parameter_bytes
    return master + 2 * FP32_BYTES - sum(moments[: kind.moments])
