"""Which layers stand where: against the codes that divide them and the stages that runs printed."""

import numpy as np
import pytest
from all_cases import all_cases
from hypothesis import given, settings
from hypothesis import strategies as st
from workload_cases import plans_of

from flopcast.errors import InternalError
from flopcast.spec.stack import Pipeline
from flopcast.workload.stages import DIVISIONS, Pile, divide, divide_all

LAWS = settings(max_examples=30, deadline=None)
EVEN = Pipeline(partition="even")
NEOX = Pipeline(partition="deepspeed_uniform", entries_before=1, entries_after=1)


def blocks_per_stage(division):
    """Blocks of every stage, over all of its chunks and runs of blocks."""
    return division.stage_counts[division.stage_class][:, 1:-2].sum(axis=1).tolist()


def partition_uniform(num_items, num_parts):
    """DeepSpeed's `runtime/utils.py: partition_uniform`, told in its own way: bounds of the parts."""
    size, left_over = divmod(num_items, num_parts)
    bounds = [0]
    for part in range(num_parts):
        bounds.append(bounds[-1] + size + (1 if part < left_over else 0))
    return bounds


@all_cases(
    ("blocks", "stages", "printed"),
    [
        (44, 4, [11, 12, 12, 9]),
        (44, 8, [5, 6, 6, 6, 6, 6, 6, 3]),
        (40, 4, [10, 11, 11, 8]),
        (32, 4, [8, 9, 9, 6]),
    ],
)
def test_stages_hold_the_blocks_that_the_logs_of_the_published_runs_print(blocks, stages, printed):
    pile = Pile(counts=(1, blocks, 1, 1), stages=stages, virtual=1, before=1, after=1)

    division = divide(pile, "deepspeed_uniform")

    assert blocks_per_stage(division) == printed  # arXiv:2509.22832, logs of GPT-NeoX and DeepSpeed


@LAWS
@given(
    runs=st.lists(st.integers(1, 12), min_size=1, max_size=3),
    stages=st.integers(1, 9),
    before=st.integers(0, 2),
    after=st.integers(0, 2),
)
def test_deepspeed_stages_are_consecutive_slices_of_the_list_of_modules(runs, stages, before, after):
    modules = ["embedding"] + ["?"] * before
    for run, count in enumerate(runs):
        modules += [f"run {run}"] * count
    modules += ["?"] * after + ["norm", "head"]
    bounds = partition_uniform(len(modules), stages)
    names = ["embedding", *(f"run {run}" for run in range(len(runs))), "norm", "head"]

    division = divide(
        Pile(counts=(1, *runs, 1, 1), stages=stages, virtual=1, before=before, after=after),
        "deepspeed_uniform",
    )

    for stage in range(stages):
        held = modules[bounds[stage] : bounds[stage + 1]]
        counts = division.stage_counts[division.stage_class[stage]]
        assert counts.tolist() == [held.count(name) for name in names]


