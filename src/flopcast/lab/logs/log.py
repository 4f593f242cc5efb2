"""A training log as numbers: the printed steps, the memory of ranks, and the stated sizes of the job.

Answers: how long did a steady step take in a run with warm-up, restarts and irregular steps?
Elsewhere: reading logs (lab/logs), the comparison with a prediction (prediction_check.py).

A fixed rule decides which steps are steady. A run starts at the beginning of the log and wherever the step
number falls (a restart). The first 10 % of the records of each run are warm-up, at least one and at most
ten. If this leaves no records, all records are used. Steps whose global batch differs from the batch of the
last record (during a ramp-up) are also left out. Outliers stay, because they hardly change the median.
"""

import numpy as np

from flopcast.dtypes import Counts, Floats
from flopcast.lab.logs.timers import Timer
from flopcast.records import Record
from flopcast.units import Number

MOST_LISTED = 5  # skipped steps in a sentence
WARM_UP_SHARE, LEAST_WARM_UP, MOST_WARM_UP = 0.1, 1, 10


class LoggedSteps(Record, eq=False):
    """One entry per printed record, in the log's order. All arrays have shape (records,). Missing numbers
    are NaN.

    If a record covers several steps (a log interval), it holds their mean. `device_tokens_per_s` is the
    rate of one device: torchtitan divides its `tps` by every degree of parallelism.
    """

    step: Counts
    step_time_s: Floats
    device_flop_per_s: Floats  # by whatever formula the framework counts
    tokens_per_s: Floats  # of the whole job
    device_tokens_per_s: Floats
    samples_per_s: Floats  # sequences, of the whole job
    global_batch: Counts


class RankMemory(Record):
    """The largest memory that one rank printed, or None if the rank printed none. `rank` is None if no
    line states it.

    The sizes are those that the framework's allocator reports: allocated and reserved bytes.
    """

    rank: int | None
    allocated_bytes: float | None = None
    max_allocated_bytes: float | None = None
    reserved_bytes: float | None = None
    max_reserved_bytes: float | None = None


class SteadyTime(Record):
    """Step time of the steady records: `best_s` is the shortest; 80 % lie between `low_s` and `high_s`."""

    median_s: float
    mean_s: float
    best_s: float
    low_s: float  # 10th percentile
    high_s: float  # 90th percentile
    num_used: int
    num_skipped: int


class SkippedRow(Record, kw_only=False):
    """A printed step that was not used: the number of its line, the line's text, and the reason."""

    line: int
    text: str
    because: str


