"""Predictions of suites, compared with the measurements by the protocol of each suite.

Answers: how large are the errors of every row, component and source? The host's cost of a system is
fitted to the rows of the other systems; the jitter of a row comes from the other rows of its cluster.
Nothing else is fitted.
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping

from flopcast.cost.factors import NINETY_PERCENT
from flopcast.lab.calibration.watched import Watched
from flopcast.lab.validation.profiler_components import component_seconds, sums_in_layer
from flopcast.lab.validation.suite import Suite, SuiteRow, step_time_of_rate
from flopcast.records import Record
from flopcast.report.report import Report
from flopcast.spec.job import Job
from flopcast.spec.site import Site, SiteFactor
from flopcast.timeline.uncertainty import Sensitivity, log_sigmas

Predict = Callable[[Job], Report]
SUMS_IN_LAYER = ("encoder_fwd", "encoder_bwd")


class ComparedStep(Record):
    """A measured step and its prediction, with the 90 % interval.

    `factors` holds the factors of the step with their sensitivities; `breakdown` holds seconds by
    component, which add up to the predicted step including its jitter.
    """

    measured_step_time_s: float
    predicted_step_time_s: float
    low_s: float
    high_s: float
    factors: tuple[Sensitivity, ...]
    breakdown: Mapping[str, float]

    @property
    def relative_error(self) -> float:
        """Return predicted / measured - 1; positive if the prediction is too slow."""
        return self.predicted_step_time_s / self.measured_step_time_s - 1.0

    @property
    def covered(self) -> bool:
        """Return whether the interval contains the measurement."""
        return self.low_s <= self.measured_step_time_s <= self.high_s


class ComparedRow(ComparedStep):
    """One run of a suite, compared with one of its measurements.

    `reference` is "best" or "mean". The best step is the fastest profiled one, and neither its prediction
    nor its interval includes jitter. The mean steady step is predicted with jitter. Memory is the peak of
    allocated bytes on the first stage, and resident memory is what this stage keeps between steps; values
    that the source does not print are None. `assumptions` are values of the job that the source does not
    state.
    """

    id: str
    source: str
    system: str
    reference: str
    measured_memory_bytes: float | None
    predicted_memory_bytes: float
    measured_resident_bytes: float | None
    predicted_resident_bytes: float
    assumptions: tuple[str, ...]


class ComparedComponent(Record):
    """One component of one run.

    `predicted_s` is None if the prediction has no component of this name on the stage.
    """

    id: str
    component: str
    stage: str
    measured_s: float
    predicted_s: float | None

    @property
    def relative_error(self) -> float | None:
        """Return predicted / measured - 1, or None if nothing was predicted."""
        return None if self.predicted_s is None else self.predicted_s / self.measured_s - 1.0


class ComparedSuite(Record):
    """A whole suite."""

    suite: Suite
    rows: tuple[ComparedRow, ...]
    components: tuple[ComparedComponent, ...]
    host_ratio: dict[str, float]  # by system judged: fitted on the others
    jitter_ratio: dict[str, float]  # by row: mean step over best step of its system's other rows

    def jitters(self, system: str) -> tuple[float, ...]:
        """Return the jitters with which the rows of a system were predicted, in increasing order."""
        rows = [row.id for row in self.suite.rows if row.system == system]
        return tuple(sorted(self.jitter_ratio[row] for row in rows if row in self.jitter_ratio))


def compare(suite: Suite, predict: Predict, watched: Watched[SuiteRow] = iter) -> ComparedSuite:
    """Predict every row of a suite by its protocol; rows keep their order, with "best" before "mean".

    `predict` is called once for a row, and twice more if the host's cost is fitted to other systems.
    `watched` wraps the iteration over the rows; rows that it leaves out are not compared.
    """
    host = _cross_fitted_host(suite, predict) if suite.cross_fit_host else {}
    jitter = _left_out_jitter(suite) if suite.leave_out_jitter else {}
    rows: list[ComparedRow] = []
    components: list[ComparedComponent] = []
    for row in watched(suite.rows):
        report = predict(_with_host(row.job, host.get(row.system)))
        rows += _compared(row, suite, report, jitter.get(row.id))
        components += [
            ComparedComponent(
                id=row.id,
                component=entry.component,
                stage=entry.stage,
                measured_s=entry.measured_s,
                predicted_s=component_seconds(report, entry.component, entry.stage, row.update_skipped),
            )
            for entry in row.components
        ]
    return ComparedSuite(
        suite=suite,
        rows=tuple(rows),
        components=tuple(components),
        host_ratio=host,
        jitter_ratio={key: value[0] for key, value in jitter.items()},
    )


def _compared(
    row: SuiteRow, suite: Suite, report: Report, jitter: tuple[float, float] | None
) -> Iterable[ComparedRow]:
    measured = row.measured
    printed = measured.step_time_s
    if measured.tflops_per_device is not None and measured.flop_formula is not None:
        printed = step_time_of_rate(row.job, measured.tflops_per_device * 1e12, measured.flop_formula)
    clean = report.clean_step_time_s - (_update_on_path(report) if row.update_skipped else 0.0)
    of_jitter = next(factor for factor in report.factors if factor.name == "jitter")
    others = log_sigmas(tuple(factor for factor in report.factors if factor is not of_jitter))
    own_jitter = report.step_time_s / report.clean_step_time_s, of_jitter.log_sigma_factor
    ratio, sigma = jitter or own_jitter
    for reference, value, predicted, extra in (
        ("best", measured.best_step_time_s, clean, 0.0),
        ("mean", measured.mean_step_time_s or printed, report.clean_step_time_s * ratio, sigma),
    ):
        if value is None:
            continue
        low, high = (math.exp(NINETY_PERCENT * math.hypot(side, extra)) for side in others)
        programs = report.priced.programs
        first = programs.stages.of(0).stage_class[0]
        assumptions = (*row.job.assumptions, *row.assumptions)
        if row.update_skipped and reference == "best":
            skipped = (
                "the fastest step skipped its optimizer update (log: OVERFLOW, skipping step), so the"
                " prediction leaves out the update too"
            )
            assumptions += (skipped,)
        yield ComparedRow(
            id=row.id,
            source=suite.name,
            system=row.system,
            reference=reference,
            measured_step_time_s=value,
            predicted_step_time_s=predicted,
            low_s=predicted / low,
            high_s=predicted * high,
            measured_memory_bytes=measured.allocated_bytes,
            predicted_memory_bytes=report.memory.per_stage[0].allocated_bytes,
            measured_resident_bytes=measured.resident_bytes,
            predicted_resident_bytes=float(report.memory.peaks.resident_bytes[0, first]),
            assumptions=assumptions,
            factors=report.factors,
            breakdown=report.breakdown,
        )


def _update_on_path(report: Report) -> float:
    """Return the seconds of the critical path that a step without an update does not have."""
    update = set(report.priced.programs.update)
    return sum(s.path_s for s in report.timeline.shares if s.item in update)


def _with_host(job: Job, ratio: float | None) -> Job:
    if ratio is None:
        return job
    site = Site(name="cross-fitted host", factors=(SiteFactor(name="host", ratio=ratio),))
    return job.model_copy(update={"site": site})


def _cross_fitted_host(suite: Suite, predict: Predict) -> dict[str, float]:
    """Return, for every system, the host factor fitted to the layers of all other systems.

    The scored system does not influence its own factor: its layers are used only for the others. The
    forward and backward pass of a layer are predicted with the host's time counted once and twice, and
    with measured all-reduces; the factor that closes the gap is the median over passes and rows.
    """
    wanted: dict[str, list[float]] = defaultdict(list)
    for row in suite.rows:
        once, twice = predict(_with_host(row.job, 1.0)), predict(_with_host(row.job, 2.0))
        for entry in row.components:
            if entry.component in SUMS_IN_LAYER:
                base, more = (
                    component_seconds(report, entry.component, entry.stage, update_skipped=False)
                    for report in (once, twice)
                )
                if base and more and more > base:
                    gap = entry.measured_s - base - _excess_of_sums(row, once, entry.component)
                    wanted[row.system].append(1.0 + gap / (more - base))
    return {
        system: max(
            0.1, statistics.median([v for other in wanted if other != system for v in wanted[other]])
        )
        for system in wanted
        if len(wanted) > 1
    }


def _excess_of_sums(row: SuiteRow, report: Report, component: str) -> float:
    """Return the measured minus the predicted seconds of the all-reduces in one pass of a layer."""
    predicted = component_seconds(report, "tp_allreduce", "middle", update_skipped=False)
    for entry in row.components:
        if entry.component == "tp_allreduce" and predicted:
            sums = sums_in_layer(report, backward=component == "encoder_bwd")
            return sums * (entry.measured_s - predicted)
    return 0.0


def jitter_of(suite: Suite) -> dict[str, tuple[float, float, int]]:
    """Return the ratio of the mean step to the best step of every system: geometric mean, sigma of its
    logarithm, number of rows.

    A cluster's file holds these numbers; a validation leaves the scored row out instead.
    """
    return {
        system: (math.exp(statistics.mean(logs.values())), statistics.stdev(logs.values()), len(logs))
        for system, logs in _log_jitters(suite).items()
        if len(logs) > 1
    }


def _log_jitters(suite: Suite) -> dict[str, dict[str, float]]:
    logs: dict[str, dict[str, float]] = defaultdict(dict)
    for row in suite.rows:
        best, mean = row.measured.best_step_time_s, row.measured.mean_step_time_s
        if best and mean:
            logs[row.system][row.id] = math.log(mean / best)
    return logs


def _left_out_jitter(suite: Suite) -> dict[str, tuple[float, float]]:
    """Return, for every row, the ratio of the mean step to the best step and its sigma, from the other
    rows of its system.

    They are the geometric mean and the sigma of the logarithm. A system needs three rows.
    """
    result = {}
    for known in _log_jitters(suite).values():
        for row_id in known:
            others = [value for other, value in known.items() if other != row_id]
            if len(others) > 1:
                result[row_id] = (math.exp(statistics.mean(others)), statistics.stdev(others))
    return result
