"""Recompute that the timers of a log show through the ratio of the backward pass to the forward pass.

Answers: do the timers agree with the recompute of the job, and which kind of recompute did the run have?
Elsewhere: recompute that the log states (size_suspects.py), timers compared with predicted parts
(timer_suspects.py).

The backward pass of a matrix product takes about twice as long as its forward pass, and about three times
with full recompute. The expected ratio is predicted with each kind of recompute in turn. The ratio does
not depend on how fast the devices are, since slow clocks lengthen both passes.
"""

import math
from collections.abc import Mapping

from flopcast.errors import SpecError
from flopcast.lab.diagnosis.excess import doubt_of, known_suspects
from flopcast.lab.diagnosis.job_edits import with_recompute
from flopcast.lab.diagnosis.suspect import Basis, Contradiction, Predict, Suspect
from flopcast.lab.diagnosis.timer_suspects import pass_times
from flopcast.lab.logs.timers import Part, TimedPart
from flopcast.records import Record, replace
from flopcast.report.report import Report
from flopcast.units import Number, show_seconds

OF_RECOMPUTE_SETTING = "recompute_not_needed"  # of settings.py
MODES = ("none", "selective", "full")
LEAST_OFF = math.log(1.2)  # of the ratio from the job's: less is no contradiction
NEARER = 0.5  # of that distance, at most, from another kind of recompute


class PassRatio(Record):
    """The ratio of the backward pass to the forward pass: `measured_ratio` by the timers, and
    `predicted_ratio` for the job.

    `without_ratio` is the predicted ratio of the job without recompute. `forward_s` and `backward_s` are
    the measured seconds in a step, without loading data.
    """

    forward_s: float
    backward_s: float
    predicted_ratio: float
    without_ratio: float
    timed_data: bool

    @property
    def measured_ratio(self) -> float:
        """Return the measured ratio."""
        return self.backward_s / self.forward_s

    @property
    def text(self) -> str:
        """Return a clause that states the measured times of the passes."""
        return (
            f"the timers show {show_seconds(self.backward_s)} of backward and"
            f" {show_seconds(self.forward_s)} of forward, a ratio of {self.measured_ratio:.2f}"
        )

    @property
    def of_recompute(self) -> float:
        """Return the factor by which recompute increases the predicted ratio, as a logarithm."""
        return math.log(self.predicted_ratio / self.without_ratio)

    def off(self, ratio: Number) -> float:
        """Return the absolute logarithm of the measured ratio over another one."""
        return abs(math.log(self.measured_ratio / ratio))


def ratio_of_passes(report: Report, timers: Mapping[Part, TimedPart]) -> PassRatio | None:
    """Return the ratio of the backward pass to the forward pass, or None if the log lacks separate timers
    of both passes.

    Parameters
    ----------
    report : Report
    timers : mapping of TimedPart
        Timers of the log by part. The time of the data loader is subtracted from the forward pass,
        because Megatron-LM's timer includes it.
    """
    forward, backward, data = (timers.get(part) for part in ("forward", "backward", "data"))
    predicted = pass_times(report)
    if forward is None or backward is None:
        return None
    if predicted.forward_s <= 0.0 or predicted.backward_s <= predicted.recompute_s:
        return None
    forward_s = forward.most_s - (data.most_s if data is not None else 0.0)
    if forward_s <= 0.0 or backward.most_s <= 0.0:
        return None
    return PassRatio(
        forward_s=forward_s,
        backward_s=backward.most_s,
        predicted_ratio=predicted.backward_s / predicted.forward_s,
        without_ratio=(predicted.backward_s - predicted.recompute_s) / predicted.forward_s,
        timed_data=data is not None,
    )


def other_recompute(
    report: Report, ratio: PassRatio | None, predict: Predict
) -> tuple[Report, tuple[Suspect, ...], Contradiction] | None:
    """Return the prediction with the recompute that the timers show, or None if the job has the same
    recompute.

    If loading data has no timer of its own, it may be the reason for a longer forward pass. If the
    backward pass agrees with its prediction in this case, the report of the job stays, and the
    contradiction states this.
    """
    if ratio is None or ratio.off(ratio.predicted_ratio) < LEAST_OFF:
        return None
    mode = report.job.plan.recompute
    found: dict[str, tuple[float, Report]] = {}
    for other in MODES:
        try:
            changed = predict(with_recompute(report.job, other)) if other != mode else report
        except SpecError:
            continue
        passes = pass_times(changed)
        found[other] = passes.backward_s / passes.forward_s, changed
    nearest = min(found, key=lambda one: ratio.off(found[one][0]))
    theirs, changed = found[nearest]
    if nearest == mode or ratio.off(theirs) > NEARER * ratio.off(ratio.predicted_ratio):
        return None
    contradiction = Contradiction(
        of_log=f"a backward pass that takes {ratio.measured_ratio:.2f} times as long as the forward pass",
        of_job=f"a predicted ratio of {ratio.predicted_ratio:.2f}, because plan.recompute is {mode}",
        change=f"set plan.recompute={nearest}",
    )
    if not ratio.timed_data and _as_predicted(report, ratio):
        unless = (
            f"{contradiction.change}, unless the forward pass includes data loading, which has no timer"
        )
        return report, (), replace(contradiction, change=unless)
    told = (
        f"{ratio.text}; flopcast predicts a ratio of {theirs:.2f} with recompute={nearest} and of"
        f" {ratio.predicted_ratio:.2f} with recompute={mode}; the suspects below assume recompute={nearest}"
    )
    suspect = Suspect(
        name="other_recompute",
        title=f"The run uses recompute={nearest}, but the job states recompute={mode}",
        cost_s=changed.step_time_s - report.step_time_s,
        basis="measured",
        evidence=(told,),
        change=f"describe the job with plan.recompute={nearest}",
    )
    return changed, (suspect,), contradiction


def _as_predicted(report: Report, ratio: PassRatio) -> bool:
    """Return whether the backward pass agrees with its prediction, within the uncertainty."""
    least = 1.0 / (1.0 + doubt_of(report))
    return least <= ratio.backward_s / pass_times(report).backward_s <= 1.0 + doubt_of(report)


def with_ratio(suspect: Suspect, ratio: PassRatio | None) -> Suspect:
    """Return a suspect with the evidence that the ratio of the passes gives for it or against it.

    A ratio that contradicts a predicted suspect marks it as unsettled. Suspects that do not concern
    recompute stay the same. All suspects stay the same if recompute hardly changes the ratio.
    """
    meanings = known_suspects()["ratio_of_passes"].get(suspect.name)
    if ratio is None or meanings is None:
        return suspect
    if suspect.name == OF_RECOMPUTE_SETTING and ratio.of_recompute < LEAST_OFF:
        return suspect  # the ratio hardly depends on what is recomputed
    agrees = ratio.off(ratio.predicted_ratio) < LEAST_OFF
    text = meanings["agrees" if agrees else "differs"]
    told = f"{ratio.text}, and flopcast predicts {ratio.predicted_ratio:.2f}: {text}"
    if agrees:
        return replace(suspect, evidence=(*suspect.evidence, told))
    basis: Basis = "unsettled" if suspect.basis == "predicted" else suspect.basis
    return replace(suspect, basis=basis, against=(*suspect.against, told))
