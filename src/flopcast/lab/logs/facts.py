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

from flopcast.lab.logs.formats import MLLOG, NUMBER, log_table, mlperf_event, number
from flopcast.records import Record

MIB, GIB = 1024.0**2, 1024.0**3
ALLOCATED, MAX_ALLOCATED = "allocated_bytes", "max_allocated_bytes"
RESERVED, MAX_RESERVED = "reserved_bytes", "max_reserved_bytes"
MOST_AXES = 6  # of a device mesh
LEAST_BILLIONS = 0.1  # of parameters: two digits are printed, which say too little of fewer
MOST, MOST_BYTES = 2.0**40, 2.0**60  # what is larger is no size of a job, no memory of a rank
ALL = (ALLOCATED, MAX_ALLOCATED, RESERVED, MAX_RESERVED)


class MemoryLine(Record):
    """A line that reports memory: a text that it contains, and the unit and meaning of its numbers."""

    cue: str
    rule: re.Pattern[str]
    unit_bytes: float
    names: tuple[str, ...]


MEMORY_LINES = tuple(
    MemoryLine(
        cue=row["cue"],
        rule=re.compile(row["rule"].replace("{number}", NUMBER)),
        unit_bytes={"MiB": MIB, "GiB": GIB}[row["unit"]],
        names=tuple(row["names"]),
    )
    for row in log_table()["memory"]
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
_FACTS = [  # name, a text the line must hold, and where the number stands
    (name, cue, re.compile(rule.replace("{dots}", _DOTS)))
    for name, rules in log_table()["sizes"].items()
    for cue, rule in rules.items()
]
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
