"""Recompute: what is run again in the backward pass, in which place, and what it saves."""

import pytest
from all_cases import all_cases
from hypothesis import given, settings
from hypothesis import strategies as st
from workload_cases import (
    BARE,
    GPT,
    HIDDEN,
    LENGTH,
    MEGATRON,
    MODELS,
    at,
    block_of,
    flop_of,
    messages,
    moved_bytes_of,
    named,
    realised,
    stack_with,
)

from flopcast.layers.attention import CORE
from flopcast.library import catalog
from flopcast.workload.backward import WHOLE_LAYER, derive_backward

FULL = "recompute=full"
SELECTIVE = "recompute=selective"
NEOX_STACK = catalog.stack("gpt-neox-deepspeed")


def again(items):
    return [item for item in items if item.phase == "recompute"]


def block(model, stack, text):
    return block_of(realised(model, stack, text))


@all_cases("model", MODELS)
def test_full_recompute_adds_exactly_one_forward(model):
    plain = block(MODELS[model], MEGATRON, "tp=2 mbs=2 gbs=2")

    full = block(MODELS[model], MEGATRON, f"tp=2 mbs=2 gbs=2 {FULL}")

    added = flop_of(full.backward) - flop_of(plain.backward)
    moved = moved_bytes_of(full.backward) - moved_bytes_of(plain.backward)
    assert added == pytest.approx(flop_of(plain.forward), rel=1e-12)
    assert moved == pytest.approx(moved_bytes_of(plain.forward), rel=1e-12)


def test_full_recompute_sums_over_the_ranks_a_third_time():
    plain = block(GPT, MEGATRON, "tp=2 mbs=2 gbs=2")

    full = block(GPT, MEGATRON, f"tp=2 mbs=2 gbs=2 {FULL}")

    # arXiv:2104.04473, section 3.2: two all-reduces forward and two backward; run again, two more
    assert len(messages(plain.forward)) + len(messages(plain.backward)) == 4
    assert len(messages(full.forward)) + len(messages(full.backward)) == 6


def test_full_recompute_runs_the_whole_forward_before_the_first_gradient():
    full = block(GPT, BARE, FULL)

    names = [item.name for item in full.backward]
    assert names[: len(full.forward)] == [item.name for item in full.forward]
    assert {item.phase for item in full.backward[len(full.forward) :]} == {"backward"}


def test_only_blocks_are_recomputed():
    programs = realised(GPT, MEGATRON, FULL)

    others = [layer for layer in programs.layers if layer.kind != "block"]
    assert [layer.kind for layer in others] == ["embedding", "final_norm", "head"]
    assert not [item for layer in others for item in again(layer.backward)]


def test_the_forward_pass_itself_knows_nothing_of_recompute():
    plain, full = block(GPT, MEGATRON, "tp=2"), block(GPT, MEGATRON, f"tp=2 {FULL}")

    assert [item.name for item in full.forward] == [item.name for item in plain.forward]


def test_selective_recompute_runs_exactly_the_core_of_attention_again():
    selective = block(GPT, BARE, SELECTIVE)

    # arXiv:2205.05198, section 5: QK^T, softmax, its dropout, attention over V (here also the mask)
    assert [item.name.removeprefix("attention.") for item in again(selective.backward)] == [
        "scores",
        "mask",
        "softmax",
        "dropout",
        "context",
    ]


def test_selective_recompute_adds_the_flop_of_the_two_square_products():
    plain = block(GPT, MEGATRON, "mbs=3 gbs=3")

    selective = block(GPT, MEGATRON, f"mbs=3 gbs=3 {SELECTIVE}")

    added = flop_of(selective.backward) - flop_of(plain.backward)
    assert added == pytest.approx(4 * 3 * LENGTH**2 * HIDDEN)  # arXiv:2205.05198, appendix A: 4 B s² h


def test_the_core_is_run_again_just_before_its_first_gradient():
    backward = block(GPT, BARE, SELECTIVE).backward

    first_gradient = backward.index(named(backward, "context.dgrad_probabilities"))

    assert [item.phase for item in backward[first_gradient - 5 : first_gradient]] == ["recompute"] * 5
    assert again(backward[first_gradient:]) == []
    assert backward[first_gradient - 6].name == "attention.join_heads.dgrad"


def test_selective_recompute_needs_no_message():
    selective = block(GPT, MEGATRON, f"tp=4 {SELECTIVE}")

    assert messages(again(selective.backward)) == []


def test_selective_recompute_of_flash_attention_runs_its_one_kernel_again():
    flash = stack_with(MEGATRON, attention_kernel="flash")

    selective = block(GPT, flash, SELECTIVE)

    assert [item.name for item in again(selective.backward)] == ["attention.flash"]


