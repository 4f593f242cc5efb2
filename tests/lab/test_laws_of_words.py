"""Words of run tables: however they are spelt they mean the same, and no text breaks their reading."""

import pytest
from all_cases import all_cases
from hypothesis import given, settings
from hypothesis import strategies as st
from run_tables import run

from flopcast.lab.published import cells
from flopcast.lab.published.known_names import cluster_of
from flopcast.lab.validation.run import Machine, Mapping
from flopcast.spec.plan import Plan

FEW = settings(max_examples=30)
TEXT = st.text(max_size=30)
PRINTED = ("A100-SXM4-80GB", "H100", "H200-141GB", "MI300X", "RTX 4090", "GH200", "V100-SXM2-32GB")
SPELT = st.sampled_from([str, str.upper, str.lower, str.title])


def sharded(word, replicas=64, **machine):
    return cells.sharding(
        run(mapping=Mapping(fsdp=word, data_parallel=replicas), machine=Machine(**machine))
    )


@all_cases("device", PRINTED)
@all_cases("maker", ["", "NVIDIA ", "AMD Instinct ", "8x ", "8x", "16 x ", "dgx_", "HGX-"])
@all_cases("behind", ["", " GPUs", " GPU", " x8"])
def test_a_device_is_the_same_whoever_names_it_and_however_many_there_are(device, maker, behind):
    assert cells.plain_device(f"{maker}{device}{behind}") == cells.plain_device(device)


@FEW
@given(st.sampled_from(PRINTED), SPELT, st.sampled_from(["-", " ", "_", "/"]))
def test_a_device_is_found_in_whatever_case_and_with_whatever_between_its_words(device, spelt, between):
    other = spelt(device).replace("-", between).replace(" ", between)

    assert cluster_of(run(machine=Machine(device=other))) == cluster_of(run(machine=Machine(device=device)))


@FEW
@given(TEXT, st.sampled_from(["NVIDIA", "AMD", "Tesla", "GPUs", "DGX", "8x"]))
def test_a_plain_name_is_in_small_letters_between_single_blanks_without_its_maker(text, maker):
    plain = cells.plain_device(f"{text} {maker} {text}")

    assert plain == " ".join(plain.split()).lower()
    assert maker.lower() not in plain.split()


@FEW
@given(st.sampled_from([*cells.PRECISIONS, "bf16", "fp16", "nvfp4", "something"]), SPELT)
def test_a_precision_is_the_same_in_any_case_and_between_blanks(word, spelt):
    assert cells.precision_word(f" {spelt(word)} ") == cells.precision_word(word)
    assert cells.precision_word(cells.precision_word(word)) == cells.precision_word(word)


@all_cases("word", cells.PRECISIONS.values())
def test_what_a_precision_stands_for_is_one_that_a_plan_takes(word):
    assert Plan(precision=word).precision == word


@FEW
@given(
    st.sampled_from([*cells.NO_WORDS, *cells.FULL_WORDS, "selective layer", "selective op", "selective"]),
    SPELT,
)
def test_a_mode_of_recompute_is_the_same_in_any_case_and_is_one_that_a_plan_takes(word, spelt):
    meant = cells.recompute_word(f" {spelt(word)}  ")

    assert meant == cells.recompute_word(word) == cells.recompute_word(meant)
    assert Plan(recompute=meant).recompute in ("none", "selective", "full")


def test_words_for_nothing_and_for_everything_are_apart():
    assert not set(cells.NO_WORDS) & set(cells.FULL_WORDS)
    assert Plan(recompute=cells.EVERY_SECOND).recompute_layers == 2


@FEW
@given(TEXT)
def test_no_text_whatever_breaks_the_reading_of_a_word(text):
    assert set(sharded(text)) <= {"zero", "data_shard"}
    assert set(cells.adapters(text)) <= {"rank", "targets"}
    assert cells.precision_word(text) == cells.precision_word(text.strip())
    assert isinstance(cells.recompute_word(text), str)


@FEW
@given(st.integers(2, 512), st.integers(1, 512))
def test_a_group_that_shards_is_as_large_as_is_said_or_all_replicas(size, replicas):
    words = [f"FSDP={size}", f"fsdp {size}", f"shard group {size}", f"FSDP2 size {size}", f"{size}"]

    found = [sharded(word, replicas) for word in words]

    assert all(each == {"zero": 3, "data_shard": size if size < replicas else 0} for each in found)


@all_cases("size", ["0", "1"])
@all_cases("word", ["{}", "FSDP={}", "FSDP2 size {}", "shard group {}"])
def test_a_group_of_one_rank_or_of_none_shards_nothing(word, size):
    assert sharded(word.format(size)) == {"zero": 0}


@all_cases("word", ["FSDP", "FULL_SHARD", "full_shard", "ZeRO-3", "zero3", "SHARD_GRAD_OP"])
def test_sharding_without_a_number_is_over_all_replicas(word):
    assert sharded(word) == {"zero": 3}


@pytest.mark.parametrize("devices", [4, 8, 16])
def test_hybrid_sharding_is_inside_a_node(devices):
    for word in ("HSDP", "hybrid_shard", "Hybrid"):
        assert sharded(word, devices_per_node=devices) == {"zero": 3, "data_shard": devices}


@pytest.mark.parametrize("size", [2, 8, 64])
def test_what_internevo_says_in_its_remarks_goes_before_the_word(size):
    told = run(mapping=Mapping(fsdp="FSDP", data_parallel=64), notes=f"checkpoint=True, zero1={size}")

    assert cells.sharding(told) == {"data_shard": size}


@FEW
@given(
    st.integers(1, 512),
    st.sampled_from(["LoRA", "lora", "QLoRA", "Lora"]),
    st.sampled_from([" rank {}", ", rank={}", ", rank: {}", " r={}", " (r = {})", " Rank {}"]),
)
def test_the_rank_of_adapters_is_found_however_it_is_written(rank, word, written):
    found = cells.adapters(f"fine-tuning with {word}{written.format(rank)}, bf16")

    assert found["rank"] == rank


@all_cases("notes", ["full fine-tuning, no LoRA", "without LoRA", "exploration", "DoRA", ""])
def test_a_training_that_is_none_of_adapters_has_none(notes):
    assert cells.adapters(notes) == {}


def test_more_of_a_model_is_adapted_the_more_is_said():
    words = ("LoRA", "LoRA, attention only", "LoRA, all linear")

    targets = [set(cells.adapters(word)["targets"]) for word in words]

    assert targets[0] < targets[1] < targets[2]


@FEW
@given(st.integers(1, 200).map(lambda n: 64 * n))
def test_assumed_heads_make_up_the_width(hidden):
    heads = cells.assumed_heads(hidden)

    assert hidden // heads in cells.HEAD_SIZES
    assert heads * (hidden // heads) == hidden
    assert (hidden // heads == 128) == (hidden % 128 == 0)


@FEW
@given(
    st.dictionaries(
        st.sampled_from(
            ["data_parallel", "tensor_parallel", "pipeline_parallel", "context_parallel", "zero"]
        ),
        st.integers(1, 8),
    ),
    st.integers(1, 64),
)
def test_no_degree_is_implied_that_is_stated_and_all_implied_ones_are_one(plan, devices):
    implied = cells.implied_degrees(run(machine=Machine(num_devices=devices)), plan)

    assert not implied.keys() & plan.keys()
    assert set(implied.values()) <= {1}
    if implied:
        assert {"tensor_parallel", "pipeline_parallel"} <= implied.keys() | plan.keys()
