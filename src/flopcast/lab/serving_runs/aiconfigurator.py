"""Measured points of aiconfigurator: mean time to first token and per output token, at a concurrency.

Source: data/peers/aiconfigurator/serving_measured_ttft_tpot.csv.gz; on GitHub ai-dynamo/aiconfigurator,
Apache-2.0. One row is one benchmark of one deployment.

What a row does not say follows the engine: TensorRT-LLM runs checkpoints whose cache is in 8 bits, the
others keep 16 bits; `gpt-oss` has 4-bit experts whatever the row calls the rest.
"""

from collections.abc import Mapping

from flopcast.lab.serving_runs.measured import Measured, ServingRun
from flopcast.lab.serving_runs.row_jobs import RowFacts, job_of_row

HEADER = ("silicon_ttft_ms", "silicon_tpot_ms", "silicon_data_source")
SYSTEMS = {
    "a100_sxm": "dgx-a100",
    "h100_sxm": "dgx-h100",
    "h200_sxm": "dgx-h200",
    "b200_sxm": "dgx-b200",
    "b300_sxm": "dgx-b300",
    "gb200": "gb200-nvl72",
    "gb300": "gb300-nvl72",
}
ENGINES = {"trtllm": "tensorrt-llm", "sglang": "sglang", "vllm": "vllm"}
FORMATS = {
    "": "bf16",
    "bfloat16": "bf16",
    "fp8": "fp8",
    "fp8_block": "fp8_block",
    "nvfp4": "nvfp4",
    "int4_wo": "int4",
}
# what no deployment of ours has yet, by column: the values of rows without it
OF_DEPLOYMENTS: Mapping[str, tuple[str, ...]] = {
    "attention_dp_size": ("", "1.0"),
    "pp_size": ("", "1.0"),
    "mode": ("agg",),
}


def run_of(row: Mapping[str, str]) -> ServingRun:
    """Return the run of one row of the table."""
    groups = {
        "engine": ENGINES.get(row["backend"], row["backend"]),
        "model": row["model_path"],
        "device": row["system"],
    }
    measured = tuple(
        Measured(quantity=name, unit="ms", value=float(row[name]), of=metric)
        for name, metric in (("silicon_ttft_ms", "ttft"), ("silicon_tpot_ms", "tpot"))
        if row[name]
    )
    reason, job = _unsupported(row), None
    if not reason:
        job, reason = job_of_row(_facts(row))
    return ServingRun(
        id=row["id"], source="aiconfigurator", job=job, reason=reason, measured=measured, groups=groups
    )


def _unsupported(row: Mapping[str, str]) -> str:
    """Return why a row cannot be predicted; empty if it can."""
    for column, neutral in OF_DEPLOYMENTS.items():
        if row[column] not in neutral:
            return f"{column} = {row[column]} is not supported yet"
    if row["system"] not in SYSTEMS:
        return f"system = {row['system']} is not in the catalogue"
    if not row["batch_size"]:
        return "batch_size, the concurrency, is missing"
    return ""


def _facts(row: Mapping[str, str]) -> RowFacts:
    ranks, experts = int(float(row["tp_size"])), int(float(row["moe_ep_size"] or 1))
    four_bits = "gpt-oss" in row["model_path"]
    weights = "bf16" if four_bits else FORMATS[row["gemm_quant_mode"]]
    return RowFacts(
        model=row["model_path"],
        cluster=SYSTEMS[row["system"]],
        engine=ENGINES[row["backend"]],
        tensor_parallel=ranks,
        expert_parallel=min(experts, ranks),
        weights="bf16" if weights == "int4" else weights,
        expert_weights="mxfp4" if four_bits else FORMATS[row["moe_quant_mode"]],
        cache="fp8" if row["backend"] == "trtllm" else "bf16",
        concurrency=int(float(row["batch_size"])),
        prompt_tokens=int(row["isl"]),
        output_tokens=int(row["osl"]),
    )
