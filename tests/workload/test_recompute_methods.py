"""Full recompute of some blocks: groups that keep one input, the first of a chunk, one in so many."""

import numpy as np
import pytest
from all_cases import all_cases
from hypothesis import given, settings
from hypothesis import strategies as st
from workload_cases import (
    BARE,
    GPT,
    HIDDEN,
    LENGTH,
    LLAMA,
    MEGATRON,
    at,
    flop_of,
    messages,
    realised,
    repeats,
    stack_with,
)

from flopcast.memory.categories import activations
from flopcast.memory.peak import peak_memory
from flopcast.workload.checkpoints import Checkpoints

INPUT_BYTES = 2 * LENGTH * HIDDEN  # 2 s b h of one sequence: arXiv:2205.05198, table 2
EARLY = stack_with(MEGATRON, recompute_until="kept")
BLOCKS = 8  # of every model here


def blocks(programs):
    """The kinds of block of a realised model, in their order."""
    return [layer for layer in programs.layers if layer.kind == "block"]


def counts(programs, chunk=0):
    """How many of each kind of block a chunk class holds."""
    held = programs.stages.chunk_counts[0, chunk]
    return [int(held[n]) for n, layer in enumerate(programs.layers) if layer.kind == "block"]


def again_flop(programs):
    """FLOP that one micro-batch runs again, over all stages."""
    runs = repeats(programs, programs.backward)
    return sum(n * flop_of([item for item in items if item.phase == "recompute"]) for items, n in runs)


def layer_by_layer(method, size, number):
    """Which of a chunk's blocks, one after the other, is of the first kind: the definitions, played."""
    return [
        {"uniform": n % size == 0, "block": n < size, "every": (n + 1) % size == 0}[method]
        for n in range(number)
    ]


@given(
    method=st.sampled_from(["uniform", "block", "every"]),
    size=st.integers(1, 9),
    runs=st.lists(st.integers(0, 12), min_size=1, max_size=4),
)
def test_kinds_of_blocks_are_counted_as_one_would_layer_by_layer(method, size, runs):
    cut = Checkpoints(method=method, layers=size, is_block=(False, *(True for _ in runs), False))

    found = cut.cut(np.array([1.0, *runs, 1.0]))

    kinds, start = layer_by_layer(method, size, sum(runs)), 0
    expected = [1.0]
    for number in runs:
        first = sum(kinds[start : start + number])
        expected += [first, number - first]
        start += number
    assert found.tolist() == [*expected, 1.0]


@all_cases(("size", "groups"), [(1, 8), (2, 4), (3, 3), (4, 2), (8, 1)])
def test_a_group_keeps_one_input_and_the_last_may_be_shorter(size, groups):
    kept = at(activations(realised(GPT, MEGATRON, f"recompute=full:uniform:{size}"))[0])

    plain = at(activations(realised(GPT, MEGATRON, "recompute=full"))[0])
    assert kept - plain == pytest.approx((groups - BLOCKS) * INPUT_BYTES)


def test_a_group_at_work_has_all_its_blocks_tensors_and_a_group_of_all_those_of_no_recompute():
    kept = at(blocks(realised(GPT, MEGATRON, "gbs=1"))[0].kept_bytes)
    one, group = (blocks(realised(GPT, MEGATRON, f"recompute=full:uniform:{n}"))[0] for n in (1, 4))

    # three more blocks' tensors; a block keeps its input among them
    assert at(group.working_bytes) - at(one.working_bytes) == pytest.approx(3 * kept)


@all_cases("method", ["uniform:2", "uniform:3", "uniform:8", "block:8"])
def test_methods_that_recompute_every_block_run_as_much_again(method):
    full = realised(GPT, MEGATRON, "tp=2 recompute=full")

    programs = realised(GPT, MEGATRON, f"tp=2 recompute=full:{method}")

    assert again_flop(programs) == pytest.approx(again_flop(full), rel=1e-12)


