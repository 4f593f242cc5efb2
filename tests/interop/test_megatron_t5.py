"""Launch scripts of Megatron-LM's pretrain_t5.py: both halves, their lengths and their stages."""

import pytest

from flopcast.errors import SpecError
from flopcast.files.yaml_text import Document
from flopcast.interop.megatron.launch_script import launch_document
from flopcast.spec.model import Model

FLAGS = {  # of examples/t5/train_t5_220m_distributed.sh
    "encoder-num-layers": 12, "decoder-num-layers": 12, "hidden-size": 768, "num-attention-heads": 12,
    "kv-channels": 64, "ffn-hidden-size": 3072, "encoder-seq-length": 512, "decoder-seq-length": 128,
    "max-position-embeddings": 512, "micro-batch-size": 64, "global-batch-size": 512,
    "vocab-size": 30592, "tensor-model-parallel-size": 1, "pipeline-model-parallel-size": 1,
}  # fmt: skip


def read(**changes) -> Document:
    flags = FLAGS | {name.replace("_", "-"): value for name, value in changes.items()}
    words = " ".join(f"--{name} {value}" for name, value in flags.items() if value is not None)
    text = f"torchrun --nproc_per_node 8 pretrain_t5.py {words} --bf16\n"
    return launch_document(text, "t5.sh")


def test_the_example_of_megatron_is_a_model_of_its_name():
    """Layer norms, biases, learned positions, and a head with a bias."""
    data = read().data
    model = Model.model_validate(data["model"])

    hidden, width, vocabulary = 768, 3072, 30592
    half = 4 * hidden * (hidden + 1) + 2 * hidden  # attention and its norm
    mlp = 2 * hidden * width + width + hidden + 2 * hidden
    ends = (vocabulary + 512) * hidden + 2 * 2 * hidden + vocabulary
    assert model.parameters() == 12 * (half + mlp) + 12 * (2 * half + mlp) + ends
    assert (data["batch"]["source_length"], data["batch"]["sequence_length"]) == (512, 128)
    assert [(block.count, block.reads, block.cross is not None) for block in model.blocks] == [
        (11, "source", False), (1, "source", False), (12, "sequence", True)
    ]  # fmt: skip
    assert [block.mixer.causal for block in model.blocks] == [False, False, True]


def test_the_decoder_is_as_deep_as_the_encoder_unless_its_depth_is_given():
    for depth, blocks in ((None, 12), (3, 3)):
        assert read(decoder_num_layers=depth).data["model"]["blocks"][-1]["count"] == blocks


def test_relative_positions_are_a_table_of_one_number_for_each_head():
    changed = read(position_embedding_type="relative", relative_attention_num_buckets=16)
    plain, relative = (Model.model_validate(each.data["model"]) for each in (read(), changed))

    assert relative.parameters() - plain.parameters() == 2 * 16 * 12 - 512 * 768


def test_a_split_rank_divides_both_halves_over_the_stages_before_and_after_it():
    data = read(pipeline_model_parallel_size=4, pipeline_model_parallel_split_rank=1).data

    assert data["plan"]["stage_layers"] == [12, 4, 4, 4]
    with pytest.raises(SpecError) as error:
        read(pipeline_model_parallel_size=4, pipeline_model_parallel_split_rank=4)
    assert error.value.problems[0].field == "--pipeline-model-parallel-split-rank"


def test_a_length_of_the_decoder_is_required():
    with pytest.raises(SpecError) as error:
        read(decoder_seq_length=None)

    assert [problem.field for problem in error.value.problems] == ["--decoder-seq-length"]
