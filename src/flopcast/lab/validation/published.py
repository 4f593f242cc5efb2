"""Predictions of published runs, compared with the measurements.

Answers: what is the error of every run, which runs are left out for which reason, and which are predicted
not to fit?
Elsewhere: the facts of a row (run.py), the job of a row (lab/published), statistics
(published_statistics.py).

Each prediction is compared with a baseline: the FLOP of a step, including recomputation, divided by the
peak in the plan's precision and by an efficiency, times the pipeline bubble. The efficiency for a row is
the geometric mean over the other rows with its device, precision and family. If there are none, it is the
mean over the other rows on its device, and otherwise over all other rows. So no row affects its own
baseline. Nothing is fitted.
"""

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Literal

import numpy as np

from flopcast.cost.constant_transfer import Context, context_of
from flopcast.dtypes import Logs
from flopcast.errors import Problem, SpecError, in_order_of_lines
from flopcast.files.nearest_names import alternatives
from flopcast.files.package_table import read_table
from flopcast.lab.validation.compare import ComparedStep
from flopcast.lab.validation.diagnosis import Diagnosis, first_suspect
from flopcast.lab.validation.flop_audit import FlopAudit, flop_audit
from flopcast.lab.validation.left_out import LeftOut, refused, unreadable
from flopcast.lab.validation.run import COLUMNS, Run, counted_flop, measured_step_time_s, memory_kind
from flopcast.records import Record, replace
from flopcast.report.memory_report import MemoryReport
from flopcast.report.recomputed import recomputed_flop
from flopcast.report.report import Report
from flopcast.spec.job import Job
from flopcast.spec.precision import product_engine

Constants = Literal["catalogue", "others", "generations", "models", "none"]
WAYS: tuple[Constants, ...] = ("catalogue", "others", "none")  # in which decisions are judged
JUDGED: Mapping[Constants, str] = read_table("flopcast.lab", "judged.yaml")["training"]
UNSEEN = "Fitted: predictions use the constants of the catalogue, which were fitted on other sources."
ALONE: Mapping[Constants, str] = read_table("flopcast.lab", "judged.yaml")["training_of_one_source"]
Reproduce = Callable[[Run], Job]
FASTEST_MFU_RATIO, SLOWEST_MFU_RATIO = 1.0, 1e-3  # outside: no step of this job, whatever the table says
MEASURED = "a step time in seconds"
UNITS_S = {"milliseconds": 1e-3, "minutes": 60.0}  # in which a column of seconds may state a time
SAME_RATIO = 1e-3  # of two tables' times of one run: they round differently


class ComparedRun(ComparedStep):
    """One run and its prediction.

    `ideal_s` is the trivial model at an efficiency of 1: FLOP divided by peak, including the bubble.
    `used_fraction` is the memory that the driver would show on the fullest device divided by its
    capacity; `largest_categories` are its largest parts. Above 1, the run is predicted not to fit.
    `assumptions` are values that the row does not state, and the formula by which it counts FLOP; `audit`
    checks its printed FLOP if it also prints a token rate or a step time. `likely` is the most probable
    cause of the error. `baseline_error` is the relative error of the baseline; None if there is no
    other row.
    """

    run: Run
    job: Job
    ideal_s: float
    measured_memory_bytes: float | None
    predicted_memory_bytes: float
    low_memory_bytes: float
    high_memory_bytes: float
    used_fraction: float
    largest_categories: tuple[str, ...]
    assumptions: tuple[str, ...]
    likely: Diagnosis
    audit: FlopAudit | None
    baseline_error: float | None = None

    @property
    def memory_error(self) -> float | None:
        """Return the relative error of allocated bytes; None if the row does not print allocated bytes."""
        if self.measured_memory_bytes is None:
            return None
        return self.predicted_memory_bytes / self.measured_memory_bytes - 1.0

    @property
    def memory_is_inside(self) -> bool:
        """Return whether the measured memory lies in its 90 % interval; false if no memory was measured."""
        return self.low_memory_bytes <= (self.measured_memory_bytes or 0.0) <= self.high_memory_bytes

    @property
    def fits(self) -> bool:
        """Return whether the prediction states that the run fits its devices, as it did."""
        return self.used_fraction <= 1.0

    @property
    def family(self) -> str:
        """Return "experts" or "dense"."""
        return self.job.model.family

    @property
    def half_width_ratio(self) -> float:
        """Return the half-width of the 90 % interval: its upper end over the prediction, minus 1."""
        return self.high_s / self.predicted_step_time_s - 1.0

    @property
    def context(self) -> Context:
        """Return the context: generation, precision, family and scale."""
        return context_of(self.job.model, self.job.cluster, self.job.plan.precision)


