"""One plan laid out best: the order of nodes, the division over unequal groups, strategies of blocks.

Answers: what is the best placement of a plan on measured links or on groups of different nodes, which
blocks should have their own strategies, and at which blocks is a model divided over a chain of devices?
Elsewhere: the searches (search/node_order.py, search/group_division.py, search/per_layer.py,
search/split_points.py), predictions (api.py).
"""

from flopcast.library.curves import load_book
from flopcast.search import group_division, node_order, per_layer, split_points
from flopcast.search.group_division import GroupDivision
from flopcast.search.node_order import NodeOrder
from flopcast.search.per_layer import PerLayer
from flopcast.search.split_points import SplitFront
from flopcast.spec.job import Job


def best_node_order(job: Job) -> NodeOrder:
    """Return the best order of nodes for the plan of a job on a cluster with measured links.

    Raises
    ------
    SpecError
        The cluster has no matrix of links, or the job contradicts itself.

    Examples
    --------
    >>> from flopcast.jobs import job
    >>> links = {"rows": [[0, 20, 5], [20, 0, 20], [5, 20, 0]], "unit": "GB/s"}
    >>> found = best_node_order(job(
    ...     "llama-3-8b", cluster={"base": "dgx-a100:3", "tiers": {"1": {"links": links}}},
    ...     plan="dp=1 tp=8 pp=3 gbs=8 stage_layers=11,11,10"))
    >>> found.speedup_ratio >= 1.0
    True
    """
    return node_order.best_node_order(job, load_book(job.cluster))


def best_group_division(job: Job) -> GroupDivision:
    """Return the best division of a job over the groups of its cluster: blocks, or micro-batches.

    Raises
    ------
    SpecError
        The cluster has one group, the plan cannot be divided, or no division fits.

    Examples
    --------
    >>> from flopcast.jobs import job
    >>> groups = [{"count": 1, "node": {"device": device, "devices": 8, "host": "epyc-7763"}}
    ...           for device in ("a100-sxm4-80gb", "h100-sxm5-80gb")]
    >>> mixed = {"base": "dgx-a100", "groups": groups}
    >>> found = best_group_division(job(
    ...     "llama-3-8b", cluster=mixed, plan="dp=8 pp=2 gbs=64 zero=1", seq=2048))
    >>> found.what, found.parts[0] < found.parts[1]
    ('blocks', True)
    """
    return group_division.best_group_division(job, load_book(job.cluster))


def best_strategies(job: Job, *, placements: bool = False) -> PerLayer:
    """Return the best strategies of the blocks of a job's plan: tensor parallelism, ZeRO and recompute.

    Parameters
    ----------
    placements : whether strategies are recompute and placements on the host instead

    Raises
    ------
    SpecError
        The job cannot have strategies of blocks, or no strategies fit.

    Examples
    --------
    >>> from flopcast.jobs import job
    >>> found = best_strategies(job(
    ...     "llama-2-7b", cluster="dgx-a100:1", plan="dp=1 tp=8 mbs=1 gbs=8", seq=4096))
    >>> found.speedup_ratio >= 1.0
    True
    """
    return per_layer.best_per_layer(job, load_book(job.cluster), placements=placements)


def best_split_points(job: Job) -> SplitFront:
    """Return the divisions of a model over a chain of devices, and the front of latency and throughput.

    Raises
    ------
    SpecError
        The job trains, its plan has other degrees than pipeline stages, or no division fits.

    Examples
    --------
    >>> from flopcast.jobs import job
    >>> found = best_split_points(job(
    ...     "megatron-1.7b", cluster="jetson-agx-orin:2", plan="pp=2 mbs=1 gbs=1", seq=128, inference=True))
    >>> sum(found.on_front[-1].blocks) == found.job.model.num_blocks
    True
    """
    return split_points.split_front(job, load_book(job.cluster))
