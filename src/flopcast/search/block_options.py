"""The strategies that a search tries for single blocks.

Answers: which fields of a plan may differ between blocks, and which combinations keep all rules?
Elsewhere: the search (per_layer.py), what a strategy is (spec/layer_strategies.py), placements of whole
plans (offload_choices.py).
"""

from collections.abc import Iterator
from itertools import product

from flopcast.errors import Problem, SpecError
from flopcast.search.offload_choices import offload_choices
from flopcast.spec.divisors import divisors
from flopcast.spec.job import Job
from flopcast.spec.layer_strategies import LayerStrategy
from flopcast.spec.offload import TIERS
from flopcast.spec.plan import Plan
from flopcast.workload.checks import check

RECOMPUTES = ("none", "selective", "full")
DEGREES = ("tensor_parallel", "zero", "recompute")
PLACEMENTS = ("zero", "recompute", "offload")
Option = dict[str, object]  # fields of a plan that a block may have


def options_of(job: Job, plan: Plan, *, placements: bool = False) -> Iterator[Option]:
    """Yield the strategies that blocks may have and whose layouts keep all rules.

    The plan's own strategy comes first.

    Parameters
    ----------
    placements : whether blocks differ in recompute and in placements on the host, instead of in degrees,
        ZeRO and recompute

    Raises
    ------
    SpecError
        No strategy is possible for the job.
    """
    ranks = plan.data_parallel * plan.tensor_parallel
    own = {name: getattr(plan, name) for name in (PLACEMENTS if placements else DEGREES)}
    yield own
    problems: tuple[Problem, ...] = ()
    others = 0
    for option in _placed(job, plan) if placements else _divided(job, plan, ranks):
        changes = {name: value for name, value in option.items() if value != own[name]}
        if not changes or (option["zero"] and ranks == option.get("tensor_parallel", 0)):
            continue
        strategy = LayerStrategy(first=0, last=job.model.num_blocks - 1, **changes)
        faults = check(job.model_copy(update={"plan": plan.model_copy(update={"layers": (strategy,)})}))
        problems = problems or faults
        if not faults:
            others += 1
            yield option
    if not others and problems:
        raise SpecError(problems[:1])


def _divided(job: Job, plan: Plan, ranks: int) -> Iterator[Option]:
    """Yield all combinations of tensor parallelism, ZeRO and recompute."""
    degrees = [one for one in divisors(ranks) if one <= job.cluster.scale_up_devices]
    degrees = [
        one for one in degrees if max(one, plan.tensor_parallel) % min(one, plan.tensor_parallel) == 0
    ]
    zeros = sorted(set(job.stack.sharding.zero_stages)) if ranks > 1 else [plan.zero]
    for values in product(degrees, zeros, RECOMPUTES):
        yield dict(zip(DEGREES, values, strict=True))


def _placed(job: Job, plan: Plan) -> Iterator[Option]:
    """Yield all combinations of recompute and of what is on the host, of whole kinds of state."""
    choices = offload_choices(job, in_parts=False)
    on_host = [each for each in choices if all(one.tier == TIERS[0] for one in each)]
    for recompute, offload in product(RECOMPUTES, on_host):
        yield dict(zip(PLACEMENTS, (plan.zero, recompute, offload), strict=True))
