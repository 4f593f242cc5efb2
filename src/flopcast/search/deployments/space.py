"""A space of deployments: which values each field may take, and all deployments that a job may have.

Answers: which degrees, formats and limits does a search over deployments try?
Elsewhere: the fields (spec/deployment.py), the deployments that are simulated (screen.py).

A field that is left out takes every value that can matter. Number formats are an exception, because they
change the answers of a model: a search keeps the formats of the job unless the space lists others.
"""

from collections.abc import Iterator
from itertools import product
from typing import Annotated

from pydantic import AliasChoices, BeforeValidator, Field

from flopcast.search.space import Numbers, two_names
from flopcast.spec.deployment import CacheFormat, Deployment, ExpertMessages, Latents, Pool, Residual
from flopcast.spec.published_formats import WeightFormat
from flopcast.spec.serving_job import ServingJob
from flopcast.spec.streaming import HostComputes, PlacedOn
from flopcast.strict_model import StrictModel

SEQUENCES = (16, 32, 64, 128, 256, 512, 1024)  # limits that are tried beside the engine's own
TOKENS = (2048, 8192, 16384)
EVERY_REPLICA = 16  # up to this many instances each number is tried, and powers of two above
AS_STATED = (  # by the job, unless the space lists values
    "weights",
    "expert_weights",
    "cache",
    "latents",
    "residual",
    "expert_messages",
    "weights_on",
    "kv_on",
    "activations_on",
    "host_computes",
)
MOST_INSTANCES = 8  # of one pool
MOST_GROUPS = 64  # of data parallelism: no engine documents more


def _names(given: object) -> object:
    """Return names separated by commas as a tuple."""
    return tuple(word.strip() for word in given.split(",")) if isinstance(given, str) else given


def _switches(given: object) -> object:
    """Return one switch, or several separated by commas, as a tuple."""
    if isinstance(given, str):
        return tuple({"yes": True, "no": False}.get(word.strip(), word) for word in given.split(","))
    return (given,) if isinstance(given, bool) else given


Weights = Annotated[tuple[WeightFormat, ...], BeforeValidator(_names)]
Caches = Annotated[tuple[CacheFormat, ...], BeforeValidator(_names)]
Places = Annotated[tuple[PlacedOn, ...], BeforeValidator(_names)]


class DeploymentSpace(StrictModel):
    """The deployments of a search: the allowed values of each field.

    Numbers are a list, a range or "all", as in a space of plans: "1,2,4", "1..16" (doubled each time). An
    empty field takes every value that may matter. An empty field of a number format takes the format of the
    job.

    Attributes
    ----------
    tensor_parallel, data_parallel, expert_parallel, pipeline_parallel, replicas : tuple of int
        Degrees of one instance, and the number of instances. Pipeline stages are tried if a cluster has
        more devices than its fastest links connect.
    weights, expert_weights : tuple of str
        Number formats of the weights of linear layers, and of those of routed experts.
    cache : tuple of str
        Number formats of cached keys and values (short name: kv).
    latents, residual : tuple of str
        How ranks keep latents, and the inputs of the halves of a block. If they are empty, those of the job
        are used, because these fields also change the answers of a model.
    expert_messages : tuple of str
        Whether messages of experts are hidden. If it is empty, the value of the job is used.
    weights_on, kv_on, activations_on : tuple of str
        Memory of weights, of keys and values, and of hidden states; if empty, that of the job.
    host_computes : tuple of str
        The work of the host's processor. If it is empty, the value of the job is used.
    max_sequences, max_tokens : tuple of int
        Limits of one pass.
    pools : tuple of bool
        Whether instances compute prompts and decode (False), or two pools share the work (True). If
        `replicas` or a limit has values, there are no pools.

    Examples
    --------
    >>> DeploymentSpace(tp="2..8", weights="fp8,bf16").weights
    ('fp8', 'bf16')
    """

    tensor_parallel: Numbers = two_names("tensor_parallel", "tp", "Ranks that share each weight matrix.")
    data_parallel: Numbers = two_names("data_parallel", "dp", "Groups of ranks in one instance.")
    expert_parallel: Numbers = two_names(
        "expert_parallel", "ep", "Ranks over which experts are distributed."
    )
    pipeline_parallel: Numbers = two_names("pipeline_parallel", "pp", "Pipeline stages of one instance.")
    replicas: Numbers = ()
    weights: Weights = ()
    expert_weights: Weights = ()
    cache: Caches = Field(default=(), validation_alias=AliasChoices("cache", "kv"))
    latents: Annotated[tuple[Latents, ...], BeforeValidator(_names)] = ()
    residual: Annotated[tuple[Residual, ...], BeforeValidator(_names)] = ()
    expert_messages: Annotated[tuple[ExpertMessages, ...], BeforeValidator(_names)] = ()
    weights_on: Places = ()
    kv_on: Places = ()
    activations_on: Places = ()
    host_computes: Annotated[tuple[HostComputes, ...], BeforeValidator(_names)] = ()
    max_sequences: Numbers = ()
    max_tokens: Numbers = ()
    pools: Annotated[tuple[bool, ...], BeforeValidator(_switches)] = (False, True)


