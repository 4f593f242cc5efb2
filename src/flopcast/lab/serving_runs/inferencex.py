"""Deployments and launch flags of the engines in InferenceX's results, which the rows do not state.

Answers: with which pools was a row measured that states only degrees and a concurrency? How many tokens
does a pass of a single server have, in which format is the cache, how often does the engine check for new
requests, and are tokens drafted?
Elsewhere: the rows, which are copies of these results (aiconfigurator.py), the published facts
(catalog/runs/inferencex.yaml).

A sweep is one system, engine, number format and pair of lengths. Each of its deployments is written as
CONCURRENCIES:PREFILL+DECODE. If the model's own modules draft tokens, "m" and the number of drafted tokens
come first. A pool is written as the number of instances, a letter, and the number of devices of an
instance:

- T: tensor parallelism only
- E: tensor-parallel attention and expert parallelism
- D: data-parallel attention and expert parallelism
- P: data-parallel attention, with each expert sharded over the ranks

The number after "x" is the largest batch of a decoding instance or, with data-parallel attention, of each
of its groups. It is part of the names of TensorRT-LLM's recipes ("gen4_tep8_batch16", CONFIG_FILE in the
same file). If such a name states that attention is not data-parallel, the name counts. For gpt-oss, the
number is DECODE_MAX_BATCH_SIZE. Recipes on H200, and those of 2025, state the open requests of one decoding
instance, but rows state those of all instances.

Servers of SGLang on Blackwell check for new requests after every tenth decoding pass or, from 16 open
requests on, after every thirtieth (--scheduler-recv-interval). Servers of TensorRT-LLM with data-parallel
attention let a prompt wait up to 60 passes, until the other groups also have one (attention_dp_config:
enable_balance, timeout_iters; 50 by default). This is predicted as a check for new requests after that
number of passes. With other flags (batch_wait_timeout_iters and batch_wait_max_tokens_ratio), prompts
wait until they fill a pass. This applies to dsr1_fp8_b200_trt.sh and, with fewer than eight ranks, to
70b_fp4_b200_trt_slurm.sh, 70b_fp8_b200_trt_slurm.sh and 70b_fp8_h200_trt_slurm.sh.

Rows from a dump of the benchmark's database ("db-dump") have no drafted tokens. In all other rows, a
launch with drafted tokens and a launch without them can have the same degrees. The container image or the
concurrencies of both then distinguish them. If nothing distinguishes them, no tokens are drafted.
"""

import math
import re
from collections.abc import Mapping
from functools import lru_cache

from flopcast.lab.catalog_facts import catalog_facts
from flopcast.records import Record
from flopcast.strict_model import StrictModel

MANY = 16  # open requests
NODE_DEVICES = 16  # of the largest instance whose two pools have equal degrees
OLDEST_DUMP = "db-dump"
OF_2025 = "measured=2025"
DRAFTING_IMAGES = {  # of engine and system: the image of servers that draft tokens, and how many
    ("trtllm", "b200_sxm"): ("release:1.2.0rc6.post3", 3),
    ("sglang", "b300_sxm"): ("sglang:v0.5.9-cu130", 3),
}
BALANCING = "trtllm"
BALANCED = {"DeepSeek": 60, "gpt-oss": 50}  # a word of the model's name, passes
SHORT = "1024/1024"
DEPLOYMENT = re.compile(r"(?:m(\d)\s+)?([\d,]+):(\d+)([TEDP])(\d+)\+(\d+)([TEDP])(\d+)(?:x(\d+))?")


class SweptPool(Record):
    """The instances of a pool: their number, and the degrees of each."""

    instances: int
    kind: str
    devices: int
    most_sequences: int = 0  # of a group of ranks with requests of its own; 0: the engine's default

    @property
    def experts(self) -> int:
        """Return the number of ranks over which experts are spread."""
        return self.devices if self.kind in "ED" else 1

    def fields(self) -> dict[str, int]:
        """Return the fields of a pool of a deployment."""
        groups = self.devices if self.kind in "DP" else 1
        limit = {"max_sequences": self.most_sequences} if self.most_sequences else {}
        return limit | {
            "replicas": self.instances,
            "tensor_parallel": self.devices // groups,
            "data_parallel": groups,
            "expert_parallel": self.experts,
        }


