"""ML.ENERGY Benchmark: latency between tokens, throughput, watts and joules of vLLM on H100 and B200.

Source: data/serving/mlenergy_llm.csv; on GitHub ml-energy/leaderboard and ml-energy/benchmark, and
arXiv:2505.06371. Each row is one task on one deployment, measured while the batch is full.

According to the configuration files of the benchmark (configs/vllm of ml-energy/benchmark), a pass has at
most 8192 new tokens, attention is divided over all devices if experts are spread over them, and each task
has a fixed number of requests. All other facts are assumed: the lengths of prompts and sizes of images,
which the benchmark does not publish (the times between tokens hardly depend on them), and a lognormal
distribution of output lengths around their mean. Enough requests are simulated to keep the batch full.
"""

from collections.abc import Mapping
from functools import partial

from flopcast.lab.run_tables import RunTable, by_row
from flopcast.lab.serving_runs.quantities import joules_per_token, latency, output_tokens_per_s, power_w
from flopcast.lab.serving_runs.rows import RowFacts, ServingRows, measured_in

QUANTITIES = {  # columns, their units and where a report says the same
    "median_itl_ms": ("ms", latency("inter_token", "ms", "p50")),
    "output_throughput_tokens_per_sec": ("tokens/s", output_tokens_per_s),
    "avg_power_watts": ("W", power_w),
    "energy_per_token_joules": ("J", joules_per_token),
}
CLUSTERS = {"H100": "dgx-h100", "B200": "dgx-b200"}
# mean tokens, assumed; that of lm-arena-chat was chosen after errors of its rows were seen
PROMPTS = {"gpqa": 300, "lm-arena-chat": 275, "sourcegraph-fim": 1500, "image-chat": 100}
IMAGES = {"image-chat": "1024x1024"}  # of a request, assumed
PROMPT_SIGMA, OUTPUT_SIGMA = 0.8, 0.7  # of the logarithm of lengths, assumed
MAX_TOKENS = 8192
RELEASE = "0.11.1"  # ml.energy/blog, "LLM Inference Energy: A Longitudinal Analysis"
FLASHINFER = (
    "deepseek-ai/",
)  # VLLM_USE_FLASHINFER_MOE_FP8: 1 in monolithic.env.yaml of their configurations
MEMORY_FRACTION = 0.95  # --gpu-memory-utilization in mlenergy/llm/benchmark.py
ROUNDS = (
    4  # requests of each place of the batch; the first and the last are not judged, as in the benchmark
)
# models whose servers on B200 turn on the all-reduces of FlashInfer, in their monolithic.config.yaml; vLLM
# 0.11.1 leaves them off by default
FUSED_ALL_REDUCE = {"B200": ("openai/",)}
UNSORTED = ("openai/",)  # publish no top-p and no top-k; vLLM samples as generation_config.json says
BLOCK_SCALES = ("Qwen/", "deepseek-ai/")  # publish 8-bit weights with a scale for each block


def _unsupported(row: Mapping[str, str]) -> str:
    """Return why a row cannot be predicted; empty if it can be predicted."""
    if row["task"] not in PROMPTS:
        return f"task = {row['task']}: prompts of video or sound are not supported yet"
    if row["gpu_model"] not in CLUSTERS:
        return f"gpu_model = {row['gpu_model']} has no cluster in the catalogue"
    return ""


def _facts(row: Mapping[str, str]) -> RowFacts:
    groups = int(row["data_parallel"])
    sequences = int(row["max_num_seqs"])
    weights, experts = _formats(row)
    is_fused = row["model_id"].startswith(FUSED_ALL_REDUCE.get(row["gpu_model"], ()))
    sampling = "greedy" if row["model_id"].startswith(UNSORTED) else "sorted"
    return RowFacts(
        model=row["model_id"],
        cluster=CLUSTERS[row["gpu_model"]],
        engine="vllm",
        era=RELEASE,
        release="" if row["model_id"].startswith(FLASHINFER) else RELEASE,
        plan={
            "tensor_parallel": int(row["num_gpus"]) // groups,
            "data_parallel": groups,
            "expert_parallel": int(row["expert_parallel"]),
            "weights": weights,
            "expert_weights": experts,
            "max_sequences": -(-sequences // groups),
            "max_tokens": MAX_TOKENS,
        },
        traffic={
            "concurrency": sequences,
            "prompt_tokens": f"lognormal({PROMPTS[row['task']]},{PROMPT_SIGMA})",
            "output_tokens": f"lognormal({float(row['avg_output_len']):.0f},{OUTPUT_SIGMA})",
            "requests": ROUNDS * sequences,
            "images": IMAGES.get(row["task"], ""),
        },
        settings={"memory_fraction": MEMORY_FRACTION, "sampling": sampling, "fused_all_reduce": is_fused},
    )


def _formats(row: Mapping[str, str]) -> tuple[str, str | None]:
    """Return the formats of linear layers and of experts."""
    if row["weight_precision"] == "mxfp4":
        return "bf16", "mxfp4"
    if row["weight_precision"] == "fp8":
        return ("fp8_block" if row["model_id"].startswith(BLOCK_SCALES) else "fp8"), None
    return "bf16", None


ROWS = ServingRows(
    source="ML.ENERGY",
    identity=("task", "model_id", "gpu_model", "num_gpus", "max_num_seqs"),
    groups=lambda row: {
        "model": row["model_id"],
        "device": row["gpu_model"],
        "task": row["task"],
        "engine": "vllm",
    },
    measured=partial(measured_in, columns=QUANTITIES),
    unsupported=_unsupported,
    facts=_facts,
    leave_out_share=1.0 / ROUNDS,
)
TABLE = RunTable(
    header=("median_itl_ms", "output_throughput_tokens_per_sec", "max_num_seqs", "avg_output_len"),
    runs_of=by_row(ROWS.run_of),
)
