"""Muon: the FLOP of Newton-Schulz steps, states and messages, against closed forms and published costs."""

import pytest
from conftest import described_model, make_job

from flopcast.library import catalog
from flopcast.library.curves import load_book
from flopcast.operators.matmul import Matmul
from flopcast.prediction import memory_of, predict, programs_of

HIDDEN, BLOCKS, VOCABULARY, STEPS = 1024, 8, 50257, 5
MATRICES = [(HIDDEN, 3 * HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, 4 * HIDDEN), (HIDDEN, 4 * HIDDEN)]
ELEMENTS = BLOCKS * 12 * HIDDEN**2


def job(plan, optimizer="muon", stack="megatron-core", **changes):
    software = {"base": stack, "optimizer": changes} if changes else stack
    text = f"mbs=1 precision=bf16 optimizer={optimizer} {plan}"
    return make_job(model=described_model(), plan=text, stack=software)


def orthogonal_flop(one):
    """FLOP of Newton-Schulz steps on the rank of the first stage class."""
    return sum(
        float((item.count * item.work.work().flop)[0, 0])
        for item in programs_of(one).update
        if isinstance(item.work, Matmul)
    )


def newton_schulz(rows, columns):
    return STEPS * (4 * rows**2 * columns + 2 * rows**3)


def messages(one):
    """Bytes of messages of the update, by name."""
    return {
        item.name.removeprefix("optimizer."): float(item.work.message_bytes.max())
        for item in programs_of(one).update
        if item.stream == "dp" and item.name.startswith("optimizer.")
    }


def test_flop_of_five_steps_are_shared_by_ranks_that_share_states_unless_all_momenta_are_gathered():
    whole = BLOCKS * sum(newton_schulz(*shape) for shape in MATRICES)
    alone = job("dp=8 gbs=8 zero=0", stack="megatron-2022")
    assert orthogonal_flop(alone) == pytest.approx(whole)
    assert orthogonal_flop(job("dp=8 gbs=8 zero=1")) == pytest.approx(whole / 8)
    assert orthogonal_flop(job("dp=8 gbs=8 zero=1", matrices="gathered")) == pytest.approx(whole)
    # half of the blocks on each stage; tensor-parallel ranks orthogonalise their own parts
    assert orthogonal_flop(job("dp=4 pp=2 gbs=8 zero=1")) == pytest.approx(whole / 2 / 4)
    cut = [(HIDDEN, 3 * HIDDEN / 2), (HIDDEN / 2, HIDDEN), (HIDDEN, 2 * HIDDEN), (HIDDEN, 2 * HIDDEN)]
    parts = BLOCKS * sum(newton_schulz(*shape) for shape in cut)
    assert orthogonal_flop(job("dp=4 tp=2 gbs=8 zero=1")) == pytest.approx(parts / 4)


def test_a_rank_orthogonalises_at_least_one_matrix():
    many = make_job(
        model=described_model(count=2), cluster="dgx-a100:8", stack="megatron-core",
        plan="dp=64 mbs=1 gbs=64 precision=bf16 optimizer=muon zero=1",
    )  # fmt: skip
    mean = sum(newton_schulz(*shape) for shape in MATRICES) / len(MATRICES)

    assert orthogonal_flop(many) == pytest.approx(mean)


def test_states_are_a_momentum_of_matrices_and_two_moments_of_all_else():
    others = job("dp=8 gbs=8").model.parameters() - ELEMENTS
    for zero, stack, shards in ((0, "megatron-2022", 1), (1, "megatron-core", 8)):
        states = memory_of(job(f"dp=8 gbs=8 zero={zero}", stack=stack)).by_category["optimizer_states"]
        assert states == pytest.approx((8 * ELEMENTS + 12 * others) / shards, rel=0.01)


def test_messages_beside_those_of_adamw_are_the_momenta_that_owners_lack():
    """At most 1.25 times the bytes of AdamW with fp32 gradients and weights (arXiv:2502.16982)."""
    assert messages(job("dp=8 gbs=8 zero=1")) == {}
    gathered = messages(job("dp=8 gbs=8 zero=1", matrices="gathered"))
    assert gathered == {"gather_momenta": pytest.approx(2 * ELEMENTS)}
    assert gathered["gather_momenta"] <= 0.25 * (4 + 4) * ELEMENTS
    sharded = messages(job("dp=8 gbs=8 zero=3"))
    both = pytest.approx(2 * ELEMENTS / 8)
    assert sharded == {"collect_momenta": both, "return_updates": both}


def test_the_flop_of_the_steps_are_the_published_share_of_those_of_training():
    """Less than T m / B: 0.7 % for 768 columns and 524,288 tokens, 0.5 % for Llama 405B and 16 million."""
    for name, tokens, published in (("gpt2", 524_288, 0.007), ("llama-3.1-405b", 16_000_000, 0.005)):
        model = catalog.model(name)
        linear = sum(
            block.count * block.mixer.linear_elements(model.hidden)
            + block.count * block.feed_forward.linear_elements(model.hidden)
            for block in model.blocks
        )
        one = make_job(
            model=name, cluster="dgx-h100:1", stack="pytorch-ddp", batch={"sequence_length": 1024},
            plan="dp=8 mbs=1 gbs=8 precision=bf16 optimizer=muon",
        )  # fmt: skip
        share = orthogonal_flop(one) / (6 * linear * tokens)

        assert share <= STEPS * model.hidden / tokens
        assert share == pytest.approx(published, rel=0.35)


def test_the_published_share_of_a_step_lies_between_ranks_that_share_the_work_and_ranks_that_repeat_it():
    """1 to 3 % in Moonlight (arXiv:2502.16982), whose ranks compute each matrix that they own a part of."""
    base = {"model": "moonlight-16b-a3b", "cluster": "dgx-h100:8", "batch": {"sequence_length": 8192}}
    plan = "dp=64 ep=8 mbs=1 gbs=512 precision=bf16 zero=1 optimizer="

    def step_s(optimizer, matrices):
        stack = {"base": "megatron-core", "optimizer": {"matrices": matrices}}
        one = make_job(**base, stack=stack, plan=plan + optimizer)
        return predict(one, load_book(one.cluster)).step_time_s

    adamw = step_s("adamw", "distributed")

    assert 1.0 < step_s("muon", "distributed") / adamw < 1.01
    assert 1.03 < step_s("muon", "gathered") / adamw < 1.1


def test_fp8_and_4_bit_states_have_the_bytes_of_their_codes_and_scales():
    for name, each_bytes in (("adamw_fp8", 4 + 2 * (1 + 4 / 256)), ("adamw_4bit", 4 + 2 * (0.5 + 4 / 128))):
        one = job("dp=8 gbs=8 zero=1", optimizer=name)
        states = memory_of(one).by_category["optimizer_states"]
        assert states == pytest.approx(each_bytes * one.model.parameters() / 8, rel=0.01)
