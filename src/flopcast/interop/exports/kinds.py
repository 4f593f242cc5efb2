"""All kinds of export by name. A new kind needs one file, and one line in this module.

Answers: in which formats can a job be exported, and which function writes each?
"""

from collections.abc import Callable

from flopcast.errors import spec_error
from flopcast.files.exported import Exported
from flopcast.files.nearest_names import nearest
from flopcast.fixes import set_to
from flopcast.interop.exports.deepspeed import export_deepspeed
from flopcast.interop.exports.launch_commands import LaunchExport
from flopcast.interop.exports.megatron import export_megatron
from flopcast.interop.exports.megatron_bridge import export_megatron_bridge
from flopcast.interop.exports.torchtitan import export_torchtitan
from flopcast.interop.exports.traces import export_chakra, export_chrome, export_perfetto
from flopcast.interop.serving import sglang, trtllm, vllm
from flopcast.library import catalog
from flopcast.records import Record
from flopcast.spec.job import Job
from flopcast.spec.serving_job import ServingJob


class ExportFormat(Record, eq=False, kw_only=False):
    """One export format: its description, its function, and whether it shows a single peer of a plan."""

    description: str
    export: Callable[[Job], Exported]
    of_one_peer: bool = False


KINDS: dict[str, ExportFormat] = {
    "megatron": ExportFormat("a launch script with Megatron-LM's flags", export_megatron),
    "deepspeed": ExportFormat("a configuration of DeepSpeed's engine, JSON", export_deepspeed),
    "torchtitan": ExportFormat("settings of torchtitan, TOML with its flags", export_torchtitan),
    "megatron-bridge": ExportFormat(
        "overrides of a recipe of Megatron-Bridge, YAML", export_megatron_bridge
    ),
    "chakra": ExportFormat("Chakra execution traces, one for each rank (for ASTRA-sim)", export_chakra),
    "perfetto": ExportFormat("a trace of the step for ui.perfetto.dev", export_perfetto, True),
    "chrome": ExportFormat("the same trace as Chrome's trace events, in JSON", export_chrome, True),
}
SERVING: dict[str, LaunchExport] = {
    "vllm": LaunchExport(kind="vllm", write=vllm.written),
    "sglang": LaunchExport(kind="sglang", write=sglang.written),
    "trtllm": LaunchExport(kind="trtllm", write=trtllm.written),
}


def exported(job: Job | ServingJob, name: str) -> Exported:
    """Return a training or serving job in the format with this name.

    Raises
    ------
    SpecError
        The format does not exist, is for the other kind of job, or cannot express the job.
    """
    kind = kind_named(name)
    if isinstance(job, ServingJob) and isinstance(kind, LaunchExport):
        return kind.export(job)
    if isinstance(job, Job) and isinstance(kind, ExportFormat):
        if job.plan.peers > 1 and not kind.of_one_peer:
            because = f"{kind.description} cannot express peers, their inner steps and their exchange"
            one = set_to("export the plan of one peer", {"peers": 1, "inner_steps": 1})
            raise spec_error("plan.peers", job.plan.peers, "1", because, one)
        return kind.export(job)
    does, names = ("serves", SERVING) if isinstance(job, ServingJob) else ("trains", KINDS)
    because = f"the job {does}, but {name} is {kind.description}"
    fix = f"write {next(iter(names))}, or another of these formats, in place of {name}"
    if isinstance(job, Job) and (model := catalog.known("models", job.model.name)):
        cluster = catalog.known("clusters", job.cluster.name)
        size = f" --cluster {cluster} --gpus {job.cluster.num_devices}" if cluster else ""
        fix = f"run flopcast export {name} {model}{size}, which serves {model}, or {fix}"
    raise spec_error("KIND", name, ", ".join(names), because, fix)


def kind_named(name: str) -> ExportFormat | LaunchExport:
    """Return the format with this name.

    Raises
    ------
    SpecError
        The format does not exist.
    """
    every: dict[str, ExportFormat | LaunchExport] = {**KINDS, **SERVING}
    if name in every:
        return every[name]
    near, because = nearest(name, every), "flopcast cannot write this format"
    fix = (
        f"did you mean {near[0]}?" if near else f"choose one of these formats, such as {next(iter(KINDS))}"
    )
    raise spec_error("KIND", name, ", ".join(every), because, fix)
