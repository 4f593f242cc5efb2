"""A recipe on a whole model: wide ends, what ranks agree on, memory, accounting."""

import numpy as np
import pytest
from all_cases import all_cases
from workload_cases import LLAMA, MEGATRON, at, flop_of, messages, realised, repeats, stack_with

from flopcast.memory.peak import peak_memory
from flopcast.operators.base import AbstractOperator
from flopcast.operators.quantise import Quantise
from flopcast.spec.precision import RECIPES
from flopcast.workload.casts import is_low_precision

BLOCKS = 8
LINEARS = 1024 * 2048 + 1024 * 1024 + 3 * 1024 * 2816  # weights of one block that become narrow


def agreements(programs, passes):
    """How often the ranks of a stage agree in one micro-batch, over all chunks."""
    runs = repeats(programs, passes)
    return sum(count * len([i for i in items if i.name == "scales.agree"]) for items, count in runs)


def on_engine(programs, unit):
    """FLOP of one micro-batch's forward on one matrix engine, over all stages."""
    total = 0.0
    for items, count in repeats(programs, programs.forward):
        works = [item.work.work() for item in items if isinstance(item.work, AbstractOperator)]
        total += count * sum(at(work.flop) for work in works if work.unit == unit)
    return total


@all_cases(("first", "last"), [(0, 0), (1, 1), (2, 0), (0, 8), (8, 0)])
@all_cases("stages", [1, 4])
def test_wide_blocks_at_the_ends_take_their_flop_off_the_narrow_engine(first, last, stages):
    stack = stack_with(narrow={"wide_first_blocks": first, "wide_last_blocks": last})
    programs = realised(LLAMA, stack, f"pp={stages} mbs=1 gbs=8 precision=mxfp8")

    narrow = 2 * 2048 * LINEARS * (BLOCKS - first - last)

    assert on_engine(programs, "fp8") == pytest.approx(narrow)


def test_multi_token_prediction_may_stay_on_the_wide_engine():
    model = LLAMA.model_copy(update={"mtp": 2})
    for wide, narrow in ((False, BLOCKS + 2), (True, BLOCKS)):
        programs = realised(model, stack_with(narrow={"wide_mtp": wide}), "mbs=1 gbs=8 precision=mxfp8")
        projections = 0 if wide else 2 * 2 * 2048 * 2 * LLAMA.hidden**2
        assert on_engine(programs, "fp8") == pytest.approx(2 * 2048 * LINEARS * narrow + projections)


