"""The constants of offload, fitted on measured runs: how much slower than its hardware software is.

Answers: which time do copies of states, updates on the host and interleaved updates take, as a ratio?
Elsewhere: what the constants stand for and their priors (cost/tier_constants.py), rates of one machine
(fit.py), the file (catalog/constants/offload.json).

The first two are means over machines: of the rate of the link over that of pinned copies, and of the
bandwidth of the memory over that of updates (machines.py). Those of interleaved updates follow from their
times, relative to those of updates of the same machine that run on the host alone, by least squares.
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
)
from flopcast.cost.tier_copies import DEVICE_UPDATE_SHARE, interleaved_ratio
from flopcast.dtypes import Counts
from flopcast.lab.offload_runs.fit import Scaled, measured_ratio
from flopcast.lab.offload_runs.machines import MACHINES, Machine
from flopcast.lab.offload_runs.measured import OffloadRun
from flopcast.library import catalog
from flopcast.spec.offload import stride_of

SeenRun = tuple[OffloadRun, tuple[Scaled, ...]]
FEWEST_MACHINES = 2  # that show how far machines differ
FEWEST_RUNS = 8  # interleaved ones
UPDATE = "host_update["  # factors of updates begin so


def fitted_constants(runs: Iterable[SeenRun]) -> Fitted:
    """Return the constants that runs and their machines show; they were predicted without any of these."""
    known = list(runs)
    found = _of_machines([run for run, _ in known])
    return Fitted(constants=(*found, *_interleaved(known)), noise_log_sigmas={})


def _of_machines(runs: Sequence[OffloadRun]) -> list[Constant]:
    """Return the constants that are means over machines; those with drives have the rates of others."""
    rows: dict[str, list[OffloadRun]] = defaultdict(list)
    for run in runs:
        machine = MACHINES[run.groups["machine"]]
        if not machine.drive_bytes_per_s:
            rows[machine.name].append(run)
    if not rows:
        return []
    machines = [MACHINES[name] for name in rows]
    ratios = {
        STATE_COPIES: [_link_bytes_per_s(one) / one.pinned_bytes_per_s for one in machines],
        HOST_UPDATES: [one.memory_bytes_per_s / one.optimizer_bytes_per_s for one in machines],
    }
    seen = {GENERATION: tuple(sorted({catalog.device(one.device).generation for one in machines}))}
    supporting = [run for own in rows.values() for run in own]
    return [_constant(name, np.array(each), supporting, seen) for name, each in ratios.items()]


def _link_bytes_per_s(machine: Machine) -> float:
    """Return the rate of the link of a machine's device to the host, by its data sheet."""
    return catalog.device(machine.device).host_bytes_per_s


def _constant(
    name: str, ratios: Counts, runs: Sequence[OffloadRun], seen: Mapping[str, tuple[str, ...]]
) -> Constant:
    """Return the geometric mean of ratios; its sigma is what another machine differs by."""
    logs, prior = np.log(ratios), LOG_SIGMAS[name]
    sigma = prior
    if len(logs) >= FEWEST_MACHINES:
        sigma = min(prior, float(logs.std(ddof=1)) * math.sqrt(1 + 1 / len(logs)))
    return _rounded(name, float(np.exp(logs.mean())), sigma, runs, seen)


def _rounded(
    name: str,
    ratio: float,
    log_sigma_factor: float,
    runs: Sequence[OffloadRun],
    seen: Mapping[str, tuple[str, ...]],
) -> Constant:
    return Constant(
        name=name,
        ratio=float(f"{ratio:.4g}"),
        log_sigma_factor=float(f"{log_sigma_factor:.2g}"),
        prior_log_sigma_factor=LOG_SIGMAS[name],
        rows=len(runs),
        sources=tuple(sorted({run.source for run in runs})),
        seen=seen,
    )


def _interleaved(runs: Sequence[SeenRun]) -> list[Constant]:
    """Return the two constants of updates that host and device share."""
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
    return [_rounded(name, float(value), sigma, own, {}) for name, value in zip(names, values, strict=True)]
