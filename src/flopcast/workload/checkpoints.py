"""The blocks of a chunk that full recompute runs again, and the blocks whose input it keeps.

Answers: which kinds of blocks, which keep different tensors, does a run of equal blocks have?
Elsewhere: the recompute of each kind (recompute.py), which blocks each chunk holds (stages.py).

Methods count blocks from the start of every chunk, embeddings and heads left out:

    uniform N   groups of N blocks: the first keeps the group's input, and all blocks are recomputed; the
                last group may be shorter
    block N     the first N blocks are recomputed, the others keep what they need
    every N     of N blocks the last is recomputed, the others keep what they need

In the program of a chunk, the blocks of one kind are consecutive even if they really alternate with blocks
of another kind. The work and memory of a block do not depend on its position.

References
----------
uniform and block: `recompute_method` of Megatron-Core's TransformerConfig; a shorter last group:
DeepSpeed's `activation_checkpoint_interval`. every: the layer frequency of TorchTitan's selective mode.
"""

from collections.abc import Callable

import numpy as np

from flopcast.dtypes import Counts
from flopcast.records import Record
from flopcast.spec.plan import Plan

OWN, PLAIN = "own", "plain"  # a block that runs again from its own input; one that keeps what it needs
FIRST, INNER = "first", "inner"  # of a group: the block that keeps its input, and one that keeps nothing

KINDS: dict[str, tuple[str, str]] = {
    "uniform": (FIRST, INNER),
    "block": (OWN, PLAIN),
    "every": (OWN, PLAIN),
}
COUNTED: dict[str, Callable[[Counts, int], Counts]] = {  # blocks of the first kind among so many of a chunk
    "uniform": lambda blocks, size: np.ceil(blocks / size),
    "block": np.minimum,
    "every": lambda blocks, size: np.floor(blocks / size),
}


class Checkpoints(Record):
    """How each run of blocks is divided into two kinds; hashable, because divisions are cached.

    `is_block` states which parts of the model are blocks; other parts are not divided.
    """

    method: str
    layers: int
    is_block: tuple[bool, ...]

    def cut(self, held: Counts, parts: tuple[int, ...] = ()) -> Counts:
        """Return how many layers of each part a chunk holds, with two columns for parts that are blocks.

        Parameters
        ----------
        held : array of shape (…, runs)
            How many layers of each run a chunk holds, in the order of the model.
        parts : tuple of int
            The part to which each run belongs; () if each run is a separate part.

        Returns
        -------
        array of shape (…, parts and kinds)

        Examples
        --------
        A chunk of an embedding, five blocks and a head, in which three blocks are recomputed:

        >>> kinds = Checkpoints(method="block", layers=3, is_block=(False, True, False))
        >>> kinds.cut(np.array([1.0, 5.0, 1.0])).tolist()
        [1.0, 3.0, 2.0, 1.0]
        """
        counted = COUNTED[self.method]
        column = np.cumsum([0, *(1 + is_block for is_block in self.is_block)])
        cut = np.zeros((*held.shape[:-1], column[-1]))
        before = np.zeros(held.shape[:-1])
        for run, part in enumerate(parts or range(held.shape[-1])):
            count = held[..., run]
            if not self.is_block[part]:
                cut[..., column[part]] += count
                continue
            first = counted(before + count, self.layers) - counted(before, self.layers)
            cut[..., column[part]] += first
            cut[..., column[part] + 1] += count - first
            before = before + count
        return cut


def checkpoints_of(plan: Plan, is_block: tuple[bool, ...]) -> Checkpoints | None:
    """Return how a plan divides runs of blocks; None if all blocks of a run are equal.

    >>> checkpoints_of(Plan(recompute="full"), (True,)) is None
    True
    """
    alike = plan.recompute_layers == 1 and plan.recompute_method != "block"
    if plan.recompute != "full" or alike:
        return None
    return Checkpoints(method=plan.recompute_method, layers=plan.recompute_layers, is_block=is_block)
