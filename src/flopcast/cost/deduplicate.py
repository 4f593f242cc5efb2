"""Items that are equal for all plans with the same split, whose times are computed only once.

Answers: which items of a batch depend only on the split of their layer?
Elsewhere: prices (price.py), plans with equal splits (spec/rows.py).

An item counts as equal if every array of its work, and the group of its ranks, has one value for all plans
of a split. A new term with more inputs is therefore priced for each plan without additional code.
"""

from collections.abc import Hashable, Sequence
from functools import partial
from operator import attrgetter

from flopcast.cost.placement import Group, group_on
from flopcast.kept_results import NOTHING_KEPT, KeptResults, content
from flopcast.operators.base import AbstractMessage, AbstractOperator
from flopcast.operators.item import HostWork, Item
from flopcast.operators.tier_copies import HostUpdate, TierCopy
from flopcast.records import Record, replace
from flopcast.spec.cluster import Cluster
from flopcast.spec.plan import Plans
from flopcast.spec.rows import EqualRows, arrays_of, of_equal_split, of_rows, taken

_DEGREES = attrgetter(
    "data_parallel", "context_parallel", "tensor_parallel", "pipeline_parallel", "data_shard",
    "virtual_stages", "expert_parallel", "expert_tensor_parallel", "shared_by",
)  # fmt: skip
Work = AbstractOperator | AbstractMessage | HostWork | TierCopy | HostUpdate


class PricedOnce(Record, eq=False, kw_only=False):
    """The items, with one row for all plans of equal splits, and the groups of their ranks.

    `items` are in the caller's order. `narrowed` states which items have one row for each split. `groups`
    contains the groups of plans and of splits, by axis.
    """

    items: tuple[Item, ...]
    narrowed: tuple[bool, ...]
    rows: EqualRows
    groups: dict[tuple[str, bool], Group]


def priced_once(
    items: Sequence[Item], plans: Plans, cluster: Cluster, kept: KeptResults = NOTHING_KEPT
) -> PricedOnce:
    """Return the items with only those rows that have to be priced.

    Parameters
    ----------
    items : sequence of Item
        Items whose arrays have one row for each plan, or one row for all.
    plans : Plans
    cluster : Cluster
        Determines which links connect the ranks of a message.
    kept : KeptResults
        Groups of ranks of earlier plans.

    Returns
    -------
    PricedOnce
        Items that are equal for all plans of a split have one row for each split. All other items keep one
        row for each plan.
    """
    rows = of_equal_split(plans)
    groups: dict[tuple[str, bool], Group] = {}
    few_kept = kept.of_few(plans.size)
    ranks = _ranks_of(plans, cluster) if few_kept else None
    for axis in {item.work.axis for item in items if isinstance(item.work, AbstractMessage)}:
        group = few_kept.of(("group", axis, ranks), partial(group_on, cluster, axis, plans))
        groups[axis, False] = group
        parts = (group.inside, group.nodes, group.depth)
        if all(rows.holds(part) for part in parts):
            inside, nodes, depth = (of_rows(part, rows.first) for part in parts)
            groups[axis, True] = Group(inside=inside, nodes=nodes, depth=depth)
    few = rows.size < plans.size
    known: dict[int, bool] = {}  # whether an array holds, by its identity: works share their arrays
    made: dict[int, tuple[object, object]] = {}  # of splits, by the identity of those of plans
    narrowed = tuple(few and _is_alike(item, rows, groups, known) for item in items)
    found = tuple(
        replace(item, work=taken(item.work, rows.first, made)) if narrow else item
        for item, narrow in zip(items, narrowed, strict=True)
    )
    return PricedOnce(found, narrowed, rows, groups)


def _ranks_of(plans: Plans, cluster: Cluster) -> Hashable:
    """Return all that the groups of ranks of plans depend on, as a key."""
    structure = plans.structure
    named = structure.rank_order, structure.zero, structure.shards, structure.pipeline_schedule
    joined = tuple([tier.devices for tier in cluster.tiers[: cluster.inner_tiers]])
    return content(_DEGREES(plans)), named, cluster.scale_up_devices, joined


def _is_alike(
    item: Item, rows: EqualRows, groups: dict[tuple[str, bool], Group], known: dict[int, bool]
) -> bool:
    """Return whether an item is the same for all plans of a split."""
    work = item.work
    if isinstance(work, AbstractMessage) and (work.axis, True) not in groups:
        return False
    if isinstance(work, HostWork):
        return False
    for value in arrays_of(work):
        if id(value) not in known:
            known[id(value)] = rows.holds(value)
        if not known[id(value)]:
            return False
    return True
