"""timeline/uncertainty.py: reported sensitivities are derivatives, by finite differences over factors."""

import math

from all_cases import all_cases
from conftest import make_job

from flopcast.cost.factors import FactorBook
from flopcast.cost.price import price
from flopcast.kept_results import KeptResults
from flopcast.library.curves import load_book
from flopcast.spec.plan import one_plan
from flopcast.spec.site import Site, SiteFactor
from flopcast.timeline.step import run_step
from flopcast.timeline.uncertainty import sensitivities
from flopcast.workload.lower import lower
from flopcast.workload.realise import realise

STEP, TOLERANCE = 1e-5, 1e-4
MOST_RESULTS = 4096
LLAMA = {"batch": {"sequence_length": 2048}, "model": "llama-2-7b"}
EXPERTS = {"batch": {"sequence_length": 1024}, "model": "mixtral-8x7b"}
JOBS = {
    "kernels at their bound": LLAMA
    | {
        "cluster": "dgx-h100:1",
        "stack": "megatron-core",
        "plan": "dp=4 tp=2 sp mbs=1 gbs=8 precision=bf16",
    },
    "units gathered beside compute": LLAMA
    | {
        "cluster": "dgx-h100:2",
        "stack": "composer-llm-foundry",
        "plan": "dp=16 zero=3 gbs=16 precision=bf16",
    },
    "reductions on one link with others": LLAMA
    | {
        "cluster": "dgx-a100:1",
        "stack": "megatron-bridge",
        "plan": "dp=4 tp=2 sp zero=1 gbs=16 precision=bf16",
    },
    "a pipeline of chunks": LLAMA
    | {
        "cluster": "dgx-a100:4",
        "stack": "megatron-core",
        "plan": "dp=2 tp=4 pp=4 vpp=2 sp mbs=1 gbs=16 precision=bf16",
    },
    "experts over the network": EXPERTS
    | {
        "cluster": "dgx-h100:8",
        "stack": "composer-llm-foundry",
        "plan": "dp=8 ep=8 pp=8 mbs=1 gbs=16 precision=bf16",
    },
    "experts launched one after another": EXPERTS
    | {
        "cluster": "dgx-b200:1",
        "stack": "nemo-automodel",
        "plan": "dp=1 pp=8 vpp=2 zero=3 mbs=1 gbs=8 precision=bf16",
    },
    "one expert a rank": EXPERTS
    | {
        "cluster": "vista:16",
        "stack": "megatron-bridge",
        "plan": "dp=8 ep=8 pp=2 mbs=1 gbs=32 zero=1 schedule=gpipe precision=fp16",
    },
}


def played(programs, job, book, site, kept):
    """Return a step on a site, and the prices of its items."""
    priced = price(programs, job.cluster, book, FactorBook(site, book.levels), kept)
    return run_step(priced), priced


@all_cases("name", JOBS)
def test_the_sensitivity_to_every_factor_is_a_derivative_of_the_step(name):
    """Towards longer times for a kernel that stands just at its bound, and between both where paths tie."""
    job = make_job(**JOBS[name])
    book = load_book(job.cluster)
    programs = realise(lower(job.model, one_plan(job.plan), job.batch), job.software)
    kept = KeptResults(MOST_RESULTS)  # what a nudged factor does not change
    timeline, priced = played(programs, job, book, job.site, kept)
    step_s, factors = timeline.step_time_s, sensitivities(timeline, priced, {})

    def slope(factor, by):
        site = Site(name="nudged", factors=(SiteFactor(name=factor.name, ratio=1.0 + by),))
        return math.log(played(programs, job, book, site, kept)[0].step_time_s / step_s) / math.log1p(by)

    wrong = {}
    for factor in factors:
        slopes = [slope(factor, STEP)]
        if abs(slopes[0] - factor.share) > TOLERANCE:
            slopes.append(slope(factor, -STEP))
        if not min(slopes) - TOLERANCE <= factor.share <= max(slopes) + TOLERANCE:
            wrong[factor.name] = (*slopes, factor.share)

    assert len(factors) > 4
    assert not wrong
    if "launched" in name:
        assert {factor.name: factor.share for factor in factors}["expert_launch"] > 0.02
