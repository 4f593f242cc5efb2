"""Suspects from the description of the job: slow parts and a slow input pipeline.

Answers: what would a step gain if a slow part were replaced, or if the devices never waited for samples?
Elsewhere: the cost of both (report/stragglers.py, report/loader.py), slow ranks in the timers of a log
(timer_suspects.py).
"""

from collections.abc import Iterator

from flopcast.lab.diagnosis.suspect import Suspect
from flopcast.report.report import Report
from flopcast.units import show_seconds

SHOWN_TWICE = (
    "if there are several slow devices or links, their effects overlap, so these seconds do not add up"
)


def stated_stragglers(report: Report) -> Iterator[Suspect]:
    """Yield a suspect for each slow part that the job states and that makes the step longer."""
    found = report.stragglers
    for one in () if found is None else found.each:
        if one.alone_s > 0 and found is not None:
            healthy, slow = (show_seconds(s) for s in (found.without_s, found.without_s + one.alone_s))
            yield Suspect(
                name=f"slow_{one.part.kind}",
                title=f"{one.part.label.capitalize()} runs at {one.part.speed_fraction:.0%} of full speed",
                cost_s=one.alone_s,
                basis="predicted",
                evidence=(f"this slow part alone lengthens the predicted step from {healthy} to {slow}",),
                against=(SHOWN_TWICE,) if len(found.each) > 1 else (),
                change="replace this part, or give its ranks less work",
            )


def slow_loader(report: Report) -> Iterator[Suspect]:
    """Yield a suspect if the devices wait for the input pipeline that the job states."""
    found = report.loader
    if found is None or found.wait_s <= 0:
        return
    exposed = [each.stage.name for each in found.stages if not each.stage.overlapped]
    names = " and ".join(found.slowest if found.is_limit else exposed)
    title, change = f"Every step waits for the loader: {names}", "prepare later batches during the step"
    if found.is_limit:
        title = f"The loader is the limit: {names}"
        change = "give these stages more workers or fewer bytes, or prepare samples before the run"
    yield Suspect(
        name="loader",
        title=title,
        cost_s=found.wait_s,
        basis="predicted",
        evidence=(
            f"the step takes {show_seconds(found.step_time_s)}, but the devices need only"
            f" {show_seconds(found.device_step_s)}",
        ),
        change=change,
    )
