"""Statistics of decisions: the sweeps of a source together, as JSON, and the reasons for wrong
recommendations.

Answers: how well does flopcast choose among the plans of a source, compared with the trivial model?
Elsewhere: one sweep (decisions.py), the printed tables (render/decisions.py). Sources are never pooled, and
neither are decisions of different kinds.
"""

import statistics
from collections.abc import Iterable, Mapping, Sequence

from flopcast.cost.between_plans import TIED_RATIO
from flopcast.lab.validation.decisions import Choice, Sweep
from flopcast.lab.validation.published import Constants
from flopcast.lab.validation.statistics import grouped
from flopcast.units import nine_digits

Judged = Mapping[Constants, Sequence[Sweep]]
LARGEST = 3  # components that are listed for a wrong recommendation


def of_sweeps(sweeps: Sequence[Sweep]) -> dict[str, float | None]:
    """Return statistics of the sweeps of one source that vary the same settings.

    Returns
    -------
    dict
        `sweeps`, `plans`: their numbers. `mean_spearman`: the mean over the sweeps in which the measured
        times of some plans differ by more than repeats do, and null if there are none; a sweep of two
        plans has 1 or -1. `mean_regret`, `worst_regret`: the measured time of the recommended plan
        divided by that of the fastest, minus 1. Names that begin with `trivial_`: the same numbers for
        the trivial model. `fastest_equal`: the number of sweeps in which the prediction calls the fastest
        plan as fast as the recommended one. `pairs`: the number of pairs of plans; `apart`: pairs whose
        measured times differ by more than repeats do, of which `right` are predicted in this order;
        `tied`: the other pairs, of which `tied_equal` are called equal; `settled`: pairs whose interval
        states which plan is faster, of which `settled_wrong` were measured in the opposite order;
        `covered`: the share of all pairs whose measured ratio lies in the 90 % interval of the predicted
        ratio, extended by the scatter of repeats.
    """
    pairs = [sweep.pairs for sweep in sweeps]
    apart, number = sum(p.apart for p in pairs), sum(p.number for p in pairs)
    right = sum(p.right_share * p.apart for p in pairs)
    regrets = [sweep.regret_ratio for sweep in sweeps]
    trivial = [sweep.trivial_regret_ratio for sweep in sweeps]
    return {
        "sweeps": len(sweeps),
        "plans": sum(len(sweep.choices) for sweep in sweeps),
        "mean_spearman": _mean(sweep.spearman for sweep in sweeps),
        "mean_regret": nine_digits(statistics.mean(regrets)),
        "worst_regret": nine_digits(max(regrets)),
        "fastest_equal": sum(sweep.fastest_is_called_equal for sweep in sweeps),
        "trivial_mean_spearman": _mean(sweep.trivial_spearman for sweep in sweeps),
        "trivial_mean_regret": nine_digits(statistics.mean(trivial)),
        "trivial_worst_regret": nine_digits(max(trivial)),
        "pairs": number,
        "apart": apart,
        "right": nine_digits(right / apart) if apart else None,
        "tied": sum(p.tied for p in pairs),
        "tied_equal": sum(p.tied_equal for p in pairs),
        "settled": sum(p.settled for p in pairs),
        "settled_wrong": sum(p.settled_wrong for p in pairs),
        "covered": nine_digits(sum(p.covered for p in pairs) / number),
    }


def by_source(sweeps: Iterable[Sweep]) -> dict[tuple[str, str], list[Sweep]]:
    """Return sweeps by source and varied settings; sweeps that vary only plans come first."""
    return grouped(sweeps, lambda sweep: (sweep.free, sweep.source))


def wrong(sweeps: Iterable[Sweep]) -> list[Sweep]:
    """Return sweeps whose recommended plan is slower than the fastest by more than noise, worst first."""
    slower = [sweep for sweep in sweeps if sweep.regret_ratio > TIED_RATIO - 1.0]
    return sorted(slower, key=lambda sweep: -sweep.regret_ratio)


def gained(taken: Choice, fastest: Choice) -> dict[str, float]:
    """Return the components through which the chosen plan was predicted to be faster than the plan that
    was fastest.

    Maps a component to a share of the fastest plan's predicted time, negative if the chosen plan needs
    less of it, the largest shares first. All shares add up to the predicted difference.
    """
    names = taken.breakdown.keys() | fastest.breakdown.keys()
    gains = {
        name: (taken.breakdown.get(name, 0.0) - fastest.breakdown.get(name, 0.0)) / fastest.predicted_s
        for name in names
    }
    return {name: gains[name] for name in sorted(names, key=lambda name: (-abs(gains[name]), name))}


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return nine_digits(statistics.mean(known)) if known else None
