"""Sizes of programs with several layouts: sums and maxima over the needs of each layout.

Answers: how large is a category if blocks differ in tensor parallelism, ZeRO or recompute?
Elsewhere: each category (categories.py), the layouts (workload/layer_strategies.py).

The states of all layouts are added, and so are the buffers of communicators, which layouts of the same
degrees share. For temporarily gathered units of parameters, and for buckets, only the largest counts. The
kept and temporary tensors of layers are summed layer by layer in any case.
"""

from collections.abc import Callable
from functools import reduce

import numpy as np

from flopcast.dtypes import ZERO, Floats
from flopcast.workload.program import Programs

SUMMED = frozenset(
    (
        "parameters",
        "narrow_weights",
        "gradients",
        "optimizer_states",
        "outer_states",
        "pseudo_gradients",
        "main_gradients",
        "update",
        "built_whole",
    )
)
LARGEST = frozenset(("gathered_parameters", "unreduced_gradients", "gradient_buckets"))
OF_GROUPS = "communicators"  # layouts of equal degrees have the same groups of ranks


def size_of(name: str, size: Callable[[Programs], Floats], programs: Programs) -> Floats:
    """Return the bytes of a category by its name, for the programs or for all layouts together."""
    if not programs.legs or name not in SUMMED | LARGEST | {OF_GROUPS}:
        return size(programs)
    each = [size(leg) for leg in programs.legs]
    if name == OF_GROUPS:
        by_degree: dict[float, Floats] = {}
        for leg, leg_bytes in zip(programs.legs, each, strict=True):
            degree = leg.plans.tensor_parallel.item()
            by_degree[degree] = np.maximum(by_degree.get(degree, ZERO), leg_bytes)
        each = list(by_degree.values())
    return reduce(np.maximum, each) if name in LARGEST else sum(each, ZERO)
