"""A job as a configuration of DeepSpeed.

Answers: which JSON gives DeepSpeed's engine this batch, sharding, precision and optimizer?
Elsewhere: the meaning of its keys (interop/configs/deepspeed.py, which reads the exported file again).

The file configures only the engine. The program that calls the engine determines the model, sequences,
pipeline and recompute. A note lists them as KEY=VALUE arguments, which must accompany the file when it is
read.
"""

import json

from flopcast.errors import SpecError
from flopcast.files.exported import Exported, not_expressible
from flopcast.interop.configs import deepspeed_offload
from flopcast.interop.configs.deepspeed_offload import BUFFER_ELEMENT_BYTES
from flopcast.interop.configs.deepspeed_shards import written_groups
from flopcast.interop.configs.job_reader import ACTIVATIONS
from flopcast.interop.exports.same_job import SettingsFile
from flopcast.spec.job import Job
from flopcast.spec.offload import Placement, offload_word
from flopcast.spec.plan import Plan
from flopcast.spec.stack import Stack

TARGET = "DeepSpeed's JSON"
RECOMPUTE = ("recompute_method", "recompute_layers", "recompute_modules")  # part of recompute's short form
LEFT_OPEN = (
    "recompute",
    *RECOMPUTE,
    "recompute_blocks",
    "partition_activations",
    "sequence_parallel",
    "rank_order",
    "expert_parallel",
    "expert_tensor_parallel",
)
OPTIMIZERS = {
    "adamw": "AdamW", "adamw_8bit": "Adam8bit", "adafactor": "Adafactor", "lion": "Lion",
    "sgd_momentum": "SGD",
}  # fmt: skip
DEVICES = {tier: device for device, tier in deepspeed_offload.DEVICES.items() if tier}
FAMILY = ("deepspeed-zero", "megatron-deepspeed", "gpt-neox-deepspeed")
FILE = SettingsFile(
    name="ds_config.json",
    kind="deepspeed",
    target=TARGET,
    family=FAMILY,
    otherwise="is not DeepSpeed; a run of this file behaves like the stack deepspeed-zero",
    left_open=LEFT_OPEN,
)


def export_deepspeed(job: Job) -> Exported:
    """Return the configuration of DeepSpeed's engine.

    Raises
    ------
    SpecError
        DeepSpeed would read some fields of the plan differently. All of them are reported.

    Examples
    --------
    >>> from flopcast.files.yaml_text import Document
    >>> from flopcast.requests.job_files import job_of
    >>> made = export_deepspeed(job_of(Document("job", {
    ...     "model": "llama-3-8b", "cluster": "dgx-h100:2", "stack": "deepspeed-zero",
    ...     "batch": {"seq": 4096}, "plan": "dp=16 gbs=64 zero=3"}, {})))
    >>> json.loads(made.files[0][1])["train_batch_size"]
    64
    """
    if (stages := job.plan.pipeline_parallel) > 1:  # the engine would take its ranks for replicas
        edit = f"add plan.pipeline_parallel=1 plan.data_parallel={stages * job.plan.data_parallel}"
        raise SpecError([not_expressible("plan.pipeline_parallel", stages, "1", TARGET, edit)])
    if job.plan.zero == 0 and job.plan.precision != "fp16" and job.plan.data_parallel > 1:
        allowed = "1, 2 or 3, because the job is in bf16"
        raise SpecError([not_expressible("plan.zero", 0, allowed, TARGET, "add plan.zero=1")])
    text = json.dumps(_settings(job), indent=2)
    missing = (
        "the file does not contain model, sequence length and cluster; to import it again, add "
        f"--model {job.model.name} --seq {job.batch.sequence_length} --cluster {job.cluster.name}"
    )
    return FILE.exported(job, [text], [missing, *_beside(job.plan)])


def _beside(plan: Plan) -> list[str]:
    """Return notes on the settings of the program, as arguments of a command."""
    usual = Plan()
    stated = []
    for name in LEFT_OPEN:
        value = getattr(plan, name)
        if name not in RECOMPUTE and value != getattr(usual, name):
            text = plan.recompute_word if name == "recompute" else json.dumps(value).strip('"')
            stated.append(f"plan.{name}={text}")
    words = " ".join(stated)
    return [f"the file does not contain these settings; to import it again, add {words}"] if stated else []


def _settings(job: Job) -> dict[str, object]:
    """Return plain data, in the order of DeepSpeed's documentation."""
    plan, gradients = job.plan, job.stack.gradients
    settings: dict[str, object] = {
        "train_batch_size": plan.global_batch,
        "train_micro_batch_size_per_gpu": plan.micro_batch,
        "gradient_accumulation_steps": plan.num_micro_batches,
        "optimizer": {"type": OPTIMIZERS.get(plan.optimizer, "AdamW")},
        "fp16" if plan.precision == "fp16" else "bf16": {"enabled": True},
        "communication_data_type": gradients.dtype,
        "zero_optimization": _sharding(job),
    }
    if plan.tensor_parallel > 1:
        settings["tensor_parallel"] = {"autotp_size": plan.tensor_parallel}
    if plan.context_parallel > 1:
        settings["sequence_parallel_size"] = plan.context_parallel
    kept = tuple(one for one in plan.offload if one.kind == "activations")
    if plan.recompute == "full" and offload_word(kept) in ACTIVATIONS:
        settings["activation_checkpointing"] = {"cpu_checkpointing": True}
    return settings


def _sharding(job: Job) -> dict[str, object]:
    """Return what replicas shard, the buckets, and the overlap."""
    plan, gradients = job.plan, job.stack.gradients
    sharding: dict[str, object] = {
        "stage": plan.zero,
        "overlap_comm": gradients.overlaps(plan.zero),
        "use_multi_rank_bucket_allreduce": gradients.collective == "all_reduce",
        "reduce_bucket_size": gradients.smallest_bucket(plan.data_parallel),
    }
    if plan.zero == 3 and job.stack.sharding.prefetch_units == 0:
        sharding["stage3_prefetch_bucket_size"] = 0
    for one in plan.offload:
        everywhere = one.kind == "optimizer" and one.tier == "host" and one.fraction == 1
        if one.tier in DEVICES and plan.zero >= (1 if everywhere else 3):
            sharding |= _placed(one, job.stack)
    if plan.zero and 0 < plan.data_shard < plan.data_parallel:
        sharding["mics_shard_size"] = plan.data_shard * plan.context_parallel
    return sharding | written_groups(plan)


def _placed(one: Placement, stack: Stack) -> dict[str, object]:
    """Return the settings for a state outside the device; a later check finds what they cannot express."""
    device = DEVICES[one.tier]
    if one.kind == "optimizer":
        settings: dict[str, object] = {"device": device}
        if one.fraction < 1:
            settings["ratio"] = one.fraction
        if stack.offload.gradient_copies == "pinned":
            settings["pin_memory"] = True
        if stack.offload.overlaps_updates and stack.offload.backward_fraction == 1:
            settings["super_offload"] = True
        return {"offload_optimizer": settings}
    if one.kind == "parameters":
        buffers = {
            "buffer_count": 1,
            "buffer_size": int(stack.offload.buffer_bytes // BUFFER_ELEMENT_BYTES),
        }
        return {"offload_param": {"device": device} | (buffers if one.tier == "nvme" else {})}
    return {}
