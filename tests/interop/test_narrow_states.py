"""Files that ask for weights, gradients and optimizer states of 16 bits, without fp32 copies."""

import pytest
from foreign_cases import job_from_text

from flopcast import predict

FACTORY = """
model_name_or_path: meta-llama/Llama-3.2-1B
stage: sft
finetuning_type: full
cutoff_len: 1024
per_device_train_batch_size: 1
template: llama3
dataset: own
{more}
"""
TITAN = """
[model]
name = "llama3"
flavor = "8B"
[training]
local_batch_size = 1
global_batch_size = 16
seq_len = 2048
{more}
[parallelism]
data_parallel_shard_degree = -1
"""
VERL = """
data: {{train_batch_size: 16, max_length: 1024, use_dynamic_bsz: false, micro_batch_size_per_gpu: 1}}
model: {{path: meta-llama/Llama-3.2-1B}}
engine: {{strategy: fsdp2, {more}}}
"""
CASES = {
    "LLaMA-Factory, not sharded": (FACTORY, "a.yaml", "pure_bf16: true", "bf16: true", 1),
    "torchtitan, sharded": (TITAN, "a.toml", 'dtype = "bfloat16"', 'dtype = "float32"', 8),
    "veRL, sharded": (VERL, "a.yaml", "model_dtype: bf16", "model_dtype: fp32", 8),
}


def held(text, name, word):
    """Bytes of parameters, gradients and optimizer states on a device."""
    sizes = predict(job_from_text(text.format(more=word), name)).memory.by_category
    return [sizes.get(kind, 0.0) for kind in ("parameters", "gradients", "optimizer_states")]


@pytest.mark.parametrize("case", CASES)
def test_a_parameter_has_2_bytes_of_each_and_4_of_states(case):
    text, name, narrow, wide, shards = CASES[case]

    *_, moments = held(text, name, narrow)
    assert held(text, name, narrow) == [moments / 2, moments / 2, moments]
    copy = moments / 2 if shards == 1 else 0  # FSDP casts its fp32 shard when it gathers it
    assert held(text, name, wide) == [copy, moments, 3 * moments]


@pytest.mark.parametrize(("word", "dtype"), [("bfloat16", "bf16"), ("float32", "fp32")])
def test_torchtitan_reduces_gradients_in_the_type_that_the_file_names(word, dtype):
    job = job_from_text(TITAN.format(more=f'mixed_precision_reduce = "{word}"'), "a.toml")

    assert job.stack.gradients.dtype == dtype
