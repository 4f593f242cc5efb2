"""The rules about groups of unequal nodes.

Answers: which groups contradict each other or the plan, why, and which edit fixes this?
Elsewhere: which ranks run on a group (node_groups.py), what a rule is (checks.py).
"""

from flopcast.spec.checks import Case, Rule, first
from flopcast.spec.node_groups import first_plan, replicas_of_groups, whole_places
from flopcast.spec.offload import OUTER, Placement, offload_word


def _several(case: Case) -> bool:
    return len(case.cluster.groups) > 1


def _fills(case: Case) -> bool:
    """Return whether a plan uses every device, which other rules ask for."""
    return first_plan(case.plans).devices == case.cluster.num_devices


def _devices_per_node(case: Case) -> list[int]:
    return [group.node.devices for group in case.cluster.groups]


def _own_tiers(case: Case) -> bool:
    """Return whether a group has its own tiers."""
    return any(group.tiers for group in case.cluster.groups)


def _slow_links(case: Case) -> list[str]:
    return [part.word() for part in case.site.slow if part.is_link]


def _measured(case: Case) -> bool:
    """Return whether a tier has a matrix of links."""
    return any(tier.links is not None for tier in case.cluster.tiers)


def _outer_states(case: Case) -> tuple[Placement, ...]:
    return tuple(one for one in case.structure.offload if one.kind == OUTER)


def _divided(case: Case) -> list[int]:
    """Return the groups that state their micro-batches."""
    return [place for place, group in enumerate(case.cluster.groups) if group.micro_batches is not None]


def _replicas(case: Case) -> list[int] | None:
    """Return the number of replicas of all peers on each group; None if a replica is on several."""
    return replicas_of_groups(first_plan(case.plans), case.cluster)


def _stated(case: Case) -> int:
    """Return the micro-batches that groups state, over all replicas; 0 for groups that state none."""
    pairs = zip(case.cluster.groups, _replicas(case) or (), strict=False)
    return sum((group.micro_batches or 0) * replicas for group, replicas in pairs)


def _all(case: Case) -> int:
    """Return the micro-batches of a step over all replicas of all peers."""
    replicas = case.structure.peers * case.plans.data_parallel
    return first(replicas * case.plans.num_micro_batches)


RULES: tuple[Rule, ...] = (
    Rule(
        field="cluster.groups",
        holds=lambda c: len(set(_devices_per_node(c))) == 1,
        value=lambda c: " and ".join(map(str, _devices_per_node(c))) + " devices in a node",
        allowed="groups whose nodes have the same number of devices",
        because="nodes with different numbers of devices are not supported yet",
        fix=lambda c: f"change devices of every group to {_devices_per_node(c)[0]}",
    ),
    Rule(
        field="cluster.groups",
        holds=lambda c: not _several(c) or not _fills(c) or whole_places(first_plan(c.plans), c.cluster),
        value=lambda c: f"{len(c.cluster.groups)} groups",
        allowed="groups in which the number of devices is a multiple of the number of ranks of one stage",
        because=(
            "all ranks of a stage must be on the same kind of nodes, because they wait for each other "
            "in every layer"
        ),
        fix="change the counts of the groups, or the degrees of the plan",
    ),
    Rule(
        field="cluster.groups",
        about_lists=True,
        holds=lambda c: not (_several(c) and c.batch.listed),
        value=lambda c: f"{len(c.cluster.groups)} groups",
        allowed="only one group of nodes, because micro-batches are listed",
        because="several groups of nodes together with listed micro-batches are not supported yet",
        fix="remove the list of micro-batches, or describe one group",
    ),
    Rule(
        field="cluster.groups",
        holds=lambda c: not (_own_tiers(c) and (_measured(c) or _slow_links(c))),
        value=lambda c: ",".join(_slow_links(c)) or "measured links",
        allowed=(
            "slow devices and slow hosts, but no slow or measured links, because groups have their own "
            "tiers"
        ),
        because="slow or measured links together with tiers of groups are not supported yet",
        fix="remove the slow or measured links, or tiers of the groups",
    ),
    Rule(
        field="cluster.groups",
        holds=lambda c: _several(c) or not c.cluster.groups[0].tiers,
        value=lambda _: "one group with tiers",
        allowed=(
            "no tiers in the group, because there is only one group; describe the networks in cluster.tiers"
        ),
        because="only clusters with several groups can have separate tiers for each group",
        fix="describe the tiers as cluster.tiers",
    ),
    Rule(
        field="cluster.groups",
        holds=lambda c: not _divided(c) or not _fills(c) or _replicas(c) is not None,
        value=lambda c: f"micro_batches of {len(_divided(c))} groups",
        allowed="no micro_batches in groups, because stages of one replica run on different groups",
        because="all stages of a data-parallel replica run the same micro-batches",
        fix="remove micro_batches of the groups, or choose a rank order that ends with dp",
    ),
    Rule(
        field="cluster.groups",
        about_steps=True,
        holds=lambda c: not _divided(c) or _replicas(c) is None or _stated(c) == _all(c),
        value=lambda c: f"{_stated(c)} micro-batches",
        allowed=lambda c: f"values of micro_batches whose sum over all replicas is {_all(c)}",
        because="all replicas together run all sequences of the global batch exactly once",
        fix=lambda c: f"change micro_batches until their sum over replicas is {_all(c)}",
    ),
    Rule(
        field="plan.virtual_stages",
        holds=lambda c: not _divided(c) or c.plans.virtual_stages == 1,
        allowed="1, because the groups of the cluster state their own micro_batches",
        because="interleaved stages are not supported yet if groups run different numbers of micro-batches",
        fix={"virtual_stages": 1},
    ),
    Rule(
        field="plan.offload",
        holds=lambda c: not (_several(c) and any(one.kind != OUTER for one in c.structure.offload)),
        allowed="no offload except outer:host, because the groups of nodes differ",
        because="only outer states can be offloaded on groups of different nodes",
        fix=lambda c: {"offload": offload_word(_outer_states(c)) or "none"},
    ),
)
