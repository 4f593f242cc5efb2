"""Comparison of the parts of a step that a log times with the predicted parts.

Answers: which part of the step takes longer than predicted, and do some ranks compute longer than others?
Elsewhere: timers (lab/logs/timers.py), traces (trace_suspects.py).

Predicted parts belong to the busiest stage, which the slowest rank shows. In Megatron-LM, the timers of
forward and backward exclude the time that a stage waits for others. "forward-backward" includes this time
and the reduction of gradients, which also has a timer of its own. That timer shows the time that the
backward pass does not hide, and so does the prediction.
"""

from collections import defaultdict
from collections.abc import Mapping

from flopcast.lab.diagnosis.excess import Found, compared, shown_by
from flopcast.lab.diagnosis.suspect import Suspect
from flopcast.lab.logs.timers import OF_A_NEWER_RELEASE, Part, TimedPart
from flopcast.operators.item import Item
from flopcast.records import Record, replace
from flopcast.report.report import BUBBLE, Report
from flopcast.units import show_seconds

STRAGGLER_RATIO = 1.04  # slowest over fastest rank, beyond what stages of unequal work explain
LONGEST_RATIO = 1.1  # of a timer over the step that holds it
BESIDE = ("checkpoints", "evaluation")  # parts that no step holds
SEEN = "the timers of the log show"
OF_TIMERS = shown_by("timers")


def timed_suspects(report: Report, timers: Mapping[Part, TimedPart], step_s: float) -> Found:
    """Return the parts that take longer than predicted according to timers, and sentences on the other
    parts.

    Parameters
    ----------
    step_s : the measured steady step
    """
    straggler = _straggler(report, timers)
    slower_s = straggler.cost_s or 0.0 if straggler is not None else 0.0
    staged = report.job.plan.pipeline_parallel > 1
    measured, predicted = _measured(timers, step_s, slower_s, staged=staged), _predicted(report, timers)
    bubble_s, compute_s = report.breakdown.get(BUBBLE, 0.0), predicted["compute"]
    predicted["stages"] += bubble_s * max(0.0, measured.get("compute", 0.0) / compute_s - 1.0)
    suspects, cleared = compared(report, measured, predicted, OF_TIMERS, SEEN)
    if bubble_s > 0:
        suspects = [_with_bubble(one, bubble_s / compute_s) for one in suspects]
    return [*suspects, *([straggler] if straggler is not None else [])], cleared


def _with_bubble(suspect: Suspect, bubble_ratio: float) -> Suspect:
    """Return the suspect of slow compute, including the additional wait between stages."""
    if suspect.name != OF_TIMERS["compute"].name or suspect.cost_s is None:
        return suspect
    evidence = (
        *suspect.evidence,
        "the cost includes the pipeline bubble, which grows in proportion to compute",
    )
    return replace(suspect, cost_s=suspect.cost_s * (1.0 + bubble_ratio), evidence=evidence)


def longer_than_step(timers: Mapping[Part, TimedPart], step_s: float) -> tuple[str, ...]:
    """Return the names of timers that exceed their step, because they have another unit."""
    inside = (timed for part, timed in timers.items() if part not in BESIDE)
    return tuple(timed.name for timed in inside if timed.most_s > LONGEST_RATIO * step_s)


def timed_parts(report: Report) -> dict[str, float]:
    """Return the predicted seconds of a step on the busiest stage, by the parts that timers have.

    "stages" contains the time spent waiting for other stages and the transfers between them. The sum of
    the parts is the step without jitter.
    """
    seconds: dict[str, float] = defaultdict(float)
    for share in report.timeline.bottleneck_attribution:
        seconds[_part_of(share.item)] += share.path_s
    seconds["stages"] += report.breakdown.get(BUBBLE, 0.0)
    seconds["data"] = 0.0
    return dict(seconds)


class PassTimes(Record):
    """Predicted seconds of a step's passes on the busiest stage; `backward_s` includes `recompute_s`."""

    forward_s: float
    backward_s: float
    recompute_s: float


def pass_times(report: Report) -> PassTimes:
    """Return the predicted seconds of the passes of a step on the busiest stage.

    Messages inside the passes count, but waiting for other stages, transfers between them and the reduction
    of gradients do not.
    """
    seconds: dict[str, float] = defaultdict(float)
    for share in report.timeline.bottleneck_attribution:
        if share.item is not None and _part_of(share.item) == "compute":
            seconds[share.item.phase] += share.path_s
    return PassTimes(
        forward_s=seconds["forward"],
        backward_s=sum(seconds.values()) - seconds["forward"],
        recompute_s=seconds["recompute"],
    )


def _part_of(item: Item | None) -> str:
    """Return the part of an item, by the names in workload/gradient_reduction.py and realise.py."""
    if item is None:
        return "compute"
    first, _, rest = item.name.partition(".")
    if first == "gradients":
        if rest.startswith("gather_parameters"):
            return "parameters"
        if rest.startswith("accumulate"):
            return "compute"
        return "optimizer" if rest.startswith(("norm", "overflow")) else "gradients"
    if first in ("hop", "receive") or item.name == "host.transfer":
        return "stages"
    return {"optimizer": "optimizer", "host": "between"}.get(first, "compute")


