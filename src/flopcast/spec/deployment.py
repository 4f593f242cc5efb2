"""The deployment: how a served model is divided over devices, its number formats, and its limits.

Answers: which degrees, formats and sizes can a user choose for serving?
Elsewhere: the plan of training (plan.py), the defaults of an engine (engine.py), which deployments are
possible (serving/checks.py).
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
    """A set of equal instances of an engine: their number, their parallel degrees and their limits.

    Attributes
    ----------
    tensor_parallel : int
        Tensor-parallel degree: number of ranks over which each weight matrix is divided (short name: tp).
    data_parallel : int
        Number of groups of tensor-parallel ranks in one instance (dp). Each group has its own requests and
        KV cache. All groups share the experts, which are distributed over the ranks of all groups.
    expert_parallel : int
        Number of ranks over which experts are distributed (ep), out of the tp x dp ranks of a stage. If ep
        is smaller than tp x dp, each expert is divided over the remaining ranks.
    pipeline_parallel : int
        Number of pipeline stages (pp) of an instance. Each stage has a part of the layers, and tp x dp
        ranks. At any time, one pass for each stage is in flight, and each pass has its own sequences.
    redundant_experts : int
        Number of additional copies of routed experts in each layer. The copies are distributed over the
        ranks like the experts themselves, and the tokens of busy experts are divided over their copies.
    replicas : int
        Number of instances that share the traffic. By default (0), as many as fit on the cluster if the
        tensor-parallel degree is stated, and one in a pool for prefill or decode.
    max_sequences : int
        Largest number of sequences in one pass. By default, the engine's limit.
    max_tokens : int
        Largest number of new tokens in one pass. By default, the engine's limit.
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
    """How an engine runs a model: its instances and number formats. Most fields also have a short name.

    Prefill and decode may run on separate pools of instances (disaggregation). An instance for prefill
    computes a prompt and its first output token, and sends the keys and values to an instance that decodes.
    A deployment with pools has no other instances.

    Attributes
    ----------
    weights : str
        Number format of the weights of linear layers. With "int4" and "mxfp4" weights, GEMMs multiply in 16
        bits. With "w4a4", they multiply in 4 bits, except for outliers of the inputs, which have 8 bits.
    expert_weights : str
        Number format of the weights of routed experts. By default, the format of the other weights.
    cache : str
        Number format of cached keys and values (short name: kv).
    latents : str
        How tensor-parallel ranks store the latent vectors of latent attention. "replicated": each rank
        stores all of them and decodes with its own heads. "split": each rank stores a part of the elements
        of each latent vector, and decodes with this part and all heads (TPLA, arXiv:2508.15881). Both
        compute prompts in the same way.
    residual : str
        What the halves of a block (attention and MLP) read. "sequential": each half reads the sum of all
        earlier halves, and waits for the all-reduce of the previous half. "ladder": each half reads the sum
        without the previous half, so that its all-reduce overlaps with this half. The model must be trained
        for "ladder" (arXiv:2501.06589).
    expert_messages : str
        When groups of ranks that share experts send tokens. "exposed": before and after the kernels of the
        experts. "hidden": during these kernels, tile by tile (COMET, arXiv:2502.19811).
    peer_weight_fraction : float
        Fraction of the weights of blocks that is stored in the memory of spare devices of the same scale-up
        domain (peer-memory pooling, arXiv:2209.02341). Every pass fetches these weights over the fastest
        links before a layer needs them. Spare devices do not count as devices of the deployment.
    weights_on : str
        Where the weights of blocks are stored: on the "device", in the memory of the "host", on the "nvme"
        drives of the node, or in several of these: "host:0.8" stores 80 % of the weights in host memory and
        the rest on the device, and "host:0.5+nvme:0.3" also uses the drives. Each pass copies these weights
        to the device, or the host computes their layers.
    kv_on : str
        Where keys and values are stored. Accepts the same values as `weights_on`.
    activations_on : str
        Where the hidden states between two layers are stored. Accepts the same values as `weights_on`.
    host_computes : str or None
        What the CPU of the host computes. "nothing", "attention" (of decoding tokens to keys and values in
        host memory), or "layers" (those whose weights are in host memory). By default, the engine's usual
        choice.
    adapter_rank : int or None
        Rank of the low-rank adapters of requests. None if requests use no adapters.
    adapter_slots : int or None
        Number of adapters that an instance holds in memory at the same time. By default, the engine's
        number.
    drafting : Drafting or None
        Tokens that are drafted before each pass.
    prefill : Pool or None
        The instances that compute prompts. None if every instance computes prompts and decodes.
    decode : Pool or None
        The instances that decode. None if every instance computes prompts and decodes.

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
        """Raise an error for one pool without the other, and for instances in addition to pools."""
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
        """Return the pools for prefill and for decode; an empty tuple if instances do both."""
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
        """Return whether weights, keys and values, or hidden states are stored outside the devices."""
        return {self.weights_on, self.kv_on, self.activations_on} != {DEVICE}

    @property
    def format_of_experts(self) -> str:
        """Return the number format of the weights of routed experts."""
        return self.expert_weights or self.weights


def served_format(name: str) -> str:
    """Return a number format by the name that operators use: "" is 16 bits.

    >>> served_format("bf16"), served_format("fp8")
    ('', 'fp8')
    """
    return name if name in SERVED_FORMATS else ""
