"""The efficiencies of the catalogue, fitted on tables of measured graphs.

Answers: which efficiencies does each kind of software have, and how sure are they?
Elsewhere: the fit (fit.py), errors with families or devices left out (score.py), the file
(library/graph_efficiencies.py).
"""

from collections.abc import Sequence

import numpy as np

from flopcast.cost.graph_kernels.efficiencies import Efficiencies
from flopcast.dtypes import Floats
from flopcast.lab.graph_runs.fit import fit, prepared
from flopcast.lab.graph_runs.measured import GraphRun
from flopcast.lab.graph_runs.score import PRIOR_KINDS, devices_of, left_out_seconds, observed, without_calls
from flopcast.library.graph_efficiencies import shipped_efficiencies
from flopcast.units import Number

NINETY_PERCENT = 1.6449  # of a normal distribution, in sigmas
KINDS = ("eager", "compiled", "training", "cpu", "operators", "diffusion")


def fitted_efficiencies(runs: Sequence[GraphRun]) -> dict[str, Efficiencies]:
    """Return the efficiencies of each kind of software, with the sigmas of what was left out."""
    found: dict[str, Efficiencies] = {}
    for kind in KINDS:
        own = [
            run for run in runs if not run.reason and _is_described(run) and run.setup.efficiencies == kind
        ]
        if own:
            drawn_to = found.get(PRIOR_KINDS.get(kind, ""))
            found[kind] = _of_kind(own, drawn_to)
    return found


def _is_described(run: GraphRun) -> bool:
    """Return whether the kernels of a run are known, not only their sums."""
    return bool(run.facts) or run.rows is not None


def _of_kind(runs: Sequence[GraphRun], drawn_to: Efficiencies | None) -> Efficiencies:
    shipped = shipped_efficiencies().get(runs[0].setup.efficiencies)
    known = prepared(observed(runs, shipped))
    prior = None if drawn_to is None else drawn_to.numbers
    best = fit(known, prior=prior)
    alone = prepared(observed(runs, without_calls(shipped))) if shipped and shipped.call_s else known
    sigmas = [
        _log_sigma(left_out_seconds(known, runs, "family", prior), known.observed.measured_s),
        _log_sigma(left_out_seconds(alone, runs, "device", prior), alone.observed.measured_s),
    ]
    levels = {name: (pair[0], pair[1]) for name, pair in zip(devices_of(runs), best.levels, strict=True)}
    return Efficiencies(
        numbers=best.numbers,
        levels=levels,
        log_sigma_factor=sigmas[0],
        other_device_log_sigma_factor=max(sigmas),
        sources=tuple(dict.fromkeys(run.groups["table"] for run in runs)),
        rows=len(runs),
        host_s=shipped.host_s if shipped else 0.0,
        hop_s=shipped.hop_s if shipped else 0.0,
        call_s=shipped.call_s if shipped else 0.0,
    )


def _log_sigma(predicted_s: Floats, measured_s: Floats) -> Number:
    """Return the sigma whose 90 % interval holds nine of ten measurements."""
    errors = np.abs(np.log(predicted_s / measured_s))
    return round(float(np.quantile(errors, 0.9)) / NINETY_PERCENT, 3)
