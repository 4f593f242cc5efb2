"""Plans: names long and short, degrees and what follows from them, batches of plans as arrays."""

import re

import numpy as np
import pytest
from all_cases import all_cases
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from flopcast.errors import InternalError, SpecError
from flopcast.files.yaml_text import read_yaml, resolve
from flopcast.library.edits import plan_words
from flopcast.spec.batch import Batch
from flopcast.spec.plan import Plan, batch_plans, one_plan, structure_of
from flopcast.spec.plan_fields import NUMERIC

SHORT_NAMES = {  # the field's abbreviations, as Megatron-LM and its users write them
    "dp": "data_parallel",
    "dp_shard": "data_shard",
    "tp": "tensor_parallel",
    "sp": "sequence_parallel",
    "cp": "context_parallel",
    "ep": "expert_parallel",
    "etp": "expert_tensor_parallel",
    "pp": "pipeline_parallel",
    "vpp": "virtual_stages",
    "mbs": "micro_batch",
    "gbs": "global_batch",
}
DEGREES = st.integers(1, 64)
BUILT = st.builds(
    Plan,
    data_parallel=DEGREES,
    tensor_parallel=DEGREES,
    pipeline_parallel=DEGREES,
    virtual_stages=DEGREES,
    micro_batch=DEGREES,
    global_batch=st.integers(1, 4096),
    zero=st.integers(0, 1),
    sequence_parallel=st.booleans(),
    recompute=st.sampled_from(
        [
            "none",
            "selective",
            "selective:mlp,layernorm",
            "full",
            "full:block:4",
            "full:every:2",
            "full:uniform:3",
        ]
    ),
    recompute_blocks=st.sampled_from([(), (1,), (0, 2)]),
    optimizer=st.sampled_from(["adamw", "sgd", "adafactor"]),
    precision=st.sampled_from(["fp16", "bf16"]),
)


@all_cases(("short", "long"), SHORT_NAMES.items())
def test_a_short_name_means_its_long_name(short, long):
    value = long == "sequence_parallel" or 2

    assert Plan.model_validate({short: value}) == Plan.model_validate({long: value})
    assert getattr(Plan.model_validate({short: value}), long) == value


@all_cases(("short", "long"), SHORT_NAMES.items())
def test_a_degree_is_not_given_under_both_of_its_names(short, long):
    with pytest.raises(ValidationError):
        Plan.model_validate({short: 1, long: 1})


@all_cases("name", [name for name in NUMERIC if name != "data_shard"])
@all_cases("value", [0, -1, 1.5, "many", None, float("nan"), float("inf"), [1], {}])
def test_a_degree_is_a_whole_number_from_one(name, value):
    with pytest.raises(ValidationError):
        Plan.model_validate({name: value})


@all_cases(
    ("name", "value"),
    [
        ("zero", 4),
        ("zero", -1),
        ("schedule", "1F1B"),
        ("recompute", "some"),
        ("precision", "fp64"),
        ("rank_order", "tp-tp-pp-dp"),
        ("rank_order", "tp-pp-dp"),
        ("context_exchange", "mesh"),
        ("sequence_parallel", "maybe"),
    ],
)
def test_a_mode_is_one_of_its_words(name, value):
    with pytest.raises(ValidationError):
        Plan.model_validate({name: value})


def test_a_plan_that_says_nothing_runs_one_sequence_on_one_device():
    silent = Plan()

    assert (silent.devices, silent.num_micro_batches) == (1, 1)
    degrees = {name: getattr(silent, name) for name in NUMERIC}
    assert degrees.pop("data_shard") == 0  # all replicas, if any shard anything
    assert set(degrees.values()) == {1}


def test_the_plan_of_gpt3_on_selene_uses_1024_devices_and_96_micro_batches():
    plan = Plan.model_validate(plan_words("dp=16 tp=8 pp=8 mbs=1 gbs=1536"))  # arXiv:2104.04473, 5.1

    assert plan.devices == 1024
    assert plan.num_micro_batches == 96


