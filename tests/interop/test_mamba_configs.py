"""Hugging Face configs of Mamba, Falcon Mamba and Jamba, and the selective scan in training and serving.

Elsewhere: Mamba-2 (tests/workload/test_hybrids.py), laws of every layer and operator (tests/layers,
tests/operators).
"""

import pytest
from hf_cases import faults, imported

from flopcast import job, predict, predict_serving, serving_job
from flopcast.library import catalog

JAMBA = {  # ai21labs/Jamba-v0.1
    "model_type": "jamba", "attn_layer_offset": 4, "attn_layer_period": 8, "expert_layer_offset": 1,
    "expert_layer_period": 2, "hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 14336,
    "mamba_conv_bias": True, "mamba_d_conv": 4, "mamba_d_state": 16, "mamba_dt_rank": 256,
    "mamba_expand": 2, "mamba_proj_bias": False, "max_position_embeddings": 262144,
    "num_attention_heads": 32, "num_experts": 16, "num_experts_per_tok": 2, "num_hidden_layers": 32,
    "num_key_value_heads": 8, "num_logits_to_keep": 1, "router_aux_loss_coef": 0.001,
    "tie_word_embeddings": False, "use_mamba_kernels": True, "vocab_size": 65536,
}  # fmt: skip
FALCON = {  # tiiuae/falcon-mamba-7b
    "model_type": "falcon_mamba", "conv_kernel": 4, "expand": 16, "hidden_act": "silu",
    "hidden_size": 4096, "intermediate_size": 8192, "num_hidden_layers": 64, "state_size": 16,
    "tie_word_embeddings": False, "time_step_init_scheme": "random", "time_step_rank": 256,
    "time_step_scale": 1.0, "use_bias": False, "use_conv_bias": True, "vocab_size": 65024,
}  # fmt: skip
MAMBA = {  # state-spaces/mamba-2.8b-hf
    "model_type": "mamba", "hidden_size": 2560, "num_hidden_layers": 64, "state_size": 16,
    "vocab_size": 50280, "tie_word_embeddings": True, "time_step_rank": "auto",
}  # fmt: skip


def mixer_parameters(hidden, channels, rank, norms=0, states=16, taps=4):
    """Parameters of the modules of MambaMixer (transformers, modeling_mamba.py and modeling_jamba.py)."""
    steps = rank + 2 * states
    return (
        hidden * 2 * channels
        + channels * (taps + 1)
        + channels * steps
        + rank * channels
        + channels
        + channels * (states + 1)
        + channels * hidden
        + (steps if norms else 0)
    )


def jamba_parameters(hidden=4096, width=14336, vocabulary=65536):
    attention, mlp = 2 * hidden * hidden + 2 * hidden * 1024, 3 * hidden * width
    layers = 28 * mixer_parameters(hidden, 8192, 256, norms=1) + 4 * attention + 32 * 2 * hidden
    return 2 * vocabulary * hidden + hidden + layers + 16 * mlp + 16 * (16 * mlp + 16 * hidden)


def mixers(model):
    """The mixer of each layer; blocks without a pattern stand in the order of the layers."""
    if not model.pattern:
        return [block.mixer for block in model.blocks for _ in range(block.count)]
    return [model.blocks[kind].mixer for kind in model.pattern] * (model.num_blocks // len(model.pattern))


def test_models_have_the_parameters_of_their_modules():
    falcon = 2 * 65024 * 4096 + 4096 + 64 * (4096 + mixer_parameters(4096, 8192, 256))
    mamba = 50280 * 2560 + 2560 + 64 * (2560 + mixer_parameters(2560, 5120, 160))

    assert imported(JAMBA).parameters() == catalog.model("jamba-52b").parameters() == jamba_parameters()
    assert imported(FALCON).parameters() == catalog.model("falcon-mamba-7b").parameters() == falcon
    assert imported(MAMBA).parameters() == mamba
    assert mixers(imported(JAMBA)) == mixers(catalog.model("jamba-52b"))
    assert 11.9e9 < imported(JAMBA).active_parameters() < 12.2e9  # arXiv:2403.19887: 12B of 52B


def test_layers_of_jamba_follow_both_periods():
    few = imported(JAMBA | {"num_hidden_layers": 4, "attn_layer_period": 2, "attn_layer_offset": 1})

    assert [(block.mixer.kind, block.feed_forward.kind) for block in few.blocks] == [
        ("selective_scan", "mlp"),
        ("attention", "experts"),
    ]
    assert {block.feed_forward.kind for block in imported(JAMBA | {"num_experts": 1}).blocks} == {"mlp"}


def test_biases_that_are_not_supported_are_errors():
    for config, field in ((JAMBA, "mamba_proj_bias"), (FALCON, "use_bias"), (MAMBA, "use_bias")):
        (problem,) = faults(config | {field: True})

        assert problem.field == field
    (problem,) = faults(FALCON | {"use_conv_bias": False})
    assert problem.field == "use_conv_bias"


def test_mamba_trains_about_as_fast_beside_a_transformer_as_measured():
    """fla-org/flash-linear-attention, issue 32: 0.64 of the transformer's tokens/s with two sequences of
    8,192 tokens on H100, 0.99 with one of 16,384, and 1.5 with one of 32,768. The cycles of the scan were
    chosen with these numbers in view, and lie a factor of 2 below them on H100."""
    blocks = {
        "mamba": {"count": 48, "mixer": {"heads": 4096, "rank": 128}, "feed_forward": {"kind": "none"}},
        "attention": {
            "count": 24,
            "mixer": {"heads": 32},
            "feed_forward": {"ffn_hidden": 5632, "activation": "swiglu"},
        },
    }
    ratios = {}
    for sequences, length in ((2, 8192), (1, 16384), (1, 32768)):
        seconds = {}
        for name, block in blocks.items():
            model = {"hidden": 2048, "vocabulary": 32000, "blocks": [block | {"norm": "rmsnorm"}]}
            plan = f"mbs={sequences} gbs={sequences}"
            one = job(model=model, cluster="dgx-h100", gpus=1, seq=length, plan=plan, stack="pytorch-ddp")
            seconds[name] = predict(one).step_time_s
        ratios[length] = seconds["attention"] / seconds["mamba"]

    for length, measured in ((8192, 0.645), (16384, 0.988), (32768, 1.517)):
        assert measured < ratios[length] < 1.6 * measured


def test_tensor_parallel_ranks_add_the_steps_of_all_channels():
    name, cluster = "falcon-mamba-7b", "dgx-h100"
    seconds = [
        predict(job(name, cluster=cluster, gpus=tp, seq=4096, plan=f"tp={tp} mbs=1 gbs=1")).step_time_s
        for tp in (2, 4)
    ]

    assert 1.2 < seconds[0] / seconds[1] < 2


def tpot_s(prompt):
    asked = serving_job(
        "falcon-mamba-7b",
        engine="vllm",
        cluster="dgx-h100",
        gpus=1,
        plan="tp=1",
        traffic=f"concurrency=1 prompt={prompt} output=64",
    )
    return predict_serving(asked).latencies["tpot"]["p50"].value


def test_a_decoding_sequence_reads_as_much_after_long_prompts_as_after_short_ones():
    assert tpot_s(4096) == pytest.approx(tpot_s(256), rel=0.02)