class Published(Record):
    """All rows of some tables: the predicted ones, the left-out ones, and the ids of repeated ones.

    `constants` states which constants the predictions use, as explained in `JUDGED`; `fitted_on` holds
    the sources to which the catalogue's constants were fitted. `groups` is the number of sources,
    generations or models that were left out in turn; 1 means that no run remained for the fit.
    """

    rows: tuple[ComparedRun, ...]
    left_out: tuple[LeftOut, ...]
    twice: tuple[str, ...]
    constants: Constants = "catalogue"
    fitted_on: frozenset[str] | None = None
    groups: int = 0

    @property
    def constants_sentence(self) -> str:
        """Return the sentence about the constants that a page shows before its first number."""
        if self.constants == "catalogue" and self.fitted_on is not None:
            return JUDGED["catalogue"] if self.fitted_on & {row.run.source for row in self.rows} else UNSEEN
        alone = self.groups == 1 and self.constants in ALONE
        return ALONE[self.constants] if alone else JUDGED[self.constants]

    @property
    def unfitted(self) -> tuple[ComparedRun, ...]:
        """Return the rows that are scored but to which no constant was fitted."""
        return tuple(row for row in self.rows if row.run.judged_only)


def compare_each(
    tables: Sequence[Iterable[Run]],
    reproduce: Reproduce,
    predict: Callable[[Job], Sequence[Report]],
    number: int,
    broken: Iterable[Problem] = (),
    unread: Mapping[str, str] = MappingProxyType({}),
) -> tuple[Published, ...]:
    """Predict every run of some tables with several choices of constants.

    A run that occurs in several tables counts once. `reproduce` raises an error with every reason if it
    refuses a run. `predict` returns a report for each of the `number` choices; it is called once for jobs
    that differ only in their assumptions. `broken` holds the faults of rows that could not be read, one or
    more for each row; `unread` holds the ids of these rows by their place.
    """
    rows: tuple[list[ComparedRun], ...] = tuple([] for _ in range(number))
    left_out = unreadable(broken, unread)
    twice: list[str] = []
    known: dict[Job, Sequence[Report]] = {}
    for table in tables:
        earlier = tuple(rows[0])
        for run in table:
            try:
                job = reproduce(run)
                measured_s, note = _believable_step_time_s(run, job)
                bare = job.model_copy(update={"assumptions": ()})
                if bare not in known:
                    known[bare] = predict(bare)
                each = [_compared(run, job, measured_s, note, report) for report in known[bare]]
            except SpecError as error:
                untimed = [each for each in _untimed(run) if each not in error.problems]
                left_out.append(refused(run, [*error.problems, *untimed]))
                continue
            if any(_same(each[0], other) for other in earlier):
                twice.append(run.id)
                continue
            for found, row in zip(rows, each, strict=True):
                found.append(row)
    refused_rows = tuple(in_order_of_lines(left_out))
    return tuple(
        Published(rows=with_baseline(found), left_out=refused_rows, twice=tuple(twice)) for found in rows
    )


def with_baseline(rows: Sequence[ComparedRun]) -> tuple[ComparedRun, ...]:
    """Return the rows with the errors of the baseline."""
    logs = np.array([math.log(row.ideal_s / row.measured_step_time_s) for row in rows])
    errors = baseline_errors([_likeness(row) for row in rows], logs)
    return tuple(replace(row, baseline_error=error) for row, error in zip(rows, errors, strict=True))


def baseline_errors(groups: Sequence[Sequence[Hashable]], log_efficiencies: Logs) -> list[float | None]:
    """Return the relative error of the baseline for each row, or None if a row has no other row.

    `groups` holds the groups of each row, the nearest first; `log_efficiencies`, (rows,), are log(ideal /
    measured).

    Examples
    --------
    >>> alike, another = ("h100 in bf16", "h100"), ("h100 in fp8", "h100")
    >>> import numpy as np
    >>> baseline_errors([alike, alike, another], np.log([0.4, 0.5, 0.3]))[:2]
    [-0.2, 0.25]
    """
    members: dict[tuple[int, Hashable], list[int]] = {}
    for place, own in enumerate(groups):
        for level, group in enumerate(own):
            members.setdefault((level, group), []).append(place)
    errors: list[float | None] = []
    for place, own in enumerate(groups):
        nearest = next((places for key in enumerate(own) if len(places := members[key]) > 1), [place])
        others = [other for other in nearest if other != place]
        log = float(log_efficiencies[place] - log_efficiencies[others].mean()) if others else None
        errors.append(None if log is None else round(math.exp(log) - 1.0, 12))
    return errors


def _likeness(row: ComparedRun) -> tuple[tuple[str, ...], ...]:
    """Return the groups of similar rows for the baseline's efficiency, the most similar first."""
    device = row.job.cluster.node.device.name
    return (device, row.job.plan.precision, row.family), (device,), ()


