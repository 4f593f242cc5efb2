"""Whole jobs priced: site factors, batches of plans, and the same answer every time."""

from functools import cache
from itertools import count, cycle

import numpy as np
import pytest
from all_cases import all_cases
from alone import site_with
from conftest import make_job, zero_of

from flopcast.cost.factors import FactorBook
from flopcast.cost.price import price
from flopcast.kept_results import KeptResults
from flopcast.library import catalog
from flopcast.library.curves import load_book
from flopcast.operators.base import AbstractOperator
from flopcast.spec.plan import Plan, batch_plans, one_plan
from flopcast.spec.site import Site
from flopcast.workload.lower import lower
from flopcast.workload.realise import realise

UNMEASURED = {
    "name": "unmeasured",
    "memory_bytes": "96 GB",
    "memory_bytes_per_s": "3 TB/s",
    "peak_flop_per_s": {"bf16": "800 TFLOP/s", "fp32": "50 TFLOP/s"},
    "multiprocessors": 100,
    "kernel_launch_s": "2 us",
}
JOBS = {
    "one node": {"cluster": "dgx-a100:1", "plan": "dp=2 tp=2 pp=2 mbs=1 gbs=16 precision=fp16"},
    "many nodes": {
        "cluster": "selene:8",
        "plan": "dp=2 tp=8 pp=4 mbs=1 gbs=16 precision=fp16 zero=1 recompute=full",
    },
    "blocking transfers": {
        "cluster": "vista:16",
        "stack": "gpt-neox-deepspeed",
        "plan": "dp=2 tp=4 pp=2 mbs=1 gbs=16 precision=fp16 recompute=full",
    },
    "a device without curves": {
        "cluster": {
            "groups": [{"count": 2, "node": {"device": UNMEASURED, "devices": 4, "host": "grace"}}],
            "tiers": [
                {"name": "links", "devices": 4, "bytes_per_s": "450 GB/s", "latency_s": "4 us"},
                {"name": "network", "devices": 0, "bytes_per_s": "50 GB/s", "latency_s": "8 us"},
            ],
        },
        "plan": "dp=2 tp=2 pp=2 mbs=1 gbs=16 precision=bf16",
    },
}
DEGREES = [(1, 1, 8), (2, 1, 4), (2, 4, 1), (8, 1, 1), (1, 8, 1), (4, 2, 1)]  # tp, pp, dp: eight devices


@cache
def programs_of(job):
    """What the software of a job runs."""
    return realise(lower(job.model, one_plan(job.plan), job.batch), job.stack)


@cache
def priced_alone(job):
    """Every item of a job with its price, for the claims about the job as it is."""
    return priced(job)


def priced(job, plans=None, site=None):
    """Every item of a job with its price."""
    programs = programs_of(job) if plans is None else realise(lower(job.model, plans, job.batch), job.stack)
    return price(programs, job.cluster, load_book(job.cluster), FactorBook(site or Site()))


def factor_names():
    """Every factor of every job, as (job, factor)."""
    return [(name, factor) for name, parts in JOBS.items() for factor in priced(make_job(**parts)).factors]


def seconds(found):
    """Device seconds and host seconds of every item, in the order of the step."""
    prices = [found.of(item) for item in found.programs.items()]
    return [each.alone_s for each in prices], np.concatenate([each.host_s.ravel() for each in prices])


@all_cases(("job", "factor"), factor_names())
def test_a_site_factor_of_two_doubles_exactly_the_items_that_name_it(job, factor):
    """`host` also scales the launches, which every item has."""
    job = make_job(**JOBS[job])
    before, after = priced_alone(job), priced(job, site=site_with(**{factor: 2.0}))
    named = [factor in before.of(item).factors for item in before.programs.items()]

    (before_s, launches_s), (after_s, relaunches_s) = seconds(before), seconds(after)

    wrong = [
        item.name
        for item, old, new, scales in zip(before.programs.items(), before_s, after_s, named, strict=True)
        if not np.allclose(new, old * (2.0 if scales else 1.0), rtol=1e-12, atol=0.0)
    ]
    assert wrong == []
    assert relaunches_s == pytest.approx(launches_s * (2.0 if factor == "host" else 1.0))


