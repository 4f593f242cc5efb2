"""Runs of MLP-Offload and of DeepSpeed with the optimizer on drives, on one node of four devices.

Source: data/offload/mlp_offload_log_phases.csv, logs of DataStates/artifacts (MIT) on GitHub; totals of
these and other runs are in headlines.yaml, `zero3_nvme_offload_40b_120b`. One row is one run. Shapes that
neither source states are taken from the scripts that started the runs, in the same repository.

DeepSpeed keeps states and fp32 gradients on the drives. An update reads 16 bytes per parameter and writes
12, after the backward pass has written 4. MLP-Offload keeps gradients on the host and puts a quarter of
the states into the file system. The subgroups for which the scripts reserve slots stay on the host and
are neither read nor written. It also keeps gradients in 16 bits until the update (arXiv:2509.02480). A
step copies 2 bytes per parameter to the host and 2 back, which together count as one copy in fp32. Models
have SwiGLU, four key/value heads, and the vocabulary of GPT-2. Layers are recomputed.
"""

from collections.abc import Mapping

from flopcast.lab.offload_runs.machines import machines, stack_of
from flopcast.lab.offload_runs.rows import (
    KV_HEADS,
    MeasuredPart,
    OffloadRun,
    job_or_reason,
    measured_parts,
    model_of,
    plan_of,
)
from flopcast.lab.run_tables import RunTable
from flopcast.units import Number

MACHINE, MULTI_PATH = "4-h100-nvme", "MLP-Offload"
CACHED_PARAMETERS = 32 * 100e6  # of each rank: the scripts cache subgroups in 32 slots
SECOND_PATH_FRACTION = 0.25  # of what is on storage
FFN_HIDDEN = {(128, 5120): 20480, (64, 8192): 21824, (96, 10240): 28672}  # by layers and hidden size
USUAL_FFN_HIDDEN, VOCABULARY = 28672, 50304


def run_of(row: Mapping[str, str], fitted: bool = True) -> OffloadRun:
    """Return the run of one row, either of the table or of the published totals, which have the same
    columns.

    Reads and writes of the update overlap, so the prediction is also compared with their sum. If the job
    of a row breaks a rule, the run has the reason instead of a job.
    """
    job, reason = job_or_reason(row["approach"], _job(row, fitted))
    swaps = [row.get(name) for name in ("optimizer_swap_in_ms", "optimizer_swap_out_ms")]
    measured = measured_parts(row)
    if all(swaps):
        total = sum(float(each) for each in swaps if each)
        name = "optimizer_swap_in_ms + optimizer_swap_out_ms"
        measured = (*measured, MeasuredPart(quantity=name, value=total, part="update"))
    return OffloadRun(
        id="/".join([row["model_b"], row["approach"], row.get("single_proc", "")]).rstrip("/"),
        source="MLP-Offload",
        job=job,
        reason=reason,
        measured=measured,
        groups={"machine": MACHINE, "model": row["model_b"], "folder": "nvme", "method": row["approach"]},
    )


def _job(row: Mapping[str, str], fitted: bool) -> dict[str, object]:
    layers, hidden, heads = (int(row[name]) for name in ("layers", "hidden", "heads"))
    wide = FFN_HIDDEN.get((layers, hidden), USUAL_FFN_HIDDEN)
    parameters = layers * hidden * (2 * hidden * (1 + KV_HEADS / heads) + 3 * wide)
    stack = stack_of(
        flushes=_is_multi_path(row),
        micro_batches=1,
        fitted=fitted,
        device=machines()[MACHINE].device,
        buffers_gradients=not _is_multi_path(row),
    )
    return {
        "model": model_of(row, VOCABULARY, wide),
        "cluster": machines()[MACHINE].cluster(int(row["dp"]) * int(row["tp"]), fitted),
        "stack": stack,
        "batch": {"sequence_length": int(row["seq"])},
        "plan": plan_of(row, _placements(row, parameters)),
    }


def _is_multi_path(row: Mapping[str, str]) -> bool:
    return row["approach"] == MULTI_PATH


def _placements(row: Mapping[str, str], parameters: Number) -> list[dict[str, object]]:
    """Return where the states of a number of parameters are placed."""
    if not _is_multi_path(row):
        return [{"kind": "optimizer", "tier": "nvme"}]
    cached = min(0.99, CACHED_PARAMETERS * int(row["dp"]) * int(row["tp"]) / parameters)
    second = (1 - cached) * SECOND_PATH_FRACTION
    states = {"host": cached, "nvme": 1 - cached - second, "file_system": second}
    placed = [{"kind": "optimizer", "tier": tier, "fraction": each} for tier, each in states.items()]
    return [*placed, {"kind": "gradients", "tier": "host"}]


TABLE = RunTable(
    header=("approach", "optimizer_swap_in_ms", "optimizer_swap_out_ms", "subgroup_params"),
    runs_of=lambda _path, rows, options: (run_of(row, options.fitted) for row in rows),
)
