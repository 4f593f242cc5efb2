"""Repeated runs of one configuration: the noise floor, and errors by configuration.

Answers: how large would the error of a perfect prediction be on these rows, and how large are the errors if
repeats of one configuration count once?
Elsewhere: errors of single rows (published_statistics.py).

A configuration is a model, a cluster, a plan, a batch and a framework; within a release, also a stack. A
time that one release prints twice is one measurement, because tables quote other tables.
"""

import math
import statistics
from collections.abc import Hashable, Iterable, Sequence

from flopcast.lab.validation.published import ComparedRun
from flopcast.lab.validation.statistics import errors, grouped
from flopcast.records import Record

QUOTED_RATIO = 1e-4  # of two times of one release: nearer, the later is the earlier, quoted


class NoiseFloor(Record):
    """The smallest mean absolute error of a prediction that gives one time per configuration.

    `rows` is the number of measurements from which it was computed. If nothing was measured twice, `rows`
    is 0 and `mean_ratio` is None.
    """

    rows: int
    mean_ratio: float | None


def noise_floor(groups: Iterable[Sequence[ComparedRun]]) -> tuple[NoiseFloor, NoiseFloor]:
    """Return the noise of repeats within one release, and between releases.

    `groups` are rows `by_configuration`. Between releases, each release counts once, with the geometric
    mean of its times.
    """
    repeated = [group for group in groups if len(group) > 1]
    within = [_different(release) for group in repeated for release in grouped(group, _release).values()]
    across = [
        [statistics.geometric_mean(_times_s(release)) for release in grouped(group, _version).values()]
        for group in repeated
    ]
    return _floor(within), _floor(across)


def release_errors(groups: Iterable[Sequence[ComparedRun]]) -> list[tuple[float, float]]:
    """Return two relative errors for every release of the configurations that several releases measured.

    The first is the error of a single time for all releases of a configuration, their geometric mean (see
    `noise_floor`). A prediction that ignores releases cannot be better. The second is the error of the
    predictions for that release, from their mean ratio of predicted to measured time.
    """
    found = []
    for group in groups:
        releases = list(grouped(group, _version).values())
        times_s = [statistics.geometric_mean(_times_s(rows)) for rows in releases]
        if len(releases) > 1:
            deviations = _deviations(times_s)
            found += [
                (deviation, math.exp(statistics.mean(math.log1p(row.relative_error) for row in rows)) - 1.0)
                for deviation, rows in zip(deviations, releases, strict=True)
            ]
    return found


def clustered_errors(groups: Iterable[Sequence[ComparedRun]]) -> dict[str, float]:
    """Return `summary.errors` over rows `by_configuration`, each with its mean predicted/measured ratio."""
    return errors(
        math.exp(statistics.mean(math.log1p(row.relative_error) for row in group)) - 1.0 for group in groups
    )


def by_configuration(rows: Iterable[ComparedRun]) -> list[list[ComparedRun]]:
    """Return the rows of each configuration; configurations are ordered by their first row."""
    return list(grouped(rows, configuration).values())


def _floor(groups: Iterable[Sequence[float]]) -> NoiseFloor:
    """Return the mean deviation from each group's geometric mean."""
    deviations = [each for group in groups if len(group) > 1 for each in _deviations(group)]
    return NoiseFloor(rows=len(deviations), mean_ratio=statistics.mean(deviations) if deviations else None)


def _deviations(times_s: Sequence[float]) -> list[float]:
    """Return deviations from the geometric mean, times √(n/(n−1)), which removes the bias of that mean."""
    mean_s, correction = statistics.geometric_mean(times_s), math.sqrt(len(times_s) / (len(times_s) - 1))
    return [abs(time_s / mean_s - 1.0) * correction for time_s in times_s]


def configuration(row: ComparedRun) -> Hashable:
    """Return the common properties of equal runs: model, machine, plan and software, in any release."""
    job = row.job
    return job.model, job.cluster, job.plan, job.batch, row.run.software.framework


def sweep_of(row: ComparedRun) -> Hashable:
    """Return the common properties of the runs of a sweep: source, release, model, batch and machine."""
    job, software = row.job, row.run.software
    machine = job.cluster.name, job.cluster.node.device.name
    return row.run.source, software.framework, software.version, job.model, job.batch, machine


def _version(row: ComparedRun) -> Hashable:
    return row.run.software.version


def _release(row: ComparedRun) -> Hashable:
    """Return the release of a configuration, with the settings of its stack."""
    return row.job.stack, _version(row)


def _times_s(rows: Iterable[ComparedRun]) -> list[float]:
    return [row.measured_step_time_s for row in rows]


def _different(rows: Iterable[ComparedRun]) -> list[float]:
    """Return measured times without duplicates that one source quotes from another."""
    kept: list[float] = []
    for time_s in _times_s(rows):
        if all(abs(time_s / other_s - 1.0) > QUOTED_RATIO for other_s in kept):
            kept.append(time_s)
    return kept
