"""benchmarks/laws.py: a few random jobs of a fixed seed keep every metamorphic law."""

from itertools import islice

from all_cases import all_cases

from benchmarks.changes import split_blocks
from benchmarks.laws import violations
from benchmarks.offload_laws import ALL, placed_jobs
from benchmarks.random_jobs import random_jobs


def test_random_jobs_keep_every_law():
    broken = [
        (one.law, one.step_s, one.changed_s) for job in islice(random_jobs(1), 2) for one in violations(job)
    ]

    assert not broken


def test_random_jobs_with_states_outside_their_devices_keep_every_law():
    broken = [
        (one.law, one.step_s, one.changed_s)
        for job in islice(placed_jobs(1), 1)
        for one in violations(job, ALL)
    ]

    assert not broken


@all_cases("counts", [(1,), (2,), (3,), (5, 4), (1, 9)])
def test_listing_blocks_in_two_entries_keeps_every_block(counts):
    job = next(random_jobs(1))
    block = job.model.blocks[0]
    blocks = tuple(block.model_copy(update={"count": count}) for count in counts)

    halves = split_blocks(job.model_copy(update={"model": job.model.model_copy(update={"blocks": blocks})}))

    assert halves.model.num_blocks == sum(counts)
    assert all(0 < half.count <= -(-max(counts) // 2) for half in halves.model.blocks)


def test_listing_blocks_of_a_pattern_keeps_their_order():
    job = next(random_jobs(1))
    block = job.model.blocks[0]
    dropout = block.model_copy(update={"dropout": 0.5, "count": 1})
    model = job.model.model_copy(
        update={"blocks": (block.model_copy(update={"count": 6}), dropout), "pattern": (0, 0, 0, 1)}
    )

    halves = split_blocks(job.model_copy(update={"model": model}))

    listed = [entry.dropout == 0.5 for entry in halves.model.blocks for _ in range(entry.count)]
    assert listed == [False, False, False, True, False, False, False]
