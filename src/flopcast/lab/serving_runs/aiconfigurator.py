"""Measured points of aiconfigurator: mean time to first token and per output token, at a concurrency.

Source: data/peers/aiconfigurator/serving_measured_ttft_tpot.csv.gz; on GitHub ai-dynamo/aiconfigurator,
Apache-2.0. One row is one benchmark of one deployment.

Facts that a row omits follow from the engine: TensorRT-LLM runs checkpoints whose cache has 8 bits, and the
other engines keep 16 bits; `gpt-oss` always has 4-bit experts, even if the row states another precision,
and multiplies them by 8-bit activations on Blackwell. For models that are published with block scales,
"fp8" means fp8 with these scales. Rows do not state whether tokens were drafted, which halves the time per
token in some cases. The published launches of InferenceX state it (inferencex.py). If experts are spread
over the n ranks of an instance, some rows multiply their degrees by n twice: they state 64 or 8 x 8 for the
8 ranks that their ids name. If a row states no number of groups and its experts have more ranks than its
attention, these ranks are divided into groups. The concurrency is that of the whole instance;
`silicon_data_source` repeats it. Some rows have separate pools for prefill and decoding but do not state
the numbers of instances. They use the numbers of the InferenceX deployment with the same degrees and
concurrency; rows without such a deployment cannot be predicted. A row with an instance of more than eight
devices and without pools also describes such a deployment: it states the total number of devices. SGLang
holds 32 copies of experts if it spreads them over several nodes (ep-num-redundant-experts). It gives 0.95
of the memory to weights and cache if DeepSeek runs in 8 bits on four devices.

InferenceMAX sends ten times as many requests as its concurrency. Their lengths are drawn between 0.8 and
1 times the stated ones, and they share no prefix (README of InferenceMAX: CONC, RANDOM_RANGE_RATIO). Rows
with one of its three pairs of lengths are predicted with such lengths, and all other rows with the stated
lengths.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from flopcast.interop.serving.aiconfigurator import ENGINES, SYSTEMS
from flopcast.lab.run_tables import ReadOptions, Row, RunTable
from flopcast.lab.serving_runs import inferencex
from flopcast.lab.serving_runs.equal_rows import PLACE, with_places
from flopcast.lab.serving_runs.quantities import latency
from flopcast.lab.serving_runs.rows import Measured, RowFacts, ServingRows, ServingRun, Teaches
from flopcast.library.acceptance_lengths import measured_acceptance
from flopcast.spec.drafting import Drafting

FORMATS = {
    "": "bf16",
    "bfloat16": "bf16",
    "fp8": "fp8",
    "fp8_block": "fp8_block",
    "nvfp4": "nvfp4",
    "int4_wo": "int4",
}
BLACKWELL = ("b200", "b300", "gb200", "gb300")
BLOCK_SCALES = ("deepseek-ai/", "Qwen/")  # publish 8-bit weights with a scale for each block
BLOCKS = {"fp8": "fp8_block"}
STREAM_INTERVALS = {"vllm": 20}  # of published launches of InferenceX, by backend
ROUNDS = 10  # requests of each place of the concurrency
INFERENCE_MAX = ((1024, 1024), (1024, 8192), (8192, 1024))  # longest prompts and outputs of its benchmarks
SHORTEST_SHARE = 0.8  # of the longest: lengths are drawn evenly between the two
MEASURED = re.compile(r"measured=(\d{4}-\d\d-\d\d)")
WARM_UP_FROM = "2026-02-01"  # pull request 480 of InferenceX, merged at the end of January 2026
TTFT = "silicon_ttft_ms"
COLUMNS: tuple[tuple[str, str, Teaches], ...] = (
    (TTFT, "ttft", "requests"),
    ("silicon_tpot_ms", "tpot", "iterations"),
)
POOLS = ("prefill", "decode")  # of rows whose mode is "disagg"
NODE_DEVICES = 8
COPIES = 32  # of experts
SMALL_DEVICES, SMALL_FRACTION = 4, 0.95  # of an instance; of their memory, for weights and cache


def _groups(row: Mapping[str, str]) -> dict[str, str]:
    engine = ENGINES.get(row["backend"], row["backend"])
    return {"engine": engine, "model": row["model_path"], "device": row["system"]}


def _measured(row: Mapping[str, str]) -> Iterator[Measured]:
    """Yield both means. No constants are fitted to rows that match several published deployments.

    Times to first token of servers without a warm-up are not fitted either, because their first requests
    wait for the compilation of kernels.
    """
    is_certain = row["system"] not in SYSTEMS or len(_fitting(row)) < 2
    match = MEASURED.search(row.get("silicon_data_source", ""))
    cold = TTFT if match and match[1] < WARM_UP_FROM else ""
    for name, metric, teaches in COLUMNS:
        if row[name]:
            yield Measured(
                quantity=name,
                unit="ms",
                value=float(row[name]),
                read=latency(metric, "ms"),
                teaches=teaches if is_certain and name != cold else "",
            )


def _unsupported(row: Mapping[str, str]) -> str:
    """Return why a row cannot be predicted; empty if it can be predicted."""
    if row["system"] not in SYSTEMS:
        return f"system = {row['system']} is not in the catalogue"
    if _has_pools(row):
        missing = [name for name in POOLS if not row[f"{name}_num_workers"]]
        if missing and _swept(row) is None:
            number = f"{missing[0]}_num_workers, the number of instances"
            return f"{number}, is missing, and no published sweep has the deployment"
        return ""
    if not row["batch_size"]:
        return "batch_size, the concurrency, is missing"
    return ""


def _has_pools(row: Mapping[str, str]) -> bool:
    return row["mode"] == "disagg" or math.prod(_ranks(row)[:2]) > NODE_DEVICES


def _facts(row: Mapping[str, str]) -> RowFacts:
    instances: dict[str, object]
    concurrency = _concurrency(row)
    settings: dict[str, object] = {"stream_interval": STREAM_INTERVALS.get(row["backend"], 1)}
    of_recipes = _has_pools(row) and row["system"].startswith(BLACKWELL) and row["backend"] == "sglang"
    cache = "fp8" if row["backend"] == "trtllm" or of_recipes else "bf16"
    if _has_pools(row):
        swept = _swept(row)
        drafted = 0 if swept is None else swept.drafted
        pools = _stated_pools(row) if swept is None else (swept.prefill.fields(), swept.decode.fields())
        instances = dict(zip(POOLS, (_with_copies(row, pool) for pool in pools), strict=True))
    else:
        instances = {"replicas": 1, **_degrees(row)}
        pools = (_degrees(row),)
        drafted = inferencex.drafted_tokens(row, _ranks(row), concurrency)
        if _lengths_vary(row):
            settings["receive_interval"] = inferencex.receive_interval(row, _ranks(row)[1], concurrency)
            if wait := inferencex.batch_wait(row, *_ranks(row)[:2], concurrency):
                settings |= {"wait_passes": wait.passes, "wait_fraction": wait.fraction}
            server = inferencex.server_of(row)
            if server is not None:
                instances["max_tokens"], cache = server.max_tokens, server.cache
    least = min(pool["tensor_parallel"] * pool["data_parallel"] for pool in pools)
    if least <= SMALL_DEVICES and _is_large(row):
        settings["memory_fraction"] = SMALL_FRACTION
    weights, experts = _formats(row)
    return RowFacts(
        model=row["model_path"],
        cluster=SYSTEMS[row["system"]],
        engine=ENGINES[row["backend"]],
        plan={
            **instances,
            "weights": weights,
            "expert_weights": experts,
            "cache": cache,
            "drafting": _drafting(drafted),
        },
        release=row.get("backend_version", ""),
        settings=settings,
        traffic={
            "concurrency": concurrency,
            "prompt_tokens": _lengths(row, int(row["isl"])),
            "output_tokens": _lengths(row, int(row["osl"])),
            "requests": ROUNDS * concurrency,
        },
    )


def _with_copies(row: Mapping[str, str], pool: dict[str, int]) -> dict[str, int]:
    """Return the fields of a pool, with copies of experts if they are spread over several nodes."""
    spread = row["backend"] == "sglang" and pool["expert_parallel"] > NODE_DEVICES
    return pool | ({"redundant_experts": COPIES} if spread else {})


def _is_large(row: Mapping[str, str]) -> bool:
    """Return whether a row is a run of SGLang with DeepSeek in 8 bits."""
    of_deepseek = "DeepSeek" in row["model_path"]
    return of_deepseek and row["backend"] == "sglang" and row.get("precision") == "fp8"


def _formats(row: Mapping[str, str]) -> tuple[str, str]:
    """Return the formats of linear layers and of experts."""
    weights, experts = FORMATS[row["gemm_quant_mode"]], FORMATS[row["moe_quant_mode"]]
    if "gpt-oss" in row["model_path"]:
        return "bf16", ("mxfp4_mxfp8" if row["system"].startswith(BLACKWELL) else "mxfp4")
    if row["model_path"].startswith(BLOCK_SCALES):
        weights, experts = (BLOCKS.get(each, each) for each in (weights, experts))
    return ("bf16" if weights == "int4" else weights), experts


def _lengths(row: Mapping[str, str], tokens: int) -> str | int:
    """Return the lengths of requests if the longest has this number of tokens."""
    if not _lengths_vary(row):
        return tokens
    return f"uniform({int(SHORTEST_SHARE * tokens)},{tokens})"


def _lengths_vary(row: Mapping[str, str]) -> bool:
    """Return whether a row has the lengths of InferenceMAX, which draws the length of each request."""
    return (int(row["isl"]), int(row["osl"])) in INFERENCE_MAX


def _has_numbers(row: Mapping[str, str]) -> bool:
    """Return whether a row with pools states the number of instances of each pool."""
    return all(row[f"{name}_num_workers"] for name in POOLS)


def _swept(row: Mapping[str, str]) -> inferencex.Swept | None:
    """Return the published deployment of a row with pools. If several match, return the one at the row's
    place, or the first.
    """
    found = _fitting(row)
    return found[int(row.get(PLACE, 0))] if found else None


def _fitting(row: Mapping[str, str]) -> tuple[inferencex.Swept, ...]:
    """Return the published deployments that match a row which does not state its own."""
    if not _has_pools(row) or (_has_numbers(row) and not inferencex.has_other_degrees(row)):
        return ()
    return inferencex.swept(row, _concurrency(row))


def _runs(_path: Path, rows: Sequence[Row], _options: ReadOptions) -> Iterator[ServingRun]:
    """Yield the run of each row."""
    fitting = {place: _fitting(row) for place, row in enumerate(rows) if row["system"] in SYSTEMS}
    return (ROWS.run_of(row) for row in with_places(rows, fitting, COLUMNS[1][0]))


def _drafting(drafted: int) -> Drafting | None:
    """Return how the model's own modules draft tokens; None if no tokens are drafted."""
    if not drafted:
        return None
    return Drafting(drafter="mtp", drafted=drafted, accepted=measured_acceptance("mtp", drafted) or 1.0)


