"""Selective recompute by module: what of a block is kept, what runs again, and in which place."""

import pytest
from all_cases import all_cases
from hypothesis import given, settings
from hypothesis import strategies as st
from workload_cases import (
    GPT,
    HEADS,
    HIDDEN,
    LENGTH,
    LLAMA,
    MEGATRON,
    at,
    block_of,
    flop_of,
    messages,
    realised,
    stack_with,
)

from flopcast.layers.adapters import Adapters
from flopcast.layers.attention import Attention
from flopcast.layers.block import Block
from flopcast.layers.experts import Experts
from flopcast.layers.latent_attention import LatentAttention
from flopcast.layers.mlp import Mlp
from flopcast.spec.model import Model

SBH = LENGTH * HIDDEN  # s b h of one sequence
FLASH = stack_with(MEGATRON, attention_kernel="flash")
MIXTURE = Model(
    hidden=HIDDEN,
    vocabulary=51200,
    blocks=(
        Block(
            count=2,
            norm="rmsnorm",
            mixer=Attention(heads=HEADS),
            feed_forward=Experts(
                num_experts=8, top_k=2, expert_hidden=512, shared_experts=1, load_imbalance_ratio=1.0
            ),
        ),
    ),
)
LATENT = Model(  # DeepSeek-V3's heads, a fourth as many
    hidden=HIDDEN,
    vocabulary=51200,
    mtp=2,
    blocks=(
        Block(
            count=2,
            norm="rmsnorm",
            mixer=LatentAttention(
                heads=32,
                q_lora_rank=384,
                kv_lora_rank=512,
                qk_nope_head_size=128,
                qk_rope_head_size=64,
                value_head_size=128,
            ),
            feed_forward=Mlp(ffn_hidden=2816, activation="swiglu"),
        ),
    ),
)
ALL = ("core_attention", "layernorm", "mlp")


def block(model, text, stack=MEGATRON):
    return block_of(realised(model, stack, text))


def again(layer):
    return [item.name for item in layer.backward if item.phase == "recompute"]


@all_cases(
    ("modules", "kept"),
    [
        # arXiv:2205.05198, section 4.1, in s b h: attention 11 + 5 a s / h, MLP 19, norms 4
        ("core_attention", 34),
        ("core_attention,layernorm", 34 - 4),  # the inputs of both first linears are made again
        ("core_attention,mlp", 34 - 16),  # the inputs of GeLU and of the second linear, 8 each
        ("core_attention,mlp,layernorm", 34 - 16 - 4),
    ],
)
@all_cases(("words", "ranks"), [("", 1), ("tp=4 sp", 4)])
def test_a_gpt_block_keeps_what_is_left_of_korthikanti_s_34_bytes(modules, kept, words, ranks):
    layer = block(GPT, f"{words} recompute=selective:{modules}")

    assert at(layer.kept_bytes) == pytest.approx(kept * SBH / ranks)


def test_without_the_core_of_attention_its_squares_stay():
    layer = block(GPT, "recompute=selective:mlp")

    squares = 5 * HEADS * LENGTH / HIDDEN  # arXiv:2205.05198, section 4.1: 5 a s / h
    assert at(layer.kept_bytes) == pytest.approx((34 - 16 + squares) * SBH)


def test_a_module_that_a_plan_names_replaces_those_of_the_stack():
    layer = block(GPT, "recompute=selective:layernorm")

    assert {name.rpartition(".")[2] for name in again(layer)} == {"norm"}


def test_the_default_modules_are_the_stack_s():
    named, silent = (block(GPT, f"recompute={word}") for word in ("selective:core_attention", "selective"))

    assert again(named) == again(silent)
    assert at(named.kept_bytes) == at(silent.kept_bytes)


def test_a_discarded_norm_is_made_again_right_before_the_backward_of_what_reads_it():
    names = [item.name for item in block(GPT, "recompute=selective:layernorm").backward]

    assert names[names.index("mlp.norm") + 1] == "mlp.up.dgrad"
    assert names[names.index("attention.norm") + 1] == "attention.qkv.dgrad"


