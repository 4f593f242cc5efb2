"""The rule about input pipelines: they need a storage that the cluster describes.

Answers: which stages contradict the cluster; why, and which edit fixes it?
Elsewhere: the stages (loader.py), what a rule is (checks.py).
"""

from flopcast.spec.checks import Case, Rule
from flopcast.spec.described_tiers import FIELDS, tier_of


def _missing(case: Case) -> list[str]:
    """Return the memory and storage that stages use and the cluster does not describe."""
    stages = () if case.loader is None else case.loader.stages
    paths = (stage.through for stage in stages if stage.sample_bytes is not None)
    needed = ["host" if path == "pageable" else path for path in paths]
    return [name for name in needed if name in FIELDS and tier_of(case.cluster, name) is None]


RULES: tuple[Rule, ...] = (
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
