"""A published run: what one row of a table states about a measured training run.

Answers: which facts may a row state, and how many seconds did a step of its run take?
Elsewhere: reading rows (lab/published/table.py), the job that reproduces a run (lab/published/job.py),
errors of predictions (published.py). A field is None or empty if the row does not state it.
"""

import re
from typing import Literal

from pydantic import Field

from flopcast.errors import Problem
from flopcast.report.metrics import BACKWARD_OVER_FORWARD
from flopcast.report.recomputed import recomputed_flop
from flopcast.spec.job import Job
from flopcast.strict_model import StrictModel

Count = int | None
COLUMNS = {"step_time_s": "step_time_s", "device_tokens_per_s": "tokens_per_s_per_gpu",
           "tokens_per_s": "tokens_per_s_total", "sequences_per_s": "samples_per_s",
           "device_flop_per_s": "tflops_per_gpu"}  # fmt: skip
PASSES = 1.0 + BACKWARD_OVER_FORWARD


class Architecture(StrictModel):
    """Sizes of the model as stated by the row, under the names of layers' fields."""

    num_layers: Count = Field(default=None, ge=1)
    hidden: Count = Field(default=None, ge=1)
    ffn_hidden: Count = Field(default=None, ge=1)
    heads: Count = Field(default=None, ge=1)
    kv_heads: Count = Field(default=None, ge=1)
    head_size: Count = Field(default=None, ge=1)
    vocabulary: Count = Field(default=None, ge=1)
    num_experts: Count = Field(default=None, ge=1)
    top_k: Count = Field(default=None, ge=1)
    expert_hidden: Count = Field(default=None, ge=1)
    num_shared_experts: Count = Field(default=None, ge=0)
    num_dense_layers: Count = Field(default=None, ge=0)
    attention: str = ""
    gated: bool | None = None
    tied_embeddings: bool | None = None


class Machine(StrictModel):
    """Hardware as printed: vendors' names, which a table of the catalogue converts to clusters."""

    device: str = ""
    devices_per_node: Count = Field(default=None, ge=1)
    num_devices: Count = Field(default=None, ge=1)
    network: str = ""


class Mapping(StrictModel):
    """The parallelism of a run, under the names of a plan; `fsdp` is the source's own term."""

    data_parallel: Count = Field(default=None, ge=1)
    tensor_parallel: Count = Field(default=None, ge=1)
    pipeline_parallel: Count = Field(default=None, ge=1)
    virtual_stages: Count = Field(default=None, ge=1)
    context_parallel: Count = Field(default=None, ge=1)
    expert_parallel: Count = Field(default=None, ge=1)
    expert_tensor_parallel: Count = Field(default=None, ge=1)
    micro_batch: Count = Field(default=None, ge=1)
    global_batch: Count = Field(default=None, ge=1)
    sequence_parallel: bool | None = None
    zero: Literal[0, 1, 2, 3] | None = None
    fsdp: str = ""
    precision: str = ""
    recompute: str = ""
    offload: str = ""
    schedule: str = ""
    flash_attention: bool | None = None


class Software(StrictModel):
    """Framework, version and year as printed."""

    framework: str = ""
    version: str = ""
    year: Count = None


class Observed(StrictModel):
    """The measurements of a run.

    Rates are per device if their name contains it, and of the whole job otherwise. `flop_convention` and
    `attention` state which FLOP a rate counts. `memory_bytes` is the size on the fullest device, and
    `memory_unit` is the source's description of what it counts (`memory_kind`).
    """

    step_time_s: float | None = Field(default=None, gt=0)
    device_tokens_per_s: float | None = Field(default=None, gt=0)
    device_flop_per_s: float | None = Field(default=None, gt=0)
    flop_convention: Literal["", "model", "hardware"] = ""
    attention: Literal["", "full", "causal", "none"] = ""
    tokens_per_s: float | None = Field(default=None, gt=0)
    sequences_per_s: float | None = Field(default=None, gt=0)
    memory_bytes: float | None = Field(default=None, gt=0)
    memory_unit: str = ""

    @property
    def stated(self) -> tuple[str, float]:
        """Return the column that states the time of a step, and its value; ("", 0.0) if no column does."""
        stated = ((column, getattr(self, name)) for name, column in COLUMNS.items())
        column, value = next((each for each in stated if each[1] is not None), ("", 0.0))
        return column, value / 1e12 if column.startswith("tflops") else value


