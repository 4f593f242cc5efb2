"""The rows of measured collectives as messages on a fabric.

Answers: which rows belong to which fabric and tier, which rows are broken, and in which unit is a size?
Sources: data/collectives (arXiv:2509.22832); data/peers/vtrain (GitHub VIA-Research/vTrain, MIT) for eight
A100 on NVSwitch and eight V100; data/peers/aiconfigurator (GitHub ai-dynamo/aiconfigurator, Apache-2.0):
NCCL on one node of 2 to 8 devices, messages of 512 bytes to half a gigabyte, the all-reduces of serving
engines, and the dispatch and combine of experts by DeepEP (GitHub deepseek-ai/DeepEP).
Elsewhere: fitting (curve_fit.py).

Every source defines a message's size differently. Here all sizes are converted to the definition of
operators/messages.py: the array on every rank (all-reduce), the gathered result (all-gather), the full
input of one rank (reduce-scatter), the sent data (send-receive). A size that is too large by a factor of
n appears as a bus bandwidth that no link has. One file is one line of FABRICS, WITH_LATENCY or
WITHOUT_LATENCY.

In aiconfigurator, `num_elements` counts elements of 2 bytes: those of the gathered result (all-gather),
of one rank's whole input (reduce-scatter, all-to-all), or of the array on every rank (all-reduce). One
version of NCCL serves each fabric, the newest that was measured on all of them; the other versions differ
from it by 2 to 3 % and only serve to check the curve.

Serving engines use their own all-reduces for small messages and NCCL for large ones. At each size, the
fastest row of the newest TensorRT-LLM and the newest vLLM counts. The all-reduce of vLLM alone takes up to
three times as long from the size at which it runs another kernel (`SWITCHING`), so its rows are not
smoothed. Small messages of vLLM and SGLang were timed twice, in a CUDA graph and with a launch from the
host, which takes 20 us or more; TensorRT-LLM timed the kernels alone.

Rows of DeepEP count tokens; bytes follow from their routing, which is uniform (`expected_copies`). Tokens
are sent in 8 bits with a scale of 4 bytes for 128 elements, and return in 16 bits. The number of tokens
for each rank is known in advance (collector/wideep/sglang of aiconfigurator). All devices of a node take
part: 8, or 4 with Grace. The time of these kernels depends on the number of tokens as much as on the
bytes. A curve over bytes fits the middle of the measured models, 4096 elements with 6 or more experts per
token, and its error covers the rest.
"""

from collections.abc import Callable, Mapping

import numpy as np

from flopcast.dtypes import Counts, Floats
from flopcast.operators.exchanges import expected_copies
from flopcast.records import dataclass

Columns = Mapping[str, Floats]
BYTES_PER_ELEMENT = 2.0  # dtype half


@dataclass(frozen=True, eq=False, slots=True)
class FabricFile:
    """The rows of one file on one fabric; sizes follow the definition of operators/messages.py.

    The functions take the file's columns and return arrays of shape (rows,): `size_bytes` and `seconds`
    of each message, `inside` and `nodes` of its group, and `keep`, which marks rows of this tier and
    collective. `cluster` and `tier` identify the bandwidth and latency to which the efficiencies refer.
    Unless stated otherwise, the columns are those of aiconfigurator's tables for one node.
    """

    fabric: str
    cluster: str  # whose tier the fabric is
    tier: str
    collective: str
    path: str  # under the data folder
    keep: Callable[[Columns], np.ndarray]
    size_bytes: Callable[[Columns], Floats] = lambda r: r["num_elements"] * BYTES_PER_ELEMENT
    inside: Callable[[Columns], Counts] = lambda r: r["num_gpus"]
    nodes: Callable[[Columns], Counts] = lambda r: np.ones_like(next(iter(r.values())))
    seconds: Callable[[Columns], Floats] = lambda r: r["latency_ms"] * 1e-3


def _paper_file(fabric: str, cluster: str, tier: str, system: str, collective: str) -> FabricFile:
    """Return a file of data/collectives; the elements of an all-gather are the contribution of each rank.

    The same file holds rows within a node and between nodes; the tier selects them. A transfer goes from
    the first rank to the last. Between nodes, it goes from a rank of one node to a rank of another.
    """
    names = {"all_reduce": "all_reduce", "all_gather": "all_gather", "send_receive": "p2p"}
    gathers = collective == "all_gather"
    pair = collective == "send_receive"
    local = tier == "nvlink"
    return FabricFile(
        fabric,
        cluster,
        tier,
        collective,
        f"collectives/{system}/{names[collective]}.csv",
        size_bytes=lambda r: r["message_bytes"] * (r["nodes"] * r["gpus_per_node"] if gathers else 1.0),
        inside=lambda r: np.where(pair & (r["nodes"] > 1), 1.0, r["gpus_per_node"]),
        nodes=lambda r: r["nodes"],
        seconds=lambda r: r["time_us"] * 1e-6,
        keep=lambda r: (r["nodes"] == 1) if local else (r["nodes"] > 1),
    )


