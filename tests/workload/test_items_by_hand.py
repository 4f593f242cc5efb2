"""Items that few plans have, counted by hand: reductions of a step, casts, blocks of a ring, ends."""

from itertools import pairwise

import numpy as np
import pytest
from all_cases import all_cases
from hypothesis import given, settings
from hypothesis import strategies as st
from test_context_parallelism import shared
from workload_cases import (
    BARE,
    GPT,
    HIDDEN,
    LENGTH,
    LLAMA,
    MEGATRON,
    VOCABULARY,
    at,
    block_of,
    named,
    plans_of,
    realised,
    repeats,
    stack_with,
)

from flopcast.dtypes import constant
from flopcast.errors import InternalError
from flopcast.operators.embedding import EmbeddingLookup
from flopcast.operators.flash_attention import FlashAttention
from flopcast.operators.item import kernel
from flopcast.operators.matmul import GroupedMatmul, Matmul
from flopcast.operators.memory_bound import MemoryBound
from flopcast.operators.quantise import Quantise
from flopcast.spec.stack import Pipeline
from flopcast.workload.backward import exchanged_at_work
from flopcast.workload.backward_memory import backward_peak
from flopcast.workload.gradient_reduction import update_items
from flopcast.workload.program import WHEN
from flopcast.workload.reductions import hidden_reductions
from flopcast.workload.rewrites import REWRITES
from flopcast.workload.rewrites.fused_experts import fused_experts
from flopcast.workload.rewrites.weighted_experts import weighted_experts, weighted_joined_experts
from flopcast.workload.stages import leaves_no_stage_empty

FFN, HEAD_SIZE, KV_HEADS = 2816, 64, 8  # of LLAMA
FREE = stack_with(
    MEGATRON, sharding={"zero_stages": (0, 1, 2, 3)}, gradients={"bucket_elements": 1_000_000}
)
LAWS = settings(max_examples=30, deadline=None)


def sent_in_a_step(programs, name):
    """Bytes of all messages of a name that all stages of one tensor-parallel rank send in a step."""
    number = int(programs.plans.num_micro_batches.item())
    positions = [3] if number == 1 else [0, *[1] * (number - 2), 2]
    total = 0.0
    for segments in programs.passes:
        for items, times in repeats(programs, segments):
            for item in items:
                if item.name == name:
                    runs = sum(WHEN[item.when][place] for place in positions)
                    total += times * runs * at(item.work.message_bytes) * at(item.count)
    classes = programs.stages.of(0).stage_class
    for item in programs.reduce:
        if item.name == name:
            size_bytes = np.broadcast_to(item.work.message_bytes * item.count, programs.parameters.shape)
            total += size_bytes[0, classes].sum()
    return total


@all_cases("tensor", [1, 2, 4])
@all_cases(
    "overlap", [{"overlap": False}, {"overlap": True}, {"overlap": True, "overlap_with_tensor": False}]
)
@all_cases(
    ("zero", "reduces", "times"),
    [
        (0, "every_micro_batch", 1),  # whole gradients are summed first
        (1, "every_micro_batch", 1),
        (2, "every_micro_batch", 4),
        (2, "last_micro_batch", 1),
        (3, "every_micro_batch", 4),
        (3, "last_micro_batch", 1),
    ],
)
def test_a_step_reduces_every_gradient_as_often_as_its_stage_and_stack_say(
    tensor, overlap, zero, reduces, times
):
    """Under the backward, behind it, or as tensors are cut: never twice, never not at all."""
    stack = stack_with(FREE, gradients=overlap, sharding={"reduces": reduces})

    programs = realised(LLAMA, stack, f"dp=4 tp={tensor} zero={zero} gbs=16")

    gradients_bytes = 4 * at(programs.parameters)  # fp32
    assert sent_in_a_step(programs, "gradients.reduce") == pytest.approx(times * gradients_bytes, rel=1e-12)


@all_cases("stages", [2, 4])
@all_cases("overlap", [False, True])
def test_all_stages_together_reduce_every_gradient_once(stages, overlap):
    stack = stack_with(FREE, gradients={"overlap": overlap})

    programs = realised(LLAMA, stack, f"dp=2 pp={stages} zero=1 gbs=16")

    whole = at((programs.parameters * programs.stages.multiplicity).sum(axis=1, keepdims=True))
    assert sent_in_a_step(programs, "gradients.reduce") == pytest.approx(4 * whole, rel=1e-12)


