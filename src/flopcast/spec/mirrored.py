"""DualPipe: plans in which the second half of the stages mirrors the first half.

Answers: which stages, chunks and replicas does such a plan have on its devices?
Elsewhere: the schedule itself (schedules/dualpipe.py), the places of the mirrored ranks
(cost/placement.py).

Under DualPipe, P stages hold two copies of the model. Stage s and stage P - 1 - s hold the same two chunks
and run the same tasks at the same time. flopcast therefore simulates P / 2 stages with two chunks each, in
the shape of a V, and twice as many replicas. The parameters of a rank, FLOP, messages and the sum of
gradients over both copies equal those of DualPipe. Only the messages in the middle of the pipeline differ:
they are sent to the other half, and take no time. Rules check the plan as the user wrote it, with one chunk
per stage.
"""

import numpy as np

from flopcast.records import replace
from flopcast.spec.plan import Plans


def halved(plans: Plans) -> Plans:
    """Return plans in which the mirrored half of the stages counts as replicas. Other plans do not change.

    Examples
    --------
    >>> from flopcast.spec.plan import Plan, one_plan
    >>> half = halved(one_plan(Plan(dp=4, pp=8, gbs=64, schedule="dualpipe")))
    >>> [int(number[0, 0]) for number in (half.data_parallel, half.pipeline_parallel, half.virtual_stages)]
    [8, 4, 2]
    """
    if not plans.structure.order_rule.mirrors_half or is_half(plans):
        return plans
    return replace(
        plans,
        data_parallel=2.0 * plans.data_parallel,
        pipeline_parallel=plans.pipeline_parallel / 2.0,
        virtual_stages=np.full_like(plans.virtual_stages, 2.0),
    )


def is_half(plans: Plans) -> bool:
    """Return whether the plans are those that `halved` returns for mirrored ones."""
    return plans.structure.order_rule.mirrors_half and bool((plans.virtual_stages > 1).all())
