"""The small GEMMs of adapters, which run in addition to the linear layers.

Answers: which kernels do adapters add to a pass?

Each token is multiplied by the two matrices of its adapter. One kernel projects all tokens to the rank, and
another one projects them back. Each kernel reads the adapters of all sequences: at most one adapter for
each new token, and at most one for each slot.
"""

from itertools import groupby

import numpy as np

from flopcast.dtypes import ONE, Counts, constant
from flopcast.layers.block import Block
from flopcast.operators.item import Item, kernel
from flopcast.operators.matmul import GroupedMatmul
from flopcast.serving.adapters import adapted, cut_sides
from flopcast.serving.seen import Seen


def adapter_products(items: tuple[Item, ...], seen: Seen) -> tuple[Item, ...]:
    """Add two kernels for each product whose linears have adapters.

    If one product computes several linears (queries, keys and values), each has an adapter. One kernel
    computes these adapters; its inner width is the rank times their number. `seen` states the pass, whose
    new tokens limit the number of different adapters, and the slots of the engine. Items of other layers,
    and of deployments without adapters, stay the same.
    """
    rank, layer = seen.deployment.adapter_rank, seen.layer
    if rank is None or not isinstance(layer, Block):
        return items
    slots = float(seen.deployment.adapter_slots or seen.engine.adapter_slots)
    used = np.minimum(seen.run.new_tokens, slots)
    added: list[Item] = []
    for name, group in groupby(adapted(layer, seen.hidden), key=lambda linear: linear.item):
        sides = [cut_sides(linear, seen.deployment.tensor_parallel) for linear in group]
        inside = constant(float(rank * len(sides)))
        into, out = constant(sides[0][0]), constant(sum(side for _, side in sides))
        added.append(_product(f"{name}.narrow", inside, into, used, seen))
        added.append(_product(f"{name}.widen", out, constant(float(rank)), used, seen))
    return (*items, *added)


def _product(name: str, columns: Counts, length: Counts, adapters: Counts, seen: Seen) -> Item:
    work = GroupedMatmul(
        groups=adapters, rows=seen.run.new_tokens, n=columns, k=length, imbalance=ONE, dtype="bf16"
    )
    return kernel(name, work, ("x",), component="adapters")
