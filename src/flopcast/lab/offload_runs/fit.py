"""Fits to measured runs with states outside the devices: rates of one machine, and constants of all
machines.

Answers: how much do the speeds of the host's updates, its pageable memory and its drives differ from their
description? How long do copies of states, updates on the host and interleaved updates take, relative to the
hardware's rates?
Elsewhere: the description (machines.py), scores with the fits (score.py), factors (cost/factors.py), the
meaning of the constants and their priors (cost/tier_constants.py), the file of constants
(catalog/constants/offload.json).

A part of a step consists of the seconds that the rate scales, and a rest. The ratio of a rate is the
geometric mean over runs of (measured - rest) / scaled. Each factor has the same name as in a report, so
that a site can hold it.

The first two constants are means over machines: the rate of the link divided by that of pinned copies,
and the bandwidth of the memory divided by that of updates (machines.py). The constants of interleaved
updates are fitted by least squares to the times of these updates, relative to updates on the host alone
on the same machine.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from flopcast.cost.constant_transfer import GENERATION
from flopcast.cost.constants import Constant, Fitted
from flopcast.cost.tier_constants import (
    HOST_UPDATES,
    INTERLEAVED_ON_DEVICE,
    INTERLEAVED_ON_HOST,
    LOG_SIGMAS,
    STATE_COPIES,
    fitted_ratio,
)
from flopcast.cost.tier_copies import DEVICE_UPDATE_SHARE, interleaved_ratio
from flopcast.dtypes import Counts
from flopcast.lab.calibration.observations import Levels
from flopcast.lab.offload_runs.machines import machines
from flopcast.lab.offload_runs.rows import MILLISECONDS, OffloadRun, Part
from flopcast.library import catalog
from flopcast.operators.item import Item
from flopcast.operators.tier_copies import HostUpdate, TierCopy
from flopcast.records import Record, replace
from flopcast.report.report import Report
from flopcast.spec.offload import stride_of
from flopcast.spec.site import Site, SiteFactor
from flopcast.units import Number

SHARED = tuple(LOG_SIGMAS)  # constants of all machines
LEAST_RATIO = 0.1
LEAST_SHARE = 0.2  # of a part that a rate scales: runs with less say little of it
FEWEST_MACHINES = 2  # that show how far machines differ
FEWEST_RUNS = 8  # interleaved ones
UPDATE = "host_update["  # factors of updates begin so


class Scaled(Record):
    """The seconds of one part of a step that a factor scales, and the predicted seconds of that part."""

    factor: str
    part: Part
    scaled_s: Number
    whole_s: Number


SeenRun = tuple[OffloadRun, tuple[Scaled, ...]]


def scaled_parts(report: Report, seconds: dict[Part, float]) -> tuple[Scaled, ...]:
    """Return the parts of the update and of the backward pass that rates outside the devices scale.

    Parameters
    ----------
    report : Report
    seconds : dict
        Predicted seconds of each part of the step.

    Returns
    -------
    tuple of Scaled
        Factors that scale less than `LEAST_SHARE` of a part are left out, because the measured part does
        not determine them.
    """
    found: dict[tuple[Part, str], float] = defaultdict(float)
    for share in report.timeline.bottleneck_attribution:
        if share.item is None or not _is_outside(share.item):
            continue
        part: Part = "update" if share.item.phase == "step" else "backward"
        for name in share.factors(report.priced):
            found[part, name] += share.path_s
    return tuple(
        Scaled(factor=name, part=part, scaled_s=scaled_s, whole_s=seconds[part])
        for (part, name), scaled_s in found.items()
        if scaled_s > LEAST_SHARE * seconds[part]
    )


def _is_outside(item: Item) -> bool:
    """Return whether a fitted rate scales an item: an update, or a copy to memory that is not pinned."""
    work = item.work
    return isinstance(work, HostUpdate) or (isinstance(work, TierCopy) and not work.pinned)


def measured_ratio(run: OffloadRun, one: Scaled) -> float | None:
    """Return the ratio of a factor that a run measures; None if the run does not time this part."""
    measured_s = {each.part: each.value / MILLISECONDS for each in run.measured}
    if one.part not in measured_s:
        return None
    rest_s = one.whole_s - one.scaled_s
    return max(float((measured_s[one.part] - rest_s) / one.scaled_s), LEAST_RATIO)


def _interleaved(run: OffloadRun, one: Scaled, levels: Levels) -> Scaled:
    """Return the seconds of an update, including the constants of interleaved updates."""
    stride = stride_of(run.job.plan.offload) if run.job is not None else 0
    constants = (fitted_ratio(levels, name) for name in (INTERLEAVED_ON_HOST, INTERLEAVED_ON_DEVICE))
    ratio = interleaved_ratio(stride, *constants) / interleaved_ratio(stride)
    more_s = one.scaled_s * (ratio - 1)
    return replace(one, scaled_s=one.scaled_s + more_s, whole_s=one.whole_s + more_s)


def fitted_site(runs: Iterable[SeenRun], levels: Levels) -> Site:
    """Return the site of a machine, fitted to some of its runs: the ratio of each factor that they measure.

    The runs were predicted without constants of interleaved updates; `levels` holds the constants for the
    predictions with the site.
    """
    ratios: dict[str, list[float]] = defaultdict(list)
    for run, parts in runs:
        for one in parts:
            ratio = measured_ratio(run, one if one.part != "update" else _interleaved(run, one, levels))
            if ratio is not None and one.factor not in SHARED:
                ratios[one.factor].append(ratio)
    found = {name: float(np.exp(np.mean(np.log(values)))) for name, values in ratios.items()}
    return Site(factors=tuple(SiteFactor(name=name, ratio=ratio) for name, ratio in found.items()))


def fitted_constants(runs: Iterable[SeenRun]) -> Fitted:
    """Return the constants that follow from machines and from runs predicted without them."""
    known = list(runs)
    found = _of_machines([run for run, _ in known])
    return Fitted(constants=(*found, *_interleaved_constants(known)), noise_log_sigmas={})


def _of_machines(runs: Sequence[OffloadRun]) -> list[Constant]:
    """Return the constants that are means over machines; machines with drives share others' rates."""
    described, rows = machines(), defaultdict[str, list[OffloadRun]](list)
    for run in runs:
        if not described[run.groups["machine"]].read_bytes_per_s:
            rows[run.groups["machine"]].append(run)
    if not rows:
        return []
    own = [described[name] for name in rows]
    ratios = {
        STATE_COPIES: [catalog.device(one.device).host_bytes_per_s / one.pinned_bytes_per_s for one in own],
        HOST_UPDATES: [one.memory_bytes_per_s / one.optimizer_bytes_per_s for one in own],
    }
    seen = {GENERATION: tuple(sorted({catalog.device(one.device).generation for one in own}))}
    supporting = [run for each in rows.values() for run in each]
    return [_constant(name, np.array(each), supporting, seen) for name, each in ratios.items()]