def test_a_recipe_applies_to_the_output_layer_and_to_attention_if_the_stack_says_so():
    rows = 128 * -(-LLAMA.vocabulary // 128)
    for asked, narrow, casts in (
        ({}, 0, 0),
        ({"output_layer": True}, 2 * 2048 * rows * LLAMA.hidden, 2),
        ({"attention": True}, 0, 2 * BLOCKS),
    ):
        stacks = [stack_with(attention_kernel="flash", narrow=each) for each in (asked, {})]
        programs, plain = (realised(LLAMA, stack, "mbs=1 gbs=8 precision=mxfp8") for stack in stacks)
        found, others = (
            sum(n * sum(item.component == "casts" for item in items) for items, n in repeats(p, p.forward))
            for p in (programs, plain)
        )

        assert on_engine(programs, "fp8") == pytest.approx(2 * 2048 * LINEARS * BLOCKS + narrow), asked
        assert found - others == casts, asked
        wide = realised(LLAMA, stacks[0], "mbs=1 gbs=8 precision=bf16")
        assert on_engine(wide, "fp8") == 0.0, asked


@pytest.mark.parametrize(("first", "last"), [(1, 1), (3, 0)])
def test_wide_ends_change_no_flop_and_no_parameter(first, last):
    text = "pp=2 mbs=1 gbs=8 precision=fp8"
    plain = realised(LLAMA, MEGATRON, text)
    ends = realised(LLAMA, stack_with(narrow={"wide_first_blocks": first, "wide_last_blocks": last}), text)

    both = [sum(n * flop_of(items) for items, n in repeats(p, p.backward)) for p in (plain, ends)]

    assert both[0] == pytest.approx(both[1], rel=1e-12)
    held = [(p.parameters * p.stages.multiplicity).sum() for p in (plain, ends)]
    assert held[0] == pytest.approx(held[1], rel=1e-12)


@pytest.mark.parametrize(("plan", "chunks"), [("pp=1", 1), ("pp=4", 4), ("pp=2 vpp=2", 4)])
def test_ranks_of_a_stage_agree_once_for_each_chunk_and_pass_under_delayed_scaling(plan, chunks):
    programs = realised(LLAMA, MEGATRON, f"{plan} mbs=1 gbs=8 precision=fp8")

    assert agreements(programs, programs.forward) == agreements(programs, programs.backward) == chunks


@pytest.mark.parametrize("recipe", ["bf16", *(name for name in RECIPES if name != "fp8")])
def test_no_other_precision_needs_the_ranks_of_a_stage_to_agree(recipe):
    programs = realised(LLAMA, MEGATRON, f"mbs=1 gbs=8 precision={recipe}")

    assert not [item for item in messages(programs.items()) if item.work.axis == "stage"]


@pytest.mark.parametrize(("transposes", "copies"), [(True, 2), (False, 1)])
def test_eight_bit_copies_of_weights_are_there_all_the_time(transposes, copies):
    stack = stack_with(narrow={"transposes": transposes})
    wide, narrow = (realised(LLAMA, stack, f"mbs=1 gbs=8 precision={name}") for name in ("bf16", "fp8"))

    found = [peak_memory(programs) for programs in (wide, narrow)]

    expected = BLOCKS * LINEARS * copies
    assert at(found[1].by_category["narrow_weights"]) == expected
    assert at(found[0].by_category["narrow_weights"]) == 0
    assert at(found[1].standing_bytes) - at(found[0].standing_bytes) == expected


def test_weights_gradients_and_states_are_those_of_16_bits():
    found = [
        peak_memory(realised(LLAMA, MEGATRON, f"dp=2 mbs=1 gbs=8 zero=1 precision={name}"))
        for name in ("bf16", "nvfp4")
    ]

    for category in ("parameters", "gradients", "optimizer_states"):
        np.testing.assert_array_equal(*(memory.by_category[category] for memory in found))


@all_cases("recipe", RECIPES)
def test_the_recipe_is_accounted_for_as_a_rewrite_that_keeps_flop(recipe):
    programs = realised(LLAMA, MEGATRON, f"mbs=1 gbs=8 precision={recipe}")

    (entry,) = [entry for entry in programs.accounting if entry.rewrite == "quantise"]

    assert entry.layer == "block"
    assert at(entry.before_flop) == pytest.approx(at(entry.after_flop)) == 2 * 2048 * LINEARS


def test_a_split_backward_keeps_the_casts_of_gradients_ahead_of_both_gradients():
    programs = realised(LLAMA, MEGATRON, "pp=4 mbs=1 gbs=8 schedule=zb_h1 precision=fp8_current")
    runs = [[item.name for item in segment.items] for segment in programs.weight if segment.items]

    assert not [name for names in runs for name in names if "_cast" in name]
    assert max(sum(name.endswith(".wgrad") for name in names) for names in runs) == 4


def test_blocks_that_nobody_narrows_have_no_narrow_product():
    programs = realised(LLAMA, MEGATRON, "mbs=1 gbs=8 precision=bf16")

    assert not [i for i in programs.items() if is_low_precision(i) and getattr(i.work, "narrow", "")]


def test_narrow_messages_run_in_chunks_under_their_products_as_wide_ones_do():
    chunked = stack_with(tensor_overlap="chunks")
    blocks = [
        next(layer for layer in realised(LLAMA, chunked, f"tp=4 sp {p}").layers if layer.kind == "block")
        for p in ("precision=bf16", "precision=mxfp8", "precision=fp8")
    ]

    cut = [[i.name for i in b.forward + b.backward if i.name.endswith((".last", ".rest"))] for b in blocks]

    assert cut[0]
    assert cut[1] == cut[2] == cut[0]


@all_cases("recipe", RECIPES)
def test_casts_in_both_layouts_have_their_own_kernel(recipe):
    programs = realised(LLAMA, MEGATRON, f"mbs=1 gbs=8 precision={recipe}")

    casts = {item.work.kernel for item in programs.items() if isinstance(item.work, Quantise)}

    assert casts == {"quantise.blocks" if RECIPES[recipe].both_layouts else "quantise"}
