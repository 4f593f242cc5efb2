"""Changes of a job that does not fit: offload, shorter sequences, frozen weights in 4 bits, more devices.

Answers: which single options make the job fit?
Elsewhere: the choice of a plan that failed (search/default_plan.py), what the options do to a job
(training_options.py, resolve.py).

For each change, flopcast searches a plan of the changed job. Changes that do not help are not named.
"""

import math
from bisect import bisect_left
from collections.abc import Iterator, Mapping

from flopcast.errors import SpecError
from flopcast.fixes import Fix
from flopcast.layers.adapters import BASE_DTYPES
from flopcast.library import catalog
from flopcast.library.curves import load_book
from flopcast.search.cluster_sizes import sized
from flopcast.search.default_plan import fits
from flopcast.search.offload_that_fits import offload_for_job
from flopcast.spec.cluster import Cluster
from flopcast.spec.job import Job
from flopcast.spec.offload import offload_word
from flopcast.units import Number

SHORTEST = 2**7  # tokens of the shortest sequence that is tried
LONGEST = 2**24
DOUBLINGS = 8  # of the number of devices that are tried


def advice(job: Job, fixed: Mapping[str, object], needed_ratio: Number) -> tuple[str, tuple[Fix, ...]]:
    """Return sentences on the length of sequences and on the changes that fit, and these changes as data.

    Parameters
    ----------
    job : a job without a plan that fits
    fixed : fields of the plan that are fixed, by long name
    needed_ratio : memory that the smallest plan needs divided by that of a device
    """
    length = job.batch.sequence_length
    assumed = (
        " (assumed, because no length was given)" if f"sequence_length {length}" in job.assumptions else ""
    )
    told = f"A sequence has {length:,} tokens{assumed}."
    changes = tuple(_changes(job, fixed, needed_ratio))
    if not changes:
        most = job.cluster.num_devices * 2**DOUBLINGS
        tried = f"the job fits neither with offload, nor with a shorter sequence, nor on {most:,} devices"
        return f"{told} Use larger devices or a smaller model: {tried}.", ()
    head = (
        "The job fits with this change" if len(changes) == 1 else "The job fits with each of these changes"
    )
    return "\n  ".join([f"{told} {head}:", *changes]), changes


def _changes(job: Job, fixed: Mapping[str, object], needed_ratio: Number) -> Iterator[Fix]:
    """Yield the options that make the job fit, the smallest change of each kind."""
    offload = offload_for_job(job, fixed, load_book(job.cluster))
    if offload is not None:
        word = offload_word(offload.plan.offload)
        yield Fix(f"{offload.option} ({offload.price})", ({"offload": word},))
    shorter = _shorter(job, fixed)
    if shorter is not None:
        yield Fix(f"--seq {shorter} (the largest power of two that fits)", ({"seq": shorter},))
    adapters = job.model.adapters
    if adapters is not None and adapters.base_dtype == BASE_DTYPES["lora"]:
        frozen = adapters.model_copy(update={"base_dtype": BASE_DTYPES["qlora"]})
        frozen_job = job.with_part("model", adapters=frozen)
        edit: dict[str, object] = {"lora": "", "qlora": adapters.rank}
        replaced = f"instead of --lora {adapters.rank}"
        if fits(frozen_job, fixed):
            yield Fix(f"--qlora {adapters.rank} {replaced}", (edit,))
        elif (length := _shorter(frozen_job, fixed)) is not None and length > (shorter or 0):
            yield Fix(f"--qlora {adapters.rank} --seq {length} {replaced}", ({**edit, "seq": length},))
    more = _more_devices(job, fixed, needed_ratio)
    if more is not None:
        yield Fix(f"--gpus {more}", ({"gpus": more},))


def _shorter(job: Job, fixed: Mapping[str, object]) -> int | None:
    """Return the largest power of two that fits and is shorter than the sequences of the job, if any."""
    lengths = [SHORTEST]
    while lengths[-1] * 2 < min(job.batch.sequence_length, LONGEST):
        lengths.append(lengths[-1] * 2)

    def lacks_memory(length: int) -> bool:
        return not fits(job.with_part("batch", sequence_length=length), fixed)

    if job.batch.documents or lengths[0] >= job.batch.sequence_length or lacks_memory(lengths[0]):
        return None  # documents state the length
    return lengths[bisect_left(lengths, True, lo=1, key=lacks_memory) - 1]


def _more_devices(job: Job, fixed: Mapping[str, object], needed_ratio: Number) -> int | None:
    """Return the smallest number of devices that fits, of repeated doublings, if any.

    Devices that are fewer than needed_ratio times as many cannot hold what the smallest plan holds.
    """
    whole = _whole_nodes(job.cluster)
    for doubling in range(max(1, math.ceil(math.log2(needed_ratio))), DOUBLINGS + 1):
        number: int = job.cluster.num_devices * 2**doubling
        try:
            cluster = sized(whole, number)
        except SpecError:
            continue
        if fits(job.model_copy(update={"cluster": cluster}), fixed):
            return number
    return None


def _whole_nodes(cluster: Cluster) -> Cluster:
    """Return the cluster with all devices of its nodes, of which the job may use a part."""
    if catalog.known("clusters", cluster.name) is None or len(cluster.groups) > 1:
        return cluster
    devices = max(catalog.cluster(cluster.name).node.devices, cluster.node.devices)
    node = cluster.node.model_copy(update={"devices": devices})
    return cluster.model_copy(update={"groups": (cluster.groups[0].model_copy(update={"node": node}),)})