def _believable_step_time_s(run: Run, job: Job) -> tuple[float, str]:
    """Return the measured step time and the assumptions that it needs; called before anything is predicted.

    Raises
    ------
    SpecError
        The row has no measured time, or a time that no device can reach.
    """
    measured_s, note = measured_step_time_s(run, job)
    if measured_s is None:
        raise SpecError(_untimed(run))
    peak_flop = _peak_flop_per_s(job) * measured_s
    mfu_ratio = counted_flop(job, causal=True) / peak_flop
    executed_ratio = mfu_ratio + recomputed_flop(job, causal=True) / peak_flop
    if mfu_ratio <= SLOWEST_MFU_RATIO or executed_ratio >= FASTEST_MFU_RATIO:
        because = f"with this time, the devices would run at {executed_ratio:.2g} of their peak rate, so "
        because += "the time may be in another unit or belong to another run"
        column, value = run.observed.stated
        right = [
            f"write {measured_s * unit_s:g} in place of {measured_s:g} if the time is in {unit}"
            for unit, unit_s in UNITS_S.items()
            if mfu_ratio / unit_s > SLOWEST_MFU_RATIO and executed_ratio / unit_s < FASTEST_MFU_RATIO
            if value == measured_s
        ]
        allowed = MEASURED if value == measured_s else "a rate that the devices of this row can reach"
        fix = ", or ".join([*right, "leave the row out"])
        raise SpecError([run.fault(column, value, allowed, because, fix)])
    return measured_s, note


def _untimed(run: Run) -> list[Problem]:
    """Return the fault of a row without a measured time; empty if it has one."""
    if run.observed.stated[0]:
        return []
    other = "".join(f", in place of {each.split(' ')[0]}" for each in run.unused if "time" in each)
    fix = f"write the time in seconds in the column step_time_s{other}"
    allowed = f"a value in one of the columns {alternatives([*COLUMNS.values()])}"
    fault = run.fault("step_time_s", None, allowed, "the row states no measured time", fix)
    return [replace(fault, fault="is missing")]


def _peak_flop_per_s(job: Job) -> float:
    """Return the peak FLOP/s of all devices together, in the precision of the plan's matrix products."""
    return job.cluster.node.device.peak(product_engine(job.plan.precision)) * job.cluster.num_devices


def _compared(run: Run, job: Job, measured_s: float, remark: str, report: Report) -> ComparedRun:
    memory, audit = report.memory, flop_audit(run, job)
    memory_bytes, low_bytes, high_bytes = _counted_bytes(memory, run)
    notes = (remark, audit.phrase() if audit else "")
    return ComparedRun(
        run=run,
        job=job,
        measured_step_time_s=measured_s,
        predicted_step_time_s=report.step_time_s,
        low_s=report.step_time_low_s,
        high_s=report.step_time_high_s,
        factors=report.factors,
        breakdown=report.breakdown,
        ideal_s=ideal_s(job),
        measured_memory_bytes=run.observed.memory_bytes,
        predicted_memory_bytes=memory_bytes,
        low_memory_bytes=low_bytes,
        high_memory_bytes=high_bytes,
        used_fraction=memory.device_used_bytes / memory.capacity_bytes,
        largest_categories=tuple(sorted(memory.by_category, key=lambda k: -memory.by_category[k])[:3]),
        assumptions=(*job.assumptions, *(note for note in notes if note)),
        likely=first_suspect(report, measured_s),
        audit=audit,
    )


def _counted_bytes(memory: MemoryReport, run: Run) -> tuple[float, float, float]:
    """Return predicted memory and its 90 % interval, for the kind of memory that the row's unit names."""
    kind, cached_ratio, driver_bytes = memory_kind(run.observed.memory_unit), 1.0, 0.0
    if kind == "between steps":
        cached_ratio = memory.resident_bytes / memory.allocated_bytes
    elif kind != "allocated":
        cached_ratio = memory.reserved_bytes / memory.allocated_bytes
    if kind == "device":
        driver_bytes = memory.device_used_bytes - memory.reserved_bytes
    low, high = memory.allocated_interval_bytes
    peak, low, high = (each * cached_ratio + driver_bytes for each in (memory.allocated_bytes, low, high))
    return peak, low, high


def ideal_s(job: Job) -> float:
    """Return the step time of the trivial model at an efficiency of 1.

    It is `FLOP / peak · (1 + (pp − 1) / (vpp · m))` with recomputed FLOP, full attention and m
    micro-batches.

    References
    ----------
    Source of the bubble: arXiv:2104.04473, section 2.2.
    """
    plan = job.plan
    flop = counted_flop(job, causal=False) + recomputed_flop(job, causal=False)
    bubble = (plan.pipeline_parallel - 1) / (plan.virtual_stages * plan.num_micro_batches)
    return flop / _peak_flop_per_s(job) * (1.0 + bubble)


def _same(row: ComparedRun, other: ComparedRun) -> bool:
    """Return whether two rows describe the same run: the same job, number of devices and measured time."""
    mine, theirs = row.job, other.job
    times = row.measured_step_time_s / other.measured_step_time_s
    return (
        abs(times - 1.0) < SAME_RATIO
        and mine.plan == theirs.plan
        and mine.batch == theirs.batch
        and mine.cluster.num_devices == theirs.cluster.num_devices
        and (mine.model.hidden, mine.model.num_blocks) == (theirs.model.hidden, theirs.model.num_blocks)
    )