@all_cases(
    ("overlap", "with_tensor", "hidden"),
    [
        (True, True, [1, 1, 1]),
        (True, False, [1, 0, 0]),
        (False, True, [0, 0, 0]),
        (False, False, [0, 0, 0]),
    ],
)
def test_reductions_are_hidden_where_the_stack_overlaps_them(overlap, with_tensor, hidden):
    stack = stack_with(MEGATRON, gradients={"overlap": overlap, "overlap_with_tensor": with_tensor})

    found = hidden_reductions(stack, plans_of("dp=8", "dp=4 tp=2", "dp=2 tp=4"), "dp")

    assert found.ravel().tolist() == hidden


@pytest.mark.parametrize(("tensors", "owners", "of_experts"), [(100, 8, 2), (5, 5, 2), (1, 1, 1)])
def test_experts_and_all_else_are_broadcast_by_as_many_as_hold_the_same(tensors, owners, of_experts):
    """dp = 8, experts over 4: eight ranks hold the same of everything else, two the same experts."""
    dealt = stack_with(MEGATRON, gradients={"returns": "broadcasts"})
    counts = (constant(1e6), constant(4e5), constant(float(tensors)))

    items = update_items(dealt, plans_of("dp=8 ep=4 zero=1"), *counts)

    plain, experts = named(items, "gather_parameters"), named(items, "gather_parameters_experts")
    assert (at(plain.count), at(experts.count)) == (owners, of_experts)
    assert at(plain.count) * at(plain.work.message_bytes) == pytest.approx(2 * 6e5)
    assert at(experts.count) * at(experts.work.message_bytes) == pytest.approx(2 * 4e5)


def cast_elements(items):
    """Elements that each cast of an input reads, by the product."""
    found = {}
    for item in items:
        if isinstance(item.work, Quantise) and not item.work.of_gradient:
            found[item.name.removesuffix("_cast")] = at(item.work.elements)
    return found


@all_cases("tensor", [2, 4])
@all_cases("recipe", ["fp8", "fp8_current", "mxfp8"])
def test_every_linear_s_input_is_cast_once_on_the_part_that_a_rank_has(recipe, tensor):
    """What is gathered is cast before, on a rank's share of the tokens; the others on its columns."""
    items = block_of(realised(LLAMA, MEGATRON, f"tp={tensor} sp gbs=1 precision={recipe}")).forward

    assert cast_elements(items) == {
        "attention.qkv": LENGTH / tensor * HIDDEN,
        "attention.out": LENGTH * HIDDEN / tensor,
        "mlp.up": LENGTH / tensor * HIDDEN,
        "mlp.down": LENGTH * FFN / tensor,
        "attention.qkv_weight": HIDDEN * 2 * HIDDEN / tensor,  # 16 heads with 8 for keys and values
        "attention.out_weight": HIDDEN * HIDDEN / tensor,
        "mlp.up_weight": HIDDEN * 2 * FFN / tensor,
        "mlp.down_weight": HIDDEN * FFN / tensor,
    }


@all_cases("tensor", [2, 4])
@all_cases(("recipe", "each_bytes"), [("fp8", 1), ("mxfp8", 33 / 32)])
def test_shards_of_what_is_gathered_are_kept_narrow_like_all_other_inputs(recipe, each_bytes, tensor):
    wide, narrow = (
        at(block_of(realised(LLAMA, MEGATRON, f"tp={tensor} sp gbs=1 precision={name}")).kept_bytes)
        for name in ("bf16", recipe)
    )

    inputs = LENGTH * (3 * HIDDEN + FFN) / tensor
    assert wide - narrow == pytest.approx(inputs * (2 - each_bytes))


def test_a_ring_merges_as_many_blocks_as_it_has_ranks_and_one_rank_none():
    ranks = (1, 2, 4, 8)
    block = block_of(shared(*ranks))
    blocks = [item for item in block.forward if isinstance(item.work, FlashAttention)]
    merges = [
        item
        for item in (*block.forward, *block.backward)
        if isinstance(item.work, MemoryBound) and item.work.kind in ("merge_blocks", "merge_gradients")
    ]

    assert {item.work.kind for item in merges} == {"merge_blocks", "merge_gradients"}
    for plan, number in enumerate(ranks):
        assert sum(at(item.count, plan) for item in blocks) == number
        assert {at(item.count, plan) for item in merges} == {number if number > 1 else 0.0}


def test_a_plan_that_shares_no_sequence_exchanges_nothing_among_others_that_do():
    block = block_of(shared(1, 2, 4))

    found = exchanged_at_work(block.forward)

    each = 2 * KV_HEADS * HEAD_SIZE * 2  # keys and values of a token, in 16 bits
    assert found.ravel().tolist() == pytest.approx([0.0, 4 * each * LENGTH / 2, 4 * each * LENGTH / 4])


