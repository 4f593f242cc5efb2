"""The trace file of a report.

Answers: what does `--trace` write? Elsewhere: the rows (report/events.py), the bytes (report/perfetto.py).
"""

from pathlib import Path

from flopcast.report.events import events, memory_over_time
from flopcast.report.perfetto import perfetto
from flopcast.report.report import Report


def write_trace(report: Report, path: Path) -> None:
    """Write a Perfetto trace: open it in ui.perfetto.dev.

    Parameters
    ----------
    report : Report
        Of one prediction: its timeline becomes slices, its memory a counter for each pipeline stage.
    path : Path
        Usually ends in `.pftrace`; an older file is replaced.

    Raises
    ------
    OSError
        The file cannot be written.
    """
    stages = len(report.memory.per_stage)
    counters = {}
    for stage in range(stages):
        moments, sizes = memory_over_time(report, stage)
        counters[stage] = list(zip(moments.tolist(), sizes.tolist(), strict=True))
    names = {stage: f"pipeline stage {stage}" for stage in range(stages)}
    path.write_bytes(perfetto(events(report), counters, names))