def test_a_checkpointed_mlp_runs_again_before_its_first_gradient():
    layer = block(LLAMA, "recompute=selective:mlp", FLASH)

    names = [item.name for item in layer.backward]
    assert again(layer) == ["mlp.enter", "mlp.up", "mlp.activation", "mlp.down", "mlp.leave"]
    assert names.index("mlp.leave") + 1 == names.index("mlp.down.dgrad")


def test_a_norm_that_is_not_kept_runs_again_before_the_mlp_that_reads_it():
    layer = block(LLAMA, "recompute=selective:mlp,layernorm", FLASH)

    assert again(layer)[:2] == ["mlp.norm", "mlp.enter"]
    assert again(layer)[-1] == "attention.norm"


def test_a_recomputed_mlp_gathers_and_sums_over_the_ranks_again():
    plain, layer = (block(LLAMA, f"tp=4 sp {word}", FLASH) for word in ("", "recompute=selective:mlp"))

    assert len(messages(layer.backward)) - len(messages(plain.backward)) == 2


@pytest.mark.parametrize("words", ["", "tp=4 ", "tp=4 sp "])
def test_a_recomputed_mlp_adds_its_forward_flop(words):
    plain, layer = (block(LLAMA, words + word, FLASH) for word in ("", "recompute=selective:mlp"))

    ranks = 4 if words else 1
    assert flop_of(layer.backward) - flop_of(plain.backward) == pytest.approx(
        2 * LENGTH * HIDDEN * 3 * 2816 / ranks  # three matrices of a gated MLP
    )


def test_early_stop_spares_a_recomputed_mlp_its_second_linear():
    early = stack_with(FLASH, recompute_until="kept")

    layer = block(LLAMA, "recompute=selective:mlp", early)

    assert again(layer) == ["mlp.enter", "mlp.up", "mlp.activation"]


def test_a_recomputed_mixer_runs_all_but_norm_and_residual_again():
    layer = block(LLAMA, "tp=4 sp recompute=selective:attention", FLASH)

    forward = [item.name for item in layer.forward if item.name.startswith("attention.")]
    assert again(layer) == [name for name in forward if not name.endswith((".norm", ".residual"))]


@all_cases("words", ["full", "selective:attention,mlp", "selective:mlp,layernorm"])
@all_cases("model", [GPT, LLAMA])
def test_what_gradients_read_stands_before_the_last_kept_tensor_of_sequential_halves(model, words):
    kept, read = (
        again(block(model, f"recompute={words}", stack_with(FLASH, recompute_until=until)))
        for until in ("kept", "read")
    )

    assert read == kept


def test_no_gradient_reads_a_frozen_product_beside_an_adapter_at_a_checkpoint_s_end():
    model = LLAMA.model_copy(update={"adapters": Adapters(rank=16, targets=("out", "down"))})
    words = "tp=2 recompute=selective:attention,mlp"
    kept, read = (
        again(block(model, words, stack_with(FLASH, recompute_until=until))) for until in ("kept", "read")
    )

    dropped = [name for name in kept if name not in read]
    assert dropped == ["mlp.down", "mlp.leave", "attention.out", "attention.leave"]
    assert {"mlp.down.down.a", "attention.out.out.a"} <= set(read)  # the gradient of B reads what A makes


def test_of_parallel_halves_no_gradient_reads_the_mixer_s_result():
    blocks = tuple(part.model_copy(update={"residual": "parallel"}) for part in LLAMA.blocks)
    model = LLAMA.model_copy(update={"blocks": blocks})

    layer = block(model, "recompute=full", stack_with(FLASH, recompute_until="read"))

    assert not {"attention.out", "mlp.down"} & set(again(layer))


@pytest.mark.parametrize("words", ["full", "selective:moe"])
def test_what_gradients_of_a_mixture_read_includes_the_choice_of_experts(words):
    layer = block(MIXTURE, f"recompute={words}", stack_with(FLASH, recompute_until="read"))

    assert {"experts.router", "experts.pick", "experts.permute", "experts.up"} <= set(again(layer))
    assert "experts.loss" not in again(layer)


