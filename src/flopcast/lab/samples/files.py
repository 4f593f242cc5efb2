"""Measurements as CSV files: samples of traces and logs, and the rows of a trace.

Answers: which columns does a file of samples or events have?
Elsewhere: the content of the columns (lab/calibration/traced_shapes.py, lab/calibration/trace.py,
nccl_tests.py), reading the files (columns.py, which requires a number in every numeric column and times
above 0).

Units are part of the names; numbers have nine digits. Sizes that an operator does not have are 0. The
first columns of events are those of predicted events (report/events.py); values that a profiler does not
know are -1.
"""

import csv
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from flopcast.files.atomic_write import being_written
from flopcast.lab.calibration.trace import Trace
from flopcast.lab.calibration.traced_shapes import SIZES, TraceSample
from flopcast.lab.samples.nccl_tests import CollectiveRow

COLLECTIVE_COLUMNS = (
    "collective", "dtype", "message_bytes", "ranks", "nodes", "in_place", "time_s", "line",
)  # fmt: skip
SAMPLE_COLUMNS = (
    "kernel_class", "phase", "dtype", *SIZES, "message_bytes", "ranks", "num_calls", "median_s", "least_s",
)  # fmt: skip
EVENT_COLUMNS = (
    "stage", "chunk", "micro_batch", "layer", "operator", "phase", "stream", "start_s", "end_s", "step",
    "device", "queue", "kernel", "kernel_class", "message_bytes", "ranks",
)  # fmt: skip


def write_csv(path: Path, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> int:
    """Write a table, and return the number of its rows.

    Raises
    ------
    OSError
        The file cannot be written.
    """
    count = 0
    with being_written(path, newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        for count, row in enumerate(rows, start=1):  # noqa: B007
            writer.writerow([f"{cell:.9g}" if isinstance(cell, float) else cell for cell in row])
    return count


def collective_cells(rows: Iterable[CollectiveRow]) -> Iterator[Sequence[object]]:
    """Yield the rows of an nccl-tests log, as COLLECTIVE_COLUMNS."""
    for row in rows:
        yield (
            row.collective, row.dtype, row.message_bytes, row.ranks, row.nodes, int(row.in_place),
            row.time_s, row.line,
        )  # fmt: skip


def sample_cells(samples: Iterable[TraceSample]) -> Iterator[Sequence[object]]:
    """Yield the samples of a trace, as SAMPLE_COLUMNS; an unknown pass has the name "unknown"."""
    for sample in samples:
        yield (
            sample.kernel_class, sample.phase or "unknown", sample.dtype,
            *(sample.sizes.get(name, 0) for name in SIZES),
            sample.message_bytes, sample.ranks, sample.num_calls, sample.median_s, sample.least_s,
        )  # fmt: skip


def event_cells(trace: Trace) -> Iterator[Sequence[object]]:
    """Yield kernels in order of time, as EVENT_COLUMNS.

    A kernel without an operator has its own name instead of the operator's. Values that a profiler does
    not record (micro-batch, stage, bytes of a message) are -1.
    """
    words = trace.words
    sizes, ranks = np.nan_to_num(trace.message_bytes, nan=-1.0), np.nan_to_num(trace.ranks, nan=-1.0)
    for at in range(len(trace.start_s)):
        kernel = words[trace.kernel[at]]
        yield (
            -1, -1, -1, -1, words[trace.operator[at]] or kernel, words[trace.phase[at]],
            words[trace.stream[at]], float(trace.start_s[at]), float(trace.end_s[at]),
            int(trace.step[at]), trace.device, int(trace.queue[at]), kernel, words[trace.kernel_class[at]],
            float(sizes[at]), int(ranks[at]),
        )  # fmt: skip
