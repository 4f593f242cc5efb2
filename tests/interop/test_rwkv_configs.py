"""RWKV-5, -6 and -7: Hugging Face configs, parameters, FLOP, and states in training and serving.

Elsewhere: times of kernels (tests/cost/test_gated_linear_attention.py), laws of every layer and operator
(tests/layers, tests/operators).
"""

import pytest
from hf_cases import faults, imported

from flopcast import job, predict, predict_serving, serving_job
from flopcast.dtypes import constant
from flopcast.layers.base import Split
from flopcast.layers.time_mix import TimeMix
from flopcast.library import catalog
from flopcast.serving.memory import serving_memory
from flopcast.workload.backward import derive_backward

RWKV_6 = {  # RWKV/rwkv-6-world-1b6 and RWKV/rwkv-5-world-1b5; num_attention_heads is the size of a head
    "model_type": "rwkv6", "attention_hidden_size": 2048, "bos_token_id": 0, "eos_token_id": 0,
    "head_size": 64, "head_size_divisor": 8, "hidden_size": 2048, "intermediate_size": None,
    "layer_norm_epsilon": 1e-5, "num_attention_heads": 64, "num_hidden_layers": 24, "rescale_every": 6,
    "tie_word_embeddings": False, "use_cache": True, "vocab_size": 65536,
}  # fmt: skip
RWKV_5 = RWKV_6 | {"model_type": "rwkv5"}
RWKV_7 = {  # RWKV/RWKV7-Goose-World3-2.9B-HF
    "model_type": "rwkv7", "a_low_rank_dim": 96, "attn": None, "attn_mode": "chunk",
    "decay_low_rank_dim": 96, "fuse_cross_entropy": True, "fuse_norm": False, "gate_low_rank_dim": 320,
    "head_dim": 64, "hidden_act": "sqrelu", "hidden_ratio": 4.0, "hidden_size": 2560,
    "initializer_range": 0.006, "intermediate_size": 10240, "max_position_embeddings": 4096,
    "norm_bias": True, "norm_eps": 1e-5, "norm_first": True, "num_heads": 32, "num_hidden_layers": 32,
    "tie_word_embeddings": False, "v_low_rank_dim": 64, "vocab_size": 65536,
}  # fmt: skip
# Hidden size, layers, ranks (decays and rates, values, gates) and parameters: arXiv:2503.14456
PUBLISHED_7 = (
    (768, 12, 64, 32, 128, 191_034_624),
    (1024, 24, 64, 32, 128, 450_767_872),
    (2048, 24, 96, 64, 256, 1_527_404_544),
    (2560, 32, 96, 64, 320, 2_947_735_040),
)


def older(version, hidden, layers):
    sizes = {"hidden_size": hidden, "attention_hidden_size": hidden, "num_hidden_layers": layers}
    return imported(RWKV_6 | sizes | {"model_type": f"rwkv{version}"})


def goose(hidden, layers, decays, values, gates):
    ranks = {"a": decays, "decay": decays, "v": values, "gate": gates}
    return imported(
        RWKV_7
        | {f"{name}_low_rank_dim": rank for name, rank in ranks.items()}
        | {"hidden_size": hidden, "intermediate_size": 4 * hidden, "num_hidden_layers": layers}
    )


def flop(items):
    return sum(item.work.work().flop.item() for item in items if hasattr(item.work, "work"))


def test_models_have_the_published_numbers_of_parameters():
    """RWKV-5: 13 h² + 14 h for each layer; RWKV-6: 464 h (arXiv:2404.05892, formulas for parameters), or
    912 h with ranks of 64 and 128; both with two tables and two norms outside the layers."""
    for *sizes, parameters in PUBLISHED_7:
        assert goose(*sizes).parameters() == parameters
    for version, hidden, layers, vectors in ((5, 2048, 24, 14), (5, 4096, 32, 14), (6, 2048, 24, 464),
                                             (6, 2560, 32, 464), (6, 4096, 32, 912)):  # fmt: skip
        whole = layers * (13 * hidden**2 + vectors * hidden) + 4 * hidden + 2 * 65536 * hidden

        assert older(version, hidden, layers).parameters() == whole
    assert older(6, 4096, 32).blocks == catalog.model("rwkv-6-7b").blocks
    assert imported(RWKV_7).blocks == catalog.model("rwkv-7-2.9b").blocks


