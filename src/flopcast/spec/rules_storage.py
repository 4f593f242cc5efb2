"""The rules about checkpoints and data loading: both need a storage that the cluster describes.

Answers: which checkpoints and loader stages contradict the cluster or the job, and which edit fixes this?
Elsewhere: how checkpoints are written (checkpoints.py), an interval that is too short and memory that is
too small (economics/checkpoints.py), the stages of data loading (loader.py), what a rule is (checks.py).
"""

from flopcast.spec.checkpoints import HOST, STORES, Checkpoint
from flopcast.spec.checks import Case, Rule, Ways
from flopcast.spec.cluster import Cluster
from flopcast.spec.described_tiers import FIELDS, storage_of, tier_of

SHARED = ("file_system", "object_store")
SHARED_EXAMPLE = {"capacity_bytes": "1 PB", "read_bytes_per_s": "200 GB/s", "write_bytes_per_s": "100 GB/s"}


def _described(cluster: Cluster) -> list[str]:
    """Return the places of a checkpoint that the cluster describes."""
    return [name for name in STORES if name == HOST or storage_of(cluster, name) is not None]


def _to(case: Case) -> str:
    return HOST if case.checkpoint is None else case.checkpoint.to


def _allocates_needlessly(checkpoint: Checkpoint | None) -> bool:
    """Return whether a setting of copies to the host is stated for a method that has no such copies."""
    return (
        checkpoint is not None
        and checkpoint.how.waits_for_write
        and "staging" in checkpoint.model_fields_set
    )


def _of_storage(case: Case) -> Ways:
    """Return the fix of a storage that is not described; no local drives for stated shared storage."""
    name, known = _to(case), _described(case.cluster)
    if name in SHARED and case.checkpoint is not None and "to" in case.checkpoint.model_fields_set:
        known = [each for each in known if each in SHARED]
    if known:
        return {"checkpoint.to": known[0]}, f"describe {FIELDS[name]}"
    values = " ".join(f'{FIELDS[name]}.{field}="{value}"' for field, value in SHARED_EXAMPLE.items())
    return f"describe {FIELDS[name]} with the values of your storage, such as {values}"


def _missing(case: Case) -> list[str]:
    """Return the memory and storage that stages use and the cluster does not describe."""
    stages = () if case.loader is None else case.loader.stages
    paths = (stage.through for stage in stages if stage.sample_bytes is not None)
    needed = ["host" if path == "pageable" else path for path in paths]
    return [name for name in needed if name in FIELDS and tier_of(case.cluster, name) is None]


RULES: tuple[Rule, ...] = (
    Rule(
        field="checkpoint.to",
        holds=lambda c: _to(c) in _described(c.cluster),
        value=_to,
        allowed=lambda c: ", ".join(_described(c.cluster)),
        because="flopcast needs the bandwidth of this storage, and the cluster does not describe it",
        fix=_of_storage,
    ),
    Rule(
        field="checkpoint.staging",
        holds=lambda c: not _allocates_needlessly(c.checkpoint),
        allowed="no value, because the method of the checkpoint is synchronous",
        because="a synchronous checkpoint is not copied to host memory first",
        fix="remove checkpoint.staging",
    ),
    Rule(
        field=lambda c: FIELDS[_missing(c)[0]],
        holds=lambda c: not _missing(c),
        value=lambda _: "missing",
        fault=lambda _: "is missing, but a stage of the data loader uses it",
        allowed="a description of the memory or storage with capacity_bytes and bandwidths",
        because="flopcast needs the bandwidths to predict the time of this stage of the loader",
        fix=lambda c: f"describe {FIELDS[_missing(c)[0]]}",
    ),
)
