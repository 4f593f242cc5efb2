"""A job as settings of torchtitan.

Answers: which settings train this job with torchtitan?
Elsewhere: the meaning of the settings (interop/configs/torchtitan.py, torchtitan_stages.py, which read the
exported file again). The result is a TOML file for the releases that read TOML. Every key is also a
command-line flag in all releases, and a comment at the top shows these flags: `--training.seq_len 8192`.
"""

import json
from itertools import accumulate

from flopcast.errors import SpecError
from flopcast.files.exported import Exported, not_expressible
from flopcast.interop.configs.job_reader import FLAVOURS, SHARDED_STATES
from flopcast.interop.configs.torchtitan import RECIPES, ROTATIONS
from flopcast.interop.exports.megatron_model import word_of
from flopcast.interop.exports.same_job import SettingsFile, canonical_model, without_cluster
from flopcast.layers.modules import OPERATORS
from flopcast.library import catalog
from flopcast.spec.job import Job
from flopcast.spec.plan import Plan
from flopcast.spec.stack import Stack

TARGET = "torchtitan's settings"
SCHEDULES = {
    "1f1b": "1F1B",
    "gpipe": "GPipe",
    "interleaved_1f1b": "Interleaved1F1B",
    "zb_v": "ZBVZeroBubble",
    "dualpipe_v": "DualPipeV",
}
Settings = dict[str, dict[str, object]]
FAMILY: dict[str, Settings] = {"torch-fsdp2": {}, "torch-fsdp2-compiled": {"compile": {"enable": True}}}
FILE = SettingsFile(
    name="train.toml",
    kind="torchtitan",
    target=TARGET,
    family=FAMILY,
    otherwise="is not torchtitan; a run with these settings behaves like the stack torch-fsdp2",
)


def export_torchtitan(job: Job) -> Exported:
    """Return the settings as TOML, with a comment that shows them as command-line flags.

    Raises
    ------
    SpecError
        torchtitan does not have this model, or would read fields of the plan or batch differently. All of
        them are reported.
    """
    settings = _settings(job)
    flags = " ".join(
        f"--{section}.{key} {_flag(value)}"
        for section, keys in settings.items()
        for key, value in keys.items()
    )
    lines = [f"# {job.model.name} on {job.cluster.num_devices} devices; as flags: {flags}"]
    for section, keys in settings.items():
        lines += ["", f"[{section}]", *(f"{key} = {json.dumps(value)}" for key, value in keys.items())]
    rest = "the file does not set data, learning rate, checkpoints and logs"
    return FILE.exported(job, lines, without_cluster(job), rest)


def _flag(value: object) -> str:
    return ",".join(value) if isinstance(value, list) else str(value)


def _settings(job: Job) -> Settings:
    plan = job.plan
    name, _, flavour = _flavour(job).partition("/")
    if not flavour:
        known, fix = ", ".join(sorted(set(FLAVOURS.values()))), "export to another format"
        raise SpecError([not_expressible("model.name", job.model.name, known, TARGET, fix)])
    training: dict[str, object] = {
        "local_batch_size": plan.micro_batch,
        "global_batch_size": plan.global_batch,
        "seq_len": job.batch.sequence_length,
    }
    if plan.pipeline_parallel > 1:
        training["local_batch_size"] = plan.global_batch // plan.data_parallel
    if {one.word() for one in plan.offload} == set(SHARDED_STATES):
        training["enable_cpu_offload"] = True
    settings: Settings = {
        "model": {"name": name, "flavor": flavour.upper().replace("BX", "Bx")},
        "optimizer": {"name": "SGD" if plan.optimizer == "sgd" else "AdamW"},
        "training": training,
        "parallelism": _parallelism(job),
        "activation_checkpoint": _recompute(job),
    }
    settings |= FAMILY.get(job.stack.name, {})
    return settings | _precision(plan, settings)