def test_a_recomputed_mixture_runs_all_but_norm_and_residual_again_and_keeps_its_input():
    layer = block(MIXTURE, "recompute=selective:moe", FLASH)

    forward = [item.name for item in layer.forward if item.name.startswith(("experts.", "shared."))]
    kept = at(block(MIXTURE, "recompute=selective:moe,layernorm", FLASH).kept_bytes)
    assert again(layer) == forward
    # the inputs of both norms; of attention q, k, v, and the output with its log-sums
    assert kept == pytest.approx((2 + 2 + 6 + 2) * SBH + 4 * HEADS * LENGTH)


def test_the_activation_of_experts_is_made_again_and_not_kept():
    plain, layer = (block(MIXTURE, word, FLASH) for word in ("gbs=1", "recompute=selective:moe_act"))

    rows = LENGTH * 2  # two experts a token
    assert again(layer) == ["experts.activation"]
    assert at(plain.kept_bytes) - at(layer.kept_bytes) == pytest.approx(2 * rows * 512)


def test_shared_experts_run_again_without_the_sum_that_joins_them():
    layer = block(MIXTURE, "tp=2 sp recompute=selective:shared_experts", FLASH)

    assert again(layer) == ["shared.enter", "shared.up", "shared.activation", "shared.down", "shared.leave"]


@pytest.mark.parametrize(("words", "ranks"), [("", 1), ("tp=4 sp ", 4)])
def test_heads_that_are_projected_up_again_are_not_kept(words, ranks):
    plain, layer = (block(LATENT, words + w, FLASH) for w in ("", "recompute=selective:mla_up_proj"))

    heads = 32 * (192 + 192 + 128) / ranks  # queries, keys and values of this rank
    assert at(plain.kept_bytes) - at(layer.kept_bytes) == pytest.approx(2 * LENGTH * heads)


def test_latents_are_projected_up_again_before_the_backward_of_attention():
    layer = block(LATENT, "tp=4 sp recompute=selective:mla_up_proj", FLASH)

    names = [item.name.removeprefix("attention.") for item in layer.backward]
    first, last = names.index("enter_q"), names.index("join_keys")
    assert names[last + 1].startswith("flash.")
    assert names[first : last + 1] == [
        "enter_q", "q_up", "enter_kv", "kv_up", "enter_rotated", "rope", "join_queries", "join_keys"
    ]  # fmt: skip


def test_each_module_of_multi_token_prediction_runs_its_own_modules_again():
    programs = realised(LATENT, FLASH, "recompute=selective:mlp,mla_up_proj,layernorm,core_attention")

    (layer,) = [layer for layer in programs.layers if layer.kind == "mtp"]
    names = [item.name for item in layer.backward]
    assert [name for name in again(layer) if name.endswith(("mlp.down", "attention.norm"))] == [
        "mtp2.mlp.down",
        "mtp2.attention.norm",
        "mtp1.mlp.down",
        "mtp1.attention.norm",
    ]
    assert names.index("mtp1.mlp.down") > names.index("mtp2.attention.norm.dgrad")


@settings(max_examples=20, deadline=None)
@given(
    modules=st.sets(st.sampled_from(ALL), min_size=1),
    more=st.sampled_from(ALL),
    model=st.sampled_from([GPT, LLAMA]),
    words=st.sampled_from(["", "tp=2", "tp=2 sp", "mbs=2 gbs=2"]),
    flash=st.booleans(),
)
def test_one_more_module_never_keeps_more_and_never_loses_a_gradient(modules, more, model, words, flash):
    stack = FLASH if flash else MEGATRON

    few, many = (
        block(model, f"{words} recompute=selective:{','.join(sorted(chosen))}", stack)
        for chosen in (modules, modules | {more})
    )

    gradients = [[item.name for item in one.backward if item.phase == "backward"] for one in (few, many)]
    assert at(many.kept_bytes) <= at(few.kept_bytes)
    assert flop_of(many.backward) >= flop_of(few.backward)
    assert gradients[0] == gradients[1]