def test_a_stack_says_which_groups_selective_recompute_runs_again():
    none_of_it = stack_with(MEGATRON, selective_groups=())

    selective = block(GPT, none_of_it, SELECTIVE)

    assert again(selective.backward) == []
    assert at(selective.kept_bytes) == at(block(GPT, MEGATRON, "gbs=1").kept_bytes)


@pytest.mark.parametrize("groups", [frozenset(), frozenset({CORE}), frozenset({WHOLE_LAYER})])
def test_recompute_never_drops_a_gradient(groups):
    forward = block(GPT, BARE, "tp=2").forward

    backward = derive_backward(forward, groups)

    gradients = [item.name for item in backward if item.phase == "backward"]
    assert gradients == [item.name for item in derive_backward(forward, frozenset())]


@settings(max_examples=30, deadline=None)
@given(
    model=st.sampled_from(sorted(MODELS)),
    tensor=st.sampled_from([1, 2, 4]),
    sequences=st.integers(1, 4),
    flash=st.booleans(),
    sequence_parallel=st.booleans(),
)
def test_more_recompute_keeps_less_and_computes_more(model, tensor, sequences, flash, sequence_parallel):
    stack = stack_with(MEGATRON, attention_kernel="flash" if flash else "materialised")
    base = f"tp={tensor} mbs={sequences} gbs={sequences}" + (" sp" if sequence_parallel else "")

    modes = [block(MODELS[model], stack, f"{base} {mode}") for mode in ("", SELECTIVE, FULL)]

    kept = [at(one.kept_bytes) for one in modes]
    flop = [flop_of(one.backward) for one in modes]
    assert kept[0] >= kept[1] >= kept[2] > 0
    assert flop[0] <= flop[1] <= flop[2]


def test_a_recomputed_layer_keeps_its_input_alone():
    full = block(GPT, MEGATRON, f"mbs=2 gbs=2 {FULL}")

    assert at(full.kept_bytes) == 2 * 2 * LENGTH * HIDDEN  # 2 s b h, arXiv:2205.05198, table 2


@pytest.mark.parametrize("tensor", [1, 2, 8])
def test_partitioned_checkpoints_are_divided_over_the_ranks_and_gathered_before_use(tensor):
    full = block(GPT, NEOX_STACK, f"tp={tensor} mbs=2 gbs=2 {FULL} partition_activations")

    first = full.backward[0]
    assert at(full.kept_bytes) == 2 * 2 * LENGTH * HIDDEN / tensor  # arXiv:1910.02054, section 6.1: P_a
    assert (first.name, first.work.collective, first.phase) == (
        "checkpoint.gather",
        "all_gather",
        "recompute",
    )
    assert at(first.work.message_bytes) == 2 * 2 * LENGTH * HIDDEN


def test_a_whole_checkpoint_is_gathered_from_nobody():
    full = block(GPT, NEOX_STACK, f"tp=4 {FULL}")

    assert messages(again(full.backward), "all_gather") == []


def test_a_stack_that_drains_the_device_does_so_before_each_of_the_three_passes():
    """DeepSpeed's `synchronize_each_layer`: before the forward, the second forward, the gradients."""
    drained = stack_with(NEOX_STACK, synchronise_each_layer=True)

    full = block(GPT, drained, f"tp=4 {FULL} partition_activations")

    places = [n for n, item in enumerate(full.backward) if item.name == "host.synchronise"]
    first_gradient = next(n for n, item in enumerate(full.backward) if item.phase == "backward")
    assert full.forward[0].name == "host.synchronise"
    assert places == [0, first_gradient]
    assert [full.backward[n].phase for n in places] == ["recompute", "backward"]


@pytest.mark.parametrize("mode", ["", SELECTIVE])
def test_a_device_is_drained_around_recomputed_layers_only(mode):
    drained = stack_with(NEOX_STACK, synchronise_each_layer=True)

    plain = block(GPT, drained, f"tp=4 {mode}")

    assert not [item for item in (*plain.forward, *plain.backward) if item.stream == "host"]


def test_under_full_recompute_a_weight_gradient_still_gathers_the_shard_that_its_linear_kept():
    """Megatron-LM's linear keeps the shard, in the recomputed forward too, and gathers it in its backward.

    `LinearWithGradAccumulationAndAsyncCommunication.backward` (megatron/core/tensor_parallel/layers.py)
    gathers wherever `sequence_parallel` is set: it cannot know that the forward was a second one.
    """
    full = block(GPT, MEGATRON, f"tp=4 sp {FULL}")

    gathers = [item.name for item in messages(full.backward, "all_gather")]
    assert [name for name in gathers if name.endswith(".again")] == [
        "mlp.enter.again",
        "attention.enter.again",
    ]