def _flavour(job: Job) -> str:
    """Return torchtitan's name of the model, or of a model that differs only in its name; "" if there is
    none.

    Adapters are not part of a flavour; a later check finds them.
    """
    named = word_of(FLAVOURS, job.model.name)
    if named in FLAVOURS:
        return named
    own = canonical_model(job) | {"adapters": None}
    known = {
        flavour: canonical_model(job.model_copy(update={"model": catalog.model(name)}))
        for flavour, name in FLAVOURS.items()
    }
    return next((flavour for flavour, model in known.items() if model == own), "")


def _precision(plan: Plan, settings: Settings) -> Settings:
    """Return the converter that replaces linear layers by 8-bit ones, and its recipe."""
    if plan.precision not in RECIPES.values():
        return {}
    section = "mx" if plan.precision == "mxfp8" else "float8"
    model = settings["model"] | {"converters": [section]}
    return {"model": model, section: {"recipe_name": word_of(RECIPES, plan.precision)}}


def _recompute(job: Job) -> dict[str, object]:
    """Return settings that recompute operators, whole blocks, every n-th of them, or nothing."""
    plan = job.plan
    if plan.recompute == "selective" and (plan.recompute_modules or job.stack.selective_groups) == (
        OPERATORS,
    ):
        return {"mode": "selective", "selective_ac_option": "op"}
    if plan.recompute == "full" and plan.recompute_method == "every":
        return {"mode": "selective", "selective_ac_option": str(plan.recompute_layers)}
    return {"mode": "full" if plan.recompute == "full" else "none"}


def _parallelism(job: Job) -> dict[str, object]:
    plan = job.plan
    shard = (plan.data_shard or plan.data_parallel) if plan.zero == 3 else 1
    settings: dict[str, object] = {
        "data_parallel_replicate_degree": plan.data_parallel // shard,
        "data_parallel_shard_degree": shard,
        "tensor_parallel_degree": plan.tensor_parallel,
    }
    if plan.context_parallel > 1:
        settings["context_parallel_degree"] = plan.context_parallel
        if plan.context_exchange in ROTATIONS.values():
            settings["context_parallel_rotate_method"] = word_of(ROTATIONS, plan.context_exchange)
        if plan.context_order == "contiguous":
            settings["context_parallel_load_balancer"] = "none"
    if job.model.has_experts:
        settings["expert_parallel_degree"] = plan.expert_parallel
        settings["expert_tensor_parallel_degree"] = plan.expert_tensor_parallel
    if plan.pipeline_parallel > 1:
        settings |= _stages(job)
    return settings | _software(job.stack)


def _software(stack: Stack) -> dict[str, object]:
    """Return the stack's differences from torchtitan's defaults: overlap, and when parameters are freed."""
    settings: dict[str, object] = {}
    if stack.tensor_overlap == "chunks":
        settings["enable_async_tensor_parallel"] = True
    if stack.name in FAMILY and stack.sharding.gathers == "every_micro_batch":
        settings["fsdp_reshard_after_forward"] = "never"
    elif stack.name in FAMILY and not stack.sharding.holds_in_pipeline:
        settings["fsdp_reshard_after_forward"] = "always"
    return settings


def _stages(job: Job) -> dict[str, object]:
    """Return the stages, their schedule, and the beginning of each chunk."""
    plan, chunks = job.plan, job.plan.pipeline_parallel * job.plan.virtual_stages
    held = plan.stage_layers or (job.model.num_blocks // chunks,) * chunks
    settings: dict[str, object] = {
        "pipeline_parallel_degree": plan.pipeline_parallel,
        "pipeline_parallel_schedule": SCHEDULES.get(str(plan.pipeline_schedule), "1F1B"),
        "pipeline_parallel_microbatch_size": plan.micro_batch,
    }
    if sum(held) == job.model.num_blocks:
        starts = list(accumulate(held))[:-1]
        settings["pipeline_parallel_split_points"] = [f"layers.{start}" for start in starts]
    return settings
