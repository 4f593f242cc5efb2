"""Facts in training logs besides steps: memory of ranks, sizes of the job, and the rank of a line.

Answers: how much memory does this line report, which rank printed it, and does it state a batch, a length
or the number of devices?
Elsewhere: printed steps (formats.py), how all lines are combined (reader.py).

Sizes are returned in bytes: "MB" and "GB" of these frameworks are powers of 1024. Sources of the memory
lines: `report_memory` of the Megatron family (megatron/training/utils.py), `see_memory_usage` of
DeepSpeed (deepspeed/runtime/utils.py) and its ThroughputTimer, MetricsProcessor.log of torchtitan.
"""

import math
import re

from flopcast.lab.logs.formats import MLLOG, NUMBER, mlperf_event, number
from flopcast.records import dataclass

MIB, GIB = 1024.0**2, 1024.0**3
ALLOCATED, MAX_ALLOCATED = "allocated_bytes", "max_allocated_bytes"
RESERVED, MAX_RESERVED = "reserved_bytes", "max_reserved_bytes"
MOST_AXES = 6  # of a device mesh
LEAST_BILLIONS = 0.1  # of parameters: two digits are printed, which say too little of fewer
MOST, MOST_BYTES = 2.0**40, 2.0**60  # what is larger is no size of a job, no memory of a rank
ALL = (ALLOCATED, MAX_ALLOCATED, RESERVED, MAX_RESERVED)


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryLine:
    """A line that reports memory: a text that it contains, and the unit and meaning of its numbers."""

    cue: str
    rule: re.Pattern[str]
    unit_bytes: float
    names: tuple[str, ...]


MEMORY_LINES = (
    MemoryLine(  # report_memory of the Megatron family
        cue="memory (MB)",
        rule=re.compile(
            rf"\| allocated: {NUMBER} \| max allocated: {NUMBER}"
            rf" \| reserved: {NUMBER} \| max reserved: {NUMBER}"
        ),
        unit_bytes=MIB,
        names=ALL,
    ),
    MemoryLine(  # see_memory_usage of DeepSpeed: "cached" is what is now called reserved
        cue="Max_MA",
        rule=re.compile(
            rf"\bMA {NUMBER} GB[\s|]+Max_MA {NUMBER} GB[\s|]+CA {NUMBER} GB[\s|]+Max_CA {NUMBER} GB"
        ),
        unit_bytes=GIB,
        names=ALL,
    ),
    MemoryLine(  # ThroughputTimer of DeepSpeed
        cue="MaxMemAllocated=",
        rule=re.compile(rf"\bMemAllocated={NUMBER}GB, MaxMemAllocated={NUMBER}GB"),
        unit_bytes=GIB,
        names=(ALLOCATED, MAX_ALLOCATED),
    ),
    MemoryLine(  # torchtitan prints its largest reserved memory since the last line
        cue="GiB(",
        rule=re.compile(rf"(?<!validate )\bstep:.*\bmemory:\s*{NUMBER}GiB\("),
        unit_bytes=GIB,
        names=(MAX_RESERVED,),
    ),
)


def memory_of_line(line: str) -> dict[str, float]:
    """Return the bytes that a line reports, by their names in lab.logs.log.RankMemory; empty for most
    lines.

    >>> memory_of_line("MA 1.0 GB  Max_MA 2.0 GB  CA 3.0 GB  Max_CA 3 GB ")["max_allocated_bytes"]
    2147483648.0
    """
    for known in MEMORY_LINES:
        match = known.rule.search(line) if known.cue in line else None
        if match:
            sizes = [number(text) * known.unit_bytes for text in match.groups()]
            named = zip(known.names, sizes, strict=True)
            return {name: size for name, size in named if 0 < size < MOST_BYTES}
    return {}


