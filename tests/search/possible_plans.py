"""Batches of a space without the plans that break a rule."""

import numpy as np

from flopcast.spec.checks import Case
from flopcast.spec.rows import rows_of
from flopcast.workload.checks import valid


def possible_only(batches):
    """Yield the job of every batch, and those of its plans that keep every rule, if there are any."""
    for job, plans in batches:
        kept = np.flatnonzero(valid(Case.of(job, plans))[:, 0])
        if len(kept):
            yield job, rows_of(plans, kept)