@all_cases("name", JOBS)
def test_every_item_that_takes_time_names_a_factor(name):
    found = priced_alone(make_job(**JOBS[name]))

    unnamed = [
        item.name
        for item in found.programs.items()
        if (found.of(item).alone_s > 0).any() and not found.of(item).factors
    ]

    assert unnamed == []


@all_cases("name", JOBS)
def test_every_item_of_a_job_has_a_price_that_is_a_number_of_seconds(name):
    found = priced_alone(make_job(**JOBS[name]))

    for item in found.programs.items():
        assert np.isfinite(found.of(item).alone_s).all()
        assert (found.of(item).alone_s >= 0).all()
        assert (found.of(item).host_s >= 0).all()


@all_cases("name", JOBS)
def test_a_job_priced_twice_costs_the_same(name):
    job = make_job(**JOBS[name])

    first, second = seconds(priced(job)), seconds(priced(job))

    assert [each.tobytes() for each in first[0]] == [each.tobytes() for each in second[0]]
    assert first[1].tobytes() == second[1].tobytes()


@pytest.mark.parametrize("tensor_overlap", ["none", "chunks"])
def test_prices_that_are_kept_are_those_of_each_item_alone(tensor_overlap):
    """A chunk that the call of another launches costs a bare launch, the first a whole one."""
    job = make_job(cluster="dgx-h100:1", stack="megatron-bridge", plan="dp=2 tp=4 sp mbs=1 gbs=16 zero=1")
    stack = job.stack.model_copy(update={"tensor_overlap": tensor_overlap})
    job = job.model_copy(update={"stack": stack})
    programs, book, kept = programs_of(job), load_book(job.cluster), KeptResults(4096)

    alone = price(programs, job.cluster, book, FactorBook(job.site))
    for _ in range(2):
        found = price(programs, job.cluster, book, FactorBook(job.site), kept)

        for item in programs.items():
            for field in ("alone_s", "host_s"):
                mine, theirs = getattr(found.of(item), field), getattr(alone.of(item), field)
                np.testing.assert_array_equal(mine, theirs, err_msg=f"{item.name} {field}")

    assert any(item.is_further_chunk for item in programs.items()) == (tensor_overlap == "chunks")


@all_cases("name", JOBS)
def test_every_curve_that_was_used_is_listed_once_with_its_evidence(name):
    found = priced_alone(make_job(**JOBS[name]))

    keys = [(used.curve.owner, used.curve.name) for used in found.used]
    assert keys
    assert len(set(keys)) == len(keys)
    assert all(used.curve.evidence.source for used in found.used)


@all_cases("name", JOBS)
def test_no_kernel_of_a_job_beats_the_data_sheet(name):
    """Every kernel of the step: its FLOP at the peak, its bytes at the bandwidth."""
    found = priced_alone(make_job(**JOBS[name]))
    device = found.cluster.node.device

    for item in found.programs.items():
        if isinstance(item.work, AbstractOperator):
            need = item.work.work()
            compute_s = need.flop / device.peak_flop_per_s[need.unit]
            memory_s = need.moved_bytes / device.memory_bytes_per_s
            assert (found.of(item).alone_s >= np.maximum(compute_s, memory_s) * (1 - 1e-12)).all()


