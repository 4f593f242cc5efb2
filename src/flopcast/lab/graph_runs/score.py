"""Predictions of measured graphs, and their errors.

Answers: how large are the errors, by device, table and family, and with which efficiencies?
Elsewhere: the tables (lab/measured_tables.py), the seconds of kernels (cost/graph_kernels/), the fit
(fit.py), statistics (lab/scores.py).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from flopcast.cost.graph_kernels.efficiencies import Efficiencies
from flopcast.cost.graph_kernels.efficiency import Rates
from flopcast.cost.graph_kernels.kernel_rows import KernelRows, joined
from flopcast.cost.graph_kernels.rates import rates_of
from flopcast.cost.graph_kernels.software import usual_levels
from flopcast.dtypes import Flags, Floats, Integers, Logs
from flopcast.files.package_table import read_table
from flopcast.lab.graph_runs.facts import timm_facts
from flopcast.lab.graph_runs.fit import Fitted, Observed, Prepared, fit, prepared
from flopcast.lab.graph_runs.kernels import Software, counted_kernels, graph_kernels
from flopcast.lab.graph_runs.machines import is_processor, machine
from flopcast.lab.graph_runs.measured import ComparedGraph, GraphRun, GraphScores, Setup
from flopcast.library.graph_efficiencies import shipped_efficiencies
from flopcast.records import replace
from flopcast.serving.serving_report import Estimate
from flopcast.units import Number

Constants = Literal["catalogue", "family", "device", "none"]
FOLDS = 5  # that families are divided into
UNFITTED_SIGMA = 0.3
COUNTED_SIGMA = 0.35  # of a model of which only multiply-adds and activations are known
JUDGED: Mapping[Constants, str] = read_table("flopcast.lab", "judged.yaml")["graphs"]
PRIOR_KINDS: Mapping[str, str] = {"training": "eager"}
"""Kinds of software whose fitted efficiencies have those of another kind as priors."""


def score_runs(runs: Sequence[GraphRun], constants: Constants = "catalogue") -> GraphScores:
    """Predict every run of a model with known operators or known totals."""
    own = [run for run in runs if not run.reason]
    rows: list[ComparedGraph] = []
    for kind in dict.fromkeys(run.setup.efficiencies for run in own):
        rows += _of_kind([run for run in own if run.setup.efficiencies == kind], kind, constants)
    left_out = tuple(run for run in runs if run.reason)
    return GraphScores(rows=tuple(rows), left_out=left_out, constants=JUDGED[constants])


def _of_kind(runs: Sequence[GraphRun], kind: str, constants: Constants) -> list[ComparedGraph]:
    """Return the compared numbers of runs with one kind of software."""
    shipped = None if constants == "none" else shipped_efficiencies().get(kind)
    known = prepared(observed(runs, without_calls(shipped) if constants == "device" else shipped))
    if shipped is None:
        found, sigma = known.seconds(Fitted.prior(len(devices_of(runs)))), UNFITTED_SIGMA
    elif constants == "catalogue":
        found, sigma = known.seconds(_with_levels(shipped, runs)), shipped.log_sigma_factor
    else:
        found = left_out_seconds(known, runs, constants, prior_of(kind))
        is_family = constants == "family"
        sigma = shipped.log_sigma_factor if is_family else shipped.other_device_log_sigma_factor
    pairs = zip(runs, found.tolist(), strict=True)
    return [row for run, seconds in pairs for row in _compared(run, seconds, sigma)]


def without_calls(shipped: Efficiencies | None) -> Efficiencies | None:
    """Return the efficiencies without the time of calls, chosen in view of the tables' only processor."""
    return None if shipped is None else replace(shipped, call_s=0.0)


def _compared(run: GraphRun, seconds: Number, sigma: Number) -> list[ComparedGraph]:
    is_counted = bool(run.facts) or run.rows is not None
    sigma = sigma if is_counted else max(sigma, COUNTED_SIGMA)
    estimates = []
    for each in run.measured:
        value = each.of_seconds(seconds)
        estimates.append(ComparedGraph(run=run, measured=each, predicted=Estimate.log_normal(value, sigma)))
    return estimates


def devices_of(runs: Sequence[GraphRun]) -> tuple[str, ...]:
    """Return the devices of runs, in the order of their indices in a fit."""
    return tuple(dict.fromkeys(run.setup.device for run in runs))


