"""Names of models that state a number format: copies on the hub, and releases with formats of their own.

Sources: the bytes of a weight in each format, and quantization_config in the config.json of
moonshotai/Kimi-K2-Thinking (experts in 4 bits, other layers in 16), MiniMaxAI/MiniMax-M2 (FP8) and
Qwen/Qwen3-30B-A3B-FP8 (FP8 with a scale for each block).
"""

import pytest
from all_cases import all_cases

from flopcast import serving_job
from flopcast.serving.memory import serving_memory

NAMES = [
    ("nvidia/Qwen3-8B-FP8", "qwen3-8b", "fp8", None),
    ("Qwen3-30B-A3B-FP8", "qwen3-30b-a3b", "fp8_block", None),  # weight_block_size [128, 128]
    ("Qwen/Qwen3-235B-A22B-Instruct-2507-FP8", "qwen3-235b-a22b", "fp8_block", None),
    ("own/Llama-3.1-8B-FP8-BLOCK", "llama-3.1-8b", "fp8_block", None),
    ("RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic", "llama-3.1-70b", "fp8", None),
    ("qwen2.5-32b-instruct-awq", "qwen2.5-32b", "int4", None),
    ("google/gemma-3-27b-it-qat-q4_0-gguf", "gemma-3-27b", "int4", None),
    ("llama-3.1-8b-instruct-Q4_K_M.gguf", "llama-3.1-8b", "int4", None),
    ("nvidia/DeepSeek-R1-FP4", "deepseek-v3", "nvfp4", None),
    ("deepseek-r1-fp8", "deepseek-v3", "fp8_block", None),  # the format of the publication
    ("moonshotai/Kimi-K2-Thinking", "kimi-k2", "bf16", "int4"),
    ("minimax-m2", "minimax-m2", "fp8_block", None),
]


def job_of(name, plan="tp=8 replicas=1"):
    return serving_job(name, engine="vllm", cluster="dgx-b200", gpus=8, plan=plan)


@all_cases("written, name, weights, experts", NAMES)
def test_a_name_states_the_format_of_the_weights(written, name, weights, experts):
    job = job_of(written)

    assert (job.model.name, job.plan.weights, job.plan.expert_weights) == (name, weights, experts)


def test_weights_of_a_copy_take_the_bytes_of_its_format():
    """8.2 billion weights in 16 and in 8 bits; the table of tokens and the head keep 16 bits."""
    wide, narrow = (serving_memory(job_of(each, "tp=1")).weight_bytes for each in NAMES[0][1::-1])
    tables_bytes = 2 * 2 * 151_936 * 4096

    assert narrow - tables_bytes == pytest.approx((wide - tables_bytes) / 2, rel=0.01)


def test_a_format_in_the_plan_takes_precedence():
    name = NAMES[0][0]

    assert job_of(name, "tp=1 weights=bf16").plan.weights == "bf16"
    assert any(f"the format of {name}" in note for note in job_of(name).assumptions)