class Log(Record, eq=False):
    """The content of one training log.

    `framework` is a name of `lab.logs.formats.FORMATS`. Sizes of the job are None where the log does not
    state them; `parameters` are those of the whole model, and `recompute` is none, selective or full.
    Records that were skipped while reading are counted: `num_bad` had missing or impossible numbers (not
    finite, negative), and `num_repeated` repeated a step or came from a rank that is not followed.
    `skipped` holds the first of the bad records, with the reasons. `saved_after`
    and `evaluated_after` are the numbers of the last steps printed before a checkpoint and an evaluation.
    """

    name: str
    framework: str
    steps: LoggedSteps
    memory: tuple[RankMemory, ...] = ()
    global_batch: int | None = None
    micro_batch: int | None = None
    sequence_length: int | None = None
    world_size: int | None = None
    tensor_parallel: int | None = None
    pipeline_parallel: int | None = None
    num_layers: int | None = None
    hidden_size: int | None = None
    parameters: int | None = None
    recompute: str | None = None
    num_bad: int = 0
    skipped: tuple[SkippedRow, ...] = ()
    num_repeated: int = 0
    timers: tuple[Timer, ...] = ()
    saved_after: tuple[float, ...] = ()
    evaluated_after: tuple[float, ...] = ()

    @property
    def num_restarts(self) -> int:
        """Return how often the step number falls, as when a run resumes from a checkpoint."""
        return int(np.sum(np.diff(self.steps.step) < 0))

    def skipped_text(self) -> str:
        """Return a sentence about the printed steps that were not used; "" if all were used."""
        if not self.num_bad:
            return ""
        rows = [f"line {each.line} ({each.text}): {each.because}" for each in self.skipped[:MOST_LISTED]]
        more = self.num_bad - len(rows)
        rows += [f"and {more} more"] * (more > 0 and bool(rows))
        of_all = f"{self.num_bad} of the {self.num_bad + self.num_repeated + self.steps.step.size}"
        return f"flopcast skipped {of_all} printed steps of the log{': ' * bool(rows)}{'; '.join(rows)}"

    def steady(self) -> np.ndarray:
        """Return which records are steady by the rule of this module, as booleans of shape (records,)."""
        return steady_records(self.steps.step, self.steps.global_batch)

    def step_time(
        self, sequences: Number = np.nan, sequence_length: Number = np.nan, devices: Number = np.nan
    ) -> SteadyTime | None:
        """Return the step time of the steady records; None if no record has one.

        If the log prints only rates, the time is the number of tokens in a step divided by the rate. The
        parameters give this number, unless the log itself states it.
        `num_skipped` counts all other records, including those without a time.
        """
        times_s = self.times_s(sequences, sequence_length, devices)
        used_s = times_s[self.steady() & np.isfinite(times_s)]
        if not used_s.size:
            return None
        low_s, median_s, high_s = (float(np.percentile(used_s, level)) for level in (10, 50, 90))
        return SteadyTime(
            median_s=median_s,
            mean_s=float(used_s.mean()),
            best_s=float(used_s.min()),
            low_s=low_s,
            high_s=high_s,
            num_used=int(used_s.size),
            num_skipped=int(times_s.size - used_s.size),
        )

    def times_s(self, sequences: Number, sequence_length: Number, devices: Number) -> Floats:
        """Return the seconds of each record's step, (records,): as printed, or computed from a rate; NaN
        if neither is known.

        The rates are used in this order: tokens of the job, tokens of a device, sequences.
        """
        steps = self.steps
        batch = np.where(
            np.isfinite(steps.global_batch), steps.global_batch, self.global_batch or sequences
        )
        tokens = batch * (self.sequence_length or sequence_length)
        device_tokens = tokens / (self.world_size or devices)
        derived = (
            tokens / steps.tokens_per_s,
            device_tokens / steps.device_tokens_per_s,
            batch / steps.samples_per_s,
        )
        times_s = steps.step_time_s
        for other_s in derived:
            times_s = np.where(np.isfinite(times_s), times_s, other_s)
        return times_s

    def median_of(self, values: np.ndarray) -> float | None:
        """Return the median of a column of `steps` over the steady records; None if the column has no
        numbers.

        Parameters
        ----------
        values : (records,)
        """
        used = values[self.steady() & np.isfinite(values)]
        return float(np.median(used)) if used.size else None


def steady_records(step: Counts, global_batch: Counts) -> np.ndarray:
    """Return which records are neither warm-up nor part of a batch ramp-up, as booleans of shape
    (records,).

    `step` and `global_batch`, (records,), are in the printed order; the batch is NaN if it was not
    printed. At least one entry is true if there is a record. The example has twelve steps, then a restart
    from the tenth:

    >>> step = np.array([*range(1, 13), 10, 11.0])
    >>> steady_records(step, np.full(14, np.nan)).astype(int).tolist()
    [0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 1]
    """
    if not step.size:
        return np.zeros(0, dtype=bool)
    last = global_batch[np.isfinite(global_batch)][-1:]
    full = ~np.isfinite(global_batch) | (global_batch == last[0]) if last.size else np.ones(step.size, bool)
    starts = np.flatnonzero(np.concatenate([[True], np.diff(step) < 0]))
    lengths = np.diff(np.append(starts, step.size))
    warm_up = np.clip(np.ceil(WARM_UP_SHARE * lengths), LEAST_WARM_UP, MOST_WARM_UP)
    place = np.arange(step.size) - np.repeat(starts, lengths)
    warm = place >= np.repeat(warm_up, lengths)
    return warm & full if (warm & full).any() else full
