"""benchmarks/laws.py: a few random jobs of a fixed seed keep every metamorphic law."""

from itertools import islice

from benchmarks.laws import violations
from benchmarks.random_jobs import random_jobs


def test_random_jobs_keep_every_law():
    broken = [
        (one.law, one.step_s, one.changed_s) for job in islice(random_jobs(1), 3) for one in violations(job)
    ]

    assert not broken
