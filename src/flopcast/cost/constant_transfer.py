"""The sigma of a constant for a job that differs from the runs to which the constant was fitted.

Answers: in which context does a job run, and how much more uncertain is a constant in this context?
Elsewhere: how much constants differ between contexts (lab/calibration/variance_components.py), the sigmas
of factors (factors.py).

A context has four parts: the generation of the device, the bits of its products, the family of the model
and the number of devices. If a constant was fitted to no run on the job's generation, its sigma grows by
the amount by which constants differ between generations. The other parts work in the same way.
"""

import math
from collections.abc import Mapping

from flopcast.records import Record, field
from flopcast.spec.cluster import Cluster
from flopcast.spec.model import Model
from flopcast.spec.precision import RECIPES, product_engine

GENERATION, PRECISION, FAMILY, SCALE = "generation", "precision", "family", "scale"
DISTANCES = (GENERATION, PRECISION, FAMILY, SCALE)
Context = Mapping[str, str]  # part of the context → its value


class FittedLevel(Record):
    """The level of one factor that was fitted on whole runs: a ratio and its sigma.

    The ratio multiplies the factor's own ratio, and `log_sigma_factor` replaces the factor's own sigma.
    `seen` contains the contexts of the runs to which the level was fitted, by part; an absent part adds no
    uncertainty.
    """

    ratio: float
    log_sigma_factor: float
    seen: Mapping[str, frozenset[str]] = field(default_factory=dict)


def carried(distance: str) -> str:
    """Return the name of the constant that states how much constants differ in one part of the context.

    >>> carried(GENERATION)
    'carried[generation]'
    """
    return f"carried[{distance}]"


def context_of(model: Model, cluster: Cluster, precision: str) -> Context:
    """Return the context of a job that trains a model on a cluster.

    `precision` is that of the plan. The number of devices is rounded up to a power of 8 (`scale_of`).
    """
    return {
        GENERATION: cluster.node.device.generation or cluster.node.device.name,
        PRECISION: product_engine(precision) if precision in RECIPES else "16 bits",
        FAMILY: model.family,
        SCALE: scale_of(cluster.num_devices),
    }


def scale_of(num_devices: int) -> str:
    """Return the range between two successive powers of 8 that contains a number of devices.

    >>> scale_of(1), scale_of(8), scale_of(9), scale_of(1024)
    ('1-8', '1-8', '9-64', '513-4096')
    """
    step = max(1, math.ceil(math.log(num_devices, 8) - 1e-9))
    return f"{8 ** (step - 1) + 1 if step > 1 else 1}-{8**step}"


def grown_log_sigma(level: FittedLevel, levels: Mapping[str, FittedLevel], context: Context) -> float:
    """Return the sigma of a level in a context, which is larger if no fitted run has this context.

    If the runs show n values of a part of the context, a new value adds the variance s² + s² / n, where s
    is the constant `carried[...]` of this part.

    >>> level = FittedLevel(ratio=1.1, log_sigma_factor=0.03, seen={GENERATION: frozenset(["ampere"])})
    >>> levels = {carried(GENERATION): FittedLevel(ratio=1.0, log_sigma_factor=0.04)}
    >>> [round(grown_log_sigma(level, levels, {GENERATION: name}), 3) for name in ("ampere", "hopper")]
    [0.03, 0.064]
    """
    variance = 0.0
    for distance, contexts in level.seen.items():
        doubt = levels.get(carried(distance))
        if doubt is not None and contexts and distance in context and context[distance] not in contexts:
            variance += doubt.log_sigma_factor**2 * (1.0 + 1.0 / len(contexts))
    return math.hypot(level.log_sigma_factor, math.sqrt(variance))
