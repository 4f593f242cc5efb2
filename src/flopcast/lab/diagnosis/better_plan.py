"""Another plan as a reason for a slow step.

Answers: is another plan faster than any change of a single setting?
Elsewhere: single settings (settings.py), how a plan is chosen (search/default_plan.py).

The plan may differ in every degree that the software can change, but keeps the batch, the precision and
the optimizer of the job.
"""

from collections.abc import Iterator, Sequence

from flopcast.errors import InfeasibleError, SpecError
from flopcast.lab.diagnosis.settings import OF_PLAN, fall, saving
from flopcast.lab.diagnosis.suspect import Predict, Suspect
from flopcast.library.curves import load_book
from flopcast.records import replace
from flopcast.report.report import Report
from flopcast.search.default_plan import choose
from flopcast.units import show_seconds

BETTER_GAIN = 0.03  # of the step
OF_TRAINING = ("global_batch", "precision", "optimizer")  # what another plan must not change


def better_plan(report: Report, predict: Predict, settings: Sequence[Suspect]) -> Iterator[Suspect]:
    """Yield the suspect that another plan is faster than any single change of the plan's settings.

    Its seconds are those that it saves in addition to the best of these changes. They are at least
    BETTER_GAIN of the step.
    """
    job = report.job
    fixed = {name: getattr(job.plan, name) for name in (*OF_TRAINING, *job.stack.switches.fixed)}
    try:
        chosen = choose(job, fixed, load_book(job.cluster))
        faster = predict(job.model_copy(update={"plan": chosen.plan}))
    except (SpecError, InfeasibleError):
        return
    suspect = saving(report, faster)
    saved_s = max((one.cost_s or 0.0 for one in settings if one.name in OF_PLAN), default=0.0)
    gain_s = suspect.cost_s or 0.0
    if gain_s < saved_s + BETTER_GAIN * report.step_time_s:
        return
    yield replace(
        suspect,
        name="plan",
        title="Another plan is faster" + (" still" if saved_s else ""),
        cost_s=gain_s - saved_s,
        low_s=None,
        high_s=None,
        evidence=(
            *fall(report, faster, f"the plan {chosen.plan.short()}"),
            *(
                [
                    f"this plan saves {show_seconds(gain_s)}, and the best setting above saves"
                    f" {show_seconds(saved_s)}"
                ]
                if saved_s
                else []
            ),
        ),
        change=f'--plan "{chosen.plan.short()}"; `flopcast search` lists others',
    )
