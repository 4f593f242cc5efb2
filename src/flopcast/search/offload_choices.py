"""The offload that a search tries if the user sets none.

Answers: which kinds of offload does a stack support on a cluster, and which combinations does the search
try?
Elsewhere: placements (spec/offload.py), the time and memory of plans with placements (screen.py, exact.py).

Parameters are placed outside the devices only together with the whole optimizer, which has six times as
many bytes, and not in a slower memory than the optimizer.
"""

from collections.abc import Iterator, Sequence
from itertools import product

from flopcast.spec.checks import Case
from flopcast.spec.described_tiers import tier_of
from flopcast.spec.job import Job
from flopcast.spec.offload import PEER, TIERS, Placement
from flopcast.spec.plan import one_plan

FRACTIONS = (0.25, 0.5, 0.75)  # of the optimizer on the host; and all of it
HALF = 0.5  # of the activations; and all of them
SHARDED = 3  # the ZeRO stage whose parameters can be placed outside the devices
Placements = tuple[Placement, ...]


def offload_choices(job: Job, *, in_parts: bool = True) -> tuple[Placements, ...]:
    """Return the placements to try for a job, the first of which places nothing outside the devices.

    Parameters
    ----------
    job : its plan is not used
    in_parts : whether fractions are tried too, or each kind of state only as a whole
    """
    tiers = described_tiers(job)
    found = (
        (*optimizer, *parameters, *activations)
        for optimizer, parameters, activations in product(
            _one_of(job, "optimizer", tiers, FRACTIONS if in_parts else ()),
            _one_of(job, "parameters", tiers, ()),
            _one_of(job, "activations", tiers, (HALF,) if in_parts else ()),
        )
        if not parameters or _hold_whole(optimizer, parameters)
    )
    return tuple(dict.fromkeys(found))


def described_tiers(job: Job) -> tuple[str, ...]:
    """Return the memories outside the devices that a search tries on a cluster, the fastest first.

    All copies pass through the memory of the host, so a cluster without described host memory has no such
    memories. Placements on peer devices are tried only if they are listed.
    """
    case = Case.of(job, one_plan(job.plan))
    tiers = tuple(name for name in TIERS if name != PEER and tier_of(case.cluster, name) is not None)
    return tiers if TIERS[0] in tiers else ()


def _one_of(job: Job, kind: str, tiers: Sequence[str], fractions: Sequence[float]) -> Iterator[Placements]:
    """Yield the placements of one kind of state: none, then fractions on the host, then all of it."""
    yield ()
    if kind == "parameters" and SHARDED not in job.stack.sharding.zero_stages:
        return
    for tier in tiers:
        if f"{kind}:{tier}" in job.stack.offload.places:
            for fraction in (*(fractions if tier == TIERS[0] else ()), 1.0):
                yield (Placement.model_validate({"kind": kind, "tier": tier, "fraction": fraction}),)


def _hold_whole(optimizer: Placements, parameters: Placements) -> bool:
    """Return whether all of the optimizer is placed outside, in no faster memory than the parameters."""
    return any(
        one.fraction == 1 and TIERS.index(one.tier) >= TIERS.index(other.tier)
        for one in optimizer
        for other in parameters
    )
