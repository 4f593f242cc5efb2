"""Backwards split into B and W: nothing lost, nothing changed, and what stays for W (arXiv:2401.10241)."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from workload_cases import (
    BARE,
    GPT,
    HIDDEN,
    LENGTH,
    LLAMA,
    MEGATRON,
    MODELS,
    at,
    block_of,
    flop_of,
    messages,
    moved_bytes_of,
    realised,
    repeats,
    stack_with,
)

WORDS = st.builds(
    "tp={} pp={} mbs={} gbs=32{}".format,
    st.sampled_from([1, 2, 4]),
    st.sampled_from([1, 2, 4]),
    st.sampled_from([1, 2]),
    st.sampled_from(["", " sp", " recompute=selective", " sp recompute=selective"]),
)
STACKS = (MEGATRON, BARE, stack_with(gradients={"overlap": True, "accumulate_passes": 1}))


def both(model, stack, words):
    """The same plan with a whole backward and with a split one."""
    return [realised(model, stack, f"{words} schedule={name}") for name in ("1f1b", "zb_h1")]


def of_a_step(programs, measure):
    """Work of one micro-batch over all stages, forward to last pass."""
    segments = [segment for one_pass in programs.passes for segment in one_pass]
    return sum(times * measure(items) for items, times in repeats(programs, segments))


@settings(max_examples=20, deadline=None)
@given(model=st.sampled_from(sorted(MODELS)), stack=st.sampled_from(STACKS), words=WORDS)
def test_flop_and_bytes_are_those_of_the_whole_backward(model, stack, words):
    whole, split = both(MODELS[model], stack, words)

    for measure in (flop_of, moved_bytes_of, lambda items: len(messages(items))):
        assert of_a_step(split, measure) == pytest.approx(of_a_step(whole, measure), rel=1e-12)


@settings(max_examples=20, deadline=None)
@given(model=st.sampled_from(sorted(MODELS)), stack=st.sampled_from(STACKS), words=WORDS)
def test_every_item_of_the_whole_backward_is_in_just_one_part_in_its_old_order(model, stack, words):
    whole, split = both(MODELS[model], stack, words)

    for before, after in zip(whole.layers, split.layers, strict=True):
        names = [item.name for item in before.backward]
        parts = [[item.name for item in part] for part in (after.backward, after.weight)]
        assert sorted([*parts[0], *parts[1]]) == sorted(names)
        for part in parts:
            assert part == [name for name in names if name in part]


def test_w_of_a_gpt_block_needs_the_flop_of_the_paper_s_table():
    block = block_of(both(GPT, BARE, "mbs=2 gbs=2")[1])

    # arXiv:2401.10241, Table 1: W: s b h (24 h); F: s b h (24 h + 4 s); B: s b h (24 h + 8 s)
    tokens = LENGTH * 2
    assert flop_of(block.weight) == pytest.approx(tokens * HIDDEN * 24 * HIDDEN, rel=1e-12)
    assert flop_of(block.forward) == pytest.approx(tokens * HIDDEN * (24 * HIDDEN + 4 * LENGTH), rel=1e-12)
    assert flop_of(block.backward) == pytest.approx(tokens * HIDDEN * (24 * HIDDEN + 8 * LENGTH), rel=1e-12)


@pytest.mark.parametrize("sequences", [1, 3])
def test_a_gpt_block_keeps_the_bytes_of_the_paper_s_table_between_b_and_w(sequences):
    block = block_of(both(GPT, BARE, f"mbs={sequences} gbs={sequences}")[1])

    # arXiv:2401.10241, Table 1: 32 s b h
    assert at(block.waiting_bytes) == pytest.approx(32 * LENGTH * sequences * HIDDEN, rel=1e-12)


def test_a_gated_block_keeps_its_inputs_once_and_the_gradients_of_every_linear():
    block = block_of(both(LLAMA, BARE, "gbs=1")[1])

    # by hand, elements a token: inputs of q/k/v, out, gate/up, down: h, h, h, f;
    # gradients of their outputs: h + 2 · 8 heads of 64, h, 2 f, h
    inner, keys = 2816, 8 * HIDDEN // 16
    elements = 3 * HIDDEN + inner + (HIDDEN + 2 * keys) + HIDDEN + 2 * inner + HIDDEN
    assert at(block.waiting_bytes) == pytest.approx(2 * LENGTH * elements, rel=1e-12)


def test_the_input_that_was_kept_in_shards_is_gathered_for_w_alone():
    block = block_of(both(GPT, MEGATRON, "tp=4 sp gbs=1")[1])

    gathers = [[item.name.endswith(".again") for item in part] for part in (block.backward, block.weight)]

    assert (any(gathers[0]), sum(gathers[1])) == (False, 2)  # inputs of attention and of the feed-forward


def test_gradients_are_added_up_and_reduced_behind_w_and_not_behind_b():
    stack = stack_with(gradients={"overlap": True, "accumulate_passes": 1})

    block = block_of(both(GPT, stack, "dp=2 gbs=4")[1])

    assert {item.when for item in block.backward} == {"every"}
    assert {item.when for item in block.weight} == {"every", "not_first", "last"}


def test_sums_for_biases_move_to_w_and_norms_stay_in_b():
    block = block_of(both(GPT, BARE, "gbs=1")[1])

    parts = [{getattr(item.work, "kind", "") for item in part} for part in (block.backward, block.weight)]

    assert ["bias_add" in part for part in parts] == [False, True]
    assert ["layernorm" in part for part in parts] == [True, False]


def test_a_whole_backward_has_no_weight_pass_and_keeps_nothing_for_it():
    whole, _ = both(GPT, MEGATRON, "gbs=1")

    assert whole.weight == ()
    assert {at(layer.waiting_bytes) for layer in whole.layers} == {0.0}


def test_a_gather_for_w_runs_ahead_of_the_kernels_before_it():
    block = block_of(both(GPT, MEGATRON, "tp=4 sp gbs=1")[1])

    gathers = [item for item in block.weight if item.name.endswith(".again")]

    assert {item.waits for item in gathers} == {("host",)}
    assert all("tp" in item.waits for item in block.weight if item.name.endswith(".wgrad"))