ONE = constant(1)


def bound(kind, source, output):
    work = MemoryBound(kind=kind, elements=ONE, dtype="bf16")
    return kernel(f"{output}.{kind}", work, (source,), output, component="experts")


def grouped(source, output):
    work = GroupedMatmul(groups=ONE, rows=ONE, n=ONE, k=ONE, imbalance=ONE, dtype="bf16")
    return kernel(f"{output}.product", work, (source,), output, component="experts")


def dense(source, output):
    work = Matmul(m=ONE, n=ONE, k=ONE, dtype="bf16")
    return kernel(f"{output}.product", work, (source,), output, component="mlp")


def kinds(items):
    return [item.work.kind for item in items if isinstance(item.work, MemoryBound)]


@pytest.mark.parametrize("gate", ["swiglu", "geglu", "clamped_swiglu"])
def test_only_gates_behind_products_of_experts_join_them(gate):
    """An expert that all tokens share is a dense product: its gate stays a kernel."""
    items = (
        grouped("rows", "up"),
        bound(gate, "up", "inner"),
        dense("x", "shared"),
        bound(gate, "shared", "shared_inner"),
    )

    assert kinds(fused_experts(items)) == ["epilogue_gate", gate]


@pytest.mark.parametrize(
    ("rewrite", "first"), [(weighted_experts, "epilogue_bias"), (weighted_joined_experts, "joined_bias")]
)
def test_of_two_biases_of_experts_the_second_is_weighed_and_others_are_left_alone(rewrite, first):
    items = (
        dense("x", "gate"),
        bound("bias_add", "gate", "gate_out"),
        grouped("rows", "up"),
        bound("bias_add", "up", "up_out"),
        bound("swiglu", "up_out", "inner"),
        grouped("inner", "down"),
        bound("bias_add", "down", "down_out"),
        bound("unpermute", "down_out", "y"),
    )

    assert kinds(rewrite(items)) == ["bias_add", first, "swiglu", "weighed_bias", "unpermute_sum"]


@pytest.mark.parametrize("change", [1e-6, -1e-6, 0.3])
def test_a_rewrite_that_changes_flop_by_a_millionth_is_a_bug_of_ours(monkeypatch, change):
    def careless(items):
        return tuple(
            item
            if not item.name.endswith(".out")
            else kernel(
                item.name,
                Matmul(m=item.work.m * (1 + change), n=item.work.n, k=item.work.k, dtype="bf16"),
                item.inputs,
                item.output,
                component="attention",
            )
            for item in items
        )

    monkeypatch.setitem(REWRITES, "careless", careless)

    with pytest.raises(InternalError, match="'careless' changed the FLOP"):
        realised(GPT, stack_with(BARE, rewrites=("careless",)), "gbs=1")


@LAWS
@given(
    runs=st.lists(st.integers(1, 6), min_size=1, max_size=3),
    stages=st.integers(1, 12),
    before=st.integers(0, 2),
    after=st.integers(0, 2),
)
def test_a_stage_is_empty_where_its_slice_of_the_modules_holds_uncounted_ones_alone(
    runs, stages, before, after
):
    """DeepSpeed's slices, written out: the first `rest` of them hold one module more."""
    modules = [True, *[False] * before, *[True] * sum(runs), *[False] * after, True, True]
    size, rest = divmod(len(modules), stages)
    bounds = np.cumsum([0, *(size + (part < rest) for part in range(stages))])
    filled = all(any(modules[low:high]) for low, high in pairwise(bounds))
    neox = Pipeline(partition="deepspeed_uniform", entries_before=before, entries_after=after)

    assert leaves_no_stage_empty((1, *runs, 1, 1), stages, neox) == filled


@pytest.mark.parametrize("writes", [False, True])
def test_a_table_at_work_has_the_gradient_of_its_rows_and_the_one_that_it_writes(writes):
    """Its output's gradient in 16 bits, the ids that it kept, and, where written, the whole table's."""
    work = EmbeddingLookup(
        tokens=constant(LENGTH), hidden=constant(HIDDEN), vocabulary=constant(VOCABULARY), dtype="bf16"
    )
    lookup = kernel("embedding.lookup", work, ("ids",), "x", component="embedding")

    found = at(backward_peak((lookup,), frozenset(), writes))

    ids, rows, table = 8 * LENGTH, 2 * LENGTH * HIDDEN, 2 * VOCABULARY * HIDDEN
    assert found == ids + rows + (table if writes else 0)
