"""More of anything: batches, blocks, sequences, devices. What grows, by how much at most, what stays.

Jobs are random combinations of ways to divide work; each law holds whatever the other choices are.
"""

import pytest
from combination_cases import (
    LAYOUTS,
    MODELS,
    SPREADS,
    book_of,
    drawn,
    job_of,
    plan_of,
    possible,
    programs_of,
)
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from flopcast.memory.peak import peak_memory
from flopcast.prediction import memory_of, predict

FEW = settings(
    max_examples=6, deadline=None, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow]
)
COMBINATIONS = {
    "name": st.sampled_from(sorted(MODELS)),
    "layout": st.sampled_from(LAYOUTS),
    "spread": st.sampled_from(SPREADS),
    "modes": st.fixed_dictionaries(
        {
            "recompute": st.sampled_from(["none", "selective", "full"]),
            "zero": st.sampled_from([0, 1, 3]),
            "schedule": st.sampled_from(["auto", "gpipe", "eager_1f1b"]),
        }
    ),
    "software": st.sampled_from(["megatron-core", "megatron-2022", "torch-fsdp2"]),
}


def with_plan(job, **fields):
    return job.model_copy(update={"plan": job.plan.model_copy(update=fields)})


def with_length(job, length):
    return job.model_copy(update={"batch": job.batch.model_copy(update={"sequence_length": length})})


def deeper(job, times):
    """The job with so many times the blocks of each kind, and its pattern as often."""
    model = job.model
    blocks = tuple(block.model_copy(update={"count": times * block.count}) for block in model.blocks)
    return job.model_copy(update={"model": model.model_copy(update={"blocks": blocks})})


def of_stages(job):
    """Bytes of every stage: at its peak, and between steps."""
    memory = peak_memory(programs_of(job.model, job.plan, software=job.software))
    return memory.allocated_bytes, memory.resident_bytes


def predicted(*jobs):
    return [predict(job, book_of()) for job in jobs]


@FEW
@given(**COMBINATIONS)
def test_twice_the_micro_batches_take_longer_but_no_more_than_twice_as_long(**parts):
    """What a step has once (filling the pipeline, reduction, update) is not paid twice."""
    job = drawn(**parts)
    double = with_plan(job, global_batch=2 * job.plan.global_batch)

    once, twice = predicted(job, double)

    assert once.step_time_s < twice.step_time_s <= 2 * once.step_time_s * (1 + 1e-9)
    assert twice.metrics.tokens_per_s >= once.metrics.tokens_per_s * (1 - 1e-9)
    assert twice.metrics.mfu_ratio >= once.metrics.mfu_ratio * (1 - 1e-9)


@FEW
@given(**COMBINATIONS)
def test_rates_are_the_jobs_tokens_and_flop_over_its_step(**parts):
    job = drawn(**parts)

    (report,) = predicted(job)

    tokens, devices = job.plan.global_batch * job.batch.sequence_length, job.plan.devices
    metrics = report.metrics
    assert metrics.tokens_per_s == pytest.approx(tokens / report.step_time_s)
    assert metrics.device_tokens_per_s == pytest.approx(tokens / report.step_time_s / devices)
    assert metrics.device_flop_per_s * devices * report.step_time_s == pytest.approx(metrics.model_flop)
    assert metrics.mfu_ratio == pytest.approx(metrics.device_flop_per_s / metrics.peak_flop_per_s)
    assert 0 < metrics.mfu_ratio <= metrics.hfu_ratio * (1 + 1e-12) < 1
    assert report.step_time_low_s < report.step_time_s < report.step_time_high_s


@FEW
@given(**COMBINATIONS)
def test_the_model_flop_of_a_step_hang_on_model_and_batch_and_on_no_plan(**parts):
    job = drawn(**parts)
    other = with_plan(
        job_of(job.model, plan_of(job.model, {"data_parallel": 8})), global_batch=job.plan.global_batch
    )

    one, two = predicted(job, other)

    assert one.metrics.model_flop == pytest.approx(two.metrics.model_flop, rel=1e-12)


@FEW
@given(**COMBINATIONS)
def test_twice_the_blocks_take_longer_but_no_more_than_twice_as_long(**parts):
    job = drawn(**parts)
    assume(not job.model.pattern)
    double = deeper(job, 2)
    assume(possible(double))

    once, twice = predicted(job, double)

    assert once.step_time_s < twice.step_time_s <= 2 * once.step_time_s * (1 + 1e-9)
    assert twice.metrics.model_flop > once.metrics.model_flop


@FEW
@given(**COMBINATIONS)
def test_twice_the_blocks_need_more_memory_but_no_more_than_twice(**parts):
    job = drawn(**parts)
    assume(not job.model.pattern)
    double = deeper(job, 2)
    assume(possible(double))

    once, twice = of_stages(job), of_stages(double)

    for less, more in zip(once, twice, strict=True):
        assert less.max() < more.max() <= 2 * less.max() * (1 + 1e-9)


@FEW
@given(**COMBINATIONS)
def test_a_longer_sequence_takes_longer_and_is_no_faster_a_token_than_its_attention_says(**parts):
    """Twice the tokens, and four times the pairs of them: less than four times as long."""
    job = drawn(**parts)
    double = with_length(job, 2 * job.batch.sequence_length)
    assume(possible(double))

    once, twice = predicted(job, double)

    assert once.step_time_s < twice.step_time_s < 4 * once.step_time_s
    assert 2 * once.metrics.model_flop <= twice.metrics.model_flop * (1 + 1e-12)
    assert twice.metrics.model_flop < 4 * once.metrics.model_flop


@FEW
@given(**COMBINATIONS)
def test_sequences_taken_two_at_a_time_need_more_memory_in_a_step_and_no_more_between_steps(**parts):
    """Half as many micro-batches of twice the size: the same tokens, more of them at once.

    GPipe keeps all tokens in both cases, and the gradients of smaller micro-batches exist earlier. Both
    steps accumulate gradients: those of a single micro-batch do not exist while it has all its activations.
    """
    few = drawn(**parts)
    job = with_plan(few, global_batch=2 * few.plan.global_batch)
    double = with_plan(job, micro_batch=2 * job.plan.micro_batch)
    assume(possible(double))

    (one, one_rests), (two, two_rests) = of_stages(job), of_stages(double)

    assert job.plan.schedule == "gpipe" or (one <= two * (1 + 1e-12)).all()
    assert (one_rests == two_rests).all()


@FEW
@given(**COMBINATIONS)
def test_more_micro_batches_need_no_more_memory_than_a_full_pipeline_does(**parts):
    """Twice as many, of which no more are in flight; GPipe alone keeps them all."""
    job = drawn(**parts)
    assume(job.plan.schedule != "gpipe")
    many, more = (with_plan(job, global_batch=times * job.plan.global_batch) for times in (8, 16))

    assert memory_of(many).allocated_bytes == pytest.approx(memory_of(more).allocated_bytes, rel=1e-12)
