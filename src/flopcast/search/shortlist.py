"""The best few plans of a whole space, screened batch by batch.

Answers: how many plans of a space are possible and fit, which of them screen fastest, which needs least
memory?
Elsewhere: the plans (grid.py), their screening (screen.py), what is done with the best few (choose.py).

Only the best few are kept, so that memory does not grow with the space.
"""

from dataclasses import dataclass

import numpy as np

from flopcast.cost.kernels.book import CurveBook
from flopcast.dtypes import Floats, Integers
from flopcast.search.grid import batches, plan_at
from flopcast.search.screen import Screened, screen
from flopcast.search.space import Space
from flopcast.spec.job import Job
from flopcast.spec.plan import Plans

RE_RANKED = 256  # screened plans that are worth an exact play: docs/accuracy/search.md


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """One plan of a space: the job with it and with its cluster, and what screening says."""

    job: Job
    step_time_s: float  # without jitter
    device_used_bytes: float  # of the fullest stage
    fits: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Shortlist:
    """A space in numbers, and its best plans: fastest first, of equal ones the first.

    `roomy` ones leave the space's headroom, `tight` ones fit into the device without it. `smallest` needs
    least memory of all possible ones, whether it fits or not; None where no plan is possible.
    """

    candidates: int
    possible: int
    fitting: int  # tight ones included
    num_roomy: int
    roomy: tuple[Found, ...]
    tight: tuple[Found, ...]
    smallest: Found | None


def shortlist(job: Job, space: Space, book: CurveBook, most: int = RE_RANKED) -> Shortlist:
    """Screen every plan of a space and keep the fastest.

    Parameters
    ----------
    book : CurveBook
        Curves of the job's cluster, whatever its size.
    most : int
        Plans that are kept of each list.

    Raises
    ------
    SpecError
        As `screen`, or a size of the cluster is none of whole nodes.
    """
    kept = Shortlist(candidates=0, possible=0, fitting=0, num_roomy=0, roomy=(), tight=(), smallest=None)
    for sized, plans in batches(job, space):
        kept = _with(kept, sized, plans, screen(sized, plans, book), space.headroom_fraction, most)
    return kept


def _with(
    kept: Shortlist, job: Job, plans: Plans, part: Screened, headroom_fraction: float, most: int
) -> Shortlist:
    """A shortlist with one more batch."""
    room_bytes = headroom_fraction * job.cluster.node.device.memory_bytes
    roomy = part.fits & (part.device_used_bytes <= room_bytes)
    tight = part.fits & ~roomy

    def found(row: int) -> Found:
        return Found(
            job=job.model_copy(update={"plan": plan_at(plans, row)}),
            step_time_s=float(part.step_time_s[row]),
            device_used_bytes=float(part.device_used_bytes[row]),
            fits=bool(part.fits[row]),
        )

    def best(before: tuple[Found, ...], mask: np.ndarray) -> tuple[Found, ...]:
        limit_s = before[-1].step_time_s if len(before) == most else np.inf
        rows = np.flatnonzero(mask & (part.step_time_s < limit_s))
        new = [found(row) for row in _fastest(rows, part.step_time_s, most)]
        return tuple(sorted((*before, *new), key=lambda each: each.step_time_s)[:most])

    least = [kept.smallest] if kept.smallest else []
    least += [found(int(np.nanargmin(part.device_used_bytes)))] if part.possible.any() else []
    return Shortlist(
        candidates=kept.candidates + plans.size,
        possible=kept.possible + int(part.possible.sum()),
        fitting=kept.fitting + int(part.fits.sum()),
        num_roomy=kept.num_roomy + int(roomy.sum()),
        roomy=best(kept.roomy, roomy),
        tight=best(kept.tight, tight),
        smallest=min(least, key=lambda each: each.device_used_bytes, default=None),
    )


def _fastest(rows: Integers, step_s: Floats, most: int) -> list[int]:
    """The first so many of some rows by their step time; equal ones in their order."""
    order = np.argsort(step_s[rows], kind="stable")[:most]
    found: list[int] = rows[order].tolist()
    return found
