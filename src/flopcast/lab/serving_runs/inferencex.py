"""How InferenceX deployed and launched the engines of its results, which their rows do not state.

Answers: with which pools was a row measured that states degrees and a concurrency alone? How many tokens
has a pass of a single server, in which format is the cache, how often does the engine look for new
requests, and are tokens drafted?
Elsewhere: the rows, which are copies of these results (aiconfigurator.py), the published facts
(catalog/runs/inferencex.yaml).

A sweep is one system, engine, number format and pair of lengths. Each of its deployments is written as
CONCURRENCIES:PREFILL+DECODE, with "m" and the number of drafted tokens in front where tokens are drafted by
the model's own modules. A pool is a number of instances, a letter and the devices of an instance: T for
tensor parallelism alone, E for experts that are spread over these ranks, D for attention that is
data-parallel as well, P for data-parallel attention with experts that are cut. Behind "x" stands the
largest batch of a decoding instance, or of each of its groups with data-parallel attention. It is part of
the names of TensorRT-LLM's recipes ("gen4_tep8_batch16", CONFIG_FILE in the same file); where such a name
says that attention is not data-parallel, that counts. For gpt-oss it is DECODE_MAX_BATCH_SIZE.
Recipes on H200 and those of 2025 state the open requests of one decoding instance; rows state those of all.

Servers of SGLang on Blackwell look for new requests after every tenth decoding pass, or after every
thirtieth from 16 open requests on (--scheduler-recv-interval). Servers of TensorRT-LLM with data-parallel
attention let a prompt wait up to 60 passes, until the other groups have one as well (attention_dp_config:
enable_balance, timeout_iters; 50 by default), which is predicted as looks for new requests after as many
passes. With other flags (batch_wait_timeout_iters and batch_wait_max_tokens_ratio), prompts wait until they
fill a pass: in dsr1_fp8_b200_trt.sh, and with fewer than eight ranks in 70b_fp4_b200_trt_slurm.sh,
70b_fp8_b200_trt_slurm.sh and 70b_fp8_h200_trt_slurm.sh.

Rows that were dumped from the database of the benchmark ("db-dump") have no drafted tokens. Of all others
the launch of a server with drafted tokens and that without them can have the same degrees: then the image
tells them apart, or the concurrencies of both. Where nothing does, no tokens are drafted.
"""

import math
import re
from collections.abc import Mapping
from functools import lru_cache

from flopcast.lab.catalog_facts import catalog_facts
from flopcast.records import dataclass
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


@dataclass(frozen=True, kw_only=True, slots=True)
class SweptPool:
    """The instances of a pool: their number, and the degrees of each."""

    instances: int
    kind: str
    devices: int
    most_sequences: int = 0  # of a group of ranks with requests of its own; 0: the engine's default

    @property
    def experts(self) -> int:
        """Return the ranks over which experts are spread."""
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Swept:
    """One deployment of a sweep, with the concurrencies that it was measured at."""

    concurrencies: tuple[int, ...]
    prefill: SweptPool
    decode: SweptPool
    drafted: int  # tokens; 0 without a draft

    @property
    def devices(self) -> int:
        """Return the devices of all instances of both pools."""
        return sum(pool.instances * pool.devices for pool in (self.prefill, self.decode))

    def nearest(self, concurrency: int) -> int:
        """Return the concurrency of its measurements that is nearest to one."""
        return min(self.concurrencies, key=lambda each: abs(math.log(each / concurrency)))


class Launched(StrictModel):
    """The key of a server: engine, system and precision as in rows, and a word of the model's name."""

    engine: str
    system: str
    model: str
    precision: str

    def fits(self, row: Mapping[str, str]) -> bool:
        """Return whether a row is of such a server."""
        mine = self.engine, self.system, self.precision
        return mine == (row["backend"], row["system"], row.get("precision", "")) and (
            self.model in row["model_path"]
        )


class Server(Launched):
    """Flags of a server. `intervals` are decoding passes between two looks for new requests: with few
    open requests, and with many.
    """

    max_tokens: int
    cache: str
    intervals: tuple[int, int] = (1, 1)

    def interval(self, concurrency: int) -> int:
        """Return the decoding passes between two looks for new requests."""
        return self.intervals[concurrency >= MANY]


class DraftedRange(Launched):
    """Concurrencies, from `least` to `most`, at which only servers that draft tokens were launched."""

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


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchWait:
    """Passes for which prompts wait for others, and the part of max_tokens that is full enough for them."""

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
    """Return the deployments that a text describes.

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
    """Return the possible deployments of a row without numbers of instances, those without a draft first.

    Rows state the devices of an instance of each pool, or in 2025 those of all instances together, or none.
    Of the latter two, the deployments with the nearest concurrency are returned.
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
    """Return whether the deployment of a row had other degrees than stated, as SGLang's pools of 2025."""
    return row["backend"] == "sglang" and OF_2025 in row["silicon_data_source"]


def _sweep_of(row: Mapping[str, str]) -> str:
    """Return the published deployments of a row's system, engine, format and lengths."""
    known = published()
    of_model = (texts for word, texts in known.sweeps_of_models.items() if word in row["model_path"])
    usual = known.sweeps_of_2025 if OF_2025 in row["silicon_data_source"] else known.sweeps
    name = f"{row['system']} {row['backend']} {row.get('precision', '')} {row['isl']}/{row['osl']}"
    return next(of_model, usual).get(name, "")


def _stated_devices(row: Mapping[str, str]) -> tuple[int, int]:
    """Return the devices that a row states for an instance of both pools; of one number, it twice."""
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
    """Return the flags of the server of a row; None where they are not known."""
    return next((server for server in published().servers if server.fits(row)), None)


def receive_interval(row: Mapping[str, str], groups: int, concurrency: int) -> int:
    """Return the decoding passes after which the server of a row takes new requests.

    Parameters
    ----------
    groups : groups of ranks with requests of their own
    """
    server = server_of(row)
    if row["backend"] != BALANCING:
        return 1 if server is None else server.interval(concurrency)
    if groups > 1:
        return next((passes for word, passes in BALANCED.items() if word in row["model_path"]), 1)
    return 1


def batch_wait(row: Mapping[str, str], ranks: int, groups: int, concurrency: int) -> BatchWait | None:
    """Return how prompts of a row's server wait for others; None if they join the next pass.

    Parameters
    ----------
    ranks : tensor-parallel ranks
    groups : groups of them with requests of their own
    """
    if row["backend"] != BALANCING or groups > 1 or f"{row['isl']}/{row['osl']}" != SHORT:
        return None
    if "Llama-3.1-70B" in row["model_path"]:
        return DELAYED_LLAMA if ranks < DELAYED_BELOW else None
    key = row["system"], row.get("precision", ""), "DeepSeek" in row["model_path"]
    return DELAYED if key == ("b200_sxm", "fp8", True) and concurrency >= DELAYED_FROM else None


def drafted_tokens(row: Mapping[str, str], ranks: tuple[int, int, int], concurrency: int) -> int:
    """Return the tokens that a row's server drafted for each sequence and pass; 0 if it drafted none.

    Parameters
    ----------
    ranks : tensor-parallel ranks, groups of them with requests of their own, ranks of experts
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
