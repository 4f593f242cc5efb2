"""Meaning of cells in run tables: devices, precisions, recompute, sharding, schedules and memory.

Answers: how are printed device names compared, and which value of a plan does a printed word mean?
Elsewhere: the catalogue's tables (known_names.py), the job of a row (job.py).
"""

import re
from collections.abc import Mapping

from flopcast.files.package_table import meanings, read_table
from flopcast.lab.validation.run import Run

_VENDORS = re.compile(
    r"\b(nvidia|amd|intel|habana|aws|google|cloud|tesla|geforce|instinct|quadro|gpus?|dgx|hgx|\d+x|x\d+)\b"
)
_TABLE = read_table(__package__, "cells.yaml")
PRECISIONS, SCHEDULES = meanings(_TABLE["precisions"]), meanings(_TABLE["schedules"])
MEMORY_UNITS = {"GiB": 2.0**30, "GB": 1e9, "MiB": 2.0**20, "MB": 1e6}
LINK_GIGABITS_PER_S: Mapping[str, float] = _TABLE["link_gigabits_per_s"]
_TECHNOLOGY = re.compile(
    rf"\b({'|'.join(sorted(LINK_GIGABITS_PER_S, key=len, reverse=True))})\b", re.IGNORECASE
)
_RATE = re.compile(r"(\d+(?:[.]\d+)?) ?(Tb|Gb|GB)(?:it)?(?:/s|ps|E)")
_PORTS = re.compile(r"^\s*(\d+) ?x ")
_PER_DEVICE = re.compile(r"(per|/) ?(gpu|device|rank|accelerator)|each gpu", re.IGNORECASE)
_BITS = {"Gb": 1e9 / 8, "Tb": 1e12 / 8, "GB": 1e9}  # bytes/s
NO_WORDS = ("", "none", "false", "no", "off", "0")
OFFLOAD_WORDS = {"params+grads+optimizer to cpu": "optimizer:host,parameters:host"}
FULL_WORDS = ("true", "yes", "full", "on", "all", "block", "full block", "gradient checkpointing")
EVERY_SECOND = "full:every:2"
DEGREES = ("data_parallel", "tensor_parallel", "pipeline_parallel", "context_parallel")
_COUNT = re.compile(r"^\d+ ?x ?(?=[a-z])")  # in front of a device, glued to it or not
_LORA = re.compile(r"(?<!\bno )(?<!\bwithout )\bq?lora\b", re.IGNORECASE)
_RANK = re.compile(r"\brank ?[=:]? ?(\d+)|\br ?[=:] ?(\d+)", re.IGNORECASE)
HEAD_SIZES = (128, 64)  # of models whose table does not print heads: the first that divides their width


def plain_device(printed: str) -> str:
    """Return a device's name in lower case, without its maker, separators and counts.

    Examples
    --------
    >>> plain_device("NVIDIA A100-SXM4-80GB"), plain_device("H100SXM"), plain_device("8xMI300X")
    ('a100 sxm4 80gb', 'h100 sxm', 'mi300x')
    """
    spaced = re.sub(r"[\s_/(),-]+|(?<=\d)(?=sxm|pcie|nvl)", " ", printed.lower())
    return " ".join(_VENDORS.sub(" ", _COUNT.sub("", spaced.strip())).split())


def precision_word(printed: str) -> str:
    """Return the plan's name for a printed precision; an unknown one does not change.

    Examples
    --------
    >>> precision_word("BF16"), precision_word("FP8_MX"), precision_word("fp8-current-scaling")
    ('bf16', 'mxfp8', 'fp8_current')
    """
    small = printed.strip().lower()
    return PRECISIONS.get(small, small)


def offload_word(text: str) -> str:
    """Return the placements in a cell; a text of another form is returned unchanged, and a rule then
    refuses it.

    >>> offload_word("params+grads+optimizer to CPU"), offload_word("false")
    ('optimizer:host,parameters:host', 'none')
    """
    small = text.lower()
    return "none" if small in NO_WORDS else OFFLOAD_WORDS.get(small, small)


def recompute_word(printed: str) -> str:
    """Return the plan's name for a printed recompute mode; an unknown one does not change.

    TorchTitan's "selective layer" recomputes every second block, and its "selective op" recomputes some
    operators of each block (workload/recomputed_operators.py).

    Examples
    --------
    >>> recompute_word("True"), recompute_word("selective layer"), recompute_word("selective:mlp")
    ('full', 'full:every:2', 'selective:mlp')
    """
    small = printed.strip().lower()
    if small in NO_WORDS:
        return "none"
    if small in FULL_WORDS:
        return "full"
    if small in ("selective layer", "selective op"):
        return EVERY_SECOND if small == "selective layer" else "selective:operators"
    return small