class Swept(Record):
    """One deployment of a sweep, with the concurrencies at which it was measured."""

    concurrencies: tuple[int, ...]
    prefill: SweptPool
    decode: SweptPool
    drafted: int  # tokens; 0 without a draft

    @property
    def devices(self) -> int:
        """Return the devices of all instances of both pools."""
        return sum(pool.instances * pool.devices for pool in (self.prefill, self.decode))

    def nearest(self, concurrency: int) -> int:
        """Return the measured concurrency that is nearest to a given one."""
        return min(self.concurrencies, key=lambda each: abs(math.log(each / concurrency)))


class Launched(StrictModel):
    """The key of a server: the engine, system and precision of rows, and a word in the model's name."""

    engine: str
    system: str
    model: str
    precision: str

    def fits(self, row: Mapping[str, str]) -> bool:
        """Return whether a row was measured on such a server."""
        mine = self.engine, self.system, self.precision
        return mine == (row["backend"], row["system"], row.get("precision", "")) and (
            self.model in row["model_path"]
        )


class Server(Launched):
    """Flags of a server. `intervals` holds the number of decoding passes between two checks for new
    requests, with few and with many open requests.
    """

    max_tokens: int
    cache: str
    intervals: tuple[int, int] = (1, 1)

    def interval(self, concurrency: int) -> int:
        """Return the number of decoding passes between two checks for new requests."""
        return self.intervals[concurrency >= MANY]


class DraftedRange(Launched):
    """Concurrencies from `least` to `most`, at which only servers that draft tokens were launched."""

    lengths: str = ""  # of prompts and outputs; "" for all
    tensor: int
    experts: int  # ranks that experts are spread over
    least: int
    most: int
    drafted: int


class InferenceX(StrictModel):
    """The published facts: sweeps by system, engine, format and lengths, and servers of one node."""

    sweeps: Mapping[str, str]
    sweeps_of_models: Mapping[str, Mapping[str, str]]
    sweeps_of_2025: Mapping[str, str]
    servers: tuple[Server, ...]
    drafted: tuple[DraftedRange, ...]


class BatchWait(Record):
    """The passes for which prompts wait for others, and the share of max_tokens of a full pass."""

    passes: int
    fraction: float


DELAYED = BatchWait(passes=40, fraction=0.8)
DELAYED_FROM = 64  # open requests
DELAYED_LLAMA = BatchWait(passes=20, fraction=0.9)
DELAYED_BELOW = 8  # ranks


def published() -> InferenceX:
    """Return the published facts."""
    return catalog_facts("inferencex", InferenceX)


@lru_cache(maxsize=256)
def deployments(text: str) -> tuple[Swept, ...]:
    """Return the deployments in a text.

    >>> (found,) = deployments("m3 8,24:1D4+4E8x16")
    >>> found.concurrencies, found.decode.fields()["expert_parallel"], found.drafted
    ((8, 24), 8, 3)
    >>> found.decode.fields()["max_sequences"]
    16
    """
    found = []
    for drafted, numbers, *pools, limit in DEPLOYMENT.findall(text):
        first, second = (
            SweptPool(instances=int(count), kind=kind, devices=int(devices), most_sequences=int(most or 0))
            for count, kind, devices, most in ((*pools[:3], 0), (*pools[3:], limit))
        )
        concurrencies = tuple(int(number) for number in numbers.split(","))
        swept = Swept(concurrencies=concurrencies, prefill=first, decode=second, drafted=int(drafted or 0))
        found.append(swept)
    return tuple(found)


def swept(row: Mapping[str, str], concurrency: int) -> tuple[Swept, ...]:
    """Return the possible deployments of a row without numbers of instances, those without drafting first.

    A row states the devices of an instance of each pool, or in 2025 the devices of all instances
    together, or none. In the last two cases, the deployments with the nearest concurrency are returned.
    """
    found = [each for each in deployments(_sweep_of(row)) if _has_devices(each, row)]
    if _states_pools(row):
        ranks = int(float(row["prefill_moe_ep_size"] or 1))
        found = [each for each in found if each.prefill.experts == ranks] or found
        found = [each for each in found if concurrency in each.concurrencies]
    elif found:
        distances = [abs(math.log(each.nearest(concurrency) / concurrency)) for each in found]
        nearest = min(distances)
        found = [each for each, far in zip(found, distances, strict=True) if far == nearest]
    return tuple(sorted(found, key=lambda each: each.drafted))


