"""predictor.py: what is kept changes no number."""

import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from conftest import make_job

from flopcast import Predictor
from flopcast.api import predict
from flopcast.errors import SpecError
from flopcast.kept_results import KeptResults, LargeResults
from flopcast.library.curves import load_book
from flopcast.prediction import predict as predict_alone
from flopcast.render.report_json import as_json

PLANS = (
    "dp=32 pp=2 mbs=1 gbs=128",
    "dp=16 pp=4 mbs=1 gbs=128",  # other stages
    "dp=16 pp=4 vpp=2 mbs=1 gbs=128 recompute=full",  # another schedule, other items
    "dp=16 pp=4 mbs=1 gbs=128 schedule=zb_h1",
    "dp=16 tp=2 sp pp=2 mbs=2 gbs=256 recompute=selective",
    "dp=64 mbs=1 gbs=128 zero=3",
    "dp=64 mbs=1 gbs=64 zero=3",  # another batch, of one micro-batch
    "dp=16 pp=4 mbs=1 gbs=64 schedule=zb_h1",
    "dp=32 dp_shard=8 cp=2 mbs=1 gbs=128 zero=3",
    "dp=64 mbs=1 gbs=128 precision=fp8",
)
EXPERT_PLANS = (
    "dp=64 ep=8 mbs=1 gbs=128",
    "dp=32 ep=8 pp=2 mbs=1 gbs=128",
    "dp=32 tp=2 sp ep=4 mbs=1 gbs=64",
)
PLACES = (("dgx-h100:8", "megatron-core-2025"), ("dgx-a100:8", "torch-fsdp2"), ("dgx-h100:8", "generic"))


def jobs():
    """Plans of several stacks and clusters, each model's one after another, so that parts are shared."""
    models = (("llama-3.2-1b", PLANS), ("mixtral-8x7b", EXPERT_PLANS))
    for cluster, stack in PLACES:
        for model, plans in models:
            for plan in plans:
                known = {"cluster": cluster, "stack": stack, "model": model, "plan": plan}
                with suppress(SpecError):  # the stack does not run this plan
                    yield make_job(**known, batch={"seq": 4096})


@pytest.fixture(scope="module")
def alone():
    """Jobs, each with what is predicted for it without any other."""
    return [(job, as_json(predict_alone(job, load_book(job.cluster)))) for job in jobs()]


@pytest.mark.parametrize("most_results", [4096, 200])
def test_a_predictor_gives_the_numbers_of_each_job_alone_whatever_came_before(most_results, alone):
    predictor, wrong = Predictor(most_results), []

    for job, expected in (*alone, *alone[::-1]):
        if as_json(predictor.predict(job)) != expected:
            wrong.append((job.model.name, job.stack.name, job.plan.short()))

    assert len(alone) > 20
    assert wrong == []


def test_threads_may_share_a_predictor(alone):
    """Few results are kept, so that threads drop each other's; switches between threads are frequent."""
    asked, expected = zip(*alone[::4], strict=True)
    predictor, before_s = Predictor(200), sys.getswitchinterval()

    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(4) as threads:
            found = list(threads.map(lambda job: as_json(predictor.predict(job)), asked * 3))
    finally:
        sys.setswitchinterval(before_s)

    assert tuple(found) == expected * 3


def test_stacks_that_share_prices_keep_their_own_slowdown_by_messages():
    predictor, kept, alone = Predictor(), [], []

    for share in (1.0, 0.0):
        stack = {"base": "megatron-core-2025", "contention": {"kernel_share": share}}
        known = {"cluster": "dgx-h100:8", "stack": stack, "model": "llama-3.2-1b", "plan": PLANS[0]}
        job = make_job(**known, batch={"seq": 4096})
        kept.append(predictor.predict(job).step_time_s)
        alone.append(predict_alone(job, load_book(job.cluster)).step_time_s)

    assert kept == alone
    assert kept[0] > kept[1]


def test_a_job_predicted_again_has_the_same_report():
    job, copy = make_job(), make_job()

    assert predict(job) is predict(copy)


def test_memory_alone_is_that_of_the_report():
    predictor, job = Predictor(), make_job()

    alone, reported = predictor.memory(job), predictor.predict(job).memory

    assert alone == reported
    assert alone.per_stage == reported.per_stage


def test_no_more_than_twice_as_many_results_are_kept_and_those_in_use_stay():
    kept, made = KeptResults(10), []

    for number in range(100):
        kept.of(number, lambda number=number: made.append(number) or (number,))
        kept.of(0, lambda: made.append("again") or ("again",))

    assert "again" not in made
    assert sum(kept.get(number) is not None for number in range(100)) <= 20


def test_results_of_many_bytes_are_kept_by_their_size_and_those_in_use_stay():
    kept, made = LargeResults(400), []

    def asked(number):
        return kept.of(number, lambda: made.append(number) or bytes(100), len)

    for number in range(1, 100):
        asked(number)
        asked(0)
    assert made.count(0) == 1
    before = len(made)
    for number in range(99, 0, -1):
        asked(number)
    again = made[before:]
    assert 2 <= 99 - len(again) <= 9  # 400 bytes in each half, and one more
    assert 99 not in again

    none, made = LargeResults(0), []
    asked_of_none = [none.of("a", lambda: made.append(1) or b"a", len) for _ in range(3)]
    assert (len(made), len(asked_of_none)) == (3, 3)