@all_cases(
    ("number", "stack", "cluster"),
    zip(count(), catalog.names("stacks"), cycle(["dgx-a100:1", "perlmutter-tcp:2", "vista:8"])),
)
def test_a_batch_of_plans_costs_what_each_plan_costs_alone(cluster, stack, number):
    """Every third plan of a batch, others with the next stack."""
    zero = zero_of(stack)
    job = make_job(cluster=cluster, stack=stack, plan=f"dp=8 mbs=1 gbs=16 zero={zero} precision=fp16")
    plans = [
        Plan(
            zero=zero,
            tensor_parallel=tp,
            pipeline_parallel=pp,
            data_parallel=dp,
            micro_batch=1 + (dp == 1),
            global_batch=16,
            precision="fp16",
        )
        for tp, pp, dp in DEGREES
    ]

    together = priced(job, batch_plans(plans))

    for row in range(number % 3, len(plans), 3):
        alone = priced(job, one_plan(plans[row]))
        left = iter(together.programs.items())  # a batch may hold items that no task of this plan runs
        for mine in alone.programs.items():
            expected = alone.of(mine).alone_s[0]
            assert any(
                theirs.name == mine.name and costs(together, theirs, row, expected) for theirs in left
            ), mine.name


def costs(together, item, row, expected):
    """Whether an item costs one plan of a batch these seconds, by stage class."""
    alone_s = together.of(item).alone_s
    rows = np.broadcast_to(alone_s, (max(row + 1, len(alone_s)), alone_s.shape[1]))
    return np.allclose(rows[row, : len(expected)], expected, rtol=1e-12, atol=0)


def test_the_order_of_the_plans_of_a_batch_does_not_matter():
    job = make_job()
    plans = [
        Plan(data_parallel=8, micro_batch=size, global_batch=64, precision="fp16") for size in (1, 2, 4)
    ]

    forth, back = priced(job, batch_plans(plans)), priced(job, batch_plans(plans[::-1]))

    for mine, theirs in zip(forth.programs.items(), back.programs.items(), strict=True):
        ours, reversed_s = forth.of(mine).alone_s, back.of(theirs).alone_s[::-1]
        np.testing.assert_array_equal(ours, np.broadcast_to(reversed_s, ours.shape))


FITTED = {  # whose constants from whole runs make kernels faster than they are alone
    "A100": {"cluster": "aws-p4d:2", "plan": "dp=8 tp=2 mbs=2 gbs=64 precision=bf16"},
    "H100": {"cluster": "dgx-h100:2", "plan": "dp=2 tp=4 pp=2 mbs=2 gbs=64 precision=bf16"},
}
HASTY = 1e-3


def impossible(job):
    """A site that claims to run everything a thousand times faster."""
    return site_with(**dict.fromkeys(priced(make_job(**job)).factors, HASTY))


@all_cases("site", [None, impossible])
@all_cases("job", (JOBS | FITTED).values())
def test_no_factor_makes_a_kernel_faster_than_its_roofline(job, site):
    made = make_job(**job)
    device, book = made.cluster.node.device, load_book(made.cluster)
    programs = realise(lower(made.model, one_plan(made.plan), made.batch), made.stack)
    found = price(programs, made.cluster, book, FactorBook(site(job) if site else Site(), book.levels))

    kernels = [item for item in programs.items() if isinstance(item.work, AbstractOperator)]
    for item in kernels:
        need = item.work.work()
        least_s = np.maximum(
            need.flop / device.peak(need.unit), need.moved_bytes / device.memory_bytes_per_s
        )
        assert (found.of(item).alone_s >= least_s * (1 - 1e-12)).all(), item.name

    assert len(kernels) > 30


def test_no_factor_makes_a_reduction_faster_than_its_links():
    """A ring of n ranks sends 2 (n - 1) / n of the bytes over each link (nccl-tests)."""
    job = make_job(cluster="dgx-a100:1", plan="dp=1 tp=8 mbs=1 gbs=8 precision=fp16")
    found = priced(job, site=site_with(**{"fabric[a100-nvswitch]": 1e-6}))

    (item, *_) = [each for each in found.programs.items() if getattr(each.work, "axis", "") == "tp"]
    share = {"all_reduce": 2 * 7 / 8, "all_gather": 7 / 8, "reduce_scatter": 7 / 8}[item.work.collective]
    sent_s = share * item.work.message_bytes / job.cluster.tiers[0].bytes_per_s
    assert found.of(item).alone_s == pytest.approx(sent_s, rel=1e-12)
