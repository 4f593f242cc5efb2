"""The shard groups that a search tries if the user sets none.

Answers: which groups and message formats does a stack support on a cluster, and which does the search try?
Elsewhere: groups (spec/shards.py), their rules (spec/rules_shard_groups.py).
"""

from itertools import product

from flopcast.spec.job import Job
from flopcast.spec.shards import MESSAGE_BYTES, ShardGroup

Groups = tuple[ShardGroup, ...]


def shard_choices(job: Job) -> tuple[Groups, ...]:
    """Return the shard groups to try for a job; the first choice has no separate groups.

    A group is the devices of a node or of a tier inside it, because messages in wider groups use the same
    links as those of all ranks. The gradients' group is not smaller than that of parameters.

    Parameters
    ----------
    job : its plan is not used
    """
    cluster, levels = job.cluster, job.stack.sharding.levels
    domains = (*(tier.devices for tier in cluster.tiers[: cluster.inner_tiers]), cluster.scale_up_devices)
    sizes = {kind: (0, *domains) if kind in levels else (0,) for kind in ("parameters", "gradients")}
    found: list[Groups] = [()]
    for parameters, gradients, copy, narrow in product(
        sizes["parameters"],
        sizes["gradients"],
        (0, *domains) if "secondary" in levels else (0,),
        (False, True),
    ):
        ordered = not gradients or (parameters and parameters <= gradients)
        useful = not copy or not parameters or copy < parameters
        if ordered and useful:
            found.append(_groups(job, {"parameters": parameters, "gradients": gradients}, copy, narrow))
    return tuple(dict.fromkeys(found))


def _groups(job: Job, sizes: dict[str, int], copy: int, narrow: bool) -> Groups:
    """Return groups of these sizes, 0 for that of all, with narrow messages where the stack has them."""
    kinds = {**sizes, **({"secondary": copy} if copy else {})}
    groups = (
        ShardGroup.model_validate(
            {"kind": kind, "ranks": ranks, "messages": _narrowest(job, kind) if narrow else ""}
        )
        for kind, ranks in kinds.items()
    )
    return tuple(one for one in groups if one.ranks or one.messages)


def _narrowest(job: Job, kind: str) -> str:
    """Return the format with the fewest bytes in which the stack sends a kind of state; "" if none."""
    known = [name for name in MESSAGE_BYTES if f"{kind}:{name}" in job.stack.sharding.levels]
    return min(known, key=lambda name: MESSAGE_BYTES[name], default="")
