"""Slices of a model that could be pipeline stages, to compute the time and memory of each slice.

Answers: how many layers of each kind does a slice of the blocks contain, with or without embedding and
head?
Elsewhere: divisions into stages (stages.py), the best division (search/uneven_stages.py).

A slice takes the place of a stage. In programs with slices, all slices with the same layers form one stage
class. Values that depend on all stages, such as the number of gradient buckets of the fullest stage, are
those of the largest slice.
"""

import numpy as np

from flopcast.dtypes import Counts, Integers
from flopcast.records import Record
from flopcast.spec.plan import Plans
from flopcast.spec.stack import Pipeline
from flopcast.workload.checkpoints import Checkpoints
from flopcast.workload.stages import Stages, in_classes, in_kinds, with_tower


class CandidateStages(Record, eq=False):
    """Possible stages, each with some chunks of consecutive blocks; all arrays have shape (slices, chunks).

    A chunk contains the blocks from number `low` to `high` - 1, the embedding if it `starts` the model, and
    the layers after the blocks if it `ends` the model.
    """

    low: Integers
    high: Integers
    starts: np.ndarray
    ends: np.ndarray

    def stages(
        self,
        counts: tuple[int, ...],
        plans: Plans,
        _rule: Pipeline,
        parts: tuple[int, ...] = (),
        at_end: int = 2,
        checkpoints: Checkpoints | None = None,
        at_start: int = 1,
    ) -> Stages:
        """Return the slices as stages of the one plan, in the form that `realise` needs (`divide_all`).

        Parameters
        ----------
        counts : tuple of int
            Blocks of each run of equal layers.
        plans : Plans
            A batch of one plan.
        parts, at_end, checkpoints, at_start
            As those of `divide_all`.

        Returns
        -------
        Stages
            One stage class for each group of slices that hold the same layers.
        """
        held = self._held((counts[0], *counts[at_start:]), at_end)
        held = in_kinds(with_tower(held, counts[1:at_start]), parts, checkpoints)
        division = in_classes(held)
        return Stages(
            divisions=(division,),
            code=np.zeros(plans.size, dtype=np.intp),
            chunk_counts=division.chunk_counts[None],
            stage_counts=division.stage_counts[None],
            chunks_of_class=division.chunks_of_class[None],
            multiplicity=division.multiplicity[None].astype(np.float64),
            earliest_stage=division.earliest_stage[None].astype(np.float64),
            first_chunk=division.stage_chunks[None, :, 0],
        )

    def _held(self, counts: tuple[int, ...], at_end: int) -> Counts:
        """Return how many of each run every chunk holds, (slices, chunks, runs)."""
        runs = slice(1, -at_end)
        edges = np.concatenate([[0], np.cumsum(counts[runs])])
        low, high = self.low[..., None], self.high[..., None]
        held = np.zeros((*self.low.shape, len(counts)))
        held[..., runs] = np.clip(edges[1:], low, high) - np.clip(edges[:-1], low, high)
        held[..., 0] = self.starts
        held[..., -at_end:] = self.ends[..., None]
        return held