@LAWS
@given(stages=st.integers(1, 5), virtual=st.integers(1, 4), per_chunk=st.integers(1, 3))
def test_megatron_gives_chunk_c_of_stage_s_the_blocks_from_c_p_plus_s_times_n(stages, virtual, per_chunk):
    blocks = stages * virtual * per_chunk
    every_block_alone = (1,) * blocks  # runs of one, so that each block can be told from the others

    division = divide(Pile(counts=(1, *every_block_alone, 1, 1), stages=stages, virtual=virtual), "even")

    for stage in range(stages):
        for chunk in range(virtual):
            held = division.chunk_counts[division.chunk_class[stage, chunk]][1:-2]
            # Megatron-LM, `get_transformer_layer_offset`: chunk · (L / v) + rank · (L / v / p)
            start = chunk * (blocks // virtual) + stage * (blocks // virtual // stages)
            assert np.flatnonzero(held).tolist() == list(range(start, start + per_chunk))


def test_interleaved_the_first_stage_has_the_embedding_once_and_the_last_the_head_once():
    division = divide(Pile(counts=(1, 16, 1, 1), stages=4, virtual=2), "even")

    ends = division.chunk_counts[division.chunk_class][:, :, [0, -2, -1]]

    assert ends[0].tolist() == [[1, 0, 0], [0, 0, 0]]  # first chunk of the first stage
    assert ends[3].tolist() == [[0, 0, 0], [0, 1, 1]]  # last chunk of the last stage
    assert ends[1:3].sum() == 0


@LAWS
@given(
    rule=st.sampled_from(sorted(DIVISIONS)),
    runs=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    stages=st.integers(1, 6),
    virtual=st.integers(1, 3),
)
def test_every_layer_is_placed_exactly_once_under_every_rule(rule, runs, stages, virtual):
    virtual = 1 if rule == "deepspeed_uniform" else virtual
    counts = (1, *(run * stages * virtual for run in runs), 1, 1)
    blocks = sum(counts[1:-2]) - (stages * virtual - 1)
    listed = (*[1] * (stages * virtual - 1), blocks)  # all that is left on the last chunk

    division = divide(
        Pile(counts=counts, stages=stages, virtual=virtual, before=1, after=1, listed=listed), rule
    )

    placed = division.chunk_counts[division.chunk_class.ravel()]
    assert placed.sum(axis=0).tolist() == list(counts)
    assert placed.min() >= 0


@LAWS
@given(
    rule=st.sampled_from(sorted(DIVISIONS)),
    blocks=st.integers(1, 4),
    stages=st.integers(1, 7),
    virtual=st.integers(1, 3),
)
def test_classes_name_equal_stages_and_count_them(rule, blocks, stages, virtual):
    virtual = 1 if rule == "deepspeed_uniform" else virtual
    counts = (1, blocks * stages * virtual, 1, 1)
    listed = (blocks,) * (stages * virtual)

    division = divide(Pile(counts=counts, stages=stages, virtual=virtual, listed=listed), rule)

    of_stage = [division.chunk_counts[division.chunk_class[stage]].tolist() for stage in range(stages)]
    for number, rank in enumerate(division.stage_class):
        assert of_stage[number] == division.chunk_counts[division.stage_chunks[rank]].tolist()
        assert of_stage[division.earliest_stage[rank]] == of_stage[number]
        assert division.earliest_stage[rank] <= number
        assert division.multiplicity[rank] == of_stage.count(of_stage[number])
    distinct = {str(held) for held in of_stage}
    assert len(division.stage_counts) == len(distinct)


def test_many_equal_inner_stages_share_one_class():
    division = divide(Pile(counts=(1, 96, 1, 1), stages=8, virtual=3), "even")

    assert sorted(division.multiplicity.tolist()) == [1, 1, 6]  # first, last, all others


def test_a_sole_stage_holds_everything():
    division = divide(Pile(counts=(1, 5, 3, 1, 1), stages=1, virtual=1), "even")

    assert division.stage_counts.tolist() == [[1, 5, 3, 1, 1]]


def test_blocks_that_do_not_divide_are_told_with_all_three_numbers():
    pile = Pile(counts=(1, 10, 1, 1), stages=4, virtual=2)

    with pytest.raises(InternalError, match=r"10 blocks .* 4 × 2 chunks"):
        divide(pile, "even")


def test_a_rule_that_knows_no_virtual_stages_refuses_them():
    pile = Pile(counts=(1, 8, 1, 1), stages=2, virtual=2)

    with pytest.raises(InternalError, match="virtual"):
        divide(pile, "deepspeed_uniform")


@LAWS
@given(
    shapes=st.lists(
        st.sampled_from([(2, 2), (2, 3), (4, 2), (4, 3), (3, 4), (6, 2)]), min_size=1, max_size=5
    )
)
def test_in_a_batch_each_plan_has_the_stages_that_it_has_alone(shapes):
    counts = (1, 144, 1, 1)
    texts = [f"pp={p} vpp={v} gbs={p}" for p, v in shapes]

    together = divide_all(counts, plans_of(*texts), EVEN)

    for number, text in enumerate(texts):
        alone = divide_all(counts, plans_of(text), EVEN)
        classes, chunks = alone.chunks_of_class.shape[1:]
        inside = np.s_[number, :classes]
        np.testing.assert_array_equal(together.stage_counts[inside], alone.stage_counts[0])
        np.testing.assert_array_equal(together.multiplicity[inside], alone.multiplicity[0])
        np.testing.assert_array_equal(together.earliest_stage[inside], alone.earliest_stage[0])
        held = together.chunks_of_class[inside][:, :chunks]
        np.testing.assert_array_equal(held, alone.chunks_of_class[0])
        np.testing.assert_array_equal(together.of(number).chunk_class, alone.of(0).chunk_class)


def test_what_pads_a_batch_is_empty():
    texts = ("pp=8 gbs=8", "pp=1 gbs=1")

    stages = divide_all((1, 48, 1, 1), plans_of(*texts), EVEN)

    assert stages.multiplicity.sum(axis=1).tolist() == [8, 1]  # as many stages as the plan has
    padded = stages.multiplicity[1] == 0
    assert padded.sum() == 2  # first, inner and last stage of the other plan, one of its own
    assert stages.stage_counts[1, padded].sum() == 0
    assert stages.chunks_of_class[1].sum() == 1  # one stage with one chunk
    assert stages.chunk_counts[1].sum() == 51


def test_plans_of_one_shape_share_one_division():
    texts = ("dp=2 pp=4 gbs=8", "tp=2 pp=4 gbs=16", "pp=2 gbs=8")

    stages = divide_all((1, 44, 1, 1), plans_of(*texts), NEOX)

    assert stages.of(0) is stages.of(1)
    assert len(stages.divisions) == 2


@LAWS
@given(stages=st.integers(1, 4), virtual=st.integers(1, 3), draw=st.data())
def test_listed_blocks_stand_on_their_chunks_in_the_order_of_the_model(stages, virtual, draw):
    sizes = draw.draw(st.lists(st.integers(0, 4), min_size=stages * virtual, max_size=stages * virtual))
    every_block_alone = (1,) * max(sum(sizes), 1)
    sizes[-1] += len(every_block_alone) - sum(sizes)

    division = divide(
        Pile(counts=(1, *every_block_alone, 1, 1), stages=stages, virtual=virtual, listed=tuple(sizes)),
        "listed",
    )

    start = 0
    for number, size in enumerate(sizes):
        chunk, stage = divmod(number, stages)
        held = division.chunk_counts[division.chunk_class[stage, chunk]][1:-2]
        assert np.flatnonzero(held).tolist() == list(range(start, start + size))
        start += size


def test_equal_numbers_listed_are_the_even_division():
    pile = Pile(counts=(1, 24, 1, 1), stages=4, virtual=2, listed=(3,) * 8)

    listed, even = divide(pile, "listed"), divide(pile, "even")

    np.testing.assert_array_equal(listed.chunk_class, even.chunk_class)
    np.testing.assert_array_equal(listed.chunk_counts, even.chunk_counts)


@all_cases("listed", [(), (8,), (5, 4), (4, 2, 2)])
def test_a_list_that_does_not_fit_its_chunks_is_a_fault_of_ours(listed):
    with pytest.raises(InternalError, match="8 blocks over 2 chunks"):
        divide(Pile(counts=(1, 8, 1, 1), stages=2, virtual=1, listed=listed), "listed")
