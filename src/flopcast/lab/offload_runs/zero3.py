"""Runs of Deep Optimizer States: DeepSpeed's ZeRO-3 with the optimizer on the host.

Source: validation/zero3_offload_runs.csv, logs of mauryaavinash95/deep-optimizer-states-results and of
DataStates/artifacts (MIT) on GitHub; the paper is arXiv:2410.21316. One row is one run.

Columns do not state the machine: folders named "gaps-a100" ran with ranks bound to NUMA domains, models of
20B, and of 30B with micro-batches of one sequence, on H100. Models have the published shapes, by layers and
hidden size (headlines.yaml, `deep_optimizer_states_zero3_offload`), a vocabulary of 32000, and Llama's
layers. Layers are recomputed. Gradients leave pageable memory in stock DeepSpeed, and pinned memory during
the backward pass where `async_flush` is set.
"""

from collections.abc import Mapping

from flopcast.lab.offload_runs.machines import machines, stack_of
from flopcast.lab.offload_runs.rows import OffloadRun, job_or_reason, measured_parts
from flopcast.lab.run_tables import RunTable

SHAPES = {  # layers, hidden → hidden size of the feed-forward, heads, heads of keys and values
    (32, 4096): (11008, 32, 32),
    (72, 3072): (11008, 32, 32),
    (40, 5120): (13824, 40, 40),
    (60, 6656): (17920, 52, 52),
    (80, 8192): (28672, 64, 8),
}
WIDER = (20480, 64, 64)  # of the model that is called 20B, which has the layers and width of 13B
ASYNCHRONOUS = ("subg-size",)  # folders whose rows leave async_flush empty and show an overlapped copy
VOCABULARY = 32000


def run_of(row: Mapping[str, str], fitted: bool = True) -> OffloadRun:
    """Return the run of one row of the table.

    `fitted` says whether the cluster has the fitted rates of its machine. A row whose job breaks a rule has
    the reason in the place of a job.
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
    return "4-h100" if "twinflow" in row["folder"] else "4-a100"


def _flushes(row: Mapping[str, str]) -> bool:
    return row["async_flush"] == "1" or any(word in row["folder"] for word in ASYNCHRONOUS)


def _method(row: Mapping[str, str]) -> str:
    if row["interleaved_update"] == "1":
        return "interleaved"
    return "flush" if _flushes(row) else "stock"


def _job(row: Mapping[str, str], fitted: bool) -> dict[str, object]:
    tensor, data = int(row["tp"]), int(row["dp"])
    stride = int(row["update_stride"] or 0) if row["interleaved_update"] == "1" else 0
    return {
        "model": _model(row),
        "cluster": machines()[machine_of(row)].cluster(tensor * data, fitted),
        "stack": stack_of(
            flushes=_flushes(row),
            micro_batches=int(row["global_batch"]) // int(row["micro_batch"]) // data,
            fitted=fitted,
            device=machines()[machine_of(row)].device,
        ),
        "batch": {"sequence_length": int(row["seq_len"])},
        "plan": {
            "tensor_parallel": tensor,
            "data_parallel": data,
            "zero": 3,
            "micro_batch": int(row["micro_batch"]),
            "global_batch": int(row["global_batch"]),
            "recompute": "full",
            "offload": [
                {
                    "kind": "optimizer",
                    "tier": "host",
                    "fraction": float(row["optimizer_cpu_ratio"]),
                    "stride": stride,
                }
            ],
        },
    }


def _model(row: Mapping[str, str]) -> dict[str, object]:
    layers, hidden = int(row["layers"]), int(row["hidden"])
    wide, heads, groups = WIDER if row["model_b"] == "20" else SHAPES[layers, hidden]
    return {
        "hidden": hidden,
        "vocabulary": VOCABULARY,
        "blocks": [
            {
                "count": layers,
                "mixer": {"heads": heads, "kv_heads": groups},
                "feed_forward": {"ffn_hidden": wide, "activation": "swiglu"},
            }
        ],
    }


TABLE = RunTable(
    header=("optimizer_cpu_ratio", "interleaved_update", "async_flush", "update_stride", "iteration_ms"),
    runs_of=lambda _path, rows, options: (run_of(row, options.fitted) for row in rows),
)
