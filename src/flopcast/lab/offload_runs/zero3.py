"""Runs of Deep Optimizer States: DeepSpeed's ZeRO-3 with the optimizer on the host.

Source: validation/zero3_offload_runs.csv, logs of mauryaavinash95/deep-optimizer-states-results and of
DataStates/artifacts (MIT) on GitHub; the paper is arXiv:2410.21316. One row is one run.

The columns do not state the machine. The logs show it: folders named "gaps-a100" and "twinflow" ran on
single nodes of A100 and of H100, whose ranks were bound to cores; all other runs are on Polaris. Stock
DeepSpeed copies gradients in fp32 to pageable memory. If `async_flush` is set, they are copied to pinned
memory during the backward pass.

The logs print all arguments of Megatron-DeepSpeed: SwiGLU, RMSNorm, four key/value heads, the vocabulary
of GPT-2, and full recompute. The runs with bound ranks state the size of the feed-forward layers. The
runs on Polaris do not, so Megatron-DeepSpeed uses its default for SwiGLU.
"""

import math
from collections.abc import Mapping

from flopcast.interop.megatron.model import swiglu_width
from flopcast.lab.offload_runs.machines import machines, stack_of
from flopcast.lab.offload_runs.rows import OffloadRun, job_or_reason, measured_parts, model_of, plan_of
from flopcast.lab.run_tables import RunTable

STATED_FFN_HIDDEN = {3072: 11008, 4096: 11008, 5120: 13824, 6656: 17920}  # by hidden size
WIDER_FFN_HIDDEN = 20480  # of the model that is called 20B, which has the layers and width of 13B
VOCABULARY = 50257
POLARIS = "4-a100"
ASYNCHRONOUS = ("subg-size",)  # folders whose rows leave async_flush empty and show an overlapped copy


def run_of(row: Mapping[str, str], fitted: bool = True) -> OffloadRun:
    """Return the run of one row of the table.

    `fitted` states whether the cluster has the fitted rates of its machine. If the job of a row breaks a
    rule, the run has the reason instead of a job.
    """
    job, reason = job_or_reason(row["folder"], _job(row, fitted))
    names = ("tp", "dp", "global_batch", "optimizer_cpu_ratio", "subgroup_params", "interleaved_update")
    numbers = [row[name] for name in (*names, "async_flush", "update_stride")]
    return OffloadRun(
        id="/".join([row["folder"], row["layers"], *numbers]),
        source="Deep Optimizer States",
        job=job,
        reason=reason,
        measured=measured_parts(row),
        groups={
            "machine": machine_of(row),
            "model": f"{row['layers']} x {row['hidden']}",
            "folder": row["folder"],
            "method": _method(row),
        },
    )


def machine_of(row: Mapping[str, str]) -> str:
    """Return the name of the machine of a row."""
    if row["gpu_tag"]:
        return "4-a100-bound"
    return "4-h100" if "twinflow" in row["folder"] else POLARIS


def _flushes(row: Mapping[str, str]) -> bool:
    return row["async_flush"] == "1" or any(word in row["folder"] for word in ASYNCHRONOUS)


def _method(row: Mapping[str, str]) -> str:
    if row["interleaved_update"] == "1":
        return "interleaved"
    return "flush" if _flushes(row) else "stock"


def _job(row: Mapping[str, str], fitted: bool) -> dict[str, object]:
    data = int(row["dp"])
    stride = int(row["update_stride"] or 0) if row["interleaved_update"] == "1" else 0
    fraction = float(row["optimizer_cpu_ratio"])
    stack = stack_of(
        flushes=_flushes(row),
        micro_batches=int(row["global_batch"]) // int(row["micro_batch"]) // data,
        fitted=fitted,
        device=machines()[machine_of(row)].device,
    )
    return {
        "model": model_of(row, padded_vocabulary(int(row["tp"])), _ffn_hidden(row), norm="rmsnorm"),
        "cluster": machines()[machine_of(row)].cluster(int(row["tp"]) * data, fitted),
        "stack": stack,
        "batch": {"sequence_length": int(row["seq_len"])},
        "plan": plan_of(
            row, [{"kind": "optimizer", "tier": "host", "fraction": fraction, "stride": stride}]
        ),
    }


def padded_vocabulary(tensor_parallel: int) -> int:
    """Return the vocabulary of GPT-2 after Megatron's padding to a multiple of 128 on each rank.

    >>> padded_vocabulary(1), padded_vocabulary(4)
    (50304, 50688)
    """
    multiple = 128 * tensor_parallel
    return math.ceil(VOCABULARY / multiple) * multiple


def _ffn_hidden(row: Mapping[str, str]) -> int:
    hidden = int(row["hidden"])
    if machine_of(row) == POLARIS:
        return swiglu_width(hidden)
    return WIDER_FFN_HIDDEN if row["model_b"] == "20" else STATED_FFN_HIDDEN[hidden]


TABLE = RunTable(
    header=("optimizer_cpu_ratio", "interleaved_update", "async_flush", "update_stride", "iteration_ms"),
    runs_of=lambda _path, rows, options: (run_of(row, options.fitted) for row in rows),
)