@all_cases(
    ("words", "schedule"),
    [
        ("pp=4", "1f1b"),
        ("pp=4 vpp=2", "interleaved_1f1b"),
        ("pp=4 schedule=1f1b", "1f1b"),
        ("pp=4 vpp=2 schedule=gpipe", "gpipe"),
        ("pp=1", "1f1b"),
    ],
)
def test_the_schedule_that_is_left_to_us_is_1f1b_interleaved_where_there_are_chunks(words, schedule):
    assert Plan.model_validate(plan_words(words)).pipeline_schedule == schedule


@all_cases(
    ("word", "fields"),
    [
        ("full", {"recompute": "full"}),
        ("full:block:4", {"recompute": "full", "recompute_method": "block", "recompute_layers": 4}),
        ("full:every", {"recompute": "full", "recompute_method": "every"}),
        ("selective:mlp,moe", {"recompute": "selective", "recompute_modules": ["mlp", "moe"]}),
    ],
)
def test_one_word_of_recompute_means_its_fields(word, fields):
    assert Plan.model_validate(plan_words(f"recompute={word}")) == Plan.model_validate(fields)


@all_cases("word", ["full:blok:4", "full:block:many", "full:block:0", "full:block:1:2", "none:4"])
def test_a_word_of_recompute_that_means_nothing_is_refused(word):
    with pytest.raises(ValidationError):
        Plan.model_validate({"recompute": word})


def test_what_a_word_of_recompute_says_is_not_said_again():
    with pytest.raises(ValueError, match="recompute_layers, but not both"):
        Plan.model_validate({"recompute": "full:block:4", "recompute_layers": 4})


def test_the_schema_takes_the_words_of_recompute_that_a_plan_takes():
    modes, short = Plan.model_json_schema()["properties"]["recompute"]["anyOf"]

    assert modes["enum"] == ["none", "selective", "full"]
    for word in ("full:block:4", "full:every", "selective:mlp,core_attention"):
        assert re.fullmatch(short["pattern"], word)
        assert Plan.model_validate({"recompute": word}).recompute in modes["enum"]
    assert not re.fullmatch(short["pattern"], "full:block:0")


@settings(max_examples=60, deadline=None)
@given(plan=BUILT)
def test_the_short_form_of_a_plan_means_the_plan(plan):
    assert Plan.model_validate(plan_words(plan.short())) == plan


def test_the_short_form_leaves_out_nothing_but_defaults():
    choices = [
        {"partition_activations": True},
        {"rank_order": "tp-cp-pp-dp"},
        {"schedule": "gpipe"},
        {"context_parallel": 2},
        {"data_shard": 8},
        {"expert_parallel": 8},
        {"expert_tensor_parallel": 2},
        {"offload": "optimizer:host"},
    ]

    silent = [choice for choice in choices if Plan.model_validate(choice).short() == Plan().short()]

    assert silent == []


def test_the_short_form_always_says_micro_batch_global_batch_and_precision():
    assert Plan().short() == "mbs=1 gbs=1 precision=bf16"


def test_a_batch_holds_its_plans_in_order_and_one_row_each():
    plans = [Plan(data_parallel=d, global_batch=8 * d, micro_batch=2) for d in (4, 1, 2)]

    batch = batch_plans(plans)

    assert batch.size == 3
    assert batch.data_parallel.tolist() == [[4], [1], [2]]
    assert batch.num_micro_batches.tolist() == [[4], [4], [4]]


@settings(max_examples=60, deadline=None)
@given(plans=st.lists(st.builds(Plan, **dict.fromkeys(NUMERIC, DEGREES), schedule=st.just("1f1b"))))
def test_every_number_of_a_batch_is_that_of_its_plan(plans):
    if not plans:
        with pytest.raises(InternalError, match="got 0"):
            batch_plans(plans)
        return

    batch = batch_plans(plans)

    for name in NUMERIC:
        column = getattr(batch, name)
        assert column.dtype == np.float64
        assert column[:, 0].tolist() == [getattr(plan, name) for plan in plans]
    assert batch.num_micro_batches[:, 0].tolist() == [plan.num_micro_batches for plan in plans]


@all_cases(
    "other",
    [
        {"zero": 1},
        {"precision": "fp16"},
        {"recompute": "full"},
        {"sequence_parallel": True},
        {"virtual_stages": 2},
        {"rank_order": "tp-cp-pp-dp"},
    ],
)
def test_plans_of_different_structure_form_no_batch(other):
    with pytest.raises(InternalError, match="one structure, got 2"):
        batch_plans([Plan(), Plan.model_validate(other)])


