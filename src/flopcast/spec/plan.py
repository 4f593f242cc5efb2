"""The plan: how the work of a step is divided over devices and micro-batches.

Answers: which degrees, sizes and modes can a user choose, and which of them does a layer read (`Split`)?
Elsewhere: the rules for plans (spec/checks.py), the ranks of an axis (cost/placement.py).

A `Plan` is what a user writes: scalars. `Plans` is what the core computes with: many plans of one
structure, with degrees as arrays of shape (plans, 1). A single plan is computed as a batch of one.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from pydantic import AliasChoices, Field, model_validator

from flopcast.dtypes import ONE, Counts, any_of
from flopcast.errors import InternalError
from flopcast.layers.base import Split
from flopcast.records import Record, field
from flopcast.schedules import AUTO, resolved, schedule_of
from flopcast.schedules.base import AbstractSchedule
from flopcast.schedules.custom import OwnSchedule
from flopcast.spec import recompute as recompute_words
from flopcast.spec.batch import Batch
from flopcast.spec.layer_strategies import Layers
from flopcast.spec.offload import Offload
from flopcast.spec.outer import Outer, OuterField
from flopcast.spec.plan_fields import (
    NUMERIC,
    Numbers,
    OptimizerName,
    RankOrder,
    Schedule,
    degree,
    numbers,
    or_short_form,
    tensor_degree,
)
from flopcast.spec.plan_text import short_form
from flopcast.spec.precision import Precision, activation_dtype
from flopcast.spec.shards import Shards, group_of
from flopcast.strict_model import StrictModel, cached_results
from flopcast.units import Number


class Plan(StrictModel):
    """How the work of a training step is divided over devices and micro-batches.

    Attributes
    ----------
    data_parallel : int
        Data-parallel degree (dp): number of model replicas.
    tensor_parallel : int
        Tensor-parallel degree (tp): number of ranks over which each weight matrix is divided.
    sequence_parallel : bool
        Whether tensor-parallel ranks divide norms and the residual stream along the sequence (sp).
    context_parallel : int
        Context-parallel degree (cp): number of ranks over which each sequence is divided in all layers.
    context_exchange : str
        How context-parallel ranks exchange keys and values.
    context_order : str
        Which tokens each context-parallel rank holds; "zigzag" balances the work of causal attention.
    expert_parallel : int
        Expert-parallel degree (ep): number of ranks of a stage over which experts are distributed.
    expert_tensor_parallel : int
        Number of ranks over which each expert is divided (etp); by default the tensor-parallel degree.
    tables : str
        How expert-parallel ranks divide the embedding tables of an exported graph (layers/tables.py).
    whole_tables : int
        With `tables`: tables with at most this many elements are not sharded; each rank holds a copy.
    halo : float
        If ranks share a graph: vertices of other ranks that a rank reads, divided by the rank's own.
    pipeline_parallel : int
        Pipeline-parallel degree (pp): number of pipeline stages.
    virtual_stages : int
        Number of model chunks on each pipeline stage (vpp); more than 1 needs an interleaved schedule.
    zero : int
        ZeRO stage. 0: nothing is sharded. 1: optimizer states. 2: also gradients. 3: also parameters.
    data_shard : int
        Number of neighbouring data-parallel ranks over which `zero` shards (dp_shard). 0 means all ranks.
    shards : tuple of ShardGroup
        Number of ranks over which each kind of state is sharded, and number format of the messages
        (ZeRO++). "parameters:2:int8,gradients:8" shards parameters over 2 ranks and gradients over 8.
    micro_batch : int
        Micro-batch size (mbs): number of sequences in one forward pass of a data-parallel replica.
    global_batch : int
        Global batch size (gbs): number of sequences of one step, over all data-parallel replicas of a peer.
    stage_layers : tuple of int
        Number of blocks of each model chunk: "9,10,10,7" or "6x11,5". By default, the stack decides.
    layers : tuple of LayerStrategy
        Separate settings for some blocks: "0-7:tp=2:zero=3" sets tp and zero of blocks 0 to 7.
    schedule : str
        Pipeline schedule, or the name of a CSV file that lists the tasks of every stage.
    recompute : str
        Activations that the backward pass recomputes. "full:block:4" is short for recompute "full" with
        recompute_method "block" and recompute_layers 4.
    recompute_method : str
        Blocks that full recompute applies to. "uniform": all, in groups; a group keeps only its input.
        "block": the first blocks of every chunk. "every": every n-th block, where n is `recompute_layers`.
    recompute_layers : int
        "uniform": number of blocks in a group. "block": recomputed blocks in a chunk. "every": see above.
    recompute_modules : tuple of str
        Modules that selective recompute applies to. By default, the `selective_groups` of the stack.
    recompute_blocks : tuple of int
        Indices (from 0) of the entries of the model's `blocks` that recompute applies to. By default, all.
    partition_activations : bool
        Whether tensor-parallel ranks divide the block inputs that full recompute keeps.
    peers : int
        Number of groups of devices that train separate copies of the model (DiLoCo). Each peer runs this
        whole plan, and the peers exchange pseudo-gradients after every `inner_steps` steps.
    inner_steps : int
        Number of steps that each peer trains between two exchanges.
    outer : Outer
        What peers exchange, and how. By default, a ring of peers all-reduces all values in fp32.
    precision : str
        Number format of GEMMs. Names of 8-bit and 4-bit formats state the scaling; fp32 does not use TF32.
    optimizer : str
        Update rule of the weights; names that begin with "adamw_" are AdamW with moments in 8 or 4 bits.
    offload : tuple of Placement
        What is offloaded: "optimizer:host,activations:nvme:0.5" keeps optimizer states in host memory and
        half of the activations on NVMe drives. By default, nothing is offloaded.
    rank_order : str
        Order of the axes in which ranks are numbered. Neighbouring ranks differ in the first axis. By
        default, the order of Megatron-LM.

    Examples
    --------
    >>> Plan(dp=16, tp=8, pp=8, mbs=1, gbs=1536).num_micro_batches
    96
    """

    data_parallel: int = degree("data_parallel", "dp")
    tensor_parallel: int = degree("tensor_parallel", "tp")
    sequence_parallel: bool = Field(default=False, validation_alias=AliasChoices("sequence_parallel", "sp"))
    context_parallel: int = degree("context_parallel", "cp")
    context_exchange: Literal["ring", "all_gather", "all_to_all"] = "ring"
    context_order: Literal["contiguous", "zigzag"] = "zigzag"
    expert_parallel: int = degree("expert_parallel", "ep")
    expert_tensor_parallel: int = Field(
        default_factory=tensor_degree, ge=1, validation_alias=AliasChoices("expert_tensor_parallel", "etp")
    )
    tables: Literal["", "table", "balanced", "row", "column"] = ""
    whole_tables: int = Field(default=0, ge=0)
    halo: Number = Field(default=0, ge=0)
    pipeline_parallel: int = degree("pipeline_parallel", "pp")
    virtual_stages: int = degree("virtual_stages", "vpp")
    zero: Literal[0, 1, 2, 3] = 0
    data_shard: int = degree("data_shard", "dp_shard", least=0)
    shards: Shards = ()
    micro_batch: int = degree("micro_batch", "mbs")
    global_batch: int = degree("global_batch", "gbs")
    stage_layers: Numbers = numbers()
    layers: Layers = ()
    schedule: Schedule = AUTO
    recompute: Literal["none", "selective", "full"] = Field(default="none", json_schema_extra=or_short_form)
    recompute_method: Literal["uniform", "block", "every"] = "uniform"
    recompute_layers: int = Field(default=1, ge=1)
    recompute_modules: tuple[str, ...] = ()
    recompute_blocks: Numbers = numbers()
    partition_activations: bool = False
    peers: int = Field(default=1, ge=1)
    inner_steps: int = Field(default=1, ge=1)
    outer: OuterField = Outer()
    precision: Precision = "bf16"
    optimizer: OptimizerName = "adamw"
    offload: Offload = ()
    rank_order: RankOrder = "tp-cp-dp-pp"

    @model_validator(mode="before")
    @classmethod
    def _recompute_in_one_word(cls, given: object) -> object:
        return recompute_words.split_word(given) if isinstance(given, Mapping) else given

    @property
    def devices(self) -> int:
        """Return the number of devices that the plan needs."""
        ranks = self.data_parallel * self.tensor_parallel * self.pipeline_parallel * self.context_parallel
        return self.peers * ranks

    @property
    def step_sequences(self) -> int:
        """Return the number of sequences of one step over all peers."""
        return self.peers * self.global_batch

    @property
    def num_micro_batches(self) -> int:
        """Return the number of micro-batches of one pipeline in a step, rounded down."""
        return self.global_batch // (self.data_parallel * self.micro_batch)

    @property
    def activations(self) -> str:
        """Return the dtype of activations and weights, which have 16 bits even if GEMMs run in 8 bits."""
        return activation_dtype(self.precision)

    @property
    def pipeline_schedule(self) -> str | OwnSchedule:
        """Return the name of the schedule, or the schedule of the user; "auto" means (interleaved) 1F1B."""
        return resolved(self.schedule, self.virtual_stages)

    @property
    def order_rule(self) -> AbstractSchedule:
        """Return the schedule object."""
        return schedule_of(self.pipeline_schedule)

    def short(self) -> str:
        """Return the plan in the short form of `--plan`, without defaults.

        Examples
        --------
        >>> Plan(dp=2, tp=8, gbs=64, sp=True).short()
        'dp=2 tp=8 mbs=1 gbs=64 sp precision=bf16'
        >>> Plan(recompute="full:block:4").short()
        'mbs=1 gbs=1 recompute=full:block:4 precision=bf16'
        """
        return short_form(self, self.recompute_word, self.tensor_parallel)

    @property
    def recompute_word(self) -> str:
        """Return the recompute mode as one word."""
        fields = (self.recompute_method, self.recompute_layers, self.recompute_modules)
        return recompute_words.one_word(self.recompute, *fields)


class Plans(Record, eq=False):
    """Plans of one structure; degrees have shape (plans, 1).

    The structure (schedule, ZeRO, recompute, precision, flags) determines which items run. The degrees
    determine the sizes of these items.
    """

    structure: Plan  # the fields that all share
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
    shared_by: Counts = field(default_factory=lambda: ONE)  # ranks of a sequence; (kinds, 1)
    offloads: Counts = field(default_factory=lambda: ONE)  # 0 for kinds whose activations stay; (kinds, 1)
    uneven_blocks: int = 0  # the model's, if stages that do not divide them list them

    @property
    def size(self) -> int:
        """Return the number of plans."""
        return int(self.data_parallel.shape[0])

    @property
    def num_micro_batches(self) -> Counts:
        """Return micro-batches of one pipeline and step, shape (plans, 1); whole if the plan is valid."""
        return np.floor(self.global_batch / (self.data_parallel * self.micro_batch))

    @property
    def replicas(self) -> Counts:
        """Return the number of ranks of a stage with the same parameters, which sum gradients, (plans, 1).

        Ranks that share a sequence hold all parameters but process different tokens, as with dp.
        """
        return self.data_parallel * self.context_parallel

    @property
    def state_shards(self) -> Counts:
        """Return the number of replicas that share the optimizer's states, (plans, 1).

        From ZeRO-1 on, these are all replicas (arXiv:1910.02054, section 5.1), or those of a group of
        `data_shard` data-parallel ranks, with the ranks that share their sequences. Otherwise, it is 1.
        """
        group = group_of(self.structure.shards, "optimizer")
        size = self.data_shard if group is None else np.full_like(self.data_shard, group.ranks)
        ranks = np.where(size > 0, size, self.data_parallel) if any_of(size) else self.data_parallel
        return ranks * self.context_parallel if self.structure.zero >= 1 else np.ones_like(ranks)

    @property
    def shard_groups(self) -> Counts:
        """Return the number of groups of replicas with all shards, (plans, 1); HSDP sums over them."""
        return self.replicas / self.state_shards

    @property
    def expert_replicas(self) -> Counts:
        """Return the number of ranks of a stage with the same experts, which sum gradients, (plans, 1).

        It is the number of ranks of a stage, divided by ep · etp: the data-parallel ranks if experts are
        divided like the model's other weights (arXiv:2504.14960, section 3.2).
        """
        ranks = self.data_parallel * self.context_parallel * self.tensor_parallel
        return ranks / (self.expert_parallel * self.expert_tensor_parallel)

    @property
    def expert_state_shards(self) -> Counts:
        """Return the number of ranks that share the optimizer's states of the same experts.

        Experts are distributed inside a shard group, so each group holds all of them.
        """
        shards = self.expert_replicas / self.shard_groups
        return shards if self.structure.zero >= 1 else np.ones_like(self.data_parallel)

    def split(self, batch: Batch) -> Split:
        """Return the split that a layer reads; shape (plans, 1), or a row for each kind of micro-batch."""
        context = self.context_parallel * batch.shared_by_kind
        return Split(
            sequences=self.micro_batch,
            length=batch.tokens_by_kind / context,
            tensor=self.tensor_parallel,
            sequence_parallel=self.structure.sequence_parallel,
            dtype=self.structure.activations,
            expert=self.expert_parallel,
            expert_tensor=self.expert_tensor_parallel,
            context=context,
            context_exchange=self.structure.context_exchange if any_of(context > 1) else "none",
            context_order=self.structure.context_order,
            documents=batch.documents_by_kind,
            source_length=batch.source_by_kind / context,
            images=batch.images_by_kind,
            tables=self.structure.tables,
            whole_tables=self.structure.whole_tables,
            halo=self.structure.halo,
        )


def structure_of(plan: Plan) -> Plan:
    """Return the plan with every numeric field at its default: equal for plans that form one batch. "auto"
    is resolved first: it means different schedules with and without virtual stages.

    Examples
    --------
    >>> structure_of(Plan(tp=8)) == structure_of(Plan(pp=4, schedule="1f1b"))
    True
    """
    context, usual = ("context_exchange", "context_order") if plan.context_parallel == 1 else (), Plan()
    fields = {name: getattr(usual, name) for name in (*NUMERIC, *context)}
    return plan.model_copy(update=fields | {"schedule": plan.pipeline_schedule})


def batch_plans(plans: Sequence[Plan]) -> Plans:
    """Return at least one plan of one structure as arrays. Row i of every degree belongs to plan i."""
    structures = {structure_of(plan) for plan in plans}
    if len(structures) != 1:
        raise InternalError(f"a batch needs plans of one structure, got {len(structures)}")
    degrees = np.array([[[getattr(plan, name)] for plan in plans] for name in NUMERIC], dtype=np.float64)
    return Plans(structure=structures.pop(), **dict(zip(NUMERIC, degrees, strict=True)))


@cached_results(256)  # the rules, the programs and the report of a job ask for the same plan
def one_plan(plan: Plan) -> Plans:
    """Return a batch of one plan."""
    return batch_plans((plan,))
