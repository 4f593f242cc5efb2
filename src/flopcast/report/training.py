"""A whole training run as text and as data: days, goodput, dollars, kilowatt-hours.

Answers: which numbers are reported for each phase and for the whole run?
Elsewhere: what the numbers mean (economics/run.py), one step (report.py).
"""

from collections.abc import Iterable

from flopcast.economics.run import TrainingRun, phase_of
from flopcast.errors import Problem, SpecError, collected
from flopcast.records import Record
from flopcast.report.report import Report
from flopcast.units import Number

DAY_S = 86400.0


class Training(Record, eq=False):
    """A run, and the report of each phase's step.

    Phases follow one another, each with its own job, such as a longer sequence or a larger cluster at
    the end.
    """

    run: TrainingRun
    reports: tuple[Report, ...]


def training(phases: Iterable[tuple[str, Number, Report]]) -> Training:
    """Return the run that consists of these phases: name, tokens, and the report of one step each.

    Raises
    ------
    InfeasibleError
        The devices of a phase fail faster than they start.
    SpecError
        Checkpoints of a phase follow each other too fast, or have no room.
    """
    phases = tuple(phases)
    problems: list[Problem] = []
    for _, _, report in phases:
        with collected(problems):
            report.checkpoint  # noqa: B018 - the property checks it
    if problems:
        raise SpecError(problems)
    made, before = [], 0
    for name, tokens, report in phases:
        cluster = report.job.cluster
        resized = before not in (0, cluster.num_devices)
        made.append(phase_of(name, tokens, report.cost, cluster, resized=resized))
        before = cluster.num_devices
    return Training(run=TrainingRun(phases=tuple(made)), reports=tuple(report for _, _, report in phases))