def has_other_degrees(row: Mapping[str, str]) -> bool:
    """Return whether a row's deployment had other degrees than stated, as SGLang's pools of 2025."""
    return row["backend"] == "sglang" and OF_2025 in row["silicon_data_source"]


def _sweep_of(row: Mapping[str, str]) -> str:
    """Return the published deployments for a row's system, engine, format and lengths."""
    known = published()
    of_model = (texts for word, texts in known.sweeps_of_models.items() if word in row["model_path"])
    usual = known.sweeps_of_2025 if OF_2025 in row["silicon_data_source"] else known.sweeps
    name = f"{row['system']} {row['backend']} {row.get('precision', '')} {row['isl']}/{row['osl']}"
    return next(of_model, usual).get(name, "")


def _stated_devices(row: Mapping[str, str]) -> tuple[int, int]:
    """Return the devices that a row states for an instance of each pool; one number counts for both."""
    numbers = [row.get(f"{pool}_tp_size") or row["tp_size"] for pool in ("prefill", "decode")]
    return int(float(numbers[0])), int(float(numbers[1]))


def _states_pools(row: Mapping[str, str]) -> bool:
    """Return whether a row states the devices of an instance of each pool."""
    first, second = _stated_devices(row)
    return first != second or 1 < first <= NODE_DEVICES


def _has_devices(each: Swept, row: Mapping[str, str]) -> bool:
    """Return whether a deployment has the devices that a row states."""
    first, second = _stated_devices(row)
    if _states_pools(row):
        return (each.prefill.devices, each.decode.devices) == (first, second)
    return first in {1, each.devices}


def server_of(row: Mapping[str, str]) -> Server | None:
    """Return the flags of the server of a row; None if they are unknown."""
    return next((server for server in published().servers if server.fits(row)), None)


def receive_interval(row: Mapping[str, str], groups: int, concurrency: int) -> int:
    """Return the number of decoding passes after which the server of a row accepts new requests.

    Parameters
    ----------
    groups : groups of ranks with separate requests
    """
    server = server_of(row)
    if row["backend"] != BALANCING:
        return 1 if server is None else server.interval(concurrency)
    if groups > 1:
        return next((passes for word, passes in BALANCED.items() if word in row["model_path"]), 1)
    return 1


def batch_wait(row: Mapping[str, str], ranks: int, groups: int, concurrency: int) -> BatchWait | None:
    """Return how prompts on a row's server wait for others; None if they join the next pass.

    Parameters
    ----------
    ranks : tensor-parallel ranks
    groups : groups of them with separate requests
    """
    if row["backend"] != BALANCING or groups > 1 or f"{row['isl']}/{row['osl']}" != SHORT:
        return None
    if "Llama-3.1-70B" in row["model_path"]:
        return DELAYED_LLAMA if ranks < DELAYED_BELOW else None
    key = row["system"], row.get("precision", ""), "DeepSeek" in row["model_path"]
    return DELAYED if key == ("b200_sxm", "fp8", True) and concurrency >= DELAYED_FROM else None


def drafted_tokens(row: Mapping[str, str], ranks: tuple[int, int, int], concurrency: int) -> int:
    """Return the number of tokens that a row's server drafted per sequence and pass; 0 if it drafted no
    tokens.

    Parameters
    ----------
    ranks : tensor-parallel ranks, groups of them with separate requests, ranks of experts
    """
    source = row["silicon_data_source"]
    if source.startswith(OLDEST_DUMP) or "gpt-oss" in row["model_path"]:
        return 0
    tensor, groups, experts = ranks
    image, drafted = DRAFTING_IMAGES.get((row["backend"], row["system"]), ("", 0))
    if image and any(word.endswith(image) for word in source.replace("#", "/").split("; ")):
        return 1 if groups > 1 else drafted
    lengths = f"{row['isl']}/{row['osl']}"
    for each in published().drafted:
        of_degrees = each.fits(row) and (tensor, experts) == (each.tensor, each.experts)
        if of_degrees and each.lengths in ("", lengths) and each.least <= concurrency <= each.most:
            return each.drafted
    return 0