class Run(StrictModel):
    """One row.

    `where` is its file and line. `refused` states why runs of this table cannot be scored. `judged_only`
    states why no constant may be fitted to this run although it is scored. Both may be "". `notes` are
    the table's remarks: tasks (LoRA, packed sequences), and values that do not come from the source
    itself. `site` is the catalogue's site of the run, or "". `unused` lists cells with values that no
    part of the job uses, each as "column = value".
    """

    id: str
    source: str
    where: str = ""
    kind: Literal["train", "inference"] = "train"
    model: str = ""
    sequence_length: Count = Field(default=None, ge=1)
    architecture: Architecture = Architecture()
    machine: Machine = Machine()
    mapping: Mapping = Mapping()
    software: Software = Software()
    observed: Observed = Observed()
    notes: str = ""
    site: str = ""
    unused: tuple[str, ...] = ()
    refused: str = ""
    judged_only: str = ""

    @property
    def fully_specified(self) -> bool:
        """Return whether the row states the model, sequence length, devices, tp, pp and batch sizes."""
        plan = self.mapping
        printed = (
            self.model or self.architecture.num_layers,
            self.sequence_length,
            self.machine.num_devices,
            plan.tensor_parallel,
            plan.pipeline_parallel,
            plan.micro_batch,
            plan.global_batch,
        )
        return all(printed)

    def fault(
        self, field: str, value: object, allowed: str, because: str, fix: str = "leave the row out"
    ) -> Problem:
        """Return why the row cannot be scored, with its line."""
        return Problem(field, value, allowed, because, fix, where=self.where)

    def says(self, word: str) -> bool:
        """Return whether the remarks contain a word, in upper or lower case."""
        return word.lower() in self.notes.lower()


def memory_kind(unit: str) -> Literal["allocated", "between steps", "reserved", "device"]:
    """Return the kind of bytes that a printed memory size counts, from the text after its unit.

    "allocated" is the memory that the framework allocated at the peak, "between steps" what stays allocated
    after a step, "reserved" includes the allocator's cache, and "device" is the memory that the driver
    shows. A unit without further text counts as allocated: `torch.cuda.max_memory_allocated`.

    Examples
    --------
    >>> memory_kind("GB (nvidia-smi)"), memory_kind("GiB reserved"), memory_kind("GB")
    ('device', 'reserved', 'allocated')
    """
    words = unit.lower()
    if re.search(r"alloc.* after an? (iteration|step)", words):
        return "between steps"
    if "alloc" in words:
        return "allocated"
    if "reserved" in words:
        return "reserved"
    return "device" if re.search(r"smi\b|driver|device|\bused\b|nvml", words) else "allocated"


def counted_flop(job: Job, causal: bool) -> float:
    """Return the model FLOP of a step: three forward passes, less the FLOP that frozen weights save."""
    length = job.batch.sequence_length  # published runs have one length
    forward = PASSES * job.model.forward_flop(length, causal=causal)
    return job.plan.global_batch * (forward - job.model.frozen_flop(length))


def measured_step_time_s(run: Run, job: Job) -> tuple[float | None, str]:
    """Return the seconds of the run's step, and the assumptions that they need.

    The job gives the tokens of a step and, if the row prints only a FLOP rate, the FLOP of a step. The
    time is the printed one, or the tokens of a step divided by their rate, or the FLOP of a step divided
    by their rate. FLOP follow the row's convention, or full attention without recompute if the row states
    none. None if the row has no measured time.
    """
    seen, devices = run.observed, job.cluster.num_devices
    if seen.step_time_s is not None:
        return seen.step_time_s, ""
    if seen.device_tokens_per_s is not None:
        return job.step_tokens / (seen.device_tokens_per_s * devices), ""
    if seen.tokens_per_s is not None:
        return job.step_tokens / seen.tokens_per_s, ""
    if seen.sequences_per_s is not None:
        return job.plan.global_batch / seen.sequences_per_s, ""
    if seen.device_flop_per_s is None:
        return None, ""
    causal = seen.attention == "causal"
    flop = counted_flop(job, causal)
    flop += recomputed_flop(job, causal) if seen.flop_convention == "hardware" else 0.0
    note = (
        ""
        if seen.attention
        else "the printed FLOP/s are assumed to count full attention, because the source does not state it"
    )
    return flop / (seen.device_flop_per_s * devices), note
