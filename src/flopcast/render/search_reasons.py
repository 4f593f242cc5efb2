"""One sentence for each plan: why it is slower than the best, what limits the best, or which limit a faster
plan exceeds.

Answers: why is this plan not the first, and why is another plan not possible?
Elsewhere: the order (search/rank.py), the numbers (search/exact.py).
"""

import math
from collections.abc import Sequence

from flopcast.cost.between_plans import TIED_RATIO
from flopcast.errors import Problem
from flopcast.memory.tiers import OUTSIDE_HIGH_RATIO
from flopcast.report.labels import component_label
from flopcast.search.exact import Exact
from flopcast.search.find import SearchResult
from flopcast.search.memory_limit import device_memory_ratio, outside_memory_ratio
from flopcast.search.objectives import Objective
from flopcast.search.question import Limit, Question
from flopcast.search.rank import Ranked, num_tied, simplicity
from flopcast.search.settings import Setting
from flopcast.spec.factor_kinds import in_words
from flopcast.spec.job import Job
from flopcast.timeline.uncertainty import saved_share
from flopcast.units import Number, show_count, show_memory, show_seconds

CHOSEN = "the plan that flopcast predict chooses"
ROUNDED_DOWN = 0.99  # so that a number of tokens with three digits keeps its limit
SMALLEST_FRACTION = 0.002  # of a step: a component that differs by less is not worth a word


def reason_recommended(result: SearchResult) -> str:
    """Return why the plan is recommended, its largest components, and what would make it faster."""
    first = result.plans[0]
    parts = [_place_of_first(result), f"the largest components are {_largest(first.played)}"]
    gains = [(saved_share(factor), factor.name) for factor in first.played.factors]
    some = sorted(gains, reverse=True)[:3]
    levers = [f"by {gain:.1%} for {in_words(name)}" for gain, name in some if gain > SMALLEST_FRACTION]
    if levers:
        gained = "an improvement of one factor by 10 % would shorten the step"
        parts.append(f"{gained}: {', '.join(levers)}")
    return "; ".join(parts)


def _place_of_first(result: SearchResult) -> str:
    """Return how the recommended plan compares with the plans that are tied with the best."""
    first = result.plans[0]
    tied = [one for one in result.plans if one.equal]
    near = num_tied(result.plans)
    if len(tied) == 1:
        return "better than every other plan"
    if near == 1:
        return f"the best of {len(tied)} plans that may be equally good"
    objective = result.question.first
    distance = f"also the {objective.superlative}" if first.ratio == 1.0 else _behind(first, objective)
    which = "the simplest" if is_simplest(result) else f"{CHOSEN}, one"
    near_best = f"{near} plans that may be as good as the best and are within {TIED_RATIO - 1:.0%} of it"
    return f"recommended because it is {which} of the {near_best} (variants included); it is {distance}"


def is_simplest(result: SearchResult) -> bool:
    """Return whether no plan that could be recommended is simpler than the first."""
    space = result.question.space
    own = simplicity(result.plans[0].played, space)
    return all(simplicity(one.played, space) >= own for one in result.plans if one.near)


def recommended_for(result: SearchResult) -> str:
    """Return why the first plan is recommended although another one is the best."""
    best = next(one for one in result.plans if one.ratio == 1.0)
    space = result.question.space
    simpler = simplicity(result.plans[0].played, space) < simplicity(best.played, space)
    return f"simpler than the {result.question.first.superlative} plan" if simpler else CHOSEN


def sentence_of(one: Ranked, result: SearchResult) -> str:
    """Return the sentence that explains the rank of a feasible plan."""
    first = result.plans[0]
    return reason_recommended(result) if one is first else reason_slower(one, first, result.question)


def reason_slower(one: Ranked, first: Ranked, question: Question) -> str:
    """Return how much slower a feasible plan is, and its components that take longer."""
    start = f"{'perhaps ' if one.equal else ''}{_behind(one, question.first)}"
    if one.ratio == 1.0:
        less = simplicity(first.played, question.space) < simplicity(one.played, question.space)
        start = (
            "the best plan, but less simple than the first"
            if less
            else "the best plan, tied with the first"
        )
    return "; ".join(part for part in (start, reason_lost(one, first)) if part)


def reason_lost(one: Ranked, first: Ranked) -> str:
    """Return the components in which a plan differs from the first; nothing if it differs in none."""
    ahead = one.equal and one.losses[0].value < first.losses[0].value
    return _lost(one.played, first.played, gains=ahead)


def reason_infeasible(one: Ranked, question: Question, *, alone: bool = False) -> str:
    """Return what a plan that exceeds a limit would need. `alone` is true if there is no best plan."""
    need = f"needs {_needs(one.played, question)}"
    if alone:
        return need
    return f"would be {1 - one.ratio:.1%} {question.first.gain} than the best, but {need}"


def _needs(played: Exact, question: Question) -> str:
    """Return what a plan lacks; nothing if it keeps every limit."""
    headroom_fraction = question.space.headroom_fraction
    needs = []
    if device_memory_ratio(played, headroom_fraction) > 1.0:
        needs.append(_memory(played, headroom_fraction))
    if outside_memory_ratio(played, headroom_fraction) > 1.0:
        needs.append(_outside(played))
    for limit in question.limits:
        value = limit.objective.exact(played, question.total_tokens).value
        if value > limit.most:
            needs.append(_over_limit(limit, value, played, question))
    return " and ".join(needs)


