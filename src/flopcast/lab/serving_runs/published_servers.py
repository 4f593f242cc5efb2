"""How InferenceX launched a server that runs on one node: the flags that rows of its results do not state.

Answers: how many tokens has a pass, in which format is the cache, how often does the engine look for new
requests, and are tokens drafted?
Elsewhere: deployments of several servers (published_sweeps.py), the rows (aiconfigurator.py).

Source: benchmarks/single_node/*.sh and .github/configs/nvidia-master.yaml of SemiAnalysisAI/InferenceX
(Apache-2.0), as of February to April 2026. Servers of SGLang on Blackwell look for new requests after every
tenth decoding pass, or after every thirtieth from 16 open requests on (--scheduler-recv-interval). Servers
of TensorRT-LLM with data-parallel attention let a prompt wait up to 60 passes, until the other groups have
one as well (attention_dp_config: enable_balance, timeout_iters; 50 by default), which is predicted as looks
for new requests after as many passes. With other flags (batch_wait_timeout_iters and
batch_wait_max_tokens_ratio), prompts wait until they fill a pass: in dsr1_fp8_b200_trt.sh, and with fewer
than eight ranks in 70b_fp4_b200_trt_slurm.sh, 70b_fp8_b200_trt_slurm.sh and 70b_fp8_h200_trt_slurm.sh.

Rows that were dumped from the database of the benchmark ("db-dump") have no drafted tokens. Of all others
the launch of a server with drafted tokens and that without them can have the same degrees: then the image
tells them apart, or the concurrencies of both. Where nothing does, no tokens are drafted.
"""

from collections.abc import Mapping
from dataclasses import dataclass

MANY = 16  # open requests
OLDEST_DUMP = "db-dump"
DRAFTING_IMAGES = {  # of engine and system: the image of servers that draft tokens, and how many
    ("trtllm", "b200_sxm"): ("release:1.2.0rc6.post3", 3),
    ("sglang", "b300_sxm"): ("sglang:v0.5.9-cu130", 3),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Server:
    """Flags of a server. `intervals` are decoding passes between two looks for new requests: with few
    open requests, and with many.
    """

    max_tokens: int
    cache: str
    intervals: tuple[int, int] = (1, 1)

    def interval(self, concurrency: int) -> int:
        """Return the decoding passes between two looks for new requests."""
        return self.intervals[concurrency >= MANY]


SERVERS = {  # engine, system, a word of the model's name, precision
    ("sglang", "b200_sxm", "DeepSeek", "fp8"): Server(max_tokens=32768, cache="fp8", intervals=(10, 30)),
    ("sglang", "b200_sxm", "DeepSeek", "fp4"): Server(max_tokens=16384, cache="fp8", intervals=(10, 30)),
    ("sglang", "h200_sxm", "DeepSeek", "fp8"): Server(max_tokens=32768, cache="bf16"),
    ("sglang", "b200_sxm", "Qwen3.5", "bf16"): Server(max_tokens=32768, cache="bf16", intervals=(10, 30)),
    ("sglang", "b200_sxm", "Qwen3.5", "fp8"): Server(max_tokens=32768, cache="fp8", intervals=(10, 30)),
    ("sglang", "b200_sxm", "Qwen3.5", "fp4"): Server(max_tokens=32768, cache="fp8", intervals=(10, 30)),
    ("sglang", "b300_sxm", "Qwen3.5", "bf16"): Server(max_tokens=16384, cache="bf16", intervals=(10, 10)),
    ("sglang", "b300_sxm", "Qwen3.5", "fp8"): Server(max_tokens=16384, cache="fp8", intervals=(10, 10)),
    ("sglang", "b300_sxm", "Qwen3.5", "fp4"): Server(max_tokens=16384, cache="fp8", intervals=(10, 10)),
    ("sglang", "h200_sxm", "Qwen3.5", "fp8"): Server(max_tokens=16384, cache="fp8"),
    ("trtllm", "b200_sxm", "gpt-oss", "fp4"): Server(max_tokens=20000, cache="fp8"),
}


BALANCING = "trtllm"
BALANCED = {"DeepSeek": 60, "gpt-oss": 50}  # a word of the model's name, passes
SHORT = "1024/1024"


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchWait:
    """Passes for which prompts wait for others, and the part of max_tokens that is full enough for them."""

    passes: int
    fraction: float


DELAYED = BatchWait(passes=40, fraction=0.8)
DELAYED_FROM = 64  # open requests
DELAYED_LLAMA = BatchWait(passes=20, fraction=0.9)
DELAYED_BELOW = 8  # ranks


@dataclass(frozen=True, kw_only=True, slots=True)
class DraftedRange:
    """Concurrencies at which only servers that draft tokens were launched."""

    lengths: str  # of prompts and outputs; "" for all
    tensor: int
    experts: int  # ranks that experts are spread over
    least: int
    most: int
    drafted: int


DRAFTED: dict[tuple[str, str, str, str], tuple[DraftedRange, ...]] = {
    ("sglang", "b200_sxm", "DeepSeek", "fp8"): (
        DraftedRange(lengths="1024/1024", tensor=8, experts=1, least=128, most=512, drafted=2),
        DraftedRange(lengths="1024/8192", tensor=8, experts=1, least=128, most=512, drafted=2),
        DraftedRange(lengths="8192/1024", tensor=8, experts=1, least=8, most=512, drafted=2),
    ),
    ("sglang", "b200_sxm", "Qwen3.5", "fp8"): (
        DraftedRange(lengths="", tensor=4, experts=1, least=4, most=256, drafted=3),
    ),
    ("trtllm", "h200_sxm", "DeepSeek", "fp8"): (
        DraftedRange(lengths="1024/1024", tensor=1, experts=8, least=128, most=256, drafted=1),
        DraftedRange(lengths="1024/8192", tensor=8, experts=8, least=128, most=128, drafted=3),
        DraftedRange(lengths="1024/8192", tensor=1, experts=8, least=256, most=256, drafted=1),
        DraftedRange(lengths="8192/1024", tensor=1, experts=8, least=128, most=256, drafted=1),
    ),
}


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


def server_of(row: Mapping[str, str]) -> Server | None:
    """Return the flags of the server of a row; None where they are not known."""
    key = _key(row, SERVERS)
    return None if key is None else SERVERS[key]


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
    key = _key(row, DRAFTED)
    for each in () if key is None else DRAFTED[key]:
        fits = each.lengths in ("", lengths) and (tensor, experts) == (each.tensor, each.experts)
        if fits and each.least <= concurrency <= each.most:
            return each.drafted
    return 0


def _key(
    row: Mapping[str, str], known: Mapping[tuple[str, str, str, str], object]
) -> tuple[str, str, str, str] | None:
    """Return the entry for a row, by the word that its model's name contains."""
    mine = row["backend"], row["system"], row.get("precision", "")
    return next(
        (key for key in known if (key[0], key[1], key[3]) == mine and key[2] in row["model_path"]), None
    )
