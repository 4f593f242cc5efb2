"""A job as a launch script of Megatron-LM.

Answers: which script trains this job?
Elsewhere: flags of the model (megatron_model.py), and of the plan and stack (megatron_plan.py); the reader
of such scripts (interop/megatron/launch_script.py), which checks the exported script.
"""

from flopcast.files.exported import Exported, text_file
from flopcast.files.yaml_text import Document
from flopcast.interop.exports.megatron_model import Flags, model_flags
from flopcast.interop.exports.megatron_plan import FAMILY, TARGET, base_of, plan_flags, stack_flags
from flopcast.interop.exports.same_job import checked
from flopcast.interop.megatron.launch_script import launch_document
from flopcast.interop.megatron.stack import NEWEST
from flopcast.spec.job import Job

NAME = "run.sh"
LAST_TOUCHES = ("the script does not set learning rate, checkpoints and logs",)


def export_megatron(job: Job) -> Exported:
    """Return a script that starts the job's run with torchrun and pretrain_gpt.py.

    Returns
    -------
    Exported
        One file; its notes list what no flag expresses: cluster, release of the stack, data.

    Raises
    ------
    SpecError
        Fields of the model, plan or batch have no flag. All of them are reported.

    Examples
    --------
    >>> from flopcast.requests.job_files import load_catalog_job
    >>> made = export_megatron(load_catalog_job("paper/llemma-7b-vista-pp4-tp2-dp2"))
    Traceback (most recent call last):
    ...
    flopcast.errors.SpecError: model.blocks.0.mixer.qkv_bias = False cannot be exported to ...
    """
    text = _script(job).encode("utf-8")
    lost = checked(job, text, _read, TARGET)
    data = "data are not in it"
    if _is_current(job):
        data = "the script trains on random data (--mock-data); replace it with your data"
    foreign = f"the job uses {job.stack.label}, but these flags start Megatron-LM"
    notes = [
        f"the script does not contain the cluster; to import it again, add --cluster {job.cluster.name}",
        *([] if job.stack.name in FAMILY else [foreign]),
        *lost,
        data,
        *LAST_TOUCHES,
    ]
    return text_file(NAME, text.decode("utf-8").splitlines(), notes)


def _is_current(job: Job) -> bool:
    return base_of(job.stack) == NEWEST


def _read(text: bytes, devices: int) -> Document:
    return launch_document(text, NAME, devices)


def _script(job: Job) -> str:
    """Return the text: torchrun on every node, then the flags, grouped by subject on lines."""
    nodes, each = sum(group.count for group in job.cluster.groups), job.cluster.node.devices
    started = f"torchrun --nnodes {nodes} --nproc_per_node {each}"
    if nodes > 1:
        started += " --rdzv_backend c10d --rdzv_endpoint ${MASTER_ADDR:-localhost}:29500"
    groups: tuple[Flags, ...] = (model_flags(job, _is_current(job)), plan_flags(job), stack_flags(job))
    lines = [f"{started} pretrain_gpt.py", *(f"  {flag}" for group in groups for flag in group)]
    head = f"# {job.model.name}, {job.cluster.num_devices} devices; run it on each of {nodes} nodes"
    return "\n".join(["#!/bin/bash", head, " \\\n".join(lines)]) + "\n"
