"""The best plans of a stream of screened plans, its Pareto front, plans that nearly fit, and counts.

Answers: which of all plans so far should be simulated?
Elsewhere: the plans (grid.py), the screening of one batch (screen.py), the exact simulation (exact.py).

The number of kept plans does not grow with the space. A batch counts completely or not at all, so an
interrupted search has a consistent state.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from flopcast.cost.kernels.curve_book import CurveBook
from flopcast.dtypes import Integers
from flopcast.kept_results import NOTHING_KEPT, KeptResults
from flopcast.records import Record, replace
from flopcast.search.batch_losses import BatchLosses
from flopcast.search.grid import plan_at
from flopcast.search.pareto_front import front, thinned
from flopcast.search.pruning import NO_INCUMBENTS, Incumbents, selection
from flopcast.search.question import Question
from flopcast.search.screen import Screened, screen
from flopcast.spec.cluster import Cluster
from flopcast.spec.job import Job
from flopcast.spec.plan import Plans

BEST = 64  # screened plans that are kept, and of which variants are made
PLAYED = 32  # of these, plans that are played as they are: docs/accuracy/search.md
LONGEST_FRONT = 8192  # that is kept; of more, evenly spread ones
KEPT = ("best", "on_front", "faster", "near")  # the lists of plans in `TopCandidates`
LACKING = 8  # of what lacks memory and would be better, that are played


class Candidate(Record):
    """A kept candidate: its job, its estimated losses, and the amount by which it exceeds the limits.

    `over_ratio` is the largest ratio of need to limit (memory, days, dollars). It is at most 1 if the
    candidate breaks no limit. `in_memory` states whether the candidate keeps the limit of memory, the only
    limit that a user cannot relax.
    """

    job: Job
    losses: tuple[float, ...]
    used_bytes: float
    over_ratio: float
    in_memory: bool
    order: int  # its place in the space

    @property
    def excess(self) -> tuple[bool, float]:
        """Return the excess over limits, by which plans are sorted; plans that lack memory come last."""
        return not self.in_memory, self.over_ratio

    def judged(self, *, by_memory: bool) -> tuple[float, ...]:
        """Return the values that a front compares: all losses, or the first loss and the bytes."""
        return (self.losses[0], self.used_bytes) if by_memory else self.losses

    def after(self, number: int) -> "Candidate":
        """Return the candidate with its position in the space increased by `number`."""
        return replace(self, order=self.order + number)


class TopCandidates(Record):
    """The plans that a search keeps, among all plans that it has screened so far.

    `best` holds the best feasible plans by the first objective; among equal plans, the first in the space.
    `on_front` holds plans that no other plan beats in all objectives. `faster` holds the front of loss and
    bytes among plans that lack only memory and are better than the best. If no plan is feasible, `near`
    holds the plans that exceed the limits by least: several that fit into memory, since estimates of times
    are not exact, or one if none fits. `in_memory` counts the plans that fit. `thinned` states that a front
    was too long to keep. `most` is the largest length of `best`.
    """

    most: int = BEST
    candidates: int = 0
    possible: int = 0
    in_memory: int = 0
    feasible: int = 0
    best: tuple[Candidate, ...] = ()
    on_front: tuple[Candidate, ...] = ()
    faster: tuple[Candidate, ...] = ()
    near: tuple[Candidate, ...] = ()
    thinned: bool = False

    def after_each(
        self,
        question: Question,
        batches: Iterable[tuple[Job, Plans]],
        book_of: Callable[[Cluster], CurveBook | None],
        kept: KeptResults = NOTHING_KEPT,
        before: Incumbents = NO_INCUMBENTS,
        feasible_only: bool = False,
    ) -> Iterator["TopCandidates"]:
        """Screen batches of plans, as grid.py makes them; yield the top candidates after each.

        Parameters
        ----------
        book_of : returns the curves of a cluster; called once for each batch, so it should store them. None
            if only memory is needed: plans are then counted but not kept
        kept : layers and prices of earlier batches of few plans
        before : results of other plans of the space
        feasible_only : whether only the best plans, faster plans that fit by their expected memory, and the
            counts are needed. No step is then estimated in a batch of few plans without such plans, and no
            plan is kept only for the front

        Raises
        ------
        SpecError
            As `screen`, or a size of the cluster is none of whole nodes.
        """
        candidates_kept = self
        for job, plans in batches:
            known = candidates_kept.incumbents.joined(before)
            wanted = selection(question, job, plans, known, self.most, feasible_only)
            worth = _any_fits if feasible_only else None
            part = screen(job, plans, book_of(job.cluster), kept, wanted, worth)
            candidates_kept = candidates_kept.with_batch(
                question, job, plans, part, feasible_only=feasible_only
            )
            yield candidates_kept

    def after_all(
        self,
        question: Question,
        batches: Iterable[tuple[Job, Plans]],
        book_of: Callable[[Cluster], CurveBook],
        kept: KeptResults = NOTHING_KEPT,
        before: Incumbents = NO_INCUMBENTS,
    ) -> "TopCandidates":
        """Return the top candidates after the last batch.

        Parameters
        ----------
        question : Question
        batches : iterable of (job, plans)
        book_of : function
            Returns the curves of a cluster.
        kept : KeptResults
        before : Incumbents
            Results of plans outside these batches.
        """
        candidates_kept = self
        for after in self.after_each(question, batches, book_of, kept, before):
            candidates_kept = after
        return candidates_kept

    def with_batch(
        self, question: Question, job: Job, plans: Plans, part: Screened, *, feasible_only: bool = False
    ) -> "TopCandidates":
        """Return the top candidates after one more batch.

        Parameters
        ----------
        question : Question
        job : Job
        plans : Plans
        part : Screened
            Memory and estimated steps of the plans. Steps of excluded plans are infinite.
        feasible_only : bool
            Whether `near` may hold a plan without an estimated step.

        Returns
        -------
        TopCandidates
            Counts include all plans of the batch. This object does not change.
        """
        rows = np.flatnonzero(part.possible)
        counted = replace(self, candidates=self.candidates + plans.size, possible=self.possible + len(rows))
        if not len(rows):
            return counted
        losses = BatchLosses.of(question, job, plans.global_batch, part, part.step_time_s)
        batch = _Batch(job=job, plans=plans, first=self.candidates, of=losses)
        feasible = batch.of.over_ratio <= 1.0
        return replace(
            counted,
            in_memory=self.in_memory + int(batch.of.in_memory.sum()),
            feasible=self.feasible + int(feasible.sum()),
            best=_best(self.best, batch, feasible, self.most),
            near=()
            if self.best or feasible.any()
            else _near(self.near, batch, self.most, of_all=feasible_only),
        )._with_fronts(batch, feasible, batch.of.fits if feasible_only else True)

    def _with_fronts(
        self, batch: "_Batch", feasible: np.ndarray, wanted: np.ndarray | bool
    ) -> "TopCandidates":
        known = np.isfinite(batch.of.losses[:, 0])
        on_front, cut = _front(self.on_front, batch, np.flatnonzero(feasible & known), by_memory=False)
        limit = self.best[0].losses[0] if self.best else np.inf
        lacking = np.flatnonzero(wanted & batch.of.lacks_memory & (batch.of.losses[:, 0] < limit))
        before = tuple(one for one in self.faster if one.losses[0] < limit)
        faster, _ = _front(before, batch, lacking, by_memory=True)
        return replace(self, on_front=on_front, faster=faster, thinned=self.thinned or cut)

    def joined(self, later: "TopCandidates") -> "TopCandidates":
        """Return the top candidates of this range of plans and of the next range in the space.

        The result does not depend on the division into ranges, unless a front had to be thinned.
        """
        later = later.after(self.candidates)
        best = sorted((*self.best, *later.best), key=lambda one: (one.losses[0], one.order))[: self.most]
        limit = best[0].losses[0] if best else np.inf
        faster = [one for one in (*self.faster, *later.faster) if one.losses[0] < limit]
        on_front, cut = _front_of((*self.on_front, *later.on_front), by_memory=False)
        return TopCandidates(
            most=self.most,
            candidates=self.candidates + later.candidates,
            possible=self.possible + later.possible,
            in_memory=self.in_memory + later.in_memory,
            feasible=self.feasible + later.feasible,
            best=tuple(best),
            on_front=on_front,
            faster=_front_of(faster, by_memory=True)[0],
            near=() if best else _least_excess((*self.near, *later.near), self.most),
            thinned=self.thinned or later.thinned or cut,
        )

    def after(self, number: int) -> "TopCandidates":
        """Return the candidates with their positions increased by this number of plans."""
        return replace(
            self,
            best=tuple(one.after(number) for one in self.best),
            on_front=tuple(one.after(number) for one in self.on_front),
            faster=tuple(one.after(number) for one in self.faster),
            near=tuple(one.after(number) for one in self.near),
        )

    @property
    def nearest(self) -> Candidate | None:
        """Return the plan that exceeds the limits by least; None if a plan is feasible."""
        return next(iter(self.near), None)

    @property
    def leading(self) -> tuple[Candidate, ...]:
        """Return the best feasible plans, or otherwise the plans that fit into memory and are nearest to
        the limits.
        """
        return self.best or tuple(one for one in self.near if one.in_memory)

    @property
    def incumbents(self) -> Incumbents:
        """Return the incumbents among these plans."""
        return Incumbents(
            best_loss=self.best[0].losses[0] if self.best else np.inf,
            last_loss=self.best[-1].losses[0] if len(self.best) == self.most else np.inf,
            on_front=tuple(one.losses for one in self.on_front),
            faster=tuple(one.judged(by_memory=True) for one in self.faster),
        )

    @property
    def lacking(self) -> tuple[Candidate, ...]:
        """Return some of the plans that lack memory and are better than the best."""
        few = thinned(np.array([one.losses[0] for one in self.faster]), LACKING)
        return tuple(self.faster[i] for i in few)

    def to_play(self) -> tuple[Candidate, ...]:
        """Return the plans to simulate, each once: the first of `best`, and at most `most` plans of the
        front.
        """
        places = thinned(np.array([one.losses[0] for one in self.on_front]), self.most)
        kept = (*self.best[:PLAYED], *(self.on_front[i] for i in places), *self.lacking, *self.near)
        return tuple({one.order: one for one in kept}.values())


class _Batch(Record, eq=False):
    """The possible plans of one batch, and where they stand in the space."""

    job: Job
    plans: Plans
    first: int  # place of the batch in the space
    of: BatchLosses

    def sifted(self, at: int) -> Candidate:
        """Return one of the plans."""
        row = int(self.of.row[at])
        return Candidate(
            job=self.job.model_copy(update={"plan": plan_at(self.plans, row)}),
            losses=tuple(self.of.losses[at].tolist()),
            used_bytes=float(self.of.used_bytes[at]),
            over_ratio=float(self.of.over_ratio[at]),
            in_memory=bool(self.of.in_memory[at]),
            order=self.first + row,
        )


def _best(
    before: tuple[Candidate, ...], batch: _Batch, feasible: np.ndarray, most: int
) -> tuple[Candidate, ...]:
    """Return the best rows by the first objective; of equal ones, the earlier come first."""
    loss = batch.of.losses[:, 0]
    limit = before[-1].losses[0] if len(before) == most else np.inf
    rows = np.flatnonzero(feasible & (loss < limit))
    rows = rows[np.argsort(loss[rows], kind="stable")[:most]]
    new = [batch.sifted(row) for row in rows.tolist()]
    return tuple(sorted((*before, *new), key=lambda one: (one.losses[0], one.order))[:most])


def _front(
    before: Sequence[Candidate], batch: _Batch, rows: Integers, *, by_memory: bool
) -> tuple[tuple[Candidate, ...], bool]:
    """Return the front of kept plans and of rows of a batch, and whether it had to be thinned."""
    rows = rows[front(batch.of.judged(rows, by_memory=by_memory))]
    own = batch.of.judged(rows, by_memory=by_memory)
    kept = np.array([one.judged(by_memory=by_memory) for one in before]).reshape(len(before), own.shape[1])
    few, cut = _places(np.concatenate([kept, own]))
    size = len(before)
    return tuple(before[i] if i < size else batch.sifted(int(rows[i - size])) for i in few), cut


def _front_of(kept: Sequence[Candidate], *, by_memory: bool) -> tuple[tuple[Candidate, ...], bool]:
    """Return the front of kept plans, and whether it had to be thinned."""
    if not kept:
        return (), False
    few, cut = _places(np.array([one.judged(by_memory=by_memory) for one in kept]))
    return tuple(kept[i] for i in few), cut


def _places(losses: np.ndarray) -> tuple[list[int], bool]:
    """Return the rows on the front of losses, at most as many as are kept; and whether there were more."""
    places = np.flatnonzero(front(losses))
    few: list[int] = places[thinned(losses[places, 0], LONGEST_FRONT)].tolist()
    return few, len(few) < len(places)


def _any_fits(part: Screened) -> bool:
    """Return whether any of the screened plans fits, tightly or not."""
    return bool(part.fits.any())


def _near(before: Sequence[Candidate], batch: _Batch, most: int, *, of_all: bool) -> tuple[Candidate, ...]:
    """Return the plans that exceed the limits by least: of all, or of those with an estimated step."""
    known = np.isfinite(batch.of.losses[:, 0]) | of_all
    among = known & batch.of.in_memory
    rows = np.flatnonzero(among if among.any() else known)
    rows = rows[np.argsort(batch.of.over_ratio[rows], kind="stable")[: most if among.any() else 1]]
    return _least_excess([*before, *(batch.sifted(row) for row in rows.tolist())], most)


def _least_excess(kept: Sequence[Candidate], most: int) -> tuple[Candidate, ...]:
    """Return the plans in memory that exceed the limits by least; if none is in memory, one other plan."""
    ordered = sorted(kept, key=lambda one: one.excess)
    return tuple(one for one in ordered[:most] if one.in_memory) or tuple(ordered[:1])
