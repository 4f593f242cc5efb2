"""A space of plans: the values that each field may have, and the plans of a job with these values.

Answers: which values may each field of a plan and the number of devices have?
Elsewhere: all plans of a space as columns (grid.py), their times (screen.py), the plan of a job without one
(default_plan.py).

A field that is left out takes every supported value that can have an effect: every divisor for a degree,
every ZeRO stage of the stack. Three fields have narrower defaults: 16-bit products, the stack's order of
tasks ("auto") and a ring of context-parallel ranks. Other values of these fields change more than the step
time, or no stack states them; "all" tries all values. Fields that no space contains (optimizer, rank order,
modules of recompute) come from the job's plan.
"""

from collections.abc import Callable, Iterable
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, AliasChoices, BeforeValidator, Field, ValidationInfo, field_validator

from flopcast.layers.traced import is_graph
from flopcast.schedules import AUTO, OF_CHUNKS, OF_ONE_CHUNK, SCHEDULES
from flopcast.search.cluster_sizes import sized
from flopcast.search.offload_choices import offload_choices
from flopcast.search.shard_choices import shard_choices
from flopcast.search.space_words import ALL, NUMBERS, numbers, placements, wrong_numbers
from flopcast.slips import meant
from flopcast.spec.job import Job
from flopcast.spec.offload import Offload
from flopcast.spec.plan import Plan
from flopcast.spec.plan_fields import NUMERIC, Schedule
from flopcast.spec.precision import RECIPES, Precision
from flopcast.spec.recompute import FIELDS
from flopcast.spec.rules_size import MOST_DEVICES
from flopcast.spec.shards import Shards as StateShards
from flopcast.strict_model import NotAllowedError, StrictModel, words

MICRO_BATCH_TOKENS = 2**16  # more on one rank only make the bubble longer: kernels are large long before
MICRO_BATCH_SEQUENCES = 8  # tried in any case, however long they are
RECOMPUTE, MODES = ("none", "selective", "full"), "none, selective or full"
USUAL_CHUNKS = (1, 2, 3, 4, 6)  # on a stage, that are tried whether they divide the blocks or not
Exchange = Literal["ring", "all_gather", "all_to_all"]
SHORT_NAMES = {"num_devices": "gpus"}  # as options and files write them


def _numbers_of(given: object, info: ValidationInfo) -> object:
    """Return what `numbers` returns; a fault names the field, and a number in the text or "all"."""
    try:
        return numbers(given)
    except NotAllowedError as error:
        name = SHORT_NAMES.get(str(info.field_name), str(info.field_name))
        raise wrong_numbers(given, name, error) from None


def _or_word(schema: dict[str, Any]) -> None:
    """Make the schema of numbers accept an array, a number or a text."""
    array = {key: schema.pop(key) for key in ("type", "items")}
    pattern = {"type": "string", "pattern": f"^(all|{NUMBERS.pattern})$"}
    schema["anyOf"] = [array, array["items"], pattern]


def _known_modes(given: tuple[str, ...]) -> tuple[str, ...]:
    """Return the recompute modes that a plan accepts."""
    for word in given:
        if word.partition(":")[0] not in RECOMPUTE and len(given) > 1:
            right = ",".join(filter(None, (meant(mode, MODES) if mode == word else mode for mode in given)))
            raise NotAllowedError(MODES, f"flopcast has no mode {word}", {"recompute": right})
        Plan(recompute=word)
    return given


Numbers = Annotated[
    tuple[Annotated[int, Field(ge=1)], ...], BeforeValidator(_numbers_of), Field(json_schema_extra=_or_word)
]
Shards = Annotated[
    tuple[Annotated[int, Field(ge=0)], ...], BeforeValidator(_numbers_of), Field(json_schema_extra=_or_word)
]
AllOf = Literal["all"]
AutoOf = Literal["auto"]


def two_names(long_name: str, short_name: str, description: str) -> tuple[int, ...]:
    """Return an optional field with two names. Its type is that of its values, as for `Field`."""
    choices = AliasChoices(long_name, short_name)
    field: tuple[int, ...] = Field(default=(), validation_alias=choices, description=description)
    return field


