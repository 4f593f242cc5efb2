"""Parameters that each rank holds, against the numbers that real runs printed and against conservation."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from workload_cases import GPT, HIDDEN, LLAMA, MEGATRON, MODELS, VOCABULARY, at, plan_of, plans_of, realised

from flopcast.library import catalog
from flopcast.spec.batch import Batch
from flopcast.spec.plan import one_plan
from flopcast.workload.lower import lower
from flopcast.workload.realise import realise

NEOX = catalog.stack("gpt-neox-deepspeed")


def by_stage(programs, plan=0):
    """Parameters of one rank of every stage."""
    return programs.parameters[plan, programs.stages.of(plan).stage_class].tolist()


@pytest.mark.parametrize(
    ("model", "text", "printed"),
    [
        ("gpt-neox-20b", "tp=4 pp=4", [1_324_088_832, 1_359_525_888, 1_359_525_888, 1_097_513_472]),
        ("gpt-neox-20b", "tp=8 pp=4", [662_640_384, 679_984_128, 679_984_128, 549_321_984]),
        ("llemma-7b-gelu", "tp=2 pp=4", [908_754_944, 906_153_984, 906_153_984, 707_391_488]),
    ],
)
def test_ranks_hold_what_the_logs_of_the_published_runs_print(model, text, printed):
    plans = one_plan(plan_of(f"{text} precision=fp16"))

    programs = realise(lower(catalog.model(model), plans, Batch(sequence_length=2048)), NEOX)

    assert by_stage(programs) == printed  # arXiv:2509.22832: "total params" of each pipeline stage


@pytest.mark.parametrize(("tensor", "padded"), [(2, 50432), (4, 50688), (8, 51200)])
def test_the_vocabulary_is_padded_as_those_logs_print(tensor, padded):
    workload = lower(catalog.model("gpt-neox-20b"), plans_of(f"tp={tensor}"), Batch(sequence_length=2048))

    (table,) = [w for w in workload.layers[0].weights if w.name == "embedding.table"]
    assert at(table.elements) * tensor / workload.model.hidden == padded


@settings(max_examples=20, deadline=None)
@given(
    model=st.sampled_from(sorted(MODELS)),
    tensor=st.sampled_from([1, 2, 4, 8]),
    pipeline=st.sampled_from([(1, 1), (2, 1), (4, 1), (8, 1), (2, 2), (4, 2)]),
)
def test_stages_hold_every_parameter_once_and_a_tied_table_twice(model, tensor, pipeline):
    stages, virtual = pipeline

    programs = realised(MODELS[model], MEGATRON, f"tp={tensor} pp={stages} vpp={virtual} gbs={stages}")

    whole = at(realised(MODELS[model], MEGATRON, f"tp={tensor}").parameters)
    copies = VOCABULARY * HIDDEN / tensor if MODELS[model].tied_embeddings and stages > 1 else 0.0
    assert sum(by_stage(programs)) == pytest.approx(whole + copies, rel=1e-12)


@settings(max_examples=30, deadline=None)
@given(model=st.sampled_from(sorted(MODELS)), tensor=st.sampled_from([2, 4, 8]))
def test_what_a_rank_holds_beyond_its_share_is_what_every_rank_repeats(model, tensor):
    whole, shard = (at(realised(MODELS[model], MEGATRON, f"tp={t}").parameters) for t in (1, tensor))

    # norms, positions, biases of row-parallel linears: a shard = repeated + (whole - repeated) / t
    repeated = (tensor * shard - whole) / (tensor - 1)
    vectors = {"gpt": 8 * 6 + 2 + 2048, "neox": 8 * 6 + 2, "llama": 8 * 2 + 1}[model]
    assert repeated == pytest.approx(vectors * HIDDEN)


def test_a_gpt_layer_has_twelve_squares_of_hidden_and_thirteen_vectors():
    two, one = (at(realised(model, MEGATRON, "gbs=1").parameters) for model in (GPT, with_blocks(GPT, 7)))

    assert two - one == 12 * HIDDEN**2 + 13 * HIDDEN  # arXiv:2104.04473, equation 2


def with_blocks(model, count):
    (block,) = model.blocks
    return model.model_copy(update={"blocks": (block.model_copy(update={"count": count}),)})


def test_a_gpt_s_parameters_are_those_of_equation_2():
    model = catalog.model("gpt3-175b")
    blocks, hidden, vocabulary = 96, 12288, 51200

    programs = realised(model, MEGATRON, "tp=1")

    # arXiv:2104.04473, equation 2: P = 12 l h² (1 + 13 / 12 h + (V + s) / 12 l h); and the final norm
    bracket = 1 + 13 / (12 * hidden) + (vocabulary + 2048) / (12 * blocks * hidden)
    assert at(programs.parameters) == pytest.approx(12 * blocks * hidden**2 * bracket + 2 * hidden)


def test_stages_between_the_ends_hold_blocks_alone():
    programs = realised(LLAMA, MEGATRON, "pp=4 gbs=4")

    first, *inner, last = by_stage(programs)
    block = 2 * HIDDEN**2 + 2 * HIDDEN**2 / 2 + 3 * 2816 * HIDDEN + 2 * HIDDEN  # q, out; k, v; MLP; norms
    assert inner == [2 * block, 2 * block]
    assert first - inner[0] == VOCABULARY * HIDDEN
    assert last - inner[0] == VOCABULARY * HIDDEN + HIDDEN


def test_a_tied_table_is_stored_once_where_one_stage_has_both_ends():
    sole, pair = (by_stage(realised(GPT, MEGATRON, f"pp={stages} gbs=2")) for stages in (1, 2))

    assert sum(pair) - sole[0] == VOCABULARY * HIDDEN


def test_what_pads_a_batch_holds_nothing():
    programs = realised(GPT, MEGATRON, "pp=4 gbs=4", "pp=1 gbs=4")

    padded = programs.stages.multiplicity[1] == 0
    assert padded.any()
    np.testing.assert_array_equal(programs.parameters[1, padded], 0.0)
