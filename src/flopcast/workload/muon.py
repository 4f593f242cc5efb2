"""Muon's update of matrices: Newton-Schulz iterations that orthogonalise a momentum, and its messages.

Answers: which matrices does a rank orthogonalise, how many FLOP does this take, and which messages does it
need?
Elsewhere: what Muon keeps and moves (spec/optimizers.py), the update itself and all other messages
(gradient_reduction.py).

One step on a momentum of r rows and c columns, r ≤ c (transposed if r > c), computes A = X Xᵀ, then B = b A
+ c A², then a X + B X: 2 r²c + 2 r³ + 2 r²c FLOP, in 16 bits. For a weight that B tokens of a batch use,
five steps take at most 5 r / B of the FLOP of training. Matrices of blocks are orthogonalised; embedding,
head and vectors have the second moment of AdamW. If tensor-parallel ranks divide a matrix, each rank
orthogonalises its own part.

If optimizer states are sharded, each rank either owns whole matrices ("distributed"), or gathers all
momenta in 16 bits and computes all matrices ("gathered"). If parameters are also sharded, every rank has a
part of every matrix. The owner of a matrix then receives the parts of the momentum and returns the update.

References
----------
Keller Jordan, "Muon" (kellerjordan.github.io/posts/muon): five steps, cost. Moonlight, arXiv:2502.16982,
section 2.3 and algorithm 1: gathers in bf16. Megatron-Core: `--muon-tp-mode blockwise`.
"""

from collections.abc import Iterator

import numpy as np

from flopcast.dtypes import ELEMENT_BYTES, ZERO, Counts, Floats, constant
from flopcast.layers.base import Weight
from flopcast.operators.base import AbstractMessage, AbstractOperator
from flopcast.operators.item import Item
from flopcast.operators.matmul import Matmul
from flopcast.operators.messages import AllGather, AllToAll
from flopcast.operators.optimizer import OptimizerUpdate
from flopcast.records import Record, replace
from flopcast.spec.optimizers import FP32_BYTES, OPTIMIZERS
from flopcast.spec.plan import Plans
from flopcast.spec.stack import Stack
from flopcast.workload.parameters import Parameters
from flopcast.workload.reductions import ALL_BEFORE, step_message

STEPS = 5.0  # of Newton-Schulz
SECOND_MOMENT_BYTES = 2 * FP32_BYTES  # read and written


class Matrices(Record, eq=False):
    """Equal matrices on a rank of each stage class.

    Attributes
    ----------
    short, long : arrays of shape (plans, 1)
        Length of the shorter and of the longer side.
    number : array of shape (plans, stage classes)
        How many of these matrices a rank holds.
    expert : bool
        Whether they are weights of routed experts, whose states are sharded over other ranks.
    """

    short: Counts
    long: Counts
    number: Counts  # (plans, stage classes)
    expert: bool

    @property
    def elements(self) -> Counts:
        """Return the number of elements of all matrices."""
        return self.number * self.short * self.long


def is_orthogonalised(kind: str, weight: Weight) -> bool:
    """Return whether Muon updates a tensor of a layer of this kind: a trained matrix of a block."""
    return kind in ("block", "mtp") and weight.trained and weight.matrix is not None and not weight.tied


def matrices(held: Parameters) -> Iterator[Matrices]:
    """Yield the matrices of every layer that are orthogonalised.

    Embedding, head and vectors are left out (`is_orthogonalised`). A weight that contains several matrices,
    such as the experts of a layer, yields one entry with their number.
    """
    for part, layer in enumerate(held.layers):
        for weight in layer.weights:
            if weight.matrix is not None and is_orthogonalised(layer.kind, weight):
                rows, columns = weight.matrix
                number = held.stage_counts[:, :, part] * weight.elements / (rows * columns)
                yield Matrices(
                    short=np.minimum(rows, columns),
                    long=np.maximum(rows, columns),
                    number=number,
                    expert=weight.expert,
                )


def other_elements(held: Parameters) -> Counts:
    """Return the trained elements that are not orthogonalised, (plans, stage classes)."""
    return held.trained - sum((each.elements for each in matrices(held)), ZERO)


