"""Measured rates of engines with weights outside the device: FlexGen, ZeRO-Inference, Accelerate.

Source: data/offload/offload_inference_throughput.yaml (FMInference/FlexLLMGen and
deepspeedai/DeepSpeedExamples on GitHub). The file has a list of blocks. Each block has a machine, the
lengths of requests, the names of columns, and rows. One row is one batch.

The percentages of FlexGen are not stated. If its lowest tier is the host, a tenth of the weights is
assumed to be on the device. The remaining weights, all keys and values, and the hidden states are on the
host, which computes the attention.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from flopcast.files.package_table import read_table
from flopcast.lab.run_tables import RunBlocks
from flopcast.lab.serving_runs.quantities import output_tokens_per_s
from flopcast.lab.serving_runs.rows import Measured, ServingRun, job_or_reason
from flopcast.library import catalog
from flopcast.spec.cluster import Cluster
from flopcast.spec.deployment import Deployment
from flopcast.spec.serving_job import ServingJob
from flopcast.spec.traffic import Traffic

RATE = "tokens_per_s"
COLUMNS = {"system", "model", RATE}  # which every block has
CLUSTERS = {"T4 16GB": "aws-g4dn", "A6000 48GB": "rtx-a6000"}
_NAMES = read_table(__package__, "names.yaml")["offloads"]
ENGINES, POLICY = _NAMES["engines"], _NAMES["policy"]
HOST = {"weights_on": "host"}


def _blocks(data: object) -> Sequence[Mapping[str, Any]]:
    """Return the blocks of a file that state tokens per second."""
    blocks = data if isinstance(data, list) else []
    return [
        block
        for block in blocks
        if isinstance(block, dict) and COLUMNS.issubset(block.get("columns") or ()) and "rows" in block
    ]


def _runs(blocks: Sequence[Mapping[str, Any]]) -> Iterator[ServingRun]:
    named = (
        (block, dict(zip(block["columns"], row, strict=True))) for block in blocks for row in block["rows"]
    )
    for block, row in named:
        job, reason = _job(block, row)
        words = [str(row["system"]), str(row["model"]), *(f"{name}={row[name]}" for name in _flags(row))]
        rate = Measured(quantity=RATE, unit="tokens/s", value=float(row[RATE]), read=output_tokens_per_s)
        yield ServingRun(
            id="/".join((str(block["id"]), *words)),
            source="offload",
            job=job,
            reason=reason,
            measured=(rate,),
            groups={
                "engine": str(row["system"]),
                "model": str(row["model"]),
                "device": str(block["hardware"]["gpu"]),
            },
        )


def _flags(row: Mapping[str, Any]) -> list[str]:
    return [name for name in ("weights_4bit", "kv_on_host") if name in row]


def _job(block: Mapping[str, Any], row: Mapping[str, Any]) -> tuple[ServingJob | None, str]:
    """Return the job of a row without a reason, or the reason without a job."""
    machine, system = block["hardware"], str(row["system"])
    if machine["gpu"] not in CLUSTERS:
        return None, f"gpu = {machine['gpu']} has no cluster in the catalogue"
    if system not in ENGINES:
        compressed = "compressed" in system
        return None, (
            "a 4-bit KV cache outside the device is not supported"
            if compressed
            else f"the catalogue has no engine for system = {system}"
        )
    model, batch = str(row["model"]).lower(), int(row.get("effective_batch", row.get("batch", 1)))
    if catalog.known("models", model) is None:
        return None, f"the catalogue has no model {row['model']}"
    lengths = block["workload"]
    prompt, output = int(lengths["prompt_tokens"]), int(lengths["output_tokens"])
    plan = {"replicas": 1, "max_sequences": batch, "max_tokens": batch * prompt, **_places(row, system)}
    traffic = {"concurrency": batch, "requests": batch, "prompt_tokens": prompt, "output_tokens": output}
    return job_or_reason(
        lambda: ServingJob(
            model=catalog.model(model),
            cluster=_machine(CLUSTERS[machine["gpu"]], 1e9 * float(machine["host_memory_GB"])),
            engine=catalog.engine(ENGINES[system]),
            plan=Deployment.model_validate(plan),
            traffic=Traffic.model_validate(traffic),
        )
    )


def _places(row: Mapping[str, Any], system: str) -> dict[str, object]:
    """Return the places of weights and caches, and the format of the weights."""
    if "weights_4bit" in row:
        caches = {"kv_on": "host"} if row["kv_on_host"] else {}
        return {"weights": "int4" if row["weights_4bit"] else "bf16", **HOST, **caches}
    if row["lowest_tier"] == "gpu":
        return {}
    return {**(POLICY if ENGINES[system] == ENGINES["FlexLLMGen"] else HOST)}


def _machine(name: str, capacity_bytes: float) -> Cluster:
    """Return one device of a cluster in the catalogue, with the given amount of host memory."""
    cluster = catalog.cluster(name, 1)
    group = cluster.groups[0]
    memory = group.node.memory
    changes: dict[str, object] = {"devices": 1}
    if memory is not None:
        changes["memory"] = memory.model_copy(update={"capacity_bytes": capacity_bytes})
    node = group.node.model_copy(update=changes)
    return cluster.model_copy(update={"groups": (group.model_copy(update={"node": node}),)})


TABLE = RunBlocks(blocks_of=_blocks, runs_of=_runs)
