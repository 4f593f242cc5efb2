"""Pruning: plans whose lower bound is worse than the best known plans are not estimated.

Answers: which plans of a batch could still be among the best, given lower bounds of their step times?
Elsewhere: the lower bounds (timeline/lower_bounds.py), which plans are kept (top_candidates.py).

This is branch and bound: a plan whose lower bound is already too long is never estimated, and no plan that
would be kept is left out. The search estimates at most about one plan in ten.
"""

from collections.abc import Sequence
from functools import reduce

import numpy as np

from flopcast.dtypes import Flags, Floats
from flopcast.records import Record, field
from flopcast.search.batch_losses import BatchLosses
from flopcast.search.pareto_front import front, thinned
from flopcast.search.question import Question
from flopcast.search.screen import Screened, Wanted
from flopcast.spec.job import Job
from flopcast.spec.plan import Plans
from flopcast.units import Number

MOST_POINTS = 256  # of a front that plans are compared with
AT_ONCE = 1024  # plans that are estimated without a closer look, because another round takes as long
ROUNDS = 1  # of a closer look
Points = tuple[tuple[float, ...], ...]


class Incumbents(Record):
    """The losses of the plans that are known so far.

    `best_loss` is the smallest first loss of a feasible plan, and `last_loss` the first loss of the worst
    plan that is still kept for its first loss. Both are infinite as long as there are no such plans.
    `on_front` holds the losses of feasible plans, and `faster` the first loss and the bytes of plans that
    lack only memory.
    """

    best_loss: Number = np.inf
    last_loss: Number = np.inf
    on_front: Points = ()
    faster: Points = ()

    def joined(self, other: "Incumbents") -> "Incumbents":
        """Return the incumbents of both."""
        return Incumbents(
            best_loss=min(self.best_loss, other.best_loss),
            last_loss=min(self.last_loss, other.last_loss),
            on_front=_few((*self.on_front, *other.on_front)),
            faster=_few((*self.faster, *other.faster)),
        )

    def could_be_kept(self, least: BatchLosses, unknown: Flags, *, feasible_only: bool = False) -> Flags:
        """Return which plans could be kept, (rows,), of those whose step is not estimated yet.

        Parameters
        ----------
        least : BatchLosses
            Lower bounds of the losses, from lower bounds of the step times.
        unknown : array of bool, (rows,)
        feasible_only : bool
            As for `TopCandidates.after_each`.
        """
        loss = least.losses[:, 0]
        found: Flags = unknown & (
            ((least.over_ratio <= 1.0) & (loss <= self.last_loss))
            | (least.lacks_memory & (loss < self.best_loss) & (least.fits | (not feasible_only)))
        )
        lacking = np.flatnonzero(found & least.lacks_memory)
        found[lacking] = ~_dominated(least.judged(lacking, by_memory=True), self.faster)
        if not feasible_only:
            others = np.flatnonzero(unknown & ~found & (least.over_ratio <= 1.0))
            found[others] = ~_dominated(least.losses[others], self.on_front)
        return found


NO_INCUMBENTS = Incumbents()


class _Selection(Record, eq=False, frozen=False, kw_only=False):
    """Chooses the plans of one batch to estimate next; may be called as `screen` asks.

    Of many, those come first that are best by the least that they take: once these are estimated, most
    others need not be.
    """

    question: Question
    job: Job
    plans: Plans
    known: Incumbents
    most: int  # plans that are kept for their first loss
    feasible_only: bool  # as for `TopCandidates.after_each`
    rounds: int = field(default=0)

    def __call__(self, part: Screened, least_s: Floats) -> Flags:
        """Return which plans need an estimate of their step, (plans,).

        Parameters
        ----------
        part : Screened
            Plans of the batch; steps that are not estimated yet are infinite.
        least_s : array of shape (plans,)
            Seconds that no step can be shorter than.

        Notes
        -----
        The caller asks again after each round. The first rounds choose only the most promising plans, whose
        estimates then rule out many others.
        """
        estimated = np.isfinite(part.step_time_s)
        step_s = np.where(estimated, part.step_time_s, least_s)
        least = BatchLosses.of(self.question, self.job, self.plans.global_batch, part, step_s)
        done = estimated[least.row]
        known = self.known.joined(incumbents_of(least, done, self.most))
        could = np.flatnonzero(known.could_be_kept(least, ~done, feasible_only=self.feasible_only))
        if len(could) > AT_ONCE and self.rounds < ROUNDS:
            could = could[_first(least, could, self.most)]
        if not np.isfinite(known.best_loss):  # then the plan that breaks the limits by least is kept
            could = np.union1d(could, [least.over_ratio.argmin()])
        self.rounds += 1
        found: Flags = np.zeros(self.plans.size, dtype=bool)
        found[least.row[could]] = True
        return found