@all_cases(
    ("method", "recomputed"),
    [
        ("block:1", 1),
        ("block:5", 5),
        ("block:8", 8),
        ("every:1", 8),
        ("every:2", 4),
        ("every:3", 2),
        ("every:8", 1),
    ],
)
def test_only_the_chosen_blocks_run_again_and_only_the_others_keep_what_they_need(method, recomputed):
    full, none = realised(GPT, MEGATRON, "recompute=full"), realised(GPT, MEGATRON, "gbs=1")

    programs = realised(GPT, MEGATRON, f"recompute=full:{method}")

    again = again_flop(programs) / again_flop(full)
    kept = at(peak_memory(programs).by_category["activations"])
    saved = at(peak_memory(none).by_category["activations"]) - kept
    each = at(blocks(none)[0].kept_bytes) - INPUT_BYTES
    assert again == pytest.approx(recomputed / BLOCKS)
    assert saved == pytest.approx(recomputed * each)


def test_blocks_are_counted_anew_in_every_chunk():
    # Megatron-Core counts `recompute_num_layers` in each chunk: 2 chunks on each of 2 stages, 2 blocks each
    programs = realised(GPT, MEGATRON, "pp=2 vpp=2 gbs=4 recompute=full:block:1")

    classes = range(programs.stages.chunk_counts.shape[1])
    assert [counts(programs, chunk) for chunk in classes] == [[1, 1]] * len(classes)
    assert again_flop(programs) == pytest.approx(
        again_flop(realised(GPT, MEGATRON, "recompute=full")) * 4 / BLOCKS
    )


@settings(max_examples=25, deadline=None)
@given(
    method=st.sampled_from(["uniform", "block", "every"]),
    size=st.integers(1, 4),
    chunks=st.sampled_from(["pp=1", "pp=2", "pp=2 vpp=2", "pp=4"]),
    early=st.booleans(),
)
def test_cutting_runs_of_blocks_loses_no_layer_parameter_or_gradient(method, size, chunks, early):
    stack = EARLY if early else MEGATRON
    plain = realised(GPT, stack, f"{chunks} gbs=8")

    cut = realised(GPT, stack, f"{chunks} gbs=8 recompute=full:{method}:{size}")

    def gradients(programs):
        runs = repeats(programs, programs.backward)
        return sum(n * flop_of([item for item in items if item.phase != "recompute"]) for items, n in runs)

    assert cut.parameters[0][cut.stages.of(0).stage_class].tolist() == (
        plain.parameters[0][plain.stages.of(0).stage_class].tolist()
    )
    assert gradients(cut) == pytest.approx(gradients(plain), rel=1e-12)


def test_partitioned_checkpoints_are_gathered_once_a_group():
    programs = realised(GPT, MEGATRON, "tp=2 recompute=full:uniform:4 partition_activations")

    gathers = [
        len([i for i in layer.backward if i.name == "checkpoint.gather"]) for layer in blocks(programs)
    ]
    assert gathers == [1, 0]
    assert counts(programs) == [2, 6]
    assert [at(layer.kept_bytes) for layer in blocks(programs)] == [INPUT_BYTES / 2, 0.0]


@pytest.mark.parametrize(
    ("method", "recomputed"), [("uniform:1", True), ("uniform:2", False), ("block:1", False)]
)
def test_multi_token_prediction_runs_again_only_where_every_block_does_alone(method, recomputed):
    # Megatron-Core warns and keeps its modules under any other method
    model = GPT.model_copy(update={"mtp": 1})

    programs = realised(model, MEGATRON, f"recompute=full:{method}")

    (layer,) = [layer for layer in programs.layers if layer.kind == "mtp"]
    assert any(item.phase == "recompute" for item in layer.backward) == recomputed


