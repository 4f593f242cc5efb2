"""Slow devices, hosts and links that a job states, as suspects.

Answers: what would a step gain if a slow part were replaced?
Elsewhere: what slow parts cost (report/stragglers.py), slow ranks that timers of a log show
(timer_suspects.py).
"""

from collections.abc import Iterator

from flopcast.lab.diagnosis.suspect import Suspect
from flopcast.report.report import Report
from flopcast.units import show_seconds

SHOWN_TWICE = "several slow parts share these seconds if stages wait for each other"


def stated_stragglers(report: Report) -> Iterator[Suspect]:
    """Yield a suspect for each slow part that the job states and that makes the step longer."""
    found = report.stragglers
    for one in () if found is None else found.each:
        if one.alone_s > 0 and found is not None:
            healthy, slow = (show_seconds(s) for s in (found.without_s, found.without_s + one.alone_s))
            yield Suspect(
                name=f"slow_{one.part.kind}",
                title=f"{one.part.label.capitalize()} runs at {one.part.speed_fraction:.0%} of its speed",
                cost_s=one.alone_s,
                basis="predicted",
                evidence=(f"with this slow part alone, the predicted step grows from {healthy} to {slow}",),
                against=(SHOWN_TWICE,) if len(found.each) > 1 else (),
                change="replace it, or give its ranks less work",
            )