def orthogonal_items(stack: Stack, plans: Plans, held: Parameters) -> tuple[Item, ...]:
    """Return the messages and products of Muon's update; none for another optimizer.

    Parameters
    ----------
    stack : Stack
        `stack.optimizer.matrices` says whether ranks gather all momenta ("gathered") or own whole matrices.
    plans : Plans
    held : Parameters
        Weights of a rank, by stage class.

    Returns
    -------
    tuple of Item
        Messages and Newton-Schulz products, dense weights before experts, and the update of all other
        weights by AdamW. A rank that owns matrices computes at least one whole matrix, even if there are
        more ranks than matrices.
    """
    if not OPTIMIZERS[plans.structure.optimizer].orthogonal:
        return ()
    gathered = stack.optimizer.matrices == "gathered"
    items: list[Item] = []
    for expert in (False, True):
        chosen = [each for each in matrices(held) if each.expert == expert]
        if not chosen:
            continue
        shards = plans.expert_state_shards if expert else plans.state_shards
        elements = sum((each.elements for each in chosen), ZERO)
        items += _messages(plans, elements, shards, expert, gathered)
        total = sum((each.number for each in chosen), ZERO)
        part = constant(1) if gathered else np.maximum(1.0 / shards, 1.0 / np.maximum(total, 1.0))
        for place, each in enumerate(chosen):
            items += _newton_schulz(each, each.number * part, f"{'expert_' if expert else ''}{place}")
    others = OptimizerUpdate(
        parameters=other_elements(held) / plans.state_shards,
        bytes_per_parameter=constant(SECOND_MOMENT_BYTES),
        dtype="fp32",
    )
    return (*items, _kernel("second_moments", others))


def working_bytes(held: Parameters) -> Floats:
    """Return the bytes that the largest matrix needs while it is orthogonalised, (plans, stage classes).

    These are the momentum and the result in 16 bits, and two square matrices of the length of the short
    side.
    """
    sizes = [
        np.minimum(each.number, 1.0) * (2 * each.short * each.long + 2 * each.short**2)
        for each in matrices(held)
    ]
    return np.asarray(np.max(np.broadcast_arrays(ZERO, *sizes), axis=0)) * ELEMENT_BYTES["bf16"]


def _messages(plans: Plans, elements: Counts, shards: Counts, expert: bool, gathered: bool) -> list[Item]:
    """Return what ranks send so that those who compute a matrix have all of its momentum, in 16 bits."""
    name, axis = ("_experts", "expert_dp") if expert else ("", "dp")
    whole_bytes = elements * ELEMENT_BYTES["bf16"]
    found: dict[str, AbstractMessage] = {}
    if plans.structure.zero >= 1 and gathered:
        found["gather_momenta"] = AllGather(axis=f"{axis}_shard", message_bytes=whole_bytes)
    elif plans.structure.zero == 3:
        for word in ("collect_momenta", "return_updates"):
            found[word] = AllToAll(axis=f"{axis}_shard", message_bytes=whole_bytes / shards)
    return [
        replace(step_message(word, message), name=f"optimizer.{word}{name}")
        for word, message in found.items()
    ]


def _newton_schulz(each: Matrices, number: Counts, name: str) -> list[Item]:
    """Return the three products of a step, as often as all steps of so many matrices need them."""
    r, c = each.short, each.long
    products = {
        "square": Matmul(m=r, n=r, k=c, dtype="bf16"),
        "power": Matmul(m=r, n=r, k=r, dtype="bf16"),
        "apply": Matmul(m=r, n=c, k=r, dtype="bf16"),
    }
    return [_kernel(f"{word}_{name}", work, STEPS * number) for word, work in products.items()]


def _kernel(name: str, work: AbstractOperator, count: Counts | None = None) -> Item:
    return Item(
        name=f"optimizer.{name}",
        work=work,
        component="optimizer",
        phase="step",
        waits=ALL_BEFORE,
        count=constant(1) if count is None else count,
    )
