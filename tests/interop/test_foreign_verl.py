"""veRL's newer SFT trainer: its engines, and micro-batches that are filled up to a number of tokens."""

import pytest
from foreign_cases import data_of, told

from flopcast.spec.switches import TUNING_CODE

SMALL = """
data: {{train_batch_size: 48, max_length: 2048, max_token_len_per_gpu: {tokens}, pad_mode: no_padding}}
model: {{path: Qwen/Qwen2.5-7B, use_remove_padding: true}}
engine: {{strategy: fsdp2, ulysses_sequence_parallel_size: {context}, fsdp_size: {group}{more}}}
"""


def text(tokens=8192, context=1, group=-1, more=""):
    return SMALL.format(tokens=tokens, context=context, group=group, more=more)


@pytest.mark.parametrize(
    ("tokens", "context", "sequences"),
    [(2048, 1, 1), (8192, 1, 3), (8191, 1, 3), (6143, 1, 2), (2048, 2, 2), (10**6, 1, 6)],
)
def test_a_micro_batch_is_filled_with_equal_numbers_of_sequences(tokens, context, sequences):
    """verl/workers/engine/utils.py: at most max_token_len_per_gpu tokens for each rank of a sequence."""
    plan = data_of(text(tokens, context), "sft.yaml")["plan"]

    each = plan["global_batch"] // plan["data_parallel"]
    assert plan["micro_batch"] == sequences
    assert plan["micro_batch"] * 2048 <= tokens * context
    assert each % plan["micro_batch"] == 0


def test_the_file_is_no_serving_job_although_it_has_an_engine():
    data = data_of(text(), "sft.yaml")

    assert data["model"] == {"base": "qwen2.5-7b"}
    assert data["stack"] == {"base": "torch-fsdp2", **TUNING_CODE}


def test_ranks_of_a_shard_group_include_those_that_share_sequences():
    """engine/fsdp: the device mesh of all ranks has groups of fsdp_size."""
    assert data_of(text(context=2, group=4), "sft.yaml")["plan"]["data_shard"] == 2
    assert "data_shard" not in data_of(text(context=2, group=8), "sft.yaml")["plan"]


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        (text(tokens=2047), "data.max_token_len_per_gpu"),
        (text().replace("48", "44"), "data.train_batch_size"),
        (text(more=", param_offload: true"), "engine.param_offload"),
        (text(more=", optimizer_offload: true"), "engine.optimizer_offload"),
        (text(more=", forward_only: true"), "engine.forward_only"),
        (text(more=", num_experts_per_rank: 2"), "engine.num_experts_per_rank"),
        (text().replace("fsdp2", "veomni"), "engine.strategy"),
        (
            text(context=2).replace("use_remove_padding: true", "use_remove_padding: false"),
            "model.use_remove_padding",
        ),
    ],
)
def test_what_is_not_predicted_is_one_fault(changed, field):
    assert [fault.field for fault in told(changed, "sft.yaml")] == [field]


def test_a_micro_batch_of_older_releases_is_one_fault_that_names_the_key_of_newer_ones():
    """Releases of 2024 divide `micro_batch_size` by the data-parallel ranks, and later ones ignore it."""
    older = (
        "data: {train_batch_size: 64, micro_batch_size: 8}\nmodel: {partial_pretrain: Qwen/Qwen2.5-7B}\n"
    )

    (fault,) = told(older, "sft.yaml")

    assert (fault.field, fault.allowed) == ("data.micro_batch_size", "data.micro_batch_size_per_gpu")


def test_faults_of_megatron_name_the_keys_of_the_file():
    changed = text(
        more=", tensor_model_parallel_size: 2, override_transformer_config: {recompute_granularity: some}"
    )

    (fault,) = told(changed, "sft.yaml")
    assert fault.field == "engine.override_transformer_config.recompute_granularity"


def test_a_second_training_command_is_refused_at_its_line():
    (fault,) = told("swift sft --model a\n\nswift pt --model b\n", "two.sh")

    assert (fault.where, fault.value) == ("two.sh:3", "lines 1, 3")


def test_sequences_that_are_padded_on_both_sides_have_a_prompt_and_a_response():
    """verl/utils/dataset/multiturn_sft_dataset.py: 512 tokens each, where the file does not say."""
    for more, length in (("", 1024), (", max_response_length: 1536", 2048)):
        file = text().replace("pad_mode: no_padding", f"pad_mode: left_right{more}")
        assert data_of(file, "sft.yaml")["batch"] == {"sequence_length": length}


def test_both_trainers_recompute_blocks_by_default():
    older = "model: {partial_pretrain: Qwen/Qwen2.5-7B}\ndata: {max_length: 2048}\n"
    for file in (text(), older):
        assert data_of(file, "sft.yaml")["plan"]["recompute"] == "full"
