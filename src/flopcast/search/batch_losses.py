"""The possible plans of one screened batch, with their losses and the amounts by which they exceed limits.

Answers: what are the losses of screened plans, and which of them fail only because of memory?
Elsewhere: the screening (screen.py), which plans are kept (top_candidates.py), which are worth an estimate
(pruning.py).
"""

import numpy as np

from flopcast.dtypes import Counts, Flags, Floats, Integers
from flopcast.records import Record
from flopcast.search.memory_limit import memory_ratio, with_outside
from flopcast.search.objectives import Estimates
from flopcast.search.question import Question
from flopcast.search.screen import Screened
from flopcast.spec.job import Job

SLACK_RATIO = 1.1  # estimates may miss a limit that the plan keeps: what screening is off by, at most


class BatchLosses(Record, eq=False):
    """The possible plans of one batch as columns, (rows,), with their losses, (rows, objectives).

    `row` is the position of each plan in the batch. `over_ratio` is the largest ratio of need to limit.
    Plans with `lacks_memory` keep every limit except memory, and plans with `in_memory` may break every
    limit except memory. `fits` marks plans that fit their devices, tightly or not.
    """

    row: Integers
    losses: np.ndarray
    used_bytes: Floats
    over_ratio: Floats
    lacks_memory: np.ndarray
    in_memory: np.ndarray
    fits: Flags

    @classmethod
    def of(
        cls, question: Question, job: Job, global_batch: Counts, part: Screened, step_s: Floats
    ) -> "BatchLosses":
        """Return the losses of the possible plans of a batch, and the amounts by which they exceed limits.

        Parameters
        ----------
        question : Question
        job : Job
            One size of the question, with these plans instead of its own.
        global_batch : array of shape (plans, 1)
        part : Screened
            Which plans are possible, and their memory.
        step_s : array of shape (plans,)
            Estimates or lower bounds of the step, without jitter.

        Returns
        -------
        BatchLosses
            Arrays of shape (rows,) for the possible plans. A ratio above 1 means that a plan breaks a
            limit. The largest ratio of all limits counts. A plan lacks only memory if no other limit is
            broken.
        """
        row = np.flatnonzero(part.possible)
        estimates = Estimates(
            job=job,
            step_s=step_s[row] * job.cluster.jitter.ratio,
            global_batch=global_batch[row, 0],
            used_bytes=part.device_used_bytes[row],
        )
        tokens = question.total_tokens
        losses = np.stack([asked.estimate(estimates, tokens) for asked in question.asked], axis=1)
        room = question.space.headroom_fraction
        there = job.cluster.node.device.memory_bytes
        memory = memory_ratio(estimates.used_bytes, part.high_bytes[row], part.fits[row], there, room)
        memory = with_outside(memory, part.outside_ratio[row], room)
        others = np.zeros(len(row))
        for limit in question.limits:
            loss = limit.objective.estimate(estimates, tokens)
            others = np.maximum(others, loss / limit.most / SLACK_RATIO)
        return cls(
            row=row,
            losses=losses,
            used_bytes=estimates.used_bytes,
            over_ratio=np.maximum(memory, others),
            lacks_memory=(memory > 1.0) & (others <= 1.0),
            in_memory=memory <= 1.0,
            fits=part.fits[row],
        )

    def judged(self, rows: Integers, *, by_memory: bool) -> np.ndarray:
        """Return the values that a front compares for some rows, as `Candidate.judged` does."""
        losses = self.losses[rows]
        return np.stack([losses[:, 0], self.used_bytes[rows]], axis=1) if by_memory else losses
