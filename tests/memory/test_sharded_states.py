"""What shards need, what is whole for a while: against the table of arXiv:1910.02054 and hand counts."""

import pytest
from all_cases import all_cases
from memory_cases import BLOCKS, GPT, HIDDEN, VOCABULARY, Kept, stack_with

from flopcast.memory.sharded import built_whole
from flopcast.spec.data_parallel import Sharding

BLOCK_PARAMETERS = 12 * HIDDEN**2 + 13 * HIDDEN
TABLE = VOCABULARY * HIDDEN
HEAD = TABLE  # the norm before it is a layer of its own
PARAMETERS = BLOCKS * BLOCK_PARAMETERS + 2 * TABLE + 2 * HIDDEN


def kept(text, **sharding):
    """The memory of a plan on a stack whose gradients are all 16 bits wide."""
    changed = stack_with(gradients={"dtype": "fp16", "overlap": True})
    shards = Sharding(gradient_dtype="fp16", keeps_low_precision=True, **sharding)
    return Kept(text, stack=changed.model_copy(update={"sharding": shards}), model=GPT)


@all_cases("ranks", [1, 4, 64])
@all_cases(("stage", "whole", "shared"), [(0, 16.0, 0.0), (1, 4.0, 12.0), (2, 2.0, 14.0), (3, 0.0, 16.0)])
def test_each_zero_stage_keeps_the_bytes_of_its_line_in_the_paper(stage, whole, shared, ranks):
    """Figure 1 of arXiv:1910.02054: (2 + 2 + 12) bytes a parameter, of which so many over the ranks."""
    memory = kept(f"dp={ranks} zero={stage} gbs={ranks} precision=fp16")

    states = sum(memory.category(name)[0] for name in ("parameters", "gradients", "optimizer_states"))

    assert states == pytest.approx(PARAMETERS * (whole + shared / ranks), rel=1e-12)


@all_cases(("reduces", "ranks"), [("every_micro_batch", 4), ("last_micro_batch", 1)])
def test_shards_and_whole_gradients_are_summed_in_the_dtype_of_their_reduction(reduces, ranks):
    """The accumulation of FSDP2 (`to_accumulated_grad_if_needed`); parameters have 16 bits."""
    shards = Sharding(gradient_dtype="fp32", reduces=reduces)
    stack = stack_with(gradients={"dtype": "fp16"}).model_copy(update={"sharding": shards})

    memory = Kept("dp=4 zero=3 gbs=8", stack=stack, model=GPT)

    assert memory.category("gradients") == [4.0 * PARAMETERS / ranks]


def test_hybrid_shards_are_cut_over_their_group_alone():
    hybrid, full = (kept(f"dp=64 {words} zero=3 gbs=64") for words in ("dp_shard=8", ""))

    for name in ("parameters", "gradients", "optimizer_states"):
        assert hybrid.category(name)[0] == pytest.approx(8 * full.category(name)[0])


def test_two_units_are_whole_at_once_or_one_without_prefetch():
    ahead, alone = (kept("dp=64 zero=3 gbs=64", prefetch_units=units) for units in (1, 0))

    assert ahead.category("gathered_parameters") == [2 * 2.0 * max(HEAD, BLOCK_PARAMETERS)]
    assert alone.category("gathered_parameters") == [2.0 * max(HEAD, BLOCK_PARAMETERS)]


@all_cases(("whole", "elements"), [("unit", BLOCK_PARAMETERS), ("weight", 4 * HIDDEN**2)])
def test_a_compiler_makes_one_weight_whole_instead_of_a_unit(whole, elements):
    """XLA gathers each weight for its GEMM; the largest of a block with a small table is one of the MLP."""
    stack = stack_with(sharding={"whole": whole}, gradients={"dtype": "fp16", "overlap": True})

    memory = Kept("dp=64 zero=3 gbs=64", stack=stack, model=GPT.model_copy(update={"vocabulary": 512}))

    assert memory.category("gathered_parameters") == [2 * 2.0 * elements]
    assert memory.category("unreduced_gradients") == [(2.0 + 2.0) * elements]


def test_a_root_unit_stays_whole_beside_the_blocks():
    memory = kept("dp=64 zero=3 gbs=64", ends="root")

    of_root = 2 * TABLE + 2 * HIDDEN
    assert memory.category("gathered_parameters") == [2.0 * (of_root + 2 * BLOCK_PARAMETERS)]


@pytest.mark.parametrize("policy", ["every_micro_batch", "every_step"])
def test_parameters_that_are_not_freed_are_all_whole_in_the_backward(policy):
    memory = kept("dp=64 zero=3 gbs=128", gathers=policy)

    assert memory.category("gathered_parameters") == [2.0 * PARAMETERS]


def test_gradients_stay_whole_until_the_last_micro_batch_where_only_that_one_is_reduced():
    every, last = (
        kept("dp=8 zero=2 gbs=32", reduces=times) for times in ("every_micro_batch", "last_micro_batch")
    )

    assert every.category("gradients") == [pytest.approx(2.0 * PARAMETERS / 8)]
    assert last.category("gradients") == [2.0 * PARAMETERS]


def test_one_unit_s_gradients_exist_twice_before_they_are_reduced():
    """In 16 bits where the backward wrote them, and in the buffer that travels."""
    memory = kept("dp=8 zero=3 gbs=8")

    assert memory.category("unreduced_gradients") == [(2.0 + 2.0) * HEAD]


def test_without_sharding_nothing_is_gathered():
    memory = kept("dp=8 zero=1 gbs=8")

    assert memory.category("gathered_parameters") == [0.0]
    assert memory.category("unreduced_gradients") == [0.0]


@pytest.mark.parametrize(
    ("stage", "built", "elements"), [(3, True, PARAMETERS), (3, False, 0), (1, True, 0)]
)
def test_a_model_that_is_built_whole_stands_there_in_16_bits_before_it_is_sharded(stage, built, elements):
    """Below ZeRO-3 it stays whole, and is counted among what stands."""
    programs = kept(f"dp=64 zero={stage} gbs=64", built_whole=built).programs

    size_bytes = built_whole(programs)

    assert size_bytes.item() == pytest.approx(2.0 * elements)