def test_naming_the_schedule_that_would_be_chosen_changes_no_structure():
    assert structure_of(Plan(schedule="1f1b")) == structure_of(Plan(schedule="auto", tensor_parallel=8))
    assert structure_of(Plan(virtual_stages=2)) == structure_of(
        Plan(virtual_stages=4, schedule="interleaved_1f1b")
    )


def test_numbers_and_structure_together_are_all_there_is_to_a_plan():
    kept = structure_of(Plan(**dict.fromkeys(NUMERIC, 3), schedule="gpipe"))

    assert kept == Plan(schedule="gpipe")


def test_a_layer_sees_micro_batch_sequence_and_tensor_ranks_and_nothing_of_replicas():
    plan = Plan(micro_batch=4, tensor_parallel=8, data_parallel=16, pipeline_parallel=2, global_batch=64)

    split = one_plan(plan).split(Batch(sequence_length=2048))

    assert split.tokens.tolist() == [[4 * 2048]]
    assert split.own_tokens.tolist() == [[4 * 2048]]
    assert split.tensor.tolist() == [[8]]


def test_sequence_parallel_ranks_own_their_share_of_the_tokens():
    plan = Plan(micro_batch=4, tensor_parallel=8, sequence_parallel=True)

    split = one_plan(plan).split(Batch(sequence_length=2048))

    assert split.own_tokens.tolist() == [[4 * 2048 / 8]]


def test_context_parallel_ranks_see_their_share_of_the_sequence():
    split = one_plan(Plan(context_parallel=4)).split(Batch(sequence_length=8192))

    assert split.length.tolist() == [[2048]]


@pytest.mark.parametrize("name", ["seq", "sequence_length"])
def test_a_batch_is_told_its_sequence_length_by_either_name(name):
    assert Batch.model_validate({name: 4096}).sequence_length == 4096


@all_cases("length", [0, -1, 1.5, None, "long"])
def test_a_sequence_has_at_least_one_token(length):
    with pytest.raises(ValidationError):
        Batch.model_validate({"sequence_length": length})


RUNS_OF_BLOCKS = st.lists(st.tuples(st.integers(0, 9), st.integers(1, 12)), min_size=1, max_size=8)


@given(RUNS_OF_BLOCKS)
def test_a_list_of_blocks_is_the_same_in_every_way_to_write_it(counted):
    """As a plan in short form, as YAML text, as a text in Python, one by one, and counted in any way."""
    layers = tuple(blocks for blocks, times in counted for _ in range(times))
    plan = Plan(pp=len(layers), stage_layers=layers)
    (word,) = [word for word in plan.short().split() if word.startswith("stage_layers=")]
    text = word.partition("=")[2]
    every_run = ",".join(f"{blocks}x{times}" for blocks, times in counted)

    assert Plan.model_validate(plan_words(plan.short())) == plan
    assert plan_words(word)["stage_layers"] == resolve(text)
    for written in (text, text.replace("x", "×"), every_run, ",".join(map(str, layers)), list(layers)):
        assert Plan(stage_layers=written).stage_layers == layers
    document = read_yaml(f'plan: "{plan.short()}"\nstage_layers: {text}'.encode(), "job.yaml")
    assert Plan(stage_layers=document.data["stage_layers"]).stage_layers == layers
    assert Plan.model_validate(plan_words(document.data["plan"])) == plan


@all_cases(
    ("layers", "text"),
    [((6,) * 11 + (5,), "6x11,5"), ((17, 15), "17,15"), ((4, 4), "4,4"), ((0, 2, 2, 2, 0), "0,2x3,0")],
)
def test_equal_neighbours_of_a_long_list_are_counted(layers, text):
    assert f" stage_layers={text} " in Plan(stage_layers=layers).short()


@all_cases("text", ["4,4x", "4x0", "x4", "4x-1", "4x1.5", "1x99999999999", "4xx4", "2x3x4"])
def test_a_run_of_blocks_is_a_number_and_a_count(text):
    with pytest.raises(SpecError):
        Plan(stage_layers=text)
