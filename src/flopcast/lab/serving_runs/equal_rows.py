"""Rows with equal facts that two published deployments fit: the faster one decodes faster.

Answers: which of two deployments of InferenceX was measured, where rows do not say it?
Elsewhere: the deployments of a row (inferencex.py), the job of a row (aiconfigurator.py).

Two deployments differ in this way if only one drafts tokens, or if one has more devices that decode. Rows
whose facts are equal then have two times per output token, and the shorter one is that of the deployment
with the draft or with more devices. This choice of an input uses measured times, so that such rows teach no
constants. Where there are more deployments, or one time alone, rows have the first deployment.
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
    """Return the rows, each with the place of its deployment among those that fit it.

    Parameters
    ----------
    rows : sequence of rows
    fitting : mapping
        From places of rows that do not state their deployment to the deployments that fit them.
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
    """Return the place of the deployment that decodes faster; None if that is not certain."""
    drafts = second.drafted - first.drafted
    devices = _decoding(second) - _decoding(first)
    if bool(drafts) == bool(devices):
        return None
    return int(drafts + devices > 0)


def _decoding(each: Swept) -> int:
    return each.decode.instances * each.decode.devices


def _gap(times: Iterable[float]) -> float | None:
    """Return a time between two kinds of equal times; None if there are not exactly two kinds."""
    ordered = sorted(times)
    steps = [(before * after) ** 0.5 for before, after in pairwise(ordered) if after > SAME_RATIO * before]
    return steps[0] if len(steps) == 1 else None