def _predicted(report: Report, timers: Mapping[Part, TimedPart]) -> dict[str, float]:
    """Return predicted parts; the time of an item without its own timer counts towards the timer that
    contains it.

    Jitter makes ranks wait for each other.
    """
    seconds = defaultdict(float, timed_parts(report))
    seconds["stages"] += report.step_time_s - report.clean_step_time_s
    if "parameters" not in timers:
        seconds["optimizer"] += seconds.pop("parameters", 0.0)
    seconds["passes"] = seconds["compute"] + seconds["stages"]
    seconds["reducing_passes"] = seconds["passes"] + seconds["gradients"]
    return seconds


def _measured(
    timers: Mapping[Part, TimedPart], step_s: float, slower_s: float, *, staged: bool
) -> dict[str, float]:
    """Return the measured seconds by part: the slowest rank counts, except in parts that wait for it,
    where the fastest counts.

    Parameters
    ----------
    slower_s : the seconds that the slowest rank computes longer than others; compute excludes them
    staged : whether there are pipeline stages
    """
    most_s: Mapping[Part, float] = {part: timed.most_s for part, timed in timers.items()}
    least_s: Mapping[Part, float] = {part: timed.least_s for part, timed in timers.items()}
    data_s, found = most_s.get("data", 0.0), dict[str, float]()
    gradients_s = least_s.get("gradients", 0.0) + least_s.get("further_gradients", 0.0)
    newer = "gradients" in timers and timers["gradients"].name == OF_A_NEWER_RELEASE
    passes_s = most_s.get("passes")
    if passes_s is not None and not newer:  # older releases reduce behind both passes
        passes_s += gradients_s
    if "forward" in most_s and "reducing_backward" in most_s:
        passes_s = most_s["forward"] + most_s["reducing_backward"]
    if "data" in most_s:
        found["data"] = data_s
    if "gradients" in least_s:
        found["gradients"] = gradients_s
    if "forward" in most_s and "backward" in most_s:
        found["compute"] = most_s["forward"] + most_s["backward"] - data_s - slower_s
        if passes_s is not None and staged and "gradients" in least_s:
            found["stages"] = passes_s - most_s["forward"] - most_s["backward"] - gradients_s
    elif passes_s is not None:
        reduces = "gradients" not in least_s
        part = "reducing_passes" if reduces else "passes" if staged else "compute"
        found[part] = passes_s - data_s - gradients_s
    inside_s = 0.0
    if "parameters" in least_s:
        found["parameters"] = inside_s = least_s["parameters"]
    if "optimizer" in most_s:
        found["optimizer"] = most_s["optimizer"] - (inside_s if newer else 0.0)
        if passes_s is not None:
            found["between"] = step_s - passes_s - found["optimizer"] - inside_s
    return {part: max(0.0, seconds) for part, seconds in found.items()}


def _straggler(report: Report, timers: Mapping[Part, TimedPart]) -> Suspect | None:
    """Return the suspect for ranks that compute longer than others by more than their stages explain."""
    both = [timers[part] for part in ("forward", "backward") if part in timers]
    if not both or any(timed.most_s <= timed.least_s for timed in both):
        return None
    data = timers.get("data")
    least_s = sum(timed.least_s for timed in both) - (data.least_s if data is not None else 0.0)
    most_s = sum(timed.most_s for timed in both) - (data.most_s if data is not None else 0.0)
    expected = stage_ratio(report)
    if least_s <= 0 or most_s < STRAGGLER_RATIO * expected * least_s:
        return None
    unequal = f", of which unequal stages explain {expected:.2f}" if expected > 1.005 else ""
    rank = next((timed.slowest_rank for timed in both if timed.slowest_rank is not None), None)
    who = "the slowest rank" if rank is None else f"rank {rank}, most often the slowest,"
    switch = report.job.stack.switches.text("rank_timers")
    return Suspect(
        name="straggler",
        title="Some ranks compute longer than others, and all others wait for them",
        cost_s=most_s - expected * least_s,
        basis="measured",
        evidence=(
            f"{who} computes for {show_seconds(most_s)} in each step, and the fastest rank for "
            f"{show_seconds(least_s)}: a ratio of {most_s / least_s:.2f}{unequal}",
        ),
        change=f"find the slow rank{f' ({switch})' if switch else ''}, and compare its clocks, temperature"
        " and power with those of the others",
    )


def stage_ratio(report: Report) -> float:
    """Return the predicted compute time of the longest stage, divided by that of the shortest."""
    classes = report.priced.programs.stages.of(0).chunk_class
    run = report.timeline.run
    passes = [one for one in (run.forward, run.backward, run.weight) if one is not None]
    seconds = [sum(float(one.duration_s[1, 0, chunks].sum()) for one in passes) for chunks in classes]
    return max(seconds) / min(seconds) if min(seconds) > 0 else 1.0
