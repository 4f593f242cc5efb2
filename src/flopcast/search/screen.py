"""Many plans at once: step time in closed form, and memory.

Answers: of these plans, which are possible, which fit, about how long does each take?
Elsewhere: the closed form and how far it is off (timeline/closed_form.py), exact play (prediction.py).
Plans are grouped by structure; inside a group only numbers vary, and one evaluation of the core serves
them all. A plan alone gives the same numbers as the plan among others.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from flopcast.cost.factors import FactorBook
from flopcast.cost.kernels.book import CurveBook
from flopcast.cost.price import price
from flopcast.dtypes import Floats, Integers
from flopcast.errors import Problem, SpecError
from flopcast.memory.peak import fits, peak_memory, seen_bytes
from flopcast.spec.checks import Case
from flopcast.spec.job import Job
from flopcast.spec.plan import NUMERIC, Plan, Plans, batch_plans, structure_of
from flopcast.timeline.closed_form import step_seconds
from flopcast.workload.checks import valid
from flopcast.workload.lower import lower
from flopcast.workload.realise import realise


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Screened:
    """Results in the order of the plans, shape (plans,); NaN where a plan breaks a rule.

    `possible` are the plans that keep every rule of spec/checks.py, `fits` those of them whose fullest
    stage its device can hold. A plan that does not fit still has a step time: what more memory would
    bring.
    """

    possible: np.ndarray
    fits: np.ndarray
    step_time_s: Floats  # without jitter
    device_used_bytes: Floats  # of the fullest stage


def screen(job: Job, plans: Plans, book: CurveBook) -> Screened:
    """Screen plans for the model, cluster, stack and batch of `job`; its own plan is not used.

    Parameters
    ----------
    job : Job
    plans : Plans
        Of one structure, as grid.py makes them.
    book : CurveBook
        Curves of the job's cluster (io/curves.py).

    Returns
    -------
    Screened
        Step times are estimates: play the best exactly before deciding between them.

    Raises
    ------
    SpecError
        The batch lists its micro-batches: how many there are, and of how many sequences, is then settled.
    """
    if job.batch.listed:
        raise SpecError([of_lists(job)])
    result = _nothing(plans.size)
    case = Case(model=job.model, cluster=job.cluster, stack=job.stack, batch=job.batch, plans=plans)
    kept = np.flatnonzero(valid(case)[:, 0])
    if not len(kept):
        return result
    batch = rows_of(plans, kept)
    programs = realise(lower(job.model, batch, job.batch), job.software)
    memory = peak_memory(programs)
    priced = price(programs, job.cluster, book, FactorBook(job.site, book.levels))
    result.possible[kept] = True
    result.fits[kept] = fits(memory, job.cluster)
    result.step_time_s[kept] = step_seconds(priced)
    result.device_used_bytes[kept] = seen_bytes(memory, job.cluster).max(axis=1)
    return result


def screen_each(job: Job, plans: Sequence[Plan], book: CurveBook) -> Screened:
    """Screen plans of any structures, in any order; as `screen`."""
    groups: dict[Plan, list[int]] = defaultdict(list)
    for index, plan in enumerate(plans):
        groups[structure_of(plan)].append(index)
    result = _nothing(len(plans))
    for members in groups.values():
        part = screen(job, batch_plans([plans[index] for index in members]), book)
        for name in ("possible", "fits", "step_time_s", "device_used_bytes"):
            getattr(result, name)[members] = getattr(part, name)
    return result


def rows_of(plans: Plans, rows: Integers) -> Plans:
    """Some plans of a batch."""
    return replace(plans, **{name: getattr(plans, name)[rows] for name in NUMERIC})


def _nothing(size: int) -> Screened:
    """Results of plans none of which is possible."""
    return Screened(
        possible=np.zeros(size, dtype=bool),
        fits=np.zeros(size, dtype=bool),
        step_time_s=np.full(size, np.nan),
        device_used_bytes=np.full(size, np.nan),
    )


def of_lists(job: Job) -> Problem:
    """The fault of asking for a plan where micro-batches are listed: another plan has others."""
    field = "batch.ranks" if job.batch.ranks else "batch.micro_batches"
    return Problem(
        field=field,
        value=f"{len(job.batch.kinds)} kinds",
        allowed="none where plans are compared or chosen",
        because="a list of micro-batches fits one number of ranks and of sequences in each",
        fix=f"remove {field}, or give the whole plan",
    )