def test_ranks_of_rwkv_7_follow_from_the_hidden_size():
    left_out = {name: None for name in RWKV_7 if name.endswith("low_rank_dim")}
    mixer = imported(RWKV_7 | {"hidden_size": 1024, "intermediate_size": None} | left_out).blocks[1].mixer

    assert (mixer.decay_rank, mixer.rate_rank, mixer.value_rank, mixer.gate_rank) == (64, 64, 64, 160)
    assert imported(RWKV_7 | {"intermediate_size": None}).blocks[1].feed_forward.ffn_hidden == 10240


def test_ranks_must_fit_the_version():
    for fields, message in (
        ({"version": 6, "shift_rank": 32}, "version 6 needs decay_rank"),
        ({"version": 7, "decay_rank": 64, "rate_rank": 64}, "version 7 needs gate_rank"),
        ({"version": 5, "decay_rank": 64}, "version 5 has no decay_rank"),
    ):
        with pytest.raises(ValueError, match=message):
            TimeMix(heads=16, **fields)


def test_other_architectures_under_the_same_names_are_errors():
    for config, field in (
        (RWKV_7 | {"attn": {"layers": [3]}}, "attn"),
        (RWKV_7 | {"value_dim": [2560] * 32}, "value_dim"),
        (RWKV_7 | {"norm_first": False}, "norm_first"),
        (RWKV_6 | {"expand_k": 0.5}, "expand_k"),
    ):
        (problem,) = faults(config)
        assert problem.field == field


def test_products_have_the_flop_of_all_matrices():
    split = Split(sequences=constant(1), length=constant(1), tensor=constant(1), sequence_parallel=False,
                  dtype="bf16")  # fmt: skip
    for model in (older(5, 2048, 24), older(6, 2048, 24), goose(*PUBLISHED_7[0][:-1])):
        for block in model.blocks:
            items = block.forward(model.hidden, split)
            backward = derive_backward(items, frozenset())
            linear = block.mixer.linear_elements(model.hidden)
            linear += block.feed_forward.linear_elements(model.hidden)

            assert flop(items) == 2 * linear
            assert flop(backward) == 4 * linear


def test_a_step_takes_time_in_proportion_to_its_tokens_whatever_the_length():
    seconds = [
        predict(job("rwkv-7-2.9b", cluster="dgx-h100", gpus=8, seq=length, plan=plan)).step_time_s
        for length, plan in ((2048, "mbs=8 gbs=64 dp=8"), (4096, "mbs=4 gbs=32 dp=8"))
    ]

    assert seconds[0] == pytest.approx(seconds[1], rel=0.02)


def test_a_sequence_keeps_states_and_two_tokens_in_serving():
    one = serving_job("rwkv-6-7b", engine="vllm", cluster="dgx-h100", gpus=1, traffic="concurrency=8")

    assert serving_memory(one).state_bytes == 32 * (64 * 64 * 64 * 4 + 2 * 4096 * 2)
    assert serving_memory(one).token_bytes == 0


def test_a_decoding_sequence_reads_as_much_after_long_prompts_as_after_short_ones():
    found = [
        predict_serving(
            serving_job(
                "rwkv-7-2.9b",
                engine="vllm",
                cluster="dgx-h100",
                gpus=1,
                plan="tp=1",
                traffic=f"concurrency=1 prompt={prompt} output=64",
            )
        )
        .latencies["tpot"]["p50"]
        .value
        for prompt in (256, 4000)
    ]

    assert found[0] == pytest.approx(found[1], rel=0.02)
