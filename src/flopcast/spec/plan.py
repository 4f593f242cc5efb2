"""The plan: how the work is divided over devices and micro-batches.

Answers: which degrees, sizes and modes does a user choose; what does a layer see of them (`Split`)?
Elsewhere: whether they are possible (spec/checks.py), which ranks form an axis (cost/placement.py).

`Plan` is what a user writes: scalars. `Plans` is what the core computes with: many plans of one
structure, their degrees as arrays of shape (plans, 1). One plan is a batch of one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from pydantic import AliasChoices, BaseModel, ConfigDict, Field
from pydantic.fields import FieldInfo

from flopcast.dtypes import Counts
from flopcast.errors import InternalError
from flopcast.layers.base import Split
from flopcast.spec.batch import Batch


def _degree(long_name: str, short_name: str, default: int = 1) -> int:
    info: int = Field(default=default, ge=1, validation_alias=AliasChoices(long_name, short_name))
    return info


class Plan(BaseModel):
    """One way to run a step. Long names are the glossary's, short ones the field's."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    data_parallel: int = _degree("data_parallel", "dp")
    data_shard: int = _degree("data_shard", "dp_shard")
    tensor_parallel: int = _degree("tensor_parallel", "tp")
    sequence_parallel: bool = Field(default=False, validation_alias=AliasChoices("sequence_parallel", "sp"))
    context_parallel: int = _degree("context_parallel", "cp")
    context_exchange: Literal["ring", "all_gather", "all_to_all"] = "ring"
    context_order: Literal["contiguous", "zigzag"] = "zigzag"
    expert_parallel: int = _degree("expert_parallel", "ep")
    expert_tensor_parallel: int = _degree("expert_tensor_parallel", "etp")
    pipeline_parallel: int = _degree("pipeline_parallel", "pp")
    virtual_stages: int = _degree("virtual_stages", "vpp")
    zero: Literal[0, 1, 2, 3] = 0
    micro_batch: int = _degree("micro_batch", "mbs")
    global_batch: int = _degree("global_batch", "gbs")
    schedule: Literal["auto", "1f1b", "interleaved_1f1b", "gpipe", "zero_bubble"] = "auto"
    recompute: Literal["none", "selective", "full"] = "none"
    partition_activations: bool = Field(
        default=False, description="cut recompute's checkpoints over tensor-parallel ranks"
    )
    precision: Literal["fp16", "bf16", "fp8"] = "bf16"
    offload: bool = False
    rank_order: Literal["tp-cp-dp-pp", "tp-cp-pp-dp"] = "tp-cp-dp-pp"

    @property
    def devices(self) -> int:
        """Devices that the plan uses."""
        return self.data_parallel * self.tensor_parallel * self.pipeline_parallel * self.context_parallel

    @property
    def num_micro_batches(self) -> int:
        """Micro-batches of one pipeline and step."""
        return self.global_batch // (self.data_parallel * self.micro_batch)

    @property
    def pipeline_schedule(self) -> str:
        """The schedule's name: "auto" means 1F1B, interleaved where there are virtual stages."""
        if self.schedule != "auto":
            return self.schedule
        return "interleaved_1f1b" if self.virtual_stages > 1 else "1f1b"

    def short(self) -> str:
        """The plan in the field's short form, defaults left out."""
        names = {
            "dp": self.data_parallel,
            "tp": self.tensor_parallel,
            "pp": self.pipeline_parallel,
            "vpp": self.virtual_stages,
            "mbs": self.micro_batch,
            "gbs": self.global_batch,
        }
        words = [f"{name}={value}" for name, value in names.items() if value > 1 or name in ("mbs", "gbs")]
        words += ["sp"] if self.sequence_parallel else []
        words += [f"zero={self.zero}"] if self.zero else []
        words += [f"recompute={self.recompute}"] if self.recompute != "none" else []
        return " ".join([*words, self.precision])


NUMERIC = (
    "data_parallel",
    "tensor_parallel",
    "context_parallel",
    "pipeline_parallel",
    "virtual_stages",
    "micro_batch",
    "global_batch",
    "data_shard",
    "expert_parallel",
    "expert_tensor_parallel",
)  # what may vary inside a batch; all other fields are structure


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Plans:
    """Plans of one structure; degrees have shape (plans, 1)."""

    structure: Plan  # any of them: gives the fields that all share
    data_parallel: Counts
    tensor_parallel: Counts
    context_parallel: Counts
    pipeline_parallel: Counts
    virtual_stages: Counts
    micro_batch: Counts
    global_batch: Counts
    data_shard: Counts
    expert_parallel: Counts
    expert_tensor_parallel: Counts

    @property
    def size(self) -> int:
        """How many plans."""
        return int(self.data_parallel.shape[0])

    @property
    def num_micro_batches(self) -> Counts:
        """Micro-batches of one pipeline and step."""
        return np.floor(self.global_batch / (self.data_parallel * self.micro_batch))

    def split(self, batch: Batch) -> Split:
        """What a layer may see."""
        return Split(
            sequences=self.micro_batch,
            length=batch.sequence_length / self.context_parallel,
            tensor=self.tensor_parallel,
            sequence_parallel=self.structure.sequence_parallel,
            dtype=self.structure.precision,
        )


def structure_of(plan: Plan) -> Plan:
    """The plan with every numeric field at its default: equal for plans that form one batch."""
    kept = plan.model_dump(exclude=set(NUMERIC)) | {"schedule": plan.pipeline_schedule}
    return Plan(**kept)


def batch_plans(plans: Sequence[Plan]) -> Plans:
    """Plans of one structure as arrays.

    Raises
    ------
    InternalError
        No plan, or plans of different structures.
    """
    structures = {structure_of(plan) for plan in plans}
    if len(structures) != 1:
        raise InternalError(f"a batch needs plans of one structure, got {len(structures)}")
    columns = {
        name: np.array([[getattr(plan, name)] for plan in plans], dtype=np.float64) for name in NUMERIC
    }
    return Plans(structure=structures.pop(), **columns)


def one_plan(plan: Plan) -> Plans:
    """A batch of one."""
    return batch_plans((plan,))


def defaults() -> dict[str, FieldInfo]:
    """The plan's fields, for documentation and suggestions."""
    return dict(Plan.model_fields)
