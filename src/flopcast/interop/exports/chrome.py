"""A timeline as a trace in Chrome's format: JSON that chrome://tracing, Perfetto and many tools open.

Answers: what does such a trace file contain? It has the content of the Perfetto trace (perfetto.py): a
process per pipeline stage, a thread per stream, a slice per task and operator, a counter of allocated
memory.

References
----------
"Trace Event Format", Google, 2016: complete events "X", counters "C", names "M"; times in microseconds.
"""

import json
from collections.abc import Iterable, Iterator

from flopcast.interop.exports.perfetto import STREAMS, Track
from flopcast.report.events import Event

MICRO = 1e6


def chrome(events: Iterable[Event], counters: dict[int, list[Track]], names: dict[int, str]) -> str:
    """Return the text of a trace file, one event per line; arguments are those of `perfetto.perfetto`."""
    rows = (*_names(names), *_slices(events), *_counters(counters))
    lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    return f'{{"displayTimeUnit": "ms", "traceEvents": [\n{lines}\n]}}\n'


def _names(names: dict[int, str]) -> Iterator[dict[str, object]]:
    """Yield names of processes and threads, in the order of stages and streams."""
    for stage, name in names.items():
        yield {"ph": "M", "name": "process_name", "pid": stage + 1, "tid": 0, "args": {"name": name}}
        for number, stream in enumerate(STREAMS, 1):
            event = {"ph": "M", "name": "thread_name", "pid": stage + 1, "tid": number}
            yield event | {"args": {"name": stream}}


def _slices(events: Iterable[Event]) -> Iterator[dict[str, object]]:
    """Yield a complete event for each row, with its attributes."""
    for event in events:
        begin, end = round(event.start_s * MICRO, 3), round(event.end_s * MICRO, 3)
        yield {
            "ph": "X",
            "name": event.operator if event.layer < 0 else f"{event.operator} [{event.layer}]",
            "cat": event.phase,
            "pid": event.stage + 1,
            "tid": STREAMS.index(event.stream) + 1,
            "ts": begin,
            "dur": round(end - begin, 3),
            "args": {"micro_batch": event.micro_batch, "chunk": event.chunk},
        }


def _counters(counters: dict[int, list[Track]]) -> Iterator[dict[str, object]]:
    """Yield values of a memory counter: whole bytes, never below 0."""
    for stage, points in counters.items():
        for moment, size in points:
            yield {
                "ph": "C",
                "name": "allocated memory",
                "pid": stage + 1,
                "tid": 0,
                "ts": round(moment * MICRO, 3),
                "args": {"bytes": max(0, round(size))},
            }
