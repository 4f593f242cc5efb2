"""Suspects in the step times of a run: pauses, and steps that become slower.

Answers: how long do checkpoints, evaluations and other pauses take, at which step did the run become slower
and in which part, and how long are steps otherwise?
Elsewhere: patterns in step times (step_series.py), timers (lab/logs/timers.py), the prediction
(timer_suspects.py).

A record of a log may be the mean of several steps. Newer releases of Megatron-LM exclude checkpoints and
evaluations from the time of an iteration, and print timers for them.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from flopcast.dtypes import Counts
from flopcast.lab.diagnosis.excess import texts_of
from flopcast.lab.diagnosis.step_series import Pauses, Slowing, pauses_of, slowing_of
from flopcast.lab.diagnosis.suspect import Suspect
from flopcast.lab.logs.log import Log, SteadyTime, steady_records
from flopcast.lab.logs.timers import Part, parts_in
from flopcast.records import Record, replace
from flopcast.spec.job import Job
from flopcast.units import show_seconds

LEAST_PAUSES = 0.01  # of a mean step, in all pauses together
FIRST_SHARE, FEWEST_FIRST = 0.1, 3  # records at either end of a run that gets slower gradually
LEAST_PART = 0.2  # of what steps get slower by
PARTS: dict[Part, str] = {  # of a step that may get slower, as they are called
    "data": "data loading",
    "forward": "forward",
    "backward": "backward",
    "reducing_backward": "backward",
    "passes": "forward and backward",
    "gradients": "the reduction of gradients",
    "parameters": "the gather of parameters",
    "optimizer": "the optimizer",
}


class Series(Record, eq=False):
    """Possible causes of a slow run in its step times.

    `level_s` is the step time without pauses, before the run became slower; `steps` are the numbers of
    these steps.
    """

    suspects: tuple[Suspect, ...]
    level_s: float
    steps: Counts


def series_of(job: Job, log: Log, step: SteadyTime) -> Series:
    """Return the suspects in the steady records of a log.

    Parameters
    ----------
    job : Job
        The job, whose sequences and lengths convert printed rates to seconds.
    log : Log
    step : SteadyTime
        Statistics of the steady records, with which the cost of a pause is compared.

    Returns
    -------
    Series
        Suspects for pauses and for steps that become slower, and the step time without both.
    """
    sequences, length = job.plan.global_batch, job.batch.mean_sequence_tokens
    times_s = log.times_s(sequences, length, job.cluster.num_devices)
    used = steady_records(log.steps.step, log.steps.global_batch) & np.isfinite(times_s)
    steps, times_s = log.steps.step[used], times_s[used]
    each = steps_of_a_record(steps)
    pauses = pauses_of(steps, times_s)
    suspects = list(_paused(job, log, pauses, (len(steps), each), step.mean_s))
    known = {suspect.name for suspect in suspects}
    suspects += [one for one in _timed_pauses(job, log, steps, step.mean_s) if one.name not in known]
    others = np.delete(np.arange(len(steps)), pauses.place)
    steps, times_s = steps[others], times_s[others]
    slowing = slowing_of(steps, times_s)
    if slowing is None:
        return Series(suspects=tuple(suspects), level_s=step.median_s, steps=steps)
    early, late = _ends(steps, slowing)
    suspects.append(_slower(log, slowing, early, late))
    return Series(suspects=tuple(suspects), level_s=slowing.before_s, steps=early)


def steps_of_a_record(steps: Counts) -> int:
    """Return the number of steps of which a record of the log states the mean.

    This is the median difference between the step numbers of successive records.

    >>> steps_of_a_record(np.array([10.0, 20.0, 30.0, 20.0, 30.0])), steps_of_a_record(np.ones(1))
    (10, 1)
    """
    distances = np.diff(steps)
    forward = distances[distances > 0]
    return max(1, round(float(np.median(forward)))) if forward.size else 1


def _paused(
    job: Job, log: Log, pauses: Pauses, records: tuple[int, int], mean_s: float
) -> Iterator[Suspect]:
    """Yield suspects for long steps: checkpoints, evaluations, and pauses that the log does not explain.

    `records` holds the number of records and the number of steps in each.
    """
    number, each = records
    saved, evaluated = (near(pauses.steps, after, each) for after in (log.saved_after, log.evaluated_after))
    others = pauses.part(~(saved | evaluated))
    for part, name in (
        (pauses.part(saved), "checkpoints"),
        (pauses.part(evaluated & ~saved), "evaluation"),
        (others, "irregular_pauses" if others.every is None else "regular_pauses"),
    ):
        lost_s = float(part.extra_s.sum()) / number
        if lost_s > LEAST_PAUSES * mean_s:
            means = f", which are means of {each} steps," if each > 1 else ""
            count = f"{len(part.steps)} of {number} {'records' if each > 1 else 'steps'}{means}"
            longest = f"the longest pause adds {show_seconds(float(part.extra_s.max()) * each)}"
            found = f"{count} are much longer than their neighbours; {longest}"
            yield _pause(job, name, lost_s, found, every=part.every)


def _timed_pauses(job: Job, log: Log, steps: Counts, mean_s: float) -> Iterator[Suspect]:
    """Yield suspects for checkpoints and evaluations that have timers and are not part of any step time."""
    distances = np.diff(steps)
    num_steps = float(distances[distances > 0].sum()) + steps_of_a_record(steps)
    for name in ("checkpoints", "evaluation"):
        for timer in log.timers:
            pauses_s = timer.most_s[(timer.step >= steps.min()) & (timer.step <= steps.max())]
            lost_s = float(pauses_s.sum()) / num_steps
            if timer.part == name and lost_s > LEAST_PAUSES * mean_s:
                usual = show_seconds(float(np.median(pauses_s)))
                found = f"the timer {timer.name} shows {len(pauses_s)} pauses of {usual}"
                found += f" in {num_steps:.0f} steps"
                yield _pause(job, name, lost_s, found, "the step times do not include these pauses")


def _pause(
    job: Job, name: str, lost_s: float, found: str, shown: str = "", every: int | None = None
) -> Suspect:
    """Return the suspect for pauses of one kind; `shown` replaces the usual evidence besides `found`."""
    switch = job.stack.switches.text("async_checkpoints")
    texts = texts_of("pauses", name, every=every, switch=f" ({switch})" if switch else "")
    return Suspect(
        name=name,
        title=texts["title"],
        cost_s=lost_s,
        basis="measured",
        evidence=(found, shown or texts["evidence"]),
        change=texts["change"],
    )


def near(steps: Counts, after: Sequence[float], most: int) -> np.ndarray:
    """Return a mask of the steps that are at most this number of steps away from one of the other steps.

    >>> near(np.array([8.0, 20.0]), [7.0, 15.0], 1).tolist()
    [True, False]
    """
    if not after:
        return np.zeros(len(steps), dtype=bool)
    others = np.sort(np.array(after))
    place = np.clip(np.searchsorted(others, steps), 1, len(others)) - 1
    later = np.minimum(place + 1, len(others) - 1)
    apart = np.minimum(np.abs(others[place] - steps), np.abs(others[later] - steps))
    found: np.ndarray = apart <= most
    return found


def _ends(steps: Counts, slowing: Slowing) -> tuple[Counts, Counts]:
    """Return the steps before the run became slower, and those after it."""
    if slowing.since_step is not None:
        return steps[: slowing.place], steps[slowing.place :]
    number = max(FEWEST_FIRST, round(FIRST_SHARE * len(steps)))
    return steps[:number], steps[-number:]


def _slower(log: Log, slowing: Slowing, early: Counts, late: Counts) -> Suspect:
    at_once = slowing.since_step is not None
    how = _since(early, late) if at_once else "gradually"
    suspect = Suspect(
        name="slower_at_once" if at_once else "slower_gradually",
        title=f"The steps became slower during the run, {how}",
        cost_s=slowing.lost_s,
        basis="measured",
        evidence=(
            f"steps take {show_seconds(slowing.before_s)} at first and"
            f" {show_seconds(slowing.after_s)} later",
        ),
        change="look for a node, link or device that changed at that step, or for other jobs on the"
        " same network and storage"
        if at_once
        else "check whether heat lowers the clocks, memory becomes fragmented, or sequences get longer",
    )
    risen = _risen(log, early, late, LEAST_PART * (slowing.after_s - slowing.before_s))
    return replace(suspect, evidence=(*suspect.evidence, *risen))


def _since(early: Counts, late: Counts) -> str:
    """Return a phrase for the time of a change: a step, or two steps if the log prints none between them.

    >>> _since(np.array([8.0, 9.0]), np.array([10.0, 11.0])), _since(np.array([8.0, 9.0]), np.array([40.0]))
    ('since step 10', 'between steps 9 and 40')
    """
    usual = np.median(np.diff(early)) if len(early) > 1 else 1.0
    if late[0] - early[-1] > 2 * usual:
        return f"between steps {early[-1]:.0f} and {late[0]:.0f}"
    return f"since step {late[0]:.0f}"


def _risen(log: Log, early: Counts, late: Counts, least_s: float) -> tuple[str, ...]:
    """Return a sentence on the parts that take longer later, if timers show such parts."""
    before, after = parts_in(log.timers, early), parts_in(log.timers, late)
    if "forward" in before:
        before.pop("passes", None)  # which holds it
    rises = [
        f"{name} from {show_seconds(first.most_s)} to {show_seconds(last.most_s)}"
        for part, name in PARTS.items()
        if (first := before.get(part)) and (last := after.get(part))
        if last.most_s - first.most_s > least_s
    ]
    return (f"these timers become longer: {', '.join(rises)}",) if rises else ()
