"""The time that changes of layout between blocks add to a step.

Answers: how much longer is a step if blocks with these tensor-parallel degrees follow each other?
Elsewhere: the messages (workload/layer_strategies.py), which strategies are best (per_layer.py).
"""

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from flopcast.cost.kernels.curve_book import CurveBook
from flopcast.dtypes import Floats
from flopcast.kept_results import KeptResults
from flopcast.prediction import priced_job, programs_of
from flopcast.spec.job import Job
from flopcast.spec.layer_strategies import LayerStrategy
from flopcast.units import Number


def reshard_seconds(job: Job, book: CurveBook, tensors: Sequence[int], kept: KeptResults) -> Floats:
    """Return the seconds in a step of one change between layouts of these degrees, (layouts, layouts).

    Every micro-batch gathers in one of its passes, or exchanges in both, which takes the same time.
    Micro-batches that fill the pipeline are included.
    """
    often = job.plan.num_micro_batches + job.plan.pipeline_parallel - 1
    found = {(one, one): 0.0 for one in tensors}
    for pair in combinations(dict.fromkeys(tensors), 2):
        found[pair] = found[pair[::-1]] = often * _message_seconds(job, book, pair, kept)
    return np.array([[found[one, other] for other in tensors] for one in tensors])


def _message_seconds(job: Job, book: CurveBook, pair: tuple[int, int], kept: KeptResults) -> Number:
    """Return the seconds of the messages of one change, of both passes."""
    strategies = tuple(
        LayerStrategy(first=place, last=place, tensor_parallel=degree)
        for place, degree in enumerate(pair)
        if degree != job.plan.tensor_parallel
    )
    changed = job.with_part("plan", layers=strategies)
    programs = programs_of(changed, kept)
    priced = priced_job(changed, programs, book, kept)
    narrow, wide = sorted(pair)
    between = next(
        one
        for one in programs.between
        if (one.plans.tensor_parallel.item(), one.plans.data_shard.item()) == (narrow, wide / narrow)
    )
    items = (item for segment in between.forward for item in segment.items)
    return sum(float(priced.of(item).alone_s.item()) for item in items)
