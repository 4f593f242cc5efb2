"""Possible reasons for a slow step, with seconds and evidence.

Answers: what does a diagnosis consist of?
Elsewhere: how suspects are found (diagnose.py), how they are shown (render/diagnosis.py).
"""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from flopcast.records import Record
from flopcast.report.report import Report
from flopcast.report.summary import Summarised, Summary
from flopcast.spec.job import Job
from flopcast.units import show_seconds

if TYPE_CHECKING:
    from flopcast.lab.logs.log import Log, SteadyTime

Predict = Callable[[Job], Report]
Basis = Literal["stated", "measured", "within doubt", "predicted", "unsettled", "possible"]
CERTAINTY: dict[Basis, float] = {  # by which the seconds of suspects are compared
    "stated": 1.0,  # the log says it
    "measured": 1.0,  # the log or the trace shows it
    "predicted": 0.9,  # a setting of the job: the prediction says what another setting would save
    "unsettled": 0.4,  # such a setting, but the interval of the saving contains zero
    "within doubt": 0.4,  # measured, but the prediction is not more certain than that
    "possible": 0.2,  # nothing measured tells it apart from others
}
GUESSES: tuple[Basis, ...] = ("unsettled", "possible")  # listed after all other suspects, in this order


class Suspect(Record):
    """One reason for a slow step.

    Attributes
    ----------
    name
        Its name in JSON.
    title
        The reason as a sentence without its full stop.
    cost_s
        Seconds that it adds to a mean step, and that its removal is expected to save. They are below 0 if
        it makes the step shorter, as with a smaller batch than the job's, and None if they are unknown.
    low_s, high_s
        The 90 % interval of `cost_s` if it is a prediction; otherwise both ends are None.
    basis
        The source of the seconds.
    evidence, against
        Sentences with evidence for it, and with evidence against it.
    change
        The recommended action.
    edits
        The same action as fields of the job, KEY=VALUE, if a prediction can be made with it.
    plan
        The whole plan after the action, if the action changes the plan.
    is_tight
        Whether the job may not fit after the action.
    """

    name: str
    title: str
    cost_s: float | None
    basis: Basis
    evidence: tuple[str, ...]
    against: tuple[str, ...] = ()
    change: str
    edits: str = ""
    plan: str = ""
    is_tight: bool = False
    low_s: float | None = None
    high_s: float | None = None

    @property
    def rank(self) -> float:
        """Return the seconds weighted by their certainty; unknown seconds have the highest rank."""
        return math.inf if self.cost_s is None else abs(self.cost_s) * CERTAINTY[self.basis]

    @property
    def order(self) -> tuple[int, float]:
        """Return the key by which a diagnosis sorts suspects: guesses come last, a high rank first."""
        return (GUESSES.index(self.basis) + 1 if self.basis in GUESSES else 0), -self.rank


class Contradiction(Record):
    """A fact which shows that a log does not come from a run of a job.

    Attributes
    ----------
    of_log, of_job
        What the log and the job state, as part of a sentence: "8 devices".
    change
        The edit that describes the run, as an imperative: "set --gpus 8".
    """

    of_log: str
    of_job: str
    change: str


class SlowStep(Record, Summarised, eq=False, repr=False):
    """A diagnosis: a measured step, the predicted step, and the suspects.

    `report` is the prediction of the job with the sizes in the log. `contradictions` are differences
    between the log and the job. `describes_run` is False if the run has another model, or if flopcast
    cannot predict its sizes. In this case measurements are not compared with the prediction. `log` is the
    log of the run, if there is one; `step` summarises its steady steps, and is None if the log has no
    times. `traced_step_s` is the step of the trace. `unexplained_s` are the additional seconds of the step,
    compared with the prediction, that no measurement explains. `suspects` are sorted by `Suspect.order`.
    `cleared` holds sentences about parts that agree with the prediction, `negligible` holds sentences about
    changes of settings that would save too little, and `advice` states what to measure next.
    """

    report: Report
    contradictions: tuple[Contradiction, ...] = ()
    describes_run: bool = True
    log: "Log | None" = None
    log_name: str = ""
    framework: str = ""
    step: "SteadyTime | None" = None
    trace_name: str = ""
    traced_step_s: float | None = None
    unexplained_s: float = 0.0
    suspects: tuple[Suspect, ...]
    cleared: tuple[str, ...] = ()
    negligible: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()

    @property
    def measured_s(self) -> float | None:
        """Return the measured steady step: the median in the log, or the step of the trace."""
        return self.step.median_s if self.step else self.traced_step_s

    @property
    def inside(self) -> bool | None:
        """Return whether the measured step lies in the 90 % interval of the prediction."""
        if self.measured_s is None or not self.describes_run:
            return None
        return self.report.step_time_low_s <= self.measured_s <= self.report.step_time_high_s

    def summary(self) -> Summary:
        """Return the suspects as a table, below the measured and the predicted step."""
        rows = [
            (
                one.title,
                "unknown" if one.cost_s is None else show_seconds(one.cost_s),
                one.basis,
                one.change,
            )
            for one in self.suspects
        ]
        measured = "" if self.measured_s is None else f"measured {show_seconds(self.measured_s)}, "
        predicted = f"predicted {show_seconds(self.report.step_time_s)}"
        caption = f"{self.report.job.model.name}: {measured}{predicted}, {len(rows)} suspects"
        return Summary(caption=caption, headings=("suspect", "cost per step", "basis", "change"), rows=rows)
