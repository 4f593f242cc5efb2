"""The rows of `data/collectives` and of vTrain's table as messages on a tier.

Answers: which rows belong to which fabric and tier, what is broken, in which unit is a size?
Sources: data/collectives (arXiv:2509.22832); data/peers/vtrain (GitHub VIA-Research/vTrain, MIT) for eight
A100 on NVSwitch. Elsewhere: tables with small messages (peer_collectives.py).

Every source has its own idea of a message's size; here all become that of operators/messages.py: what
every rank holds (all-reduce), the gathered result (all-gather), the full input of one rank
(reduce-scatter), what is sent (send-receive). A factor of n too many shows as a bus bandwidth that no
link has. One file is one line of FABRICS.
"""

from collections.abc import Callable, Mapping

import numpy as np

from flopcast.dtypes import Counts, Floats
from flopcast.records import dataclass

Columns = Mapping[str, Floats]


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class FabricFile:
    """The rows of one file on one fabric; sizes follow the convention of operators/messages.py.

    The functions take the file's columns and give arrays of shape (rows,): `size_bytes` and `seconds` of
    each message, `inside` and `nodes` of its group, `keep` where a row belongs to this tier and
    collective. `cluster` and `tier` name whose bandwidth and latency the efficiencies refer to.
    """

    fabric: str
    cluster: str  # whose tier the fabric is
    tier: str
    collective: str
    path: str  # under the data folder
    size_bytes: Callable[[Columns], Floats]
    inside: Callable[[Columns], Counts]
    nodes: Callable[[Columns], Counts]
    seconds: Callable[[Columns], Floats]
    keep: Callable[[Columns], np.ndarray]


def _paper_file(fabric: str, cluster: str, tier: str, system: str, collective: str) -> FabricFile:
    """Return a file of data/collectives; the elements of an all-gather are what each rank contributes.

    The same file holds rows inside a node and between nodes; the tier picks them. A transfer goes from
    the first rank to the last: between nodes, from one rank of a node to one of another.
    """
    names = {"all_reduce": "all_reduce", "all_gather": "all_gather", "send_receive": "p2p"}
    gathers = collective == "all_gather"
    pair = collective == "send_receive"
    local = tier == "nvlink"
    return FabricFile(
        fabric=fabric,
        cluster=cluster,
        tier=tier,
        collective=collective,
        path=f"collectives/{system}/{names[collective]}.csv",
        size_bytes=lambda r: r["message_bytes"] * (r["nodes"] * r["gpus_per_node"] if gathers else 1.0),
        inside=lambda r: np.where(pair & (r["nodes"] > 1), 1.0, r["gpus_per_node"]),
        nodes=lambda r: r["nodes"],
        seconds=lambda r: r["time_us"] * 1e-6,
        keep=lambda r: (r["nodes"] == 1) if local else (r["nodes"] > 1),
    )


def vtrain_file(fabric: str, cluster: str, gpu: str) -> FabricFile:
    """Return all-reduces over 2 to 8 devices of one node, 1 MiB to 1 GiB.

    Parameters
    ----------
    fabric, cluster : str
        The fabric whose curve is fitted, and the catalogue's cluster that has it.
    gpu : str
        Value of the table's column `gpu`, "A100" or "V100".
    """
    return FabricFile(
        fabric=fabric,
        cluster=cluster,
        tier="nvlink",
        collective="all_reduce",
        path="peers/vtrain/nccl_allreduce_single_node.csv.gz",
        size_bytes=lambda r: r["bytes"],
        inside=lambda r: r["num_gpus"],
        nodes=lambda r: np.ones_like(r["num_gpus"]),
        seconds=lambda r: r["out_of_place_us"] * 1e-6,
        keep=lambda r: r[f"gpu={gpu}"] == 1,
    )


A100, GH200 = "perlmutter-a100-sxm4-80gb", "vista-gh200"
FABRICS: tuple[FabricFile, ...] = (
    _paper_file("perlmutter-nvlink", "perlmutter-tcp", "nvlink", A100, "all_reduce"),
    _paper_file("perlmutter-nvlink", "perlmutter-tcp", "nvlink", A100, "send_receive"),
    _paper_file("perlmutter-tcp", "perlmutter-tcp", "slingshot", A100, "all_reduce"),
    _paper_file("perlmutter-tcp", "perlmutter-tcp", "slingshot", A100, "all_gather"),
    _paper_file("perlmutter-tcp", "perlmutter-tcp", "slingshot", A100, "send_receive"),
    _paper_file("vista-ndr", "vista", "infiniband", GH200, "all_reduce"),
    _paper_file("vista-ndr", "vista", "infiniband", GH200, "send_receive"),
    vtrain_file("a100-nvswitch", "dgx-a100", "a100"),
)
