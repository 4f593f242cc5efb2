"""FLOP conventions beyond the plain GPT, worked out by hand: windows, experts, tables, padding, ties."""

import pytest
from all_cases import all_cases
from conftest import make_job
from hypothesis import given, settings
from hypothesis import strategies as st

from flopcast.report.flop_conventions import (
    CONVENTIONS,
    ROUNDING,
    WORST_MISMATCH,
    equation_3,
    match_convention,
)

HIDDEN, LENGTH, BATCH, VOCABULARY = 512, 2048, 8, 1024  # a multiple of the padding
TOKENS = BATCH * LENGTH
HEAD = 2 * HIDDEN * VOCABULARY  # FLOP of a token, as those below
LINEAR = 2 * (4 * HIDDEN**2 + 2 * HIDDEN * 2048)  # q, k, v, out and an MLP of 2048
SCORES = 4 * LENGTH * HIDDEN  # of a block, all keys
LAWS = settings(max_examples=40)


def job_of(*blocks, plan="dp=8 mbs=1 gbs=8 precision=fp16", **fields):
    """Blocks of eight heads; an MLP of 2048 where they say nothing else."""
    common = {"count": 1, "mixer": {"heads": 8}, "feed_forward": {"ffn_hidden": 2048}}
    model = {"hidden": HIDDEN, "vocabulary": VOCABULARY, "blocks": [common | block for block in blocks]}
    return make_job(model=model | fields, batch={"sequence_length": LENGTH}, plan=plan)


def flop(name, job):
    return CONVENTIONS[name].flop(job)


def windowed(window):
    return job_of({"count": 3, "mixer": {"heads": 8, "window": window}}, {"count": 1}, pattern=[0, 0, 0, 1])


@pytest.mark.parametrize("window", [1, 256, 2048])
def test_a_window_is_half_its_tokens_a_query_by_megatron_bridge(window):
    """As a whole causal sequence is half of its length."""
    by_hand = 3 * TOKENS * (4 * LINEAR + HEAD + 3 * 4 * HIDDEN * window / 2 + SCORES / 2)

    assert flop("megatron-bridge", windowed(window)) == pytest.approx(by_hand, rel=1e-12)


@all_cases("name", sorted(set(CONVENTIONS) - {"megatron-bridge", "hardware", "hardware-causal"}))
def test_most_formulas_know_no_window(name):
    if name == "deepspeed-profiler":
        assert flop(name, windowed(256)) < flop(name, windowed(2048))  # it counts what kernels compute
    else:
        assert flop(name, windowed(256)) == pytest.approx(flop(name, windowed(2048)), rel=1e-12)


def test_without_a_window_megatron_bridge_counts_as_megatron_core_does():
    job = job_of({"count": 4})

    assert flop("megatron-bridge", job) == flop("megatron-core-causal", job)


EXPERTS = {"count": 2, "feed_forward": {"num_experts": 16, "top_k": 2, "expert_hidden": 1024}}


@pytest.mark.parametrize(("name", "part"), [("megatron-core", 1.0), ("megatron-core-causal", 0.5)])
def test_of_experts_those_that_a_token_uses_are_counted_and_the_router(name, part):
    attention, router = 2 * 4 * HIDDEN**2, 2 * HIDDEN * 16
    used = 2 * 3 * 2 * HIDDEN * 1024  # two gated experts of three matrices

    by_hand = 3 * TOKENS * (2 * (attention + used + router + part * SCORES) + HEAD)

    assert flop(name, job_of(EXPERTS)) == pytest.approx(by_hand, rel=1e-12)


def test_more_experts_to_choose_from_cost_their_router_alone():
    few, many = (
        job_of(EXPERTS | {"feed_forward": EXPERTS["feed_forward"] | {"num_experts": number}})
        for number in (16, 64)
    )

    more = flop("megatron-core", many) - flop("megatron-core", few)

    assert more == pytest.approx(3 * TOKENS * 2 * 2 * HIDDEN * (64 - 16), rel=1e-6)
    router = 6 * TOKENS * 2 * HIDDEN * (64 - 16)
    assert flop("6n", many) - flop("6n", few) == pytest.approx(router, rel=1e-6)


def test_six_n_differs_by_its_tables_and_by_what_it_counts_of_attention():
    job = job_of({"count": 4})
    table = 6 * TOKENS * HIDDEN * VOCABULARY
    positions = 6 * TOKENS * HIDDEN * job.model.learned_positions

    assert flop("6n", job) - flop("6n-without-embedding", job) == pytest.approx(table + positions, rel=1e-9)
    assert flop("palm", job) - flop("6n", job) == pytest.approx(3 * TOKENS * 4 * SCORES, rel=1e-9)
    assert flop("torchtitan", job) - flop("6n-without-embedding", job) == pytest.approx(
        3 * TOKENS * 4 * SCORES, rel=1e-9
    )
    halved = flop("torchtitan", job) - flop("torchtitan-causal", job)
    assert halved == pytest.approx(1.5 * TOKENS * 4 * SCORES, rel=1e-9)


def test_learned_positions_are_a_table_too():
    job = job_of({"count": 4}, learned_positions=LENGTH)

    found = flop("6n", job) - flop("6n-without-embedding", job)

    assert found == pytest.approx(6 * TOKENS * HIDDEN * (VOCABULARY + LENGTH), rel=1e-9)


