"""Trace files of a report.

Answers: which file does `--trace` write?
Elsewhere: the rows (report/events.py), the bytes (perfetto.py), the text (chrome.py).
"""

from pathlib import Path

from flopcast.files.atomic_write import write_whole
from flopcast.interop.exports.chrome import chrome
from flopcast.interop.exports.perfetto import Track, perfetto
from flopcast.report.events import events, memory_over_time
from flopcast.report.report import Report


def write_trace(report: Report, path: Path) -> None:
    """Write a trace for ui.perfetto.dev, in Perfetto's own format or as Chrome's JSON.

    Parameters
    ----------
    report : the report of one prediction. Its timeline becomes slices, and its memory becomes a counter for
        each pipeline stage
    path : a path that ends in `.json` gives Chrome's format, and any other path (usually `.pftrace`) gives
        Perfetto's format. An existing file is replaced.

    Raises
    ------
    OSError
        The file cannot be written.
    """
    write_whole(path, chrome_trace(report) if path.suffix == ".json" else perfetto_trace(report))


def perfetto_trace(report: Report) -> bytes:
    """Return the bytes of a Perfetto trace."""
    return perfetto(events(report), _memory(report), _names(report))


def chrome_trace(report: Report) -> bytes:
    """Return the bytes of a trace in Chrome's format."""
    return chrome(events(report), _memory(report), _names(report)).encode("utf-8")


def _names(report: Report) -> dict[int, str]:
    return {stage: f"pipeline stage {stage}" for stage in range(len(report.memory.per_stage))}


def _memory(report: Report) -> dict[int, list[Track]]:
    """Return the allocated bytes of each stage over the step."""
    counters = {}
    for stage in range(len(report.memory.per_stage)):
        moments, sizes = memory_over_time(report, stage)
        counters[stage] = list(zip(moments.tolist(), sizes.tolist(), strict=True))
    return counters
