"""The ranking of simulated plans, and the plan that is recommended.

Answers: which plan is recommended, how much slower is every other plan, how certain is this, and which
plans are variants of each other?
Elsewhere: the objectives of a ranking (objectives.py), why one plan is slower than another
(render/search_reasons.py).

Errors that two plans share cancel in the ratio of their times, so a difference is more certain than each
time. If its 90 % interval contains 1, the two plans count as equal. Among equal plans whose times differ by
less than repeats of one run, flopcast recommends the simplest. In InternEvo's sweeps, the plan of this rule
is 0.1 % slower than the best on average and 0.7 % at worst. The simplest of all equal plans would be 2 %
and 10 % slower (docs/accuracy/journal.md).
"""

import math
from collections.abc import Sequence

from flopcast.cost.between_plans import TIED_RATIO
from flopcast.records import Record
from flopcast.search.exact import Exact
from flopcast.search.memory_limit import used_memory_ratio
from flopcast.search.objectives import Loss
from flopcast.search.question import Question
from flopcast.search.space import NEUTRAL, Space
from flopcast.search.space_words import ALL
from flopcast.spec.cluster import Cluster
from flopcast.spec.job import Job
from flopcast.spec.plan import Plan
from flopcast.spec.precision import RECIPES
from flopcast.spec.site import Site
from flopcast.spec.stack import Stack
from flopcast.timeline.uncertainty import difference, holds_one
from flopcast.units import Number

OPTIONS = (
    "schedule",
    "data_shard",
    "shards",
    "stage_layers",
    "recompute",
    "recompute_method",
    "recompute_modules",
    "recompute_blocks",
    "partition_activations",
    "context_exchange",
    "context_order",
    "offload",
    "rank_order",
)  # of a plan, each simpler at its default
VARIED = ("virtual_stages", "stage_layers", "zero", "rank_order")  # in which variants of one plan differ


class Ranked(Record, eq=False):
    """One plan, its losses, and the ratio of its first loss to that of the best plan with a 90 % interval.

    `equal`: the interval contains 1, so the plan is tied with the best.
    """

    played: Exact
    losses: tuple[Loss, ...]
    ratio: float
    ratio_low: Number
    ratio_high: Number

    @property
    def equal(self) -> bool:
        """Return whether the interval does not show that the plan is slower than the best."""
        return holds_one(self.ratio_low, self.ratio_high)

    @property
    def near(self) -> bool:
        """Return whether the plan is tied with the best, and differs by no more than repeated runs."""
        return self.equal and self.ratio <= TIED_RATIO


def num_tied(plans: Sequence[Ranked]) -> int:
    """Return the number of tied plans, the simplest of which is recommended."""
    return sum(one.near for one in plans)


def ranked(question: Question, played: Sequence[Exact], chosen: Sequence[Job] = ()) -> tuple[Ranked, ...]:
    """Return plans in the order in which they are recommended.

    Parameters
    ----------
    played : feasible plans; equal plans stay in this order
    chosen : plans that `flopcast predict` chooses, some of which may be among the feasible ones

    Returns
    -------
    tuple of Ranked
        The recommended plan, then all others by the first objective. A plan counts as equal to the best if
        they are tied and differ by less than repeats of one run. The simplest of the `chosen` plans that
        are equal to the best is recommended. If there are none, the simplest of all equal plans that are no
        slower than the chosen plans is recommended. Ratios are relative to the best plan, which comes
        second if another plan is recommended.
    """
    losses = [losses_of(question, one) for one in played]
    if not losses:
        return ()
    best = min(losses, key=lambda each: each[0].value)[0]
    found = [against(best, one, each) for one, each in zip(played, losses, strict=True)]
    found.sort(key=lambda one: one.losses[0].value)
    near = [one for one in found if one.near]
    usual = [one for one in found if one.played.job in chosen]
    limit = min((one.ratio for one in usual), default=math.inf)
    first = min(
        [one for one in near if one in usual] or [one for one in near if one.ratio <= limit],
        key=lambda one: simplicity(one.played, question.space),
    )
    return (first, *(one for one in found if one is not first))