def selection(
    question: Question, job: Job, plans: Plans, known: Incumbents, most: int, feasible_only: bool
) -> Wanted | None:
    """Return the choice of plans to estimate, or None to estimate all plans if the question has limits.

    The estimate of a plan decides whether the plan keeps a limit of time or cost.
    """
    return None if question.limits else _Selection(question, job, plans, known, most, feasible_only)


def incumbents_of(losses: BatchLosses, done: Flags, most: int) -> Incumbents:
    """Return the incumbents among the estimated plans of a batch.

    Parameters
    ----------
    losses : BatchLosses
    done : array of bool, shape (rows,)
        Plans whose losses are estimates. All other plans have only lower bounds and are ignored.
    most : int
        Number of plans that a search keeps for their first loss. A plan is not needed if so many plans are
        better.

    Returns
    -------
    Incumbents
        The smallest loss, the loss of the worst kept plan, the points of the front, and those of plans that
        lack only memory.
    """
    feasible = np.flatnonzero(done & (losses.over_ratio <= 1.0))
    first = np.sort(losses.losses[feasible, 0])
    best_loss = float(first[0]) if len(first) else np.inf
    lacking = np.flatnonzero(done & losses.lacks_memory & (losses.losses[:, 0] < best_loss))
    return Incumbents(
        best_loss=best_loss,
        last_loss=float(first[most - 1]) if len(first) >= most else np.inf,
        on_front=_few(tuple(map(tuple, losses.losses[feasible].tolist()))),
        faster=_few(tuple(map(tuple, losses.judged(lacking, by_memory=True).tolist()))),
    )


def _few(points: Sequence[tuple[float, ...]]) -> Points:
    """Return the front of points, or some of a long one."""
    if not points:
        return ()
    values = np.array(points)
    places = np.flatnonzero(front(values))
    return tuple(points[i] for i in places[thinned(values[places, 0], MOST_POINTS)].tolist())


def _first(least: BatchLosses, rows: np.ndarray, most: int) -> np.ndarray:
    """Return the places in `rows` of plans that are best by the least that they take."""
    lacks = least.lacks_memory[rows]
    chosen = np.zeros(len(rows), dtype=bool)
    for group, by_memory in ((lacks, True), (~lacks, False)):
        places = np.flatnonzero(group)
        if len(places):
            chosen[places[front(least.judged(rows[places], by_memory=by_memory))]] = True
    feasible = np.flatnonzero(~lacks)
    chosen[feasible[np.argsort(least.losses[rows[feasible], 0], kind="stable")[: 2 * most]]] = True
    return np.flatnonzero(chosen)


def _dominated(rows: np.ndarray, points: Points) -> Flags:
    """Return which rows a point is below in one value, and above in none, (rows,)."""
    found: Flags = np.zeros(len(rows), dtype=bool)
    columns = tuple(np.ascontiguousarray(rows.T))
    for point in points:
        pairs = list(zip(point, columns, strict=True))
        least = reduce(np.logical_and, (value <= column for value, column in pairs))
        found |= least & reduce(np.logical_or, (value < column for value, column in pairs))
    return found