def _constant(
    name: str, ratios: Counts, runs: Sequence[OffloadRun], seen: Mapping[str, tuple[str, ...]]
) -> Constant:
    """Return the geometric mean of ratios. Its sigma is the scatter between machines."""
    logs, prior = np.log(ratios), LOG_SIGMAS[name]
    sigma = prior
    if len(logs) >= FEWEST_MACHINES:
        sigma = min(prior, float(logs.std(ddof=1)) * math.sqrt(1 + 1 / len(logs)))
    return rounded_constant(name, float(np.exp(logs.mean())), sigma, len(runs), _sources(runs), seen)


def _sources(runs: Sequence[OffloadRun]) -> tuple[str, ...]:
    """Return the sources of runs without repetition."""
    return tuple(sorted({run.source for run in runs}))


def rounded_constant(
    name: str,
    ratio: float,
    log_sigma_factor: float,
    rows: int,
    sources: tuple[str, ...],
    seen: Mapping[str, tuple[str, ...]],
) -> Constant:
    """Return a fitted constant of offload, rounded as in the catalogue.

    Parameters
    ----------
    name : one of `LOG_SIGMAS`
    ratio, log_sigma_factor : its value, and the standard deviation of the value's logarithm
    rows, sources, seen : as in `Constant`
    """
    return Constant(
        name=name,
        ratio=float(f"{ratio:.4g}"),
        log_sigma_factor=float(f"{log_sigma_factor:.2g}"),
        prior_log_sigma_factor=LOG_SIGMAS[name],
        rows=rows,
        sources=sources,
        seen=seen,
    )


def _interleaved_constants(runs: Sequence[SeenRun]) -> list[Constant]:
    """Return the two constants of updates that the host and the device share."""
    names = INTERLEAVED_ON_HOST, INTERLEAVED_ON_DEVICE
    whole: dict[str, list[float]] = defaultdict(list)
    shared: list[tuple[OffloadRun, int, float]] = []
    for run, parts in runs:
        stride = stride_of(run.job.plan.offload) if run.job is not None else 0
        for ratio in [measured_ratio(run, part) for part in parts if part.factor.startswith(UPDATE)]:
            if ratio is not None and stride:
                shared.append((run, stride, ratio * interleaved_ratio(stride)))
            elif ratio is not None:
                whole[run.groups["machine"]].append(math.log(ratio))
    shared = [each for each in shared if each[0].groups["machine"] in whole]
    if len(shared) < FEWEST_RUNS:
        return []
    usual = [math.exp(np.mean(whole[run.groups["machine"]])) for run, _, _ in shared]
    measured = np.array([ratio for *_, ratio in shared]) / np.array(usual)
    device = np.array([1 / stride for _, stride, _ in shared])
    shares = np.stack([1 - device, DEVICE_UPDATE_SHARE * device], axis=1)
    values = np.linalg.lstsq(shares / measured[:, None], np.ones(len(measured)), rcond=None)[0]
    sigma = float(np.log(shares @ values / measured).std())
    own = [run for run, _, _ in shared]
    return [
        rounded_constant(name, float(value), sigma, len(own), _sources(own), {})
        for name, value in zip(names, values, strict=True)
    ]