def deployments_of(job: ServingJob, space: DeploymentSpace) -> Iterator[Deployment]:
    """Yield the deployments of one instance, with the limits of the engine. Their `replicas` is 0.

    Parameters
    ----------
    job : ServingJob
        Its plan gives the values of fields that the space does not vary, such as number formats.
    space : DeploymentSpace

    Notes
    -----
    The number of replicas follows later from the devices of the cluster and the memory of an instance.
    """
    formats = product(*(getattr(space, name) or (getattr(job.plan, name),) for name in AS_STATED))
    for chosen, (tensor, groups, experts, stages) in product(formats, tuple(_degrees(job, space))):
        made = Deployment(
            tensor_parallel=tensor,
            data_parallel=groups,
            expert_parallel=experts,
            pipeline_parallel=stages,
            drafting=job.plan.drafting,
            peer_weight_fraction=job.plan.peer_weight_fraction,
            redundant_experts=job.plan.redundant_experts,
            adapter_rank=job.plan.adapter_rank,
            adapter_slots=job.plan.adapter_slots,
        )
        yield made.model_copy(update=dict(zip(AS_STATED, chosen, strict=True)))


def _degrees(job: ServingJob, space: DeploymentSpace) -> Iterator[tuple[int, int, int, int]]:
    """Yield the degrees of one instance: tensor, data, expert and pipeline parallelism."""
    devices = job.cluster.num_devices
    heads = [block.mixer.heads for block in job.model.blocks]
    most = min(job.cluster.scale_up_devices, devices)
    tensors = [degree for degree in _doubled(most) if all(count % degree == 0 for count in heads)]
    stages = _doubled(devices // most) if devices > most else (1,)
    for tensor, stage in product(space.tensor_parallel or tensors, space.pipeline_parallel or stages):
        ranks = devices // stage
        groups = _doubled(min(ranks // tensor, MOST_GROUPS)) if job.model.has_experts else (1,)
        for group in space.data_parallel or groups:
            together = tensor * group
            spread = (1, together) if job.model.has_experts and together > 1 else (1,)
            for experts in space.expert_parallel or spread:
                if together <= ranks:
                    yield tensor, group, experts, stage


def replicas_of(job: ServingJob, deployment: Deployment, space: DeploymentSpace) -> tuple[int, ...]:
    """Return the numbers of instances that the search tries, in ascending order."""
    most = job.cluster.num_devices // deployment.devices
    if job.traffic.concurrency is not None:  # more instances would have no request
        most = min(most, max(job.traffic.concurrency // deployment.data_parallel, 1))
    several = {*range(1, min(most, EVERY_REPLICA) + 1), *_doubled(most), most}
    return tuple(sorted(each for each in space.replicas or several if 0 < each <= most))


def limits_of(job: ServingJob, space: DeploymentSpace) -> tuple[tuple[int | None, int | None], ...]:
    """Return the limits of sequences and of new tokens that the search tries; None means the engine's
    limit.
    """
    sequences = space.max_sequences or _others(job.plan.max_sequences, SEQUENCES, job.engine.max_sequences)
    tokens = space.max_tokens or _others(job.plan.max_tokens, TOKENS, job.engine.max_tokens)
    return tuple(product(sequences, tokens))


def _others(stated: int | None, usual: tuple[int, ...], own: int) -> tuple[int | None, ...]:
    """Return the value of the job where it states one, else the engine's own and usual others."""
    return (stated,) if stated else (None, *(each for each in usual if each != own))


def _doubled(most: int) -> tuple[int, ...]:
    """Return the powers of two up to a number.

    >>> _doubled(9)
    (1, 2, 4, 8)
    """
    return tuple(1 << power for power in range(most.bit_length()))


def pools_of(job: ServingJob, space: DeploymentSpace) -> Iterator[Deployment]:
    """Yield deployments of two pools: all pairs of degrees, with numbers of instances that fit.

    An instance for prompts is not divided into groups with separate caches. Both pools have up to
    MOST_INSTANCES instances. Engines without separate pools have none of these deployments.
    """
    possible = job.engine.separate_pools and True in space.pools
    if not possible or space.replicas or space.max_sequences or space.max_tokens:
        return
    degrees = dict.fromkeys(one for one in deployments_of(job, space) if one.pipeline_parallel == 1)
    for senders, receivers in product(degrees, degrees):
        if senders.data_parallel > 1 or _shared(senders) != _shared(receivers):
            continue
        for prompts, decoding in product(range(1, MOST_INSTANCES + 1), repeat=2):
            if prompts * senders.devices + decoding * receivers.devices > job.cluster.num_devices:
                continue
            yield receivers.model_copy(
                update={
                    **{name: field.default for name, field in Pool.model_fields.items()},
                    "prefill": _pool(senders, prompts),
                    "decode": _pool(receivers, decoding),
                }
            )


def _shared(deployment: Deployment) -> list[object]:
    """Return what both pools of a deployment have in common, such as number formats."""
    return [getattr(deployment, name) for name in Deployment.model_fields if name not in Pool.model_fields]


def _pool(deployment: Deployment, instances: int) -> Pool:
    """Return so many instances of a deployment as a pool."""
    own = {name: getattr(deployment, name) for name in Pool.model_fields}
    return Pool(**(own | {"replicas": instances}))