_DOTS = r"\s+\.*\s*"  # "  seq_length ...................... 2048", as Megatron lists its arguments
# name → a text the line must hold, and where the number stands
FACTS: dict[str, tuple[tuple[str, str], ...]] = {
    "world_size": (
        ("using world size:", r"using world size:\s*(\d+)"),
        # at the start of a line only: inside one, DeepSpeed prints its data-parallel ranks with this name
        ("world_size", rf"^\s*world_size{_DOTS}(\d+)"),
        ("world size:", r"^\s*world size:\s*(\d+)"),
        ("GLOBAL_RANK:", r"GLOBAL_RANK: \d+, MEMBER: \d+/(\d+)"),
    ),
    "global_batch": (
        ("global_batch_size", rf"\bglobal_batch_size{_DOTS}(\d+)"),
        ("train_batch_size", rf"\btrain_batch_size{_DOTS}(\d+)"),
        ("setting global batch size", r"setting global batch size to (\d+)"),
        ("Total train batch size", r"Total train batch size \(.*\) = ([\d,]+)"),
        ("global batch size ", r"\bglobal batch size (\d+), "),
    ),
    "micro_batch": (
        ("micro_batch_size", rf"\bmicro_batch_size{_DOTS}(\d+)"),
        ("train_micro_batch_size_per_gpu", rf"\btrain_micro_batch_size_per_gpu{_DOTS}(\d+)"),
        ("batch size per", r"(?:batch size per GPU:|Instantaneous batch size per device =)\s*(\d+)"),
        ("local batch size", r"\blocal batch size (\d+)"),
    ),
    "sequence_length": (
        ("seq_length", rf"\bseq_length{_DOTS}(\d+)"),
        ("sequence length ", r"\bsequence length (\d+), "),
    ),
    "data_parallel": (("data parallel size:", r"^\s*data parallel size:\s*(\d+)"),),
    "tensor_parallel": (
        ("tensor-model-parallel size:", r"\btensor-model-parallel size:\s*(\d+)"),
        ("tensor_model_parallel_size", rf"^\s*tensor_model_parallel_size{_DOTS}(\d+)"),
    ),
    "pipeline_parallel": (
        ("pipeline-model-parallel size:", r"\bpipeline-model-parallel size:\s*(\d+)"),
        ("pipeline_model_parallel_size", rf"^\s*pipeline_model_parallel_size{_DOTS}(\d+)"),
    ),
    "num_layers": (("num_layers", rf"^\s*num_layers{_DOTS}(\d+)"),),
    "hidden_size": (("hidden_size", rf"^\s*hidden_size{_DOTS}(\d+)"),),
    "parameters": (
        ("total parameters", r"\bsize: ([\d,]+) total parameters"),  # torchtitan
        ("trainable parameters", r"\bNumber of trainable parameters = ([\d,]+)"),  # transformers
    ),
}
_BILLIONS = "Total number of parameters in billions:"  # Megatron-LM
_RECOMPUTE = re.compile(rf"^\s*recompute_granularity{_DOTS}(full|selective|None)\s*$")
MLPERF_FACTS = {  # key of an event → name
    "global_batch_size": "global_batch",
    "max_sequence_length": "sequence_length",
}
_MESH = re.compile(
    r"Building (?:device mesh with parallelism: (.+)|\d+-D device mesh with \[.*?\], \[(.+)\])"
)
_DEGREE = re.compile(r"\b(?:pp|dp_replicate|dp_shard|cp|tp)=(\d+)")  # experts are on ranks of these
_FACTS = [(name, cue, re.compile(rule)) for name, rules in FACTS.items() for cue, rule in rules]
_RANK_PREFIX = re.compile(r"\s*(?:\[(?:rank|default)\s*(\d{1,7})\]:|(\d{1,7}):\s|\S*worker-(\d{1,7}):)\s?")
_RANK_INSIDE = re.compile(r"\[Rank (\d{1,7})\]")


def facts_of_line(line: str) -> dict[str, int]:
    """Return the sizes of the job that a line states, by name; zeros are ignored.

    >>> facts_of_line("using world size: 8, data-parallel-size: 2, tensor-model-parallel size: 4")
    {'world_size': 8, 'tensor_parallel': 4}
    """
    facts: dict[str, int] = {}
    if MLLOG in line:
        event = mlperf_event(line)
        name, value = MLPERF_FACTS.get(str(event.get("key")), ""), event.get("value")
        whole = isinstance(value, int) and not isinstance(value, bool) and 0 < value < MOST
        return {name: value} if name and whole and isinstance(value, int) else {}
    if devices := _mesh_devices(line):
        facts["world_size"] = devices
    for name, cue, rule in _FACTS:
        match = rule.search(line) if cue in line else None
        size = number(match.group(1)) if match else 0.0
        if 0 < size < MOST:
            facts[name] = int(size)
    if _BILLIONS in line and (match := re.search(rf"{_BILLIONS}\s*{NUMBER}", line)):
        billions = number(match.group(1))
        if LEAST_BILLIONS <= billions < MOST / 1e9:
            facts["parameters"] = round(1e9 * billions)
    return facts


def recompute_of_line(line: str) -> str | None:
    """Return the kind of recompute that an argument of Megatron-LM states; None for other lines.

    >>> recompute_of_line("  recompute_granularity ........................... full")
    'full'
    """
    match = _RECOMPUTE.match(line) if "recompute_granularity" in line else None
    return match[1].lower() if match else None


def _mesh_devices(line: str) -> int:
    """Return the devices of the mesh that torchtitan builds; 0 for other lines.

    >>> _mesh_devices("Building device mesh with parallelism: pp=2, dp_replicate=1, dp_shard=8, tp=1, ep=4")
    16
    >>> _mesh_devices("Building 2-D device mesh with ['dp_shard', 'tp'], [4, 2]")
    8
    """
    match = _MESH.search(line) if "device mesh with" in line else None
    if not match:
        return 0
    degrees = _DEGREE.findall(match[1]) if match[1] else re.findall(r"\d+", match[2])
    devices = math.prod(map(int, degrees[:MOST_AXES])) if degrees else 0
    return devices if devices < MOST else 0


def split_rank(line: str) -> tuple[int | None, str]:
    """Return the rank that a launcher wrote before a line, and the line without it.

    Launchers are torchrun ("[rank3]:", "[default3]:"), srun with labels ("3: ") and pdsh ("worker-3:").

    >>> split_rank("[rank3]:step: 10  loss: 5.1"), split_rank("12:30:01 step")
    ((3, 'step: 10  loss: 5.1'), (None, '12:30:01 step'))
    """
    match = _RANK_PREFIX.match(line)
    if not match:
        return None, line
    return int(next(text for text in match.groups() if text)), line[match.end() :]


def rank_inside(line: str) -> int | None:
    """Return the rank that the framework states, as in "[Rank 3] (after 1 iterations) memory (MB)"."""
    match = _RANK_INSIDE.search(line)
    return int(match.group(1)) if match else None