def _over_limit(limit: Limit, value: Number, played: Exact, question: Question) -> str:
    """Return by how much a run exceeds a limit, and how many tokens or devices would keep it.

    Time and cost grow with the tokens. More devices shorten a run at most in proportion to their number.
    """
    shown, total = (limit.objective.show(each) for each in (value - limit.most, value))
    if math.isinf(value):
        return f"{shown} more than the {limit.name}"
    keeps = f"at most {show_count(ROUNDED_DOWN * question.total_tokens * limit.most / value)} tokens"
    if limit.name == "deadline":
        devices, node = played.job.cluster.num_devices, played.job.cluster.node.devices
        whole = math.ceil(devices * value / limit.most / node) * node
        keeps = f"at least {whole:,} devices or {keeps}"
    return f"{shown} more than the {limit.name} ({total} in total; {keeps} would do)"


def _memory(played: Exact, headroom_fraction: float | None) -> str:
    """Return by how much a plan exceeds the memory that it may use."""
    there = show_memory(played.capacity_bytes)
    if headroom_fraction is not None:
        more = show_memory(played.device_used_bytes - headroom_fraction * played.capacity_bytes)
        used = show_memory(played.device_used_bytes)
        part = f"{headroom_fraction:.0%} of {there} may be used"
        return f"{more} more memory: its fullest stage uses {used}, but only {part}"
    expected, high = show_memory(played.expected_bytes), show_memory(played.high_bytes)
    tight = played.device_verdict == "tight"
    lacked_bytes = (played.high_bytes if tight else played.expected_bytes) - played.capacity_bytes
    way_out = "; --headroom 1 accepts such plans" if tight else ""
    more, word = show_memory(lacked_bytes), played.device_verdict
    return (
        f"{more} more than a device has ({word}: {expected} expected on the fullest stage (90 %: up to"
        f" {high}) of {there}{way_out})"
    )


def _outside(played: Exact) -> str:
    """Return how much a plan needs of the fullest memory outside the devices, which may not hold it."""
    expected = played.outside_ratio / OUTSIDE_HIGH_RATIO
    why = "does not fit" if expected > 1.0 else "tight; --headroom 1 accepts such plans"
    return f"{expected:.0%} of the fullest memory outside the devices ({why})"


def gap_to_best(one: Ranked, first: Ranked, question: Question) -> str:
    """Return how much slower the user's own plan is than the best, in which components, and which limits it
    exceeds.
    """
    if one.ratio < 1.0:
        reason = f"{1 - one.ratio:.1%} {question.first.gain} than the best plan of the search space"
    elif one.ratio == 1.0:
        reason = "the best plan of the search space"
    else:
        reason = reason_slower(one, first, question)
    needs = _needs(one.played, question)
    return f"{reason}; it needs {needs}" if needs else reason


def reason_no_plan(setting: Setting, result: SearchResult) -> str:
    """Return why a cluster, size and stack has no plan in the answer.

    The reasons, in this order: no plan keeps every rule (with the rules that the nearest plan breaks), no
    plan keeps the limits of memory and others (with the needs of the closest plan), the search was
    interrupted, or the space is empty.
    """
    if setting.rejected is not None:
        broken = broken_rules(setting.rejected.problems)
        return f"no plan satisfies every rule; {setting.rejected.plan.short()} breaks {broken}"
    if setting.nearest is not None:
        near = setting.nearest.played
        needs = _needs(near, result.question)
        return f"no plan is feasible; the closest one, {near.plan.short()}, needs {needs}"
    if result.partial:
        return "the search was interrupted before it found a plan here"
    return reason_empty_space(result.question, setting.job)


def reason_empty_space(question: Question, job: Job) -> str:
    """Return why a space contains no plan on the cluster of a job."""
    reason = (
        f"no plan exists: no allowed degrees multiply to {job.cluster.num_devices} devices, or the"
        " global batch is not a multiple of micro-batch times replicas"
    )
    domain = job.cluster.scale_up_devices
    if question.space.tensor_in_domain and job.cluster.num_devices > domain:
        reason += f"; tp stays inside a scale-up domain of {domain} (--tp-beyond-domain removes this limit)"
    return reason


def broken_rules(problems: Sequence[Problem]) -> str:
    """Return which rules the nearest plan breaks, if no plan keeps every rule."""
    return "; ".join(
        f"{one.field} = {one.value}: {one.because} (allowed: {one.allowed})" for one in problems
    )


def _behind(one: Ranked, objective: Objective) -> str:
    """Return how far a plan is behind the best, with the interval."""
    return f"{one.ratio - 1:.1%} {objective.comparative} than the best (90 %: {ratio_interval(one)})"


def ratio_interval(one: Ranked) -> str:
    """Return the 90 % interval of the difference between a plan and the best plan."""
    return f"{one.ratio_low - 1:+.1%} to {one.ratio_high - 1:+.1%}"


def _largest(played: Exact) -> str:
    """Return the two largest components of the busiest stage."""
    shares = sorted(((s / played.step_time_s, name) for name, s in played.breakdown.items()), reverse=True)
    return " and ".join(f"{component_label(name)} ({share:.0%})" for share, name in shares[:2])


def _lost(one: Exact, first: Exact, *, gains: bool) -> str:
    """Return components in which a plan differs from the first, per token of the first one's step."""
    scale = first.job.step_tokens / one.job.step_tokens
    names = one.breakdown.keys() | first.breakdown.keys()
    more = {name: one.breakdown.get(name, 0.0) * scale - first.breakdown.get(name, 0.0) for name in names}
    sign = -1.0 if gains else 1.0
    order = sorted(more, key=lambda name: (-sign * more[name], name))
    least = SMALLEST_FRACTION * first.step_time_s
    shown = [name for name in order[:2] if sign * more[name] > least]
    if shown and -sign * more[order[-1]] > least:
        shown.append(order[-1])
    signed = {name: f"{'+' if more[name] > 0 else '-'}{show_seconds(abs(more[name]))}" for name in shown}
    return ", ".join(f"{component_label(name)} {signed[name]}" for name in shown)
