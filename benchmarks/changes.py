"""Changes of a job: one number, one switch or one layout of it is another, all else stays.

Answers: what do the laws (laws.py) change?
A change gives the changed job, or None where it does not apply.
"""

from collections.abc import Callable, Iterable

from flopcast.spec.cluster import Cluster, Sustained
from flopcast.spec.job import Job
from flopcast.spec.site import Site, SiteFactor

Change = Callable[[Job], Job | None]


def parts(value: object, path: str) -> tuple[object, str]:
    """The part of a noun that a path of names reaches, and the last name of the path."""
    *outer, name = path.split(".")
    for each in outer:
        value = getattr(value, each)
    return value, name


def with_value(noun: object, path: str, value: object) -> object:
    """A noun with one value changed, at a path of names."""
    name, _, rest = path.partition(".")
    new = with_value(getattr(noun, name), rest, value) if rest else value
    return noun.model_copy(update={name: new})  # type: ignore[attr-defined]


def set_to(path: str, value: object) -> Change:
    """Set one value of the job; nothing if it has it already."""

    def change(job: Job) -> Job | None:
        owner, name = parts(job, path)
        return None if getattr(owner, name) == value else with_value(job, path, value)  # type: ignore[return-value]

    return change


def always(path: str, value: object) -> Change:
    """Set one value of the job, whatever it was."""
    return lambda job: with_value(job, path, value)  # type: ignore[return-value]


def unchanged(job: Job) -> Job | None:
    """The job as it is."""
    return job


def times(path: str, factor: float) -> Change:
    """Multiply one number of the job."""

    def change(job: Job) -> Job | None:
        owner, name = parts(job, path)
        old = getattr(owner, name)
        return with_value(job, path, type(old)(old * factor)) if old else None  # type: ignore[return-value]

    return change


def on_cluster(change_of: Callable[[Cluster], Cluster | None]) -> Change:
    """Change the cluster."""

    def change(job: Job) -> Job | None:
        cluster = change_of(job.cluster)
        return None if cluster is None else job.model_copy(update={"cluster": cluster})

    return change


def on_tiers(field: str, factor: float, which: slice = slice(None)) -> Change:
    """Multiply a number of some tiers."""

    def change_of(cluster: Cluster) -> Cluster:
        chosen = set(range(len(cluster.tiers))[which])
        tiers = tuple(
            tier.model_copy(update={field: getattr(tier, field) * factor}) if index in chosen else tier
            for index, tier in enumerate(cluster.tiers)
        )
        return cluster.model_copy(update={"tiers": tiers})

    return on_cluster(change_of)


def on_device(**by_factor: float) -> Change:
    """Multiply numbers of the device; peaks are all multiplied alike."""

    def change_of(cluster: Cluster) -> Cluster:
        device = cluster.node.device
        new: dict[str, object] = {}
        for field, factor in by_factor.items():
            old = getattr(device, field)
            is_number = isinstance(old, (int, float))
            new[field] = old * factor if is_number else type(old)({k: v * factor for k, v in old.items()})
        return with_node(cluster, device=device.model_copy(update=new))

    return on_cluster(change_of)


def with_node(cluster: Cluster, **update: object) -> Cluster:
    """The cluster with something of its nodes changed."""
    groups = tuple(
        group.model_copy(update={"node": group.node.model_copy(update=update)}) for group in cluster.groups
    )
    return cluster.model_copy(update={"groups": groups})


def without_power_limit(job: Job) -> Job | None:
    """A device that runs GEMMs at its highest clock, however long it is busy."""
    return on_cluster(
        lambda cluster: with_node(
            cluster, device=cluster.node.device.model_copy(update={"sustained": Sustained()})
        )
    )(job)


def host_speed(factor: float) -> Change:
    """Multiply the speed of the host."""

    def change_of(cluster: Cluster) -> Cluster:
        host = cluster.node.host
        return with_node(cluster, host=host.model_copy(update={"speed_ratio": host.speed_ratio * factor}))

    return on_cluster(change_of)


def all_of(*changes: Change) -> Change:
    """Several changes at once; nothing if one of them is impossible."""

    def change(job: Job) -> Job | None:
        found: Job | None = job
        for each in changes:
            found = each(found) if found is not None else None
        return found

    return change


def factors(names_of: Callable[[Job], Iterable[str]], ratio: float, kind: str = "") -> Change:
    """All named factors of a kind, or of every kind, that much higher."""

    def change(job: Job) -> Job | None:
        names = [name for name in names_of(job) if name.startswith(kind)]
        made = tuple(SiteFactor(name=name, ratio=ratio) for name in names)
        return job.model_copy(update={"site": Site(name="changed", factors=made)}) if made else None

    return change


def where(holds: Callable[[Job], bool], change: Change) -> Change:
    """A change for some jobs only."""
    return lambda job: change(job) if holds(job) else None


def deeper(job: Job) -> Job | None:
    """Twice the blocks of each kind."""
    blocks = tuple(block.model_copy(update={"count": 2 * block.count}) for block in job.model.blocks)
    return job.model_copy(update={"model": job.model.model_copy(update={"blocks": blocks})})


def split_blocks(job: Job) -> Job | None:
    """The same blocks in the same order, every run of two or more equal ones listed in two entries."""
    model = job.model
    if model.pattern and (model.mtp or model.embedding_norm):  # these copy the first or last entry
        return None
    inside = [(entry, length) for entry, length in model.runs() if 0 < entry <= len(model.blocks)]
    blocks = tuple(
        model.blocks[entry - 1].model_copy(update={"count": count})
        for entry, length in inside
        for count in (length - length // 2, length // 2)
        if count
    )
    return job.model_copy(update={"model": model.model_copy(update={"blocks": blocks, "pattern": ()})})


def wider(job: Job) -> Job | None:
    """Twice the vocabulary."""
    model = job.model.model_copy(update={"vocabulary": 2 * job.model.vocabulary})
    return job.model_copy(update={"model": model})


def through_json(job: Job) -> Job | None:
    """Written as JSON and read again."""
    return Job.model_validate_json(job.model_dump_json())


def one_stage(job: Job) -> bool:
    """Whether there is no pipeline."""
    return job.plan.pipeline_parallel == 1


def reduces_once(job: Job) -> bool:
    """Whether there is no pipeline, and gradients are reduced once a step, not once a micro-batch."""
    return one_stage(job) and job.plan.zero < 2


def only_replicas(job: Job) -> bool:
    """Whether nothing is sent but activations between stages and gradients between replicas."""
    plan = job.plan
    return plan.tensor_parallel * plan.context_parallel * plan.expert_parallel == 1


def reduces(job: Job) -> bool:
    """Whether any other rank holds the same parameters, so that gradients are reduced."""
    plan = job.plan
    experts = job.model.family == "experts"
    return plan.data_parallel * plan.context_parallel * (plan.tensor_parallel if experts else 1) > 1