def schedule_word(printed: str) -> str | None:
    """Return the schedule of a plan for a printed one, or None if it is unknown.

    A search finds ZB-1p and ZB-2p. ZB-1p may use as much memory as 1F1B, and ZB-2p twice as much; ZB-H1
    and ZB-H2 are the handcrafted schedules with the same memory (arXiv:2401.10241, section 4).

    Examples
    --------
    >>> schedule_word("1F1B"), schedule_word("ZB-2p"), schedule_word("chimera")
    ('1f1b', 'zb_h2', None)
    """
    return SCHEDULES.get(re.sub(r"[^a-z0-9]", "", printed.lower()))


def node_bytes_per_s(printed: str, devices: int) -> float | None:
    """Return the bytes per second of a node's network, one direction, all ports together.

    Parameters
    ----------
    printed : a number of ports with a rate or a technology, or a rate "per node" or "per GPU". "+", "," and
        ";" separates networks; the first part that states a rate counts.
    devices : devices of the node

    Returns
    -------
    float or None
        None if the text does not state the number of ports of a node, or their rate.

    Examples
    --------
    >>> node_bytes_per_s("4x Omni-Path links per node", 4), node_bytes_per_s("400 Gb/s per GPU", 8)
    (50000000000.0, 400000000000.0)
    >>> node_bytes_per_s("100GbE InfiniBand", 8)
    """
    for part in re.split(r"[+;,]", printed):
        ports, rate, technology = _PORTS.search(part), _RATE.search(part), _TECHNOLOGY.search(part)
        count = int(ports[1]) if ports else devices if _PER_DEVICE.search(part) else None
        if count is None and re.search(r"(per|/) ?node", part):
            count = 1
        if count is None or not (rate or technology):
            continue
        each = float(rate[1]) * _BITS[rate[2]] if rate else 0.0
        if technology and not rate:
            each = LINK_GIGABITS_PER_S[technology[1].lower()] * _BITS["Gb"]
        return count * each
    return None


def sharding(run: Run) -> dict[str, object]:
    """Return the meaning of a source's term for sharded data parallelism, or of InternEvo's `zero1`.

    A number, alone or after the term, is the size of the sharding group; 0 and 1 mean no sharding.
    """
    word = run.mapping.fsdp.strip().lower()
    group = re.search(r"(?:size|shard group|fsdp)[ =]+(\d+)$", word) or re.fullmatch(r"()?(\d+)", word)
    zero1 = re.search(r"zero1=(\d+)", run.notes)
    if zero1:
        return {"data_shard": int(zero1[1])}
    if group:
        size, replicas = int(group[group.lastindex or 1]), run.mapping.data_parallel or 0
        return {"zero": 0} if size <= 1 else {"zero": 3, "data_shard": size if size < replicas else 0}
    if word.startswith(("hsdp", "hybrid")):
        return {"zero": 3, "data_shard": run.machine.devices_per_node or 8}
    return (
        {"zero": 3} if word.startswith(("fsdp", "full_shard", "shard_grad_op", "zero3", "zero-3")) else {}
    )


def implied_degrees(run: Run, plan: Mapping[str, object]) -> dict[str, int]:
    """Return blank degrees that must be 1, because the stated degrees or the number of devices leave no
    room for more.

    A table that states a degree above 1, or that parameters are sharded, omits degrees of 1.
    """
    stated = [name for name in (*DEGREES, "expert_parallel") if plan.get(name) not in (None, 1)]
    sharded = plan.get("zero") == 3
    if not stated and not sharded and run.machine.num_devices != 1:
        return {}
    return dict.fromkeys((name for name in DEGREES[1:3] if name not in plan), 1)


def adapters(notes: str, gated: bool = True) -> dict[str, object]:
    """Return the rank and the targets of adapters that remarks mention, for software without defaults of
    its own.

    Rank 8, and adapters only on queries and values, are the defaults of peft's LoraConfig and of its
    targets for Llama. Only a `gated` feed-forward layer has a gate that can have adapters.

    Examples
    --------
    >>> adapters("LoRA rank 64, attention only"), adapters("pre-training")
    ({'rank': 64, 'targets': ['q', 'k', 'v', 'out']}, {})
    """
    if not _LORA.search(notes):
        return {}
    rank = _RANK.search(notes)
    targets = ["q", "v"]
    if re.search(r"attention only", notes):
        targets = ["q", "k", "v", "out"]
    if re.search(r"all[- ]linear|every projection", notes):
        targets = ["q", "k", "v", "out", *(["gate"] if gated else []), "up", "down"]
    return {"rank": int(rank[1] or rank[2]) if rank else 8, "targets": targets}


def assumed_heads(hidden: int) -> int | None:
    """Return the number of heads of 128 or else 64 elements; None if neither divides the width."""
    return next((hidden // size for size in HEAD_SIZES if hidden % size == 0), None)
