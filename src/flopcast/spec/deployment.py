"""The deployment: how a served model is divided over devices, in which formats, and with which limits.

Answers: which degrees, formats and sizes does a user choose for serving?
Elsewhere: the plan of training (plan.py), the engine's defaults (engine.py), what is possible
(serving/checks.py).
"""

from typing import Literal

from pydantic import AliasChoices, Field, ValidationInfo, field_validator

from flopcast.operators.formats import SERVED_FORMATS
from flopcast.spec.drafting import Drafting
from flopcast.spec.published_formats import WeightFormat
from flopcast.spec.streaming import DEVICE, HostComputes, PlacedOn
from flopcast.strict_model import NotAllowedError, StrictModel

CacheFormat = Literal["bf16", "fp8", "int4"]
Latents = Literal["replicated", "split"]
Residual = Literal["sequential", "ladder"]
ExpertMessages = Literal["exposed", "hidden"]
WITHOUT_POOLS = "each instance computes prompts and decodes"  # an engine whose instances form no pools


class Pool(StrictModel):
    """Equal instances of an engine: their number, their degrees and their limits.

    Attributes
    ----------
    tensor_parallel : int
        Tensor-parallel degree: number of ranks over which each weight matrix is divided (short name: tp).
    data_parallel : int
        Number of groups of tensor-parallel ranks in one instance (dp), each with its own requests and KV
        cache. They share the experts, whose ranks are those of all groups.
    expert_parallel : int
        Number of ranks over which experts are spread (ep), taken from the tp x dp ranks of a stage. The
        remaining ranks of a stage cut each expert.
    pipeline_parallel : int
        Number of pipeline stages (pp) of an instance, each with a part of the layers on tp x dp ranks. One
        pass for each stage is in flight, and each pass has its own sequences.
    redundant_experts : int
        Number of copies of routed experts in each layer, in addition to the experts themselves. Their ranks
        hold as many experts more, and the tokens of busy experts are divided over the copies.
    replicas : int
        Number of instances that share the traffic; by default as many as fit on the cluster (0) if the
        tensor-parallel degree is stated, and one in a pool for prompts or for decoding.
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
    redundant_experts: int = Field(default=0, ge=0)
    replicas: int = Field(default=0, ge=0)
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


class Deployment(Pool):
    """How an engine runs a model: its instances and formats; most fields also have a short name.

    Prompts and decoding may run on separate pools (`prefill` and `decode`, "disaggregation"). An
    instance for prompts computes a prompt and its first token, and sends the keys and values to an instance
    that decodes. The instances are then those of the pools alone.

    Attributes
    ----------
    weights : str
        Number format of the weights of linear layers. Products with "int4" and "mxfp4" weights multiply in
        16 bits, those with "w4a4" in 4 bits, but for outliers of the inputs in 8 bits.
    expert_weights : str
        Number format of the weights of routed experts; by default that of the other weights.
    cache : str
        Number format of cached keys and values (short name: kv).
    latents : str
        How tensor-parallel ranks keep the latents of latent attention: "replicated" keeps all of them on
        each rank, which decodes with its own heads. "split" keeps a part of the elements of each latent on
        each rank, which decodes with its part and all heads (TPLA, arXiv:2508.15881). Prompts are computed
        as with replicated latents.
    residual : str
        What the halves of a block read. With "sequential", each half reads the sum of all halves before it
        and waits for the all-reduce of the last one. With "ladder", it reads the sum without the last half,
        so that this all-reduce runs beside it; the model must be trained for that (arXiv:2501.06589).
    expert_messages : str
        When groups of ranks that share experts send tokens: "exposed" before and after the kernels of
        experts, "hidden" beside them, tile by tile (COMET, arXiv:2502.19811).
    peer_weight_fraction : float
        Share of the weights of blocks that lie in the memory of spare devices next to those that serve
        (peer-memory pooling, arXiv:2209.02341). Every pass fetches them over the fastest links, ahead of
        the layer that needs them. Spare devices are not counted as devices of the deployment.
    weights_on : str
        Where weights of blocks are kept: on the "device", in the memory of the "host", on the "nvme" drives
        of the node, or a fraction of them, as in "host:0.8" and "host:0.5+nvme:0.3". Each pass copies them
        to the device, or the host computes their layers.
    kv_on : str
        Where keys and values are kept, in the same words.
    activations_on : str
        Where the hidden states between two layers are kept, in the same words.
    host_computes : str or None
        What the host's processor computes: "nothing", "attention" of decoding tokens to the keys and values
        on the host, or the "layers" whose weights are on the host; by default what the engine usually does.
    adapter_rank : int or None
        Rank of the low-rank adapters that are loaded beside the model, one for each request; None without
        adapters.
    adapter_slots : int or None
        Adapters that fit into the memory of an instance at once; by default the engine's.
    drafting : Drafting or None
        Tokens that are drafted before each pass.
    prefill : Pool or None
        The instances that compute prompts; None where every instance computes prompts and decodes.
    decode : Pool or None
        The instances that decode; None where every instance computes prompts and decodes.

    Examples
    --------
    >>> pools = Deployment(prefill={"tp": 4, "replicas": 2}, decode={"tp": 8})
    >>> pools.devices, pools.of(pools.prefill).tensor_parallel
    (16, 4)
    """

    weights: WeightFormat = "bf16"
    expert_weights: WeightFormat | None = None
    cache: CacheFormat = Field(default="bf16", validation_alias=AliasChoices("cache", "kv"))
    latents: Latents = "replicated"
    residual: Residual = "sequential"
    expert_messages: ExpertMessages = "exposed"
    peer_weight_fraction: float = Field(default=0.0, ge=0, lt=1)
    weights_on: PlacedOn = DEVICE
    kv_on: PlacedOn = DEVICE
    activations_on: PlacedOn = DEVICE
    host_computes: HostComputes | None = None
    adapter_rank: int | None = Field(default=None, ge=1)
    adapter_slots: int | None = Field(default=None, ge=1)
    drafting: Drafting | None = None
    prefill: Pool | None = None
    decode: Pool | None = Field(default=None, validate_default=True)

    @field_validator("decode")
    @classmethod
    def _pools_are_all(cls, value: Pool | None, info: ValidationInfo) -> Pool | None:
        """Refuse one pool without the other, and instances beside pools."""
        if "prefill" not in info.data:
            return value
        if (value is None) != (info.data["prefill"] is None):
            other = "decode" if value is None else "prefill"
            because = "one pool computes prompts, and the other generates tokens"
            raise NotAllowedError(
                "a prefill pool and a decode pool, or neither of them", because, f"add {other}.replicas=1"
            )
        names = [
            name for name in Pool.model_fields if info.data.get(name) != Pool.model_fields[name].default
        ]
        if value is not None and names and set(names) <= set(info.data):
            because = "each pool has its own value of this field"
            allowed = f"no {names[0]} if there are separate prefill and decode pools"
            raise NotAllowedError(allowed, because, f"write decode.{names[0]}")
        return value

    @property
    def pools(self) -> tuple[Pool, ...]:
        """Return the pools for prompts and for decoding; nothing if instances do both."""
        return () if self.prefill is None or self.decode is None else (self.prefill, self.decode)

    @property
    def devices(self) -> int:
        """Return the devices of one instance or, with pools, of all instances of both pools."""
        if self.pools:
            return sum(max(pool.replicas, 1) * pool.devices for pool in self.pools)
        return self.stage_devices * self.pipeline_parallel

    def of(self, pool: Pool) -> "Deployment":
        """Return the instances of one pool alone, with the formats that all pools share."""
        own = {name: getattr(pool, name) for name in Pool.model_fields}
        alone: dict[str, object] = {"prefill": None, "decode": None, "replicas": max(pool.replicas, 1)}
        return self.model_copy(update=own | alone)

    @property
    def streams(self) -> bool:
        """Return whether weights, keys and values, or hidden states are kept outside the devices."""
        return {self.weights_on, self.kv_on, self.activations_on} != {DEVICE}

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
