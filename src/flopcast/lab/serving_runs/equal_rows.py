"""Rows with equal facts that match two published deployments: the faster row belongs to the deployment
that decodes faster.

Answers: which of two InferenceX deployments was measured if the rows do not state it?
Elsewhere: the deployments of a row (inferencex.py), the job of a row (aiconfigurator.py).

Two deployments differ in this way if only one drafts tokens, or if one has more devices for decoding.
Rows with equal facts then have two different times per output token, and the shorter time belongs to the
deployment that drafts or has more devices. This choice of an input uses measured times, so no constants
are fitted to such rows. If there are more deployments, or only one time, the first deployment is used.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from flopcast.lab.run_tables import Row
from flopcast.lab.serving_runs.inferencex import Swept

PLACE = "deployment"  # the column that is added: the place of a row's deployment among those that fit
SAME_RATIO = 1.05  # times that are closer are of one deployment
FACTS = ("system", "backend", "model_path", "precision", "isl", "osl")
DEGREES = ("prefill_tp_size", "prefill_moe_ep_size", "decode_tp_size", "tp_size")


def with_places(rows: Sequence[Row], fitting: Mapping[int, Sequence[Swept]], time: str) -> list[Row]:
    """Return the rows, each with the index of its deployment among the matching ones.

    Parameters
    ----------
    rows : sequence of rows
    fitting : mapping
        Maps the places of rows that do not state their deployment to the matching deployments.
    time : str
        The column of the time per output token.
    """
    groups: dict[tuple[object, ...], list[int]] = {}
    for place, found in fitting.items():
        if len(found) == 2 and rows[place].get(time):
            facts = tuple(rows[place].get(name, "") for name in (*FACTS, *DEGREES))
            groups.setdefault((facts, tuple(each.concurrencies for each in found)), []).append(place)
    chosen = dict.fromkeys(range(len(rows)), 0)
    for places in groups.values():
        faster = _faster(*fitting[places[0]])
        times = {place: float(rows[place][time]) for place in places}
        limit = _gap(times.values())
        if faster is not None and limit is not None:
            chosen |= {place: faster if value < limit else 1 - faster for place, value in times.items()}
    return [{**row, PLACE: str(chosen[place])} for place, row in enumerate(rows)]


def _faster(first: Swept, second: Swept) -> int | None:
    """Return the index of the deployment that decodes faster; None if this is not certain."""
    drafts = second.drafted - first.drafted
    devices = _decoding(second) - _decoding(first)
    if bool(drafts) == bool(devices):
        return None
    return int(drafts + devices > 0)


def _decoding(each: Swept) -> int:
    return each.decode.instances * each.decode.devices


def _gap(times: Iterable[float]) -> float | None:
    """Return a time between two clusters of times; None if there are not exactly two clusters."""
    ordered = sorted(times)
    steps = [(before * after) ** 0.5 for before, after in pairwise(ordered) if after > SAME_RATIO * before]
    return steps[0] if len(steps) == 1 else None