def _stated_pools(row: Mapping[str, str]) -> tuple[dict[str, int], ...]:
    """Return the instances of both pools of a row that states their numbers."""
    return tuple(_pool(row, name) for name in POOLS)


def _pool(row: Mapping[str, str], name: str) -> dict[str, int]:
    """Return the instances of a pool, whose columns begin with its name.

    No row with pools multiplies its degrees twice.
    """
    columns = {
        "replicas": "num_workers",
        "tensor_parallel": "tp_size",
        "data_parallel": "attention_dp_size",
        "expert_parallel": "moe_ep_size",
        "pipeline_parallel": "pp_size",
    }
    return {field: max(int(float(row[f"{name}_{column}"])), 1) for field, column in columns.items()}


def _degrees(row: Mapping[str, str]) -> dict[str, int]:
    """Return tensor-parallel ranks, groups of them with separate requests, ranks of experts, and stages."""
    names = ("tensor_parallel", "data_parallel", "expert_parallel", "pipeline_parallel")
    stages = int(float(row["pp_size"] or 1))
    return dict(zip(names, (*_ranks(row), stages), strict=True))


def _ranks(row: Mapping[str, str]) -> tuple[int, int, int]:
    """Return tensor-parallel ranks, groups of them with separate requests, and ranks of experts."""
    ranks, groups = int(float(row["tp_size"])), int(float(row["attention_dp_size"] or 1))
    cut, spread = int(float(row["moe_tp_size"] or 1)), int(float(row["moe_ep_size"] or 1))
    named, root = re.search(r"_tp(\d+)_", row["id"]), math.isqrt(ranks * groups)
    twice = root > 1 and root * root == ranks * groups == cut * spread
    twice = twice and (named is None or int(named[1]) == root)
    if twice and (cut == spread or cut == 1 < groups):
        if row["system"].startswith("gb") and row["attention_dp_size"] in ("", "1.0"):
            return ranks, groups, min(spread, ranks)
        return (1, root, root) if groups > 1 else (root, 1, root)
    if not row["attention_dp_size"]:
        groups = max(cut * spread // ranks, 1)
    return ranks, groups, min(spread, ranks * groups)


def _concurrency(row: Mapping[str, str]) -> int:
    stated = re.search(r"silicon_concurrency=(\d+)", row["silicon_data_source"])
    if stated:
        return int(stated[1])
    if _has_pools(row) and row["decode_batch_size"]:
        return int(float(row["decode_batch_size"])) * int(float(row["decode_num_workers"] or 1))
    return int(float(row["batch_size"] or 1)) * _ranks(row)[1]


ROWS = ServingRows(
    source="aiconfigurator",
    identity=("id",),
    groups=_groups,
    measured=_measured,
    unsupported=_unsupported,
    facts=_facts,
)
TABLE = RunTable(header=("silicon_ttft_ms", "silicon_tpot_ms", "silicon_data_source"), runs_of=_runs)
