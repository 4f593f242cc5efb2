"""Slices weighed and timed as stages are what a pipeline of these stages takes."""

import numpy as np
import pytest
from conftest import make_job

from flopcast.cost.factors import FactorBook
from flopcast.cost.price import price
from flopcast.library.curves import load_book
from flopcast.memory.peak import memory_on, peak_memory
from flopcast.spec.plan import one_plan
from flopcast.timeline.closed_form import micro_batch_seconds
from flopcast.workload.candidate_stages import CandidateStages
from flopcast.workload.lower import lower
from flopcast.workload.realise import realise

TWO_KINDS = {
    "hidden": 1024,
    "vocabulary": 50257,
    "blocks": [
        {"count": 3, "mixer": {"heads": 16}, "feed_forward": {"ffn_hidden": 4096}},
        {"count": 9, "mixer": {"heads": 16}, "feed_forward": {"ffn_hidden": 8192}},
    ],
}
PLANS = [
    ({}, "dp=2 pp=4 gbs=32 stage_layers=0,3,3,2"),
    ({}, "dp=2 pp=4 vpp=2 gbs=32 recompute=full"),
    ({"model": TWO_KINDS}, "tp=2 pp=4 gbs=16 stage_layers=2,4,4,2 zero=1 recompute=full:block:2"),
    ({"model": TWO_KINDS, "stack": "megatron-core"}, "dp=2 pp=4 vpp=3 gbs=32 zero=1"),
]


@pytest.fixture(params=PLANS, ids=[plan for _, plan in PLANS])
def both(request):
    """A job, its programs, and those of the same stages as slices."""
    parts, plan = request.param
    job = make_job(**parts, plan=f"{plan} precision=fp16 mbs=1")
    plans, blocks = one_plan(job.plan), job.model.num_blocks
    chunks = job.plan.pipeline_parallel * job.plan.virtual_stages
    listed = job.plan.stage_layers or (blocks // chunks,) * chunks
    high = np.cumsum(listed).reshape(-1, job.plan.pipeline_parallel).T
    low = high - np.array(listed).reshape(-1, job.plan.pipeline_parallel).T
    starts, ends = np.zeros(high.shape, dtype=bool), np.zeros(high.shape, dtype=bool)
    starts[0, 0] = ends[-1, -1] = True
    slices = CandidateStages(low=low, high=high, starts=starts, ends=ends)
    return job, *(
        realise(lower(job.model, plans, job.batch), job.software, *division)
        for division in ((), (slices.stages,))
    )


def test_slices_hold_on_every_stage_what_the_pipeline_holds(both):
    job, pipeline, sliced = both
    whole, of = peak_memory(pipeline), pipeline.stages.of(0).stage_class
    place = sliced.stages.of(0).stage_class

    peaks = tuple(memory_on(sliced, range(job.plan.pipeline_parallel)))
    for name in ("needed_bytes", "device_used_bytes"):
        classes = np.zeros(of.max() + 1)
        for stage, peak in enumerate(peaks):
            on_stage = getattr(peak, name)[0, place[stage]]
            classes[of[stage]] = max(classes[of[stage]], on_stage)

        assert classes == pytest.approx(getattr(whole, name)[0], rel=1e-12)


def test_slices_take_as_long_as_the_stages_of_the_pipeline(both):
    job, pipeline, sliced = both
    book = load_book(job.cluster)
    seconds = [
        micro_batch_seconds(price(programs, job.cluster, book, FactorBook(job.site, book.levels)))[
            0, programs.stages.of(0).stage_class
        ]
        for programs in (pipeline, sliced)
    ]

    assert seconds[0] == pytest.approx(seconds[1], rel=1e-12)
    assert len(set(seconds[0].round(9).tolist())) > 1