@all_cases(
    ("vocabulary", "tensor", "rows"), [(1000, 1, 1024), (1000, 8, 1024), (1024, 1, 1024), (1100, 8, 2048)]
)
def test_the_head_is_counted_with_the_rows_that_padding_adds(vocabulary, tensor, rows):
    plan = f"dp={8 // tensor} tp={tensor} mbs=1 gbs=8 precision=fp16"
    job = job_of({"count": 4}, plan=plan, vocabulary=vocabulary)

    assert flop("megatron-core", job) == pytest.approx(
        3 * TOKENS * (4 * (LINEAR + SCORES) + 2 * HIDDEN * rows), rel=1e-12
    )
    unpadded = 3 * TOKENS * (4 * (LINEAR + SCORES) + 2 * HIDDEN * vocabulary)
    assert flop("deepspeed-profiler", job) == pytest.approx(unpadded, rel=1e-12)


@pytest.mark.parametrize("recompute", ["none", "full"])
def test_the_hardwares_count_is_the_models_and_one_more_forward_of_the_blocks(recompute):
    job = job_of({"count": 4}, plan=f"dp=8 mbs=1 gbs=8 recompute={recompute} precision=fp16")
    again = TOKENS * 4 * (LINEAR + SCORES) if recompute == "full" else 0.0

    assert flop("hardware", job) - flop("megatron-core", job) == pytest.approx(again, rel=1e-9)
    causal = TOKENS * 4 * (LINEAR + SCORES / 2) if recompute == "full" else 0.0
    found = flop("hardware-causal", job) - flop("megatron-core-causal", job)
    assert found == pytest.approx(causal, rel=1e-9)


@LAWS
@given(st.sampled_from([3, 4]), st.integers(1, 6))
def test_equation_3_is_its_sum_written_out(passes, layers):
    """24 p B s l h² + 4 p B s² l h + 1.5 p B s h V: linears, scores and the head."""
    job = job_of({"count": layers})

    linears = 24 * passes * TOKENS * layers * HIDDEN**2
    scores = 4 * passes * TOKENS * LENGTH * layers * HIDDEN
    head = 1.5 * passes * TOKENS * HIDDEN * VOCABULARY
    assert equation_3(job, passes, VOCABULARY) == pytest.approx(linears + scores + head, rel=1e-12)


@LAWS
@given(st.sampled_from(sorted(CONVENTIONS)), st.integers(1, 5))
def test_every_formula_is_proportional_to_the_batch(name, times):
    one, more = (
        flop(name, job_of({"count": 4}, plan=f"dp=8 mbs=1 gbs={8 * number} precision=fp16"))
        for number in (1, times)
    )

    assert more == pytest.approx(times * one, rel=1e-12)


@all_cases(("off", "known"), [(1 - 0.8 * WORST_MISMATCH, True), (1.0, True), (1.5, False), (20.0, False)])
def test_a_rate_that_no_formula_is_near_has_a_nearest_one_that_is_not_known(off, known):
    job = job_of({"count": 4})
    ends = [flop(name, job) for name in CONVENTIONS]
    printed = (max(ends) if off >= 1 else min(ends)) * off

    match = match_convention(job, printed, "")

    assert match.known is known
    assert match.mismatch_ratio == pytest.approx(flop(match.name, job) / printed - 1)
    assert abs(match.mismatch_ratio) == pytest.approx(
        min(abs(flop(name, job) / printed - 1) for name in CONVENTIONS), abs=ROUNDING
    )


@pytest.mark.parametrize("framework", ["megatron-lm", "megatron-bridge", "nemo"])
def test_formulas_that_agree_go_to_the_framework_that_prints(framework):
    """Without a window, Megatron-Core's causal formula and Megatron-Bridge's are one number."""
    job = job_of({"count": 4})

    match = match_convention(job, flop("megatron-bridge", job), framework)

    assert framework in CONVENTIONS[match.name].frameworks
    assert match.mismatch_ratio == pytest.approx(0.0, abs=1e-12)


def adapted(rank):
    """Four blocks whose q, v and down projections have adapters."""
    return job_of({"count": 4}, adapters={"rank": rank, "targets": ["q", "v", "down"]})


@pytest.mark.parametrize("rank", [8, 64])
def test_frozen_weights_spare_their_gradients_and_adapters_have_all_three_passes(rank):
    """Two passes of a linear in place of three; of an adapter two narrow products; scores as ever."""
    one, two = flop("megatron-core", adapted(rank)), flop("megatron-core", adapted(2 * rank))

    narrow = 2 * rank * (2 * HIDDEN + 2 * HIDDEN + 2048 + HIDDEN)  # q, v and down: in and out
    assert two - one == pytest.approx(3 * TOKENS * 4 * narrow, rel=1e-9)
    frozen = TOKENS * (2 * (4 * LINEAR + HEAD) + 3 * 4 * SCORES)
    assert one - (two - one) == pytest.approx(frozen, rel=1e-9)


@pytest.mark.parametrize("causal", ["", "-causal"])
def test_the_hardware_computes_no_more_of_a_window_than_the_window(causal):
    narrow, wide, whole = (flop(f"hardware{causal}", windowed(window)) for window in (128, 1024, LENGTH))

    assert narrow < wide < whole
    assert whole == pytest.approx(flop(f"megatron-core{causal}", windowed(LENGTH)), rel=1e-12)