def observed(runs: Sequence[GraphRun], by_hand: Efficiencies | None = None) -> Observed:
    """Return the kernels of runs, the rates of their devices, and the measurements.

    `by_hand` contains the times of kernels, calls and hops that were chosen by hand; they are 0 without it.
    """
    host_s, hop_s, call_s = (by_hand.host_s, by_hand.hop_s, by_hand.call_s) if by_hand else (0.0, 0.0, 0.0)
    devices = devices_of(runs)
    place = np.array([devices.index(run.setup.device) for run in runs], dtype=np.intp)
    return Observed(
        rows=kernels_of(runs),
        rates=_rates([run.setup for run in runs], call_s),
        device=place,
        measured_s=np.array([run.measured[0].seconds for run in runs]),
        fixed_s=np.array([run.fixed_s + hop_s * run.hops for run in runs]),
        host_s=np.full(len(runs), host_s),
    )


def kernels_of(runs: Sequence[GraphRun]) -> KernelRows:
    """Return the kernels of runs; the kernels of a run without facts are derived from its published totals.

    Runs with equal software are computed together, as arrays. A run whose kernels were described by hand
    (`GraphRun.rows`) keeps them.
    """
    parts = [
        replace(run.rows, graph=run.rows.graph + place)
        for place, run in enumerate(runs)
        if run.rows is not None
    ]
    groups: dict[tuple[Software, bool], list[int]] = {}
    for place, run in enumerate(runs):
        if run.rows is None:
            groups.setdefault((run.setup.software, bool(run.facts)), []).append(place)
    for (software, has_facts), places in groups.items():
        own = [runs[place] for place in places]
        batches = [run.batch for run in own]
        if has_facts:
            rows = graph_kernels(timm_facts(), [run.facts for run in own], batches, software)
        else:
            sums = [(run.multiply_adds, run.activations) for run in own]
            rows = counted_kernels(sums, batches, software)
        parts.append(replace(rows, graph=np.array(places, dtype=np.intp)[rows.graph]))
    return joined(parts)


def _rates(setups: Sequence[Setup], call_s: Number) -> Rates:
    """Return the rates of each setup's device. Equal setups are looked up once."""
    distinct = tuple(dict.fromkeys(setups))
    formats = ("fp32" if setup.software.precision == "fp32" else "fp16" for setup in distinct)
    known = rates_of([(machine(s.device), name) for s, name in zip(distinct, formats, strict=True)])
    place = np.array([distinct.index(setup) for setup in setups], dtype=np.intp)
    return Rates(
        flop_per_s=known.flop_per_s[place],
        vector_flop_per_s=known.vector_flop_per_s[place],
        bytes_per_s=known.bytes_per_s[place],
        launch_s=known.launch_s[place] + call_s,
    )


def _with_levels(shipped: Efficiencies, runs: Sequence[GraphRun]) -> Fitted:
    levels = [shipped.levels.get(name, (0.0, 0.0)) for name in devices_of(runs)]
    return Fitted(numbers=shipped.numbers, levels=np.array(levels))


def prior_of(kind: str) -> Logs | None:
    """Return the priors for a fit of this kind of software, or None for the usual priors."""
    drawn_to = shipped_efficiencies().get(PRIOR_KINDS.get(kind, ""))
    return None if drawn_to is None else drawn_to.numbers


def left_out_seconds(
    known: Prepared, runs: Sequence[GraphRun], constants: Constants, prior: Logs | None
) -> Floats:
    """Return the seconds of each run, predicted by a fit without its device or without its group of
    families.

    If there is only one device, its runs are predicted with the priors alone.
    """
    is_family = constants == "family"
    groups = folds_of(runs) if is_family else known.observed.device
    start = fit(known, prior=prior) if is_family else None
    found_s = np.zeros(len(runs))
    for name in np.unique(groups):
        own: Flags = groups == name
        found = Fitted.prior(len(devices_of(runs)), prior)
        if not own.all():
            found = fit(known, ~own, prior, start)
            if not is_family:
                found = _with_usual_levels(found, int(name), runs)
        found_s[own] = known.seconds(found)[own]
    return found_s


def _with_usual_levels(found: Fitted, place: int, runs: Sequence[GraphRun]) -> Fitted:
    """Return a fit in which the device at a place has the levels of a device without measurements."""
    levels = found.levels.copy()
    fitted = np.delete(levels, place, axis=0)
    levels[place] = usual_levels(fitted.tolist(), is_processor=is_processor(devices_of(runs)[place]))
    return replace(found, levels=levels)


def folds_of(runs: Sequence[GraphRun]) -> Integers:
    """Return the index, 0 to 4, of the group of each run's family; families are ordered by their runs."""
    counts = Counter(run.groups["family"] for run in runs)
    ordered = sorted(counts, key=lambda name: (-counts[name], name))
    return np.array([ordered.index(run.groups["family"]) % FOLDS for run in runs], dtype=np.intp)
