"""Decisions judged against measurements, as JSON.

Answers: what does `flopcast validate --decisions --json` print?
Elsewhere: the statistics (lab/validation/decision_statistics.py).
"""

from flopcast.cost.between_plans import TIED_RATIO
from flopcast.lab.validation.decision_statistics import Judged, by_source, gained, of_sweeps
from flopcast.lab.validation.decisions import Sweep
from flopcast.units import nine_digits

FORMAT_VERSION = 1


def decisions_as_json(judged: Judged) -> dict[str, object]:
    """Return the results as JSON data; keys may be added, never renamed.

    `ways` holds, for each way of judging, `sources` (statistics of `of_sweeps` by what is free and source)
    and every sweep. `free` is what plans may differ in beside themselves; `fixed` what they share.
    """
    return {
        "format_version": FORMAT_VERSION,
        "tied_ratio": TIED_RATIO,
        "ways": {
            way: {
                "sources": [
                    {"source": source, "free": free, **of_sweeps(members)}
                    for (free, source), members in by_source(sweeps).items()
                ],
                "sweeps": [_sweep(sweep) for sweep in sweeps],
            }
            for way, sweeps in judged.items()
        },
    }


def _sweep(sweep: Sweep) -> dict[str, object]:
    taken = sweep.recommended[0]
    rank, trivial_rank = sweep.spearman, sweep.trivial_spearman
    return {
        "source": sweep.source,
        "free": sweep.free,
        "fixed": dict(sweep.fixed),
        "plans": len(sweep.choices),
        "spearman": None if rank is None else nine_digits(rank),
        "regret": nine_digits(sweep.regret_ratio),
        "recommended": [choice.name for choice in sweep.recommended],
        "fastest": sweep.fastest.name,
        "fastest_equal": sweep.fastest_is_called_equal,
        "trivial_spearman": None if trivial_rank is None else nine_digits(trivial_rank),
        "trivial_regret": nine_digits(sweep.trivial_regret_ratio),
        "gained": {name: nine_digits(share) for name, share in gained(taken, sweep.fastest).items()},
        "choices": [
            {
                "id": choice.name,
                "plan": choice.plan,
                "measured_device_s_per_token": nine_digits(choice.measured_s),
                "predicted_device_s_per_token": nine_digits(choice.predicted_s),
                "fits": choice.fits,
            }
            for choice in sorted(sweep.choices, key=lambda choice: choice.measured_s)
        ],
    }
