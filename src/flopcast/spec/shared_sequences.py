"""Plans on batches whose sequences are divided over data-parallel ranks, instead of context parallelism.

Elsewhere: which batches these are (batch.py, `shared_by`), which plans may have them (rules_batch.py).
"""

from flopcast.records import replace
from flopcast.spec.batch import Batch
from flopcast.spec.plan import Plan, Plans, one_plan


def plans_of(plan: Plan, batch: Batch) -> Plans:
    """Return a batch of one plan, with the method of exchange if its ranks share sequences.

    Examples
    --------
    >>> plan = Plan(dp=8, context_exchange="all_gather")
    >>> [plans_of(plan, Batch(seq=64, shared_by=ranks)).structure.context_exchange for ranks in (1, 8)]
    ['ring', 'all_gather']
    """
    plans = one_plan(plan)
    if not batch.any_shared:
        return plans
    exchange = {name: getattr(plan, name) for name in ("context_exchange", "context_order")}
    return replace(plans, structure=plans.structure.model_copy(update=exchange))