def test_blocks_of_uneven_chunks_are_counted_in_each():
    programs = realised(GPT, MEGATRON, "pp=2 gbs=4 recompute=full:block:3 stage_layers=2,6")

    held = programs.stages.of(0).stage_counts[programs.stages.of(0).stage_class]
    kinds = [n for n, layer in enumerate(programs.layers) if layer.kind == "block"]
    assert held[:, kinds].tolist() == [[2.0, 0.0], [3.0, 3.0]]


def test_blocks_of_a_pattern_are_counted_in_their_real_order():
    near, far = (LLAMA.blocks[0].model_copy(update={"count": 4}) for _ in range(2))
    model = LLAMA.model_copy(update={"blocks": (near, far), "pattern": (0, 1)})

    programs = realised(model, MEGATRON, "recompute=full:block:3")

    # kinds stand in turn, 0 1 0 1 …: of the first three blocks two are of the first kind
    assert counts(programs) == [2, 2, 1, 3]


@pytest.mark.parametrize(
    ("mode", "blocks_again"), [("full", (3, 8)), ("full:block:2", (2, 2)), ("full:every:3", (1, 2))]
)
def test_recompute_applies_to_the_entries_of_blocks_that_a_plan_names(mode, blocks_again):
    wide = LLAMA.blocks[0].model_copy(update={"count": 3})
    model = LLAMA.model_copy(update={"blocks": (wide, LLAMA.blocks[0])})
    each = flop_of(blocks(realised(LLAMA, MEGATRON, "gbs=1"))[0].forward)

    again = [
        again_flop(realised(model, MEGATRON, f"recompute={mode} recompute_blocks={entry}"))
        for entry in (0, 1)
    ]

    # three blocks of the first entry, eight of the second: counted among those that are named
    assert again == pytest.approx([number * each for number in blocks_again])


def test_modules_run_again_in_the_named_entries_alone():
    wide = LLAMA.blocks[0].model_copy(update={"count": 3})
    model = LLAMA.model_copy(update={"blocks": (wide, LLAMA.blocks[0]), "mtp": 1})

    programs = realised(model, MEGATRON, "recompute=selective:mlp recompute_blocks=1")

    kinds = [layer for layer in programs.layers if layer.kind in ("block", "mtp")]
    found = [any(item.phase == "recompute" for item in layer.backward) for layer in kinds]
    assert found == [False, True, True]


def test_early_stop_spares_a_block_its_last_gemm_and_its_last_sum_over_ranks():
    late, early = (blocks(realised(LLAMA, stack, "tp=2 recompute=full"))[0] for stack in (MEGATRON, EARLY))

    down = 2 * LENGTH * HIDDEN * 2816 / 2  # two FLOP for each weight of this rank and each token
    assert flop_of(late.backward) - flop_of(early.backward) == pytest.approx(down)
    assert len(messages(late.backward)) - len(messages(early.backward)) == 1
    again = [item.name for item in early.backward if item.phase == "recompute"]
    assert again[-1] == "mlp.activation"


def test_early_stop_runs_up_to_the_last_mask_where_there_is_dropout():
    """The mask is what dropout makes: it is there only once dropout has run again."""
    early = blocks(realised(GPT, stack_with(BARE, recompute_until="kept"), "recompute=full"))[0]

    again = [item.name for item in early.backward if item.phase == "recompute"]
    assert again[-1] == "mlp.drop"
    assert early.forward[-1].name == "mlp.residual"


def test_early_stop_comes_once_a_group():
    late, early = (realised(LLAMA, stack, "recompute=full:uniform:4") for stack in (MEGATRON, EARLY))

    down = 2 * LENGTH * HIDDEN * 2816
    assert again_flop(late) - again_flop(early) == pytest.approx(2 * down)


def test_early_stop_changes_nothing_that_is_kept():
    late, early = (peak_memory(realised(LLAMA, stack, "recompute=full")) for stack in (MEGATRON, EARLY))

    assert at(early.allocated_bytes) == at(late.allocated_bytes)