def grouped(plans: Sequence[Ranked]) -> tuple[tuple[Ranked, ...], ...]:
    """Return groups of a plan and its variants, which are tied with it and differ only in `VARIED`.

    Parameters
    ----------
    plans : ranked plans, in their order

    Returns
    -------
    tuple of tuples of Ranked
        Groups in the order of their first plans. Every plan is in one group.
    """
    usual = {name: getattr(Plan(), name) for name in VARIED}
    found: list[list[Ranked]] = []
    alike: dict[tuple[Cluster, Stack, Site, Plan], list[list[Ranked]]] = {}
    for one in plans:
        job = one.played.job
        groups = alike.setdefault(
            (job.cluster, job.stack, job.site, job.plan.model_copy(update=usual)), list[list[Ranked]]()
        )
        own = next((group for group in groups if _tied(one, group[0])), None)
        if own is None:
            own = list[Ranked]()
            groups.append(own)
            found.append(own)
        own.append(one)
    return tuple(map(tuple, found))


def _tied(one: Ranked, other: Ranked) -> bool:
    """Return whether nothing that is known says which of two plans is better."""
    ours, theirs = one.losses[0], other.losses[0]
    return holds_one(*difference(ours.factors, theirs.factors, math.log(ours.value / theirs.value)))


def losses_of(question: Question, played: Exact) -> tuple[Loss, ...]:
    """Return the losses of a plan, in the order of the objectives."""
    return tuple(objective.exact(played, question.total_tokens) for objective in question.asked)


def against(best: Loss, played: Exact, losses: tuple[Loss, ...]) -> Ranked:
    """Return a plan compared with the best one."""
    ratio = losses[0].value / best.value
    low, high = difference(losses[0].factors, best.factors, math.log(ratio))
    return Ranked(played=played, losses=losses, ratio=ratio, ratio_low=low, ratio_high=high)


def over_ratio(question: Question, played: Exact) -> float:
    """Return the largest ratio of need to limit of a simulated plan: memory, days or dollars."""
    tokens = question.total_tokens
    over = [used_memory_ratio(played, question.space.headroom_fraction)]
    over += [limit.objective.exact(played, tokens).value / limit.most for limit in question.limits]
    return max(over)


def simplicity(played: Exact, space: Space | None = None) -> tuple[int, ...]:
    """Return the complexity of a plan as a tuple that is compared in order; smaller is simpler.

    It contains the number of devices, the kinds of parallelism besides data parallelism, the options that
    differ from their default, the ZeRO stage, and the product of degrees. An option that `space` fixes
    makes no plan simpler than another: a plan on which this option has no effect counts with the fixed
    value, as in `flopcast predict`.

    Examples
    --------
    >>> from flopcast.library.curves import load_book
    >>> from flopcast.requests.job_files import load_catalog_job
    >>> from flopcast.search.exact import play_each
    >>> job = load_catalog_job("paper/llemma-7b-vista-pp4-tp2-dp2")
    >>> [simplicity(played) for _, played in play_each([job], load_book)]
    [(16, 2, 2, 1, 8)]
    """
    plan = played.plan if space is None else _with_settled(played.plan, space)
    degrees = (plan.tensor_parallel, plan.context_parallel, plan.pipeline_parallel, plan.expert_parallel)
    return (
        played.job.cluster.num_devices,
        sum(degree > 1 for degree in degrees),
        _options(plan),
        plan.zero,
        math.prod(degrees) * plan.virtual_stages,
    )


def _with_settled(plan: Plan, space: Space) -> Plan:
    """Return a plan of a space with the settled value of each option that does not matter to the plan."""
    named = {name: getattr(space, name) for name, none in NEUTRAL.items() if getattr(plan, name) == none}
    settled = {name: values[0] for name, values in named.items() if len(values) == 1 and ALL not in values}
    return plan.model_copy(update=settled)


def _options(plan: Plan) -> int:
    """Return the number of options that differ from their default."""
    plain = Plan()
    unlike = sum(bool(getattr(plan, name) != getattr(plain, name)) for name in OPTIONS)
    chunks, narrow = plan.virtual_stages > 1, plan.precision in RECIPES
    cut_otherwise = plan.expert_tensor_parallel not in (1, plan.tensor_parallel)
    return unlike + chunks + narrow + cut_otherwise