def vtrain_file(fabric: str, cluster: str, gpu: str) -> FabricFile:
    """Return all-reduces over 2 to 8 devices of one node, from 1 MiB to 1 GiB.

    Parameters
    ----------
    fabric, cluster : str
        The fabric whose curve is fitted, and the cluster of the catalogue that has this fabric.
    gpu : str
        Value of the table's column `gpu`, "A100" or "V100".
    """
    return FabricFile(
        fabric,
        cluster,
        "nvlink",
        "all_reduce",
        "peers/vtrain/nccl_allreduce_single_node.csv.gz",
        size_bytes=lambda r: r["bytes"],
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

NCCL_TABLE = "peers/aiconfigurator/nccl_collectives.csv.gz"
COLLECTIVES = {  # of operators/messages.py → the table's
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "all_to_all": "alltoall",
}


def rows_of_table(system: str, version: str, operation: str) -> Callable[[Columns], np.ndarray]:
    """Return a function that marks the 16-bit rows of one system, NCCL version and operation."""
    words = (f"system={system}", f"nccl_version={version}", f"op={operation}", "dtype=half")
    return lambda r: np.asarray(np.all([r[word] == 1 for word in words], axis=0))


def nccl_file(
    fabric: str, cluster: str, tier: str, system: str, collective: str, version: str = "2.29.2"
) -> FabricFile:
    """Return the rows of one collective on one system, as messages within a node.

    Parameters
    ----------
    fabric, cluster, tier : str
        The owner of the curve, and the place in the catalogue of the link whose bandwidth is the bound.
    system, version : str
        Values of the table's columns: the machine, and the release of NCCL.
    collective : str
        Name as in cost/collectives/formulas.py.
    """
    return FabricFile(
        fabric,
        cluster,
        tier,
        collective,
        NCCL_TABLE,
        keep=rows_of_table(system, version, COLLECTIVES[collective]),
    )


SYSTEMS = (  # fabric, cluster whose tier it is, tier, the table's name of the system
    ("h100-nvswitch", "dgx-h100", "nvlink", "h100_sxm"),
    ("h200-nvswitch", "dgx-h200", "nvlink", "h200_sxm"),
    ("b200-nvswitch", "dgx-b200", "nvlink", "b200_sxm"),
    ("b300-nvswitch", "dgx-b300", "nvlink", "b300_sxm"),
    ("gb200-nvlink", "gb200-nvl72", "nvlink", "gb200"),
    ("gb300-nvlink", "gb300-nvl72", "nvlink", "gb300"),
    ("rtx-pro-6000-pcie", "rtx-pro-6000-8", "pcie", "rtx_pro_6000_server"),
)

SERVED_TABLE = "peers/aiconfigurator/custom_allreduce.csv.gz"
SERVED_VERSIONS = ("framework_version=1.3.0rc20", "framework_version=0.24.0")  # TensorRT-LLM's and vLLM's
SERVED_VERSIONS_OF_A100 = ("framework_version=1.0.0", "framework_version=0.14.0")
# By ranks, the bytes from which vLLM's all-reduce runs another kernel: two stages instead of one that reads
# all parts (csrc/custom_all_reduce.cuh), and from 1 MiB on Blackwell, multicast memory
# (vllm/distributed/device_communicators/all_reduce_utils.py).
SWITCHING = {"custom_all_reduce": {4: (2**19,), 8: (2**18, 2**20)}}
CUSTOM_VERSIONS = ("framework_version=0.24.0",)  # vLLM's
CUSTOM_VERSIONS_OF_A100 = ("framework_version=0.14.0",)


def served_file(
    fabric: str,
    cluster: str,
    tier: str,
    system: str,
    versions: tuple[str, ...] = SERVED_VERSIONS,
    collective: str = "served_all_reduce",
) -> FabricFile:
    """Return the fastest all-reduce of serving engines at each size on one system, within a node.

    For each size and number of ranks, the row of all `versions` with the shortest time counts, because an
    engine chooses the fastest of its kernels. `collective` is the name of the curve.
    """

    def fastest(r: Columns) -> np.ndarray:
        """Return the fastest rows of these versions on the system, for each size and number of ranks."""
        known = [version for version in versions if version in r]
        mine = (r[f"system={system}"] == 1) & np.any([r[version] == 1 for version in known], axis=0)
        cases = np.stack([r["num_gpus"], r["num_elements"]])
        _, case = np.unique(cases, axis=1, return_inverse=True)
        least_ms = np.full(case.max() + 1, np.inf)
        np.minimum.at(least_ms, case.ravel()[mine], r["latency_ms"][mine])
        return np.asarray(mine & (r["latency_ms"] <= least_ms[case.ravel()]))

    return FabricFile(fabric, cluster, tier, collective, SERVED_TABLE, keep=fastest)


DEEPEP_TABLE = "peers/aiconfigurator/deepep_normal.csv.gz"
DEEPEP_VERSION = "ver=0.5.12"  # of sglang, around it
MULTIPROCESSORS = 20.0  # that it takes from the kernels beside it: the default of DeepEP's Buffer.num_sms
FEWEST_TOKENS = 512.0  # of a rank: with fewer one serves and does not train
TOKEN_BYTES: dict[str, Callable[[Columns], Floats]] = {
    "dispatch": lambda r: r["hidden_size"] * (1.0 + 4.0 / 128.0),
    "combine": lambda r: r["hidden_size"] * 2.0,
}


def exchange_file(
    fabric: str, cluster: str, tier: str, system: str, collective: str, ranks: int
) -> FabricFile:
    """Return the rows of a dispatch or a combine over all `ranks` of one node of a system.

    The time is the sum of the transfer and of the notification before it. Rows with few tokens, which
    decoding kernels would send, and rows with another number of multiprocessors are left out.
    """

    def copied_bytes(r: Columns) -> Floats:
        """Return the bytes of all copies of one rank's tokens, including copies that stay on the rank."""
        copies = expected_copies(r["num_experts"], r["num_topk"], np.full_like(r["num_topk"], ranks))
        return np.asarray(r["num_token"] * TOKEN_BYTES[collective](r) * copies)

    def belongs(r: Columns) -> np.ndarray:
        """Return one system's and version's rows within a node, with a training run's multiprocessors."""
        here = (r[f"system={system}"] == 1) & (r[DEEPEP_VERSION] == 1) & (r["node_num"] == 1)
        here &= r["num_token"] >= FEWEST_TOKENS
        return np.asarray(here & (r[f"{collective}_sms"] == MULTIPROCESSORS))

    return FabricFile(
        fabric,
        cluster,
        tier,
        collective,
        DEEPEP_TABLE,
        size_bytes=copied_bytes,
        inside=lambda r: np.full_like(r["num_token"], ranks),
        seconds=lambda r: (r[f"{collective}_transmit_us"] + r[f"{collective}_notify_us"]) * 1e-6,
        keep=belongs,
    )


EXCHANGES = tuple(
    exchange_file(*system, collective, ranks=4 if system[0].startswith("gb") else 8)
    for system in SYSTEMS
    if system[0] != "rtx-pro-6000-pcie"  # DeepEP needs NVLink
    for collective in TOKEN_BYTES
)
WITH_LATENCY: tuple[FabricFile, ...] = (  # small messages were measured: the curve holds its own latency
    *(nccl_file(*system, collective) for system in SYSTEMS for collective in COLLECTIVES),
    *(
        nccl_file("a100-nvswitch", "dgx-a100", "nvlink", "a100_sxm", collective, "2.27.3")
        for collective in ("all_gather", "reduce_scatter", "all_to_all")
    ),
    *EXCHANGES,
    *(served_file(*system) for system in SYSTEMS),
    served_file("a100-nvswitch", "dgx-a100", "nvlink", "a100_sxm", SERVED_VERSIONS_OF_A100),
    *(served_file(*system, CUSTOM_VERSIONS, "custom_all_reduce") for system in SYSTEMS),
    served_file(
        "a100-nvswitch", "dgx-a100", "nvlink", "a100_sxm", CUSTOM_VERSIONS_OF_A100, "custom_all_reduce"
    ),
)

# Messages of 1 MiB and more: their hops are the tier's. The V100 machine is not named: 134 GB/s over eight
# devices, 23 over two, is a mesh of NVLink 2.
WITHOUT_LATENCY = (vtrain_file("v100-nvlink-mesh", "dgx-1", "v100"),)
