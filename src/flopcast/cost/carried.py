"""How far a constant is carried: from the runs that it was fitted on to the job that it is used for.

Answers: in which context does a job run, which distances lie between it and a constant's runs, and how much
less sure is the constant there?
Elsewhere: the constants and the doubt of each distance (calibration/components.py), where factors get their
sigmas (factors.py).

A context has four parts: the generation of the device, the bits of its products, the family of the model
and the number of devices. A constant that no run of a job's generation supports is less sure there, by how
much constants differ between generations; and likewise for the other parts.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from flopcast.spec.cluster import Cluster
from flopcast.spec.model import Model
from flopcast.spec.precision import product_engine

GENERATION, PRECISION, FAMILY, SCALE = "generation", "precision", "family", "scale"
DISTANCES = (GENERATION, PRECISION, FAMILY, SCALE)
WIDE = ("bf16", "fp16")
Context = Mapping[str, str]  # by distance


@dataclass(frozen=True, kw_only=True, slots=True)
class Level:
    """What whole runs taught of one factor: a ratio on top of its own, and how sure that is.

    `log_sigma_factor` takes the place of the sigma that kernels alone leave. `seen` holds, by distance, the
    contexts of the runs behind it; a distance that it does not name adds no doubt.
    """

    ratio: float
    log_sigma_factor: float
    seen: Mapping[str, frozenset[str]] = field(default_factory=dict)


def carried(distance: str) -> str:
    """The name of the constant that says how much constants differ over a distance.

    >>> carried(GENERATION)
    'carried[generation]'
    """
    return f"carried[{distance}]"


def context_of(model: Model, cluster: Cluster, precision: str) -> Context:
    """The context of a job that trains a model on a cluster.

    `precision` is the plan's. Devices are counted in steps of eight times as many: 1 to 8, 9 to 64, and so
    on, as of a node, a few racks, a hall.
    """
    engine = product_engine(precision)
    return {
        GENERATION: cluster.node.device.generation or cluster.node.device.name,
        PRECISION: "16 bits" if engine in WIDE else engine,
        FAMILY: model.family,
        SCALE: scale_of(cluster.num_devices),
    }


def scale_of(num_devices: int) -> str:
    """The step of scale that a number of devices falls in.

    >>> scale_of(1), scale_of(8), scale_of(9), scale_of(1024)
    ('1-8', '1-8', '9-64', '513-4096')
    """
    step = max(1, math.ceil(math.log(num_devices, 8) - 1e-9))
    return f"{8 ** (step - 1) + 1 if step > 1 else 1}-{8**step}"


def grown_log_sigma(level: Level, levels: Mapping[str, Level], context: Context) -> float:
    """The sigma of a level in a context: larger where no run behind it had that context.

    A constant that was seen in n contexts of a kind lies in another one as far from their mean as two
    values of variance s², and s² / n, do; s is the constant `carried[...]` of that distance.

    >>> level = Level(ratio=1.1, log_sigma_factor=0.03, seen={GENERATION: frozenset(["ampere"])})
    >>> levels = {carried(GENERATION): Level(ratio=1.0, log_sigma_factor=0.04)}
    >>> [round(grown_log_sigma(level, levels, {GENERATION: name}), 3) for name in ("ampere", "hopper")]
    [0.03, 0.064]
    """
    variance = 0.0
    for distance, contexts in level.seen.items():
        doubt = levels.get(carried(distance))
        if doubt is not None and contexts and distance in context and context[distance] not in contexts:
            variance += doubt.log_sigma_factor**2 * (1.0 + 1.0 / len(contexts))
    return math.hypot(level.log_sigma_factor, math.sqrt(variance))
