"""The deployment: how a served model is divided over devices, in which formats, and with which limits.

Answers: which degrees, formats and sizes does a user choose for serving?
Elsewhere: the plan of training (plan.py), the engine's defaults (engine.py), what is possible
(serving/checks.py).
"""

from typing import Literal

from pydantic import AliasChoices, Field

from flopcast.operators.formats import SERVED_FORMATS
from flopcast.spec.published_formats import WeightFormat
from flopcast.strict_model import StrictModel

CacheFormat = Literal["bf16", "fp8"]


class Deployment(StrictModel):
    """How one instance of an engine runs a model; most fields also have a short name.

    Attributes
    ----------
    tensor_parallel : int
        Number of ranks that share each weight matrix (tp).
    data_parallel : int
        Number of groups of tensor-parallel ranks in one instance (dp), each with requests and a KV cache of
        its own. They share the experts, whose ranks are those of all groups.
    expert_parallel : int
        Number of ranks over which experts are spread (ep), taken from the tp x dp ranks of a stage. The
        remaining ranks of a stage cut each expert.
    pipeline_parallel : int
        Number of pipeline stages (pp) of an instance, each with a part of the layers on tp x dp ranks. As
        many passes are in flight, each with sequences of its own.
    replicas : int
        Number of instances that share the traffic; by default as many as fit on the cluster (0).
    weights : str
        Number format of the weights of linear layers. Products with "int4" and "mxfp4" weights multiply in
        16 bits.
    expert_weights : str
        Number format of the weights of routed experts; by default that of the other weights.
    cache : str
        Number format of cached keys and values.
    max_sequences : int
        Largest number of sequences in one pass; by default the engine's.
    max_tokens : int
        Largest number of new tokens in one pass; by default the engine's.
    """

    tensor_parallel: int = Field(default=1, ge=1, validation_alias=AliasChoices("tensor_parallel", "tp"))
    data_parallel: int = Field(default=1, ge=1, validation_alias=AliasChoices("data_parallel", "dp"))
    expert_parallel: int = Field(default=1, ge=1, validation_alias=AliasChoices("expert_parallel", "ep"))
    pipeline_parallel: int = Field(
        default=1, ge=1, validation_alias=AliasChoices("pipeline_parallel", "pp")
    )
    replicas: int = Field(default=0, ge=0)
    weights: WeightFormat = "bf16"
    expert_weights: WeightFormat | None = None
    cache: CacheFormat = "bf16"
    max_sequences: int | None = Field(default=None, ge=1)
    max_tokens: int | None = Field(default=None, ge=1)

    @property
    def stage_devices(self) -> int:
        """Return the devices of one pipeline stage of an instance."""
        return self.tensor_parallel * self.data_parallel

    @property
    def devices(self) -> int:
        """Return the devices of one instance."""
        return self.stage_devices * self.pipeline_parallel

    @property
    def format_of_experts(self) -> str:
        """Return the number format of the weights of routed experts."""
        return self.expert_weights or self.weights


def served_format(name: str) -> str:
    """Return a format as operators name it: "" is 16 bits.

    >>> served_format("bf16"), served_format("fp8")
    ('', 'fp8')
    """
    return name if name in SERVED_FORMATS else ""