class Space(StrictModel):
    """The plans that a search considers: the allowed values of each field.

    Numbers are a list or a text: "1,2,4", "256..4096" (doubled each time), "256..1024:256" (in steps) or
    "all". If a field is not given, the search tries all reasonable values. You can also use the short names
    of the fields of a plan, such as tp.

    Attributes
    ----------
    num_devices : tuple of int
        Numbers of devices (gpus); by default, the size of the cluster.
    global_batch : tuple of int
        Number of sequences of a step (gbs). By default, a step has about four million tokens, or about 128
        sequences for fine-tuning.
    data_parallel : tuple of int
        Allowed data-parallel degrees (dp). By default, the degree follows from the number of devices and
        the other degrees.
    data_shard : tuple of int
        Number of data-parallel ranks over which `zero` shards (dp_shard); 0 means all ranks. By default,
        the search tries 0 and, with ZeRO-3, also the number of data-parallel ranks in a scale-up domain.
        With fewer ranks, all-gathers of parameters are faster, but each rank stores more.
    expert_parallel, expert_tensor_parallel : tuple of int
        Allowed degrees (ep, etp) for models with experts. They have no effect on other models.
    micro_batch : tuple of int
        Micro-batch sizes (mbs). By default, all divisors of the sequences of a replica that are at most 8
        or give at most 65,536 tokens on a rank.
    tables : tuple of str
        Ways to shard embedding tables of an exported graph. By default, as in the job's plan.
    sequence_parallel, zero, recompute, precision, schedule, context_exchange, context_order : tuples
        As in a plan. The schedule "auto" is 1F1B, or interleaved 1F1B if stages have several chunks. If an
        option has no effect (such as sequence parallelism with one rank), the search tries the plan only
        without this option. By default, the search does not try selective recompute of attention alone on
        stacks whose attention kernel stores no scores, because it would free almost no memory.
    inner_steps : tuple of int
        Numbers of steps of peers between two exchanges. By default, as in the job's plan.
    offload : tuple
        What is offloaded, as in a plan. In a text, spaces separate several values. "auto" stands for
        everything that the stack can offload to a memory of the cluster (offload_choices.py). By default,
        the offload of the job's plan.
    shards : tuple
        Shard groups, each as in a plan. "auto" stands for all that the stack supports (shard_choices.py).
        By default, the shard groups of the job's plan.
    tensor_in_domain : bool
        Whether tensor-parallel ranks stay inside a scale-up domain.
    refine : bool
        Whether the search also tries variants of the best plans, with unequal stages and less recompute
        (refine.py).
    headroom_fraction : float or None
        Largest fraction of device memory that the expected memory of a plan may take. None accepts plans
        whose verdict is "fits" (memory/verdict.py).

    Examples
    --------
    >>> space = Space(tp="2,4", gbs="256..1024", zero=1)
    >>> space.tensor_parallel, space.global_batch, space.zero
    ((2, 4), (256, 512, 1024), (1,))
    """

    num_devices: Numbers = two_names("num_devices", "gpus", "by default, the size of the cluster")
    global_batch: Numbers = two_names(
        "global_batch", "gbs", "by default, about four million tokens, or 128 sequences for fine-tuning"
    )
    data_parallel: Numbers = two_names("data_parallel", "dp", "by default, all values")
    data_shard: Shards = two_names("data_shard", "dp_shard", "by default, all; for ZeRO-3 also a domain")
    tensor_parallel: Numbers = two_names("tensor_parallel", "tp", "by default, all divisors")
    context_parallel: Numbers = two_names("context_parallel", "cp", "by default, all divisors")
    expert_parallel: Numbers = two_names("expert_parallel", "ep", "by default, all divisors")
    expert_tensor_parallel: Numbers = two_names(
        "expert_tensor_parallel", "etp", "by default, 1 and tensor_parallel"
    )
    pipeline_parallel: Numbers = two_names("pipeline_parallel", "pp", "by default, all divisors")
    virtual_stages: Numbers = two_names(
        "virtual_stages", "vpp", "by default, the numbers that give equal chunks, and a few others"
    )
    micro_batch: Numbers = two_names("micro_batch", "mbs", "by default, all divisors of a reasonable size")
    sequence_parallel: Annotated[tuple[bool, ...], BeforeValidator(words)] = Field(
        default=(), validation_alias=AliasChoices("sequence_parallel", "sp"), description="by default, both"
    )
    zero: Annotated[tuple[Literal[0, 1, 2, 3], ...], BeforeValidator(_numbers_of)] = Field(
        default=(), description="by default, all stages that the stack supports", json_schema_extra=_or_word
    )
    recompute: Annotated[tuple[str, ...], BeforeValidator(words), AfterValidator(_known_modes)] = Field(
        default=(), description="modes as in a plan; by default, those that free memory"
    )
    precision: Annotated[tuple[Precision | AllOf, ...], BeforeValidator(words)] = Field(
        default=(), description="by default, 16 bits; all means every recipe that the device supports"
    )
    schedule: Annotated[tuple[Schedule | AllOf, ...], BeforeValidator(words)] = Field(
        default=("auto",), min_length=1, description="all means every schedule that flopcast supports"
    )
    context_exchange: Annotated[tuple[Exchange | AllOf, ...], BeforeValidator(words)] = Field(
        default=("ring",), min_length=1, description="how context-parallel ranks exchange keys and values"
    )
    context_order: Annotated[
        tuple[Literal["contiguous", "zigzag"] | AllOf, ...], BeforeValidator(words)
    ] = Field(default=("zigzag",), min_length=1)
    tables: Annotated[tuple[Literal["table", "balanced", "row", "column"], ...], BeforeValidator(words)] = (
        Field(
            default=(), description="ways to shard embedding tables of graphs; by default, that of the job"
        )
    )
    inner_steps: Numbers = Field(default=(), description="steps of peers; by default, those of the job")
    offload: Annotated[tuple[Offload | AutoOf, ...], BeforeValidator(placements)] = Field(
        default=(), description="auto: all placements that the stack supports; by default, those of the job"
    )
    shards: Annotated[tuple[StateShards | AutoOf, ...], BeforeValidator(placements)] = Field(
        default=(), description="auto: all groups that the stack supports; by default, those of the job"
    )
    tensor_in_domain: bool = Field(default=True, description="whether tp stays inside a scale-up domain")
    refine: bool = Field(default=True, description="whether to also try variants of the best plans")
    headroom_fraction: float | None = Field(
        default=None,
        gt=0,
        le=1,
        description="fraction of device memory that a plan may use; by default, the 90 % interval must fit",
    )

    @field_validator("num_devices")
    @classmethod
    def _of_this_world(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        """Return sizes of clusters that can be built."""
        if value and max(value) > MOST_DEVICES:
            raise NotAllowedError(f"at most {MOST_DEVICES:,} devices", "no known cluster is larger")
        return value

    @field_validator("*")
    @classmethod
    def _named_once(cls, value: object) -> object:
        """Return values without duplicates, as in "8,4..16", so that no plan is offered twice."""
        return tuple(dict.fromkeys(value)) if isinstance(value, tuple) else value

    def jobs(self, job: Job) -> tuple[Job, ...]:
        """Return the job on a cluster of each size in the space, or on its own cluster if the space lists
        no sizes.

        Raises
        ------
        SpecError
            A size is not a whole number of nodes.
        """
        sizes = self.num_devices or (job.cluster.num_devices,)
        return tuple(job.model_copy(update={"cluster": sized(job.cluster, size)}) for size in sizes)

    def structures(self, job: Job) -> tuple[Plan, ...]:
        """Return every combination of options as a plan without degrees.

        The combinations also include the neutral value of each option. The search uses it for plans on
        which the option has no effect.
        """
        found = [job.plan.model_copy(update=WITHOUT_DEGREES)]
        for name, values in self.offered(job).items():
            found = [plan.model_copy(update=said(name, value, plan)) for plan in found for value in values]
        return tuple(found)

    def offered(self, job: Job) -> dict[str, tuple[object, ...]]:
        """Return the values of each option, including the neutral value."""
        return {
            name: values if name not in NEUTRAL else tuple(dict.fromkeys((NEUTRAL[name], *values)))
            for name, values in self.options(job).items()
        }

    def degrees(self, name: str, job: Job) -> tuple[int, ...]:
        """Return the allowed values of a degree: those of the space, (1,) if the stack supports no other,
        or () for all."""
        named: tuple[int, ...] = getattr(self, name)
        return named or ((1,) if name in job.stack.switches.fixed else ())

    def options(self, job: Job) -> dict[str, tuple[object, ...]]:
        """Return the values of each field that is not a number. Fields without values get their defaults.

        Parameters
        ----------
        job : Job
            Its stack determines the supported values. Its plan provides the fields that the space does not
            vary.

        Returns
        -------
        dict of tuples
            Each combination of these values is a structure, with its own set of kernels. Numbers, such as
            degrees, vary within a structure.
        """
        fixed = job.stack.switches.fixed
        sequences = not job.plan.partition_activations and "sequence_parallel" not in fixed
        return {
            "sequence_parallel": self.sequence_parallel or tuple(dict.fromkeys((sequences, False))),
            "zero": self.zero or tuple(sorted(job.stack.sharding.zero_stages)),
            "recompute": self.recompute or _recompute_modes(job),
            "precision": _precisions(self, job),
            "context_exchange": get_args(Exchange)
            if ALL in self.context_exchange
            else self.context_exchange,
            "context_order": ("zigzag", "contiguous") if ALL in self.context_order else self.context_order,
            "schedule": _schedules(self),
            "tables": self.tables or (job.plan.tables,),
            "inner_steps": self.inner_steps or (job.plan.inner_steps,),
            "offload": _with_choices(self.offload or (job.plan.offload,), lambda: offload_choices(job)),
            "shards": _with_choices(self.shards or (job.plan.shards,), lambda: shard_choices(job)),
        }


NEUTRAL: dict[str, object] = {  # what an option is where it does not matter
    "sequence_parallel": False,
    "zero": 0,
    "context_exchange": "ring",
    "context_order": "zigzag",
    "schedule": AUTO,
}
NAMED = tuple(  # by their name alone; segments that hand on nothing are another way to train
    name for name, rule in SCHEDULES.items() if name not in (OF_ONE_CHUNK, OF_CHUNKS) and rule.hands_on
)
WITHOUT_DEGREES: dict[str, object] = {name: getattr(Plan(), name) for name in NUMERIC}


def _recompute_modes(job: Job) -> tuple[str, ...]:
    """Return the modes to try; recompute of attention that stores no scores would free almost nothing."""
    if "recompute_modules" in job.stack.switches.fixed:
        return ("none", "full")
    groups = job.plan.recompute_modules or job.stack.selective_groups
    frees = set(groups) != {"core_attention"} or not job.stack.fuses_attention or is_graph(job.model.blocks)
    return RECOMPUTE if frees else tuple(mode for mode in RECOMPUTE if mode != "selective")


def _precisions(space: Space, job: Job) -> tuple[object, ...]:
    """Return the precisions to try; by default 16 bits, since 8-bit recipes need the user's decision."""
    named = tuple(name for name in space.precision if name != ALL)
    usual = job.cluster.node.device.dtype_of_16_bits
    return tuple(dict.fromkeys((*named, usual, *RECIPES))) if ALL in space.precision else named or (usual,)


def _schedules(space: Space) -> tuple[object, ...]:
    """Return the schedules to try; "auto" stands for two of them, chosen row by row."""
    found: list[object] = []
    for name in space.schedule:
        found += (AUTO, *NAMED) if name == ALL else [name]
    return tuple(dict.fromkeys(found))


def _with_choices(values: Iterable[object], choices: Callable[[], Iterable[object]]) -> tuple[object, ...]:
    """Return the values, with all choices instead of "auto"."""
    return tuple(dict.fromkeys(each for one in values for each in (choices() if one == AUTO else [one])))


def said(name: str, value: object, plan: Plan) -> dict[str, object]:
    """Return the fields of a plan that a value of an option sets. A value of recompute sets several fields.

    If the value names no modules of selective recompute, those of the plan are used.
    """
    if name != "recompute":
        return {name: value}
    again = Plan(recompute=value)
    modules = again.recompute_modules or (plan.recompute_modules if again.recompute == "selective" else ())
    fields = {field: getattr(again, field) for field in ("recompute", *FIELDS)}
    return fields | {"recompute_modules": modules}
