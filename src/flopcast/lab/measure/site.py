"""The factors of a site file: measured times divided by predicted ones.

Answers: by how much do this machine's products, attention and memory-bound kernels differ from the curves
that price them, and how evenly?
Elsewhere: the factors of a prediction (cost/price.py), the factor that scales a kernel (cost/kernels), the
data type of a site (spec/site.py).

A factor is the geometric mean of measured / predicted over shapes. Its sigma is the spread of the
logarithms, because a job has other shapes than the measured ones. If a class was also timed under load,
only the loaded times count, because training is sustained load. The prediction uses the same curve that a
job would use, either the device's own or a borrowed one.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import get_args

import numpy as np

from flopcast.cost.kernels.classes import Family, class_of
from flopcast.cost.kernels.curve_book import CurveBook
from flopcast.cost.kernels.roofline import bound_seconds
from flopcast.cost.kernels.sustained import busy_ratio
from flopcast.cost.kernels.unscaled import kernel_seconds
from flopcast.dtypes import Floats, Logs
from flopcast.files.package_table import read_table
from flopcast.lab.measure.measured_operators import columns_of, operator_of
from flopcast.lab.measure.sample_pack import Sample
from flopcast.lab.measure.sampling_plan import LOADED
from flopcast.operators.base import AbstractOperator
from flopcast.spec.cluster import Device
from flopcast.spec.site import Site, SiteFactor
from flopcast.spec.source import Source

LEAST_SHAPES = 3  # below, a spread says nothing: the catalogue's sigma is kept
LEAST_LAUNCHES = 10  # of the shortest kernel: marks and launches blur what is shorter
LEAST_LOG_SIGMA = 0.02  # an estimate: clocks of one device differ by that from day to day
FAMILIES = get_args(Family)
OWN_FLAGS = frozenset({"causal"})  # they change the operator; others say whose kernel ran instead

DEVICES: Mapping[str, str] = read_table(__package__, "devices.yaml")  # torch's name → the catalogue's


def site_of(
    samples: Iterable[Sample],
    device: Device,
    book: CurveBook,
    reference_launch_s: float | None = None,
    host_speed_ratio: float = 1.0,
    name: str = "measured",
) -> Site:
    """Return the site that these samples describe.

    Parameters
    ----------
    samples : samples of one device; classes without an operator and kernels of other libraries are skipped
    device, book : the catalogue's description of the device, and its curves
    reference_launch_s : the time of one launch, measured in the same way, on the host whose speed is 1
        Without it, there is no `host` factor: launches of a micro-benchmark and of a framework can only
        be compared as ratios between hosts.
    host_speed_ratio : the catalogue's value for this machine's host
        A price already divides by it, so the factor is the remaining part of the measured ratio.

    Returns
    -------
    Site
        Factors in the order of `FAMILIES`, then host; factors without measurements are left out.
    """
    listed = list(samples)
    factors = []
    for family, logs in sorted(
        _log_ratios(listed, device, book).items(), key=lambda f: FAMILIES.index(f[0])
    ):
        factors.append(_factor(f"{family}[{device.name}]", logs))
    launches = np.array([s.median_s for s in listed if s.shape.kernel == "host.launch"])
    if reference_launch_s is not None and launches.size:
        factors.append(_factor("host", np.log(host_speed_ratio * launches / reference_launch_s)))
    source = Source(title=f"flopcast measure on {listed[0].device}") if listed else None
    return Site(name=name, factors=tuple(factors), source=(source,) if source else ())


def predicted_s(operator: AbstractOperator, device: Device, book: CurveBook, busy: bool = True) -> Floats:
    """Return the seconds of an operator with every factor at 1, on a busy or on a cool device; (rows,).

    On a busy device, these are the seconds with which jobs are predicted: the same functions compute both
    (cost/price.py).
    """
    kind, owner = class_of(operator.kernel), device.curves or device.name
    engine_ratio = device.engine_ratio(operator.work().unit)
    curve = book.find(owner, kind.curve, device.kernel_launch_s, device.relatives, engine_ratio).curve
    bound_s = bound_seconds(operator.work(), device)
    coordinates = tuple(np.broadcast_to(c, bound_s.shape).ravel() for c in operator.coordinates())
    ratio = curve.ratio_of(kind.layout, operator.work().unit)
    alone_s = kernel_seconds(bound_s.ravel(), coordinates, curve, device, ratio, kind.curve)
    kernels = np.broadcast_to(operator.kernels(), bound_s.shape).ravel()
    return alone_s * busy_ratio(kind, alone_s / kernels, device) if busy else alone_s


def launch_s(samples: Iterable[Sample]) -> float | None:
    """Return median host seconds of one launch in a pack; None if it was not measured.

    It is an eager launch of the smallest kernel from Python. An operator of a framework costs the host
    several times as much, but the two grow in proportion from host to host.
    """
    times = [sample.median_s for sample in samples if sample.shape.kernel == "host.launch"]
    return float(np.median(times)) if times else None


def _log_ratios(samples: list[Sample], device: Device, book: CurveBook) -> dict[str, Logs]:
    """Return log(measured / predicted) of every usable shape, by family.

    Shapes that take only a few launches measure launches and not levels. A dtype without a peak has no
    bound.
    """
    by_class: dict[tuple[str, str, str, tuple[str, ...]], list[Sample]] = defaultdict(list)
    loaded = {sample.shape.kernel for sample in samples if sample.condition == LOADED}
    for sample in [s for s in samples if s.condition == LOADED or s.shape.kernel not in loaded]:
        shape = sample.shape
        if OWN_FLAGS.issuperset(shape.flags) and shape.dtype in (*device.peak_flop_per_s, "fp32"):
            by_class[shape.kernel, shape.layout, shape.dtype, shape.flags].append(sample)
    by_family: dict[str, list[Logs]] = defaultdict(list)
    for group in by_class.values():
        shapes = [sample.shape for sample in group]
        operator = operator_of(shapes[0], columns_of(shapes))
        if operator is not None:
            predicted = predicted_s(operator, device, book, busy=group[0].condition == LOADED)
            measured = np.array([sample.median_s for sample in group])
            usable = predicted > LEAST_LAUNCHES * device.kernel_launch_s
            by_family[class_of(operator.kernel).kind.family].append(np.log(measured / predicted)[usable])
    joined = {family: np.concatenate(parts) for family, parts in by_family.items()}
    return {family: logs for family, logs in joined.items() if logs.size}


def _factor(name: str, logs: Logs) -> SiteFactor:
    """Return the geometric mean and the spread of single shapes, rounded far below the error of either.

    Parameters
    ----------
    logs : (shapes,), log(measured / predicted)
        Each shape gives one value, whatever its duration, because a level is a ratio.
    """
    spread = max(LEAST_LOG_SIGMA, float(np.std(logs, ddof=1))) if logs.size >= LEAST_SHAPES else None
    sigma = None if spread is None else round(spread, 4)
    return SiteFactor(name=name, ratio=round(float(np.exp(logs.mean())), 4), log_sigma_factor=sigma)
