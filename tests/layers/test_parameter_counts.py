"""Parameters of published models, to the last one where a checkpoint is published.

Counts of open models are those of their checkpoints' tensors; shapes are from the cited papers.
"""

import pytest
from all_cases import all_cases
from hypothesis import given, settings
from hypothesis import strategies as st
from layer_examples import BLOCKS, HIDDEN, gpt, llama, split

from flopcast.layers.attention import Attention
from flopcast.layers.block import Block
from flopcast.layers.embedding import Embedding
from flopcast.layers.mlp import Mlp
from flopcast.spec.model import Model


def falcon(heads, hidden, count):
    """One key/value head, one norm for both halves, biases in norms only."""
    mixer, mlp = Attention(heads=heads, kv_heads=1), Mlp(ffn_hidden=4 * hidden)
    return Block(mixer=mixer, feed_forward=mlp, residual="parallel_shared_norm", count=count)


def gemma(heads, kv_heads, ffn_hidden, count):
    """Heads of 256, whatever the hidden width; gated GELU."""
    mixer = Attention(heads=heads, kv_heads=kv_heads, head_size=256)
    mlp = Mlp(ffn_hidden=ffn_hidden, activation="geglu")
    return Block(mixer=mixer, feed_forward=mlp, norm="rmsnorm", count=count)


def model(hidden, vocabulary, block, tied=False, positions=0):
    return Model(
        hidden=hidden,
        vocabulary=vocabulary,
        blocks=(block,),
        tied_embeddings=tied,
        learned_positions=positions,
    )


GPT_J = Block(
    mixer=Attention(heads=16, rotary_fraction=0.25),
    feed_forward=Mlp(ffn_hidden=16384, bias=True),
    residual="parallel_shared_norm",
    count=28,
)
NEOX = gpt(64, 6144, dropout=0.0, residual="parallel", count=44)
QWEN2 = Block(
    mixer=Attention(heads=28, kv_heads=4, qkv_bias=True),
    feed_forward=Mlp(ffn_hidden=18944, activation="swiglu"),
    norm="rmsnorm",
    count=28,
)
CHECKPOINTS = {
    # GPT-2 report, table 2, and its released weights
    "gpt-2 124M": (model(768, 50257, gpt(12, 768, count=12), True, 1024), 124_439_808),
    "gpt-2 1.5B": (model(1600, 50257, gpt(25, 1600, count=48), True, 1024), 1_557_611_200),
    # arXiv:2204.06745, table 1
    "gpt-neox 20B": (model(6144, 50432, NEOX), 20_554_567_680),
    "pythia 6.9B": (model(4096, 50432, gpt(32, 4096, residual="parallel", count=32)), 6_857_302_016),
    # GPT-J 6B without the bias of its head (50400), which no other model has
    "gpt-j 6B": (model(4096, 50400, GPT_J), 6_050_882_784 - 50_400),
    # arXiv:2302.13971, table 2; arXiv:2307.09288, table 1
    "llama-2 7B": (model(4096, 32000, llama(32, 32, 11008, count=32)), 6_738_415_616),
    "llama-2 13B": (model(5120, 32000, llama(40, 40, 13824, count=40)), 13_015_864_320),
    "llama-2 70B": (model(8192, 32000, llama(64, 8, 28672, count=80)), 68_976_648_192),
    # arXiv:2407.21783, table 3
    "llama-3 8B": (model(4096, 128256, llama(32, 8, 14336, count=32)), 8_030_261_248),
    "llama-3 70B": (model(8192, 128256, llama(64, 8, 28672, count=80)), 70_553_706_496),
    # arXiv:2310.06825, table 1
    "mistral 7B": (model(4096, 32000, llama(32, 8, 14336, count=32)), 7_241_732_096),
    # arXiv:2311.16867, section 4
    "falcon 7B": (model(4544, 65024, falcon(71, 4544, 32), True), 6_921_720_704),
    # arXiv:2403.08295, tables 1 and 2
    "gemma 2B": (model(2048, 256000, gemma(8, 1, 16384, 18), True), 2_506_172_416),
    "gemma 7B": (model(3072, 256000, gemma(16, 16, 24576, 28), True), 8_537_680_896),
    # arXiv:2407.10671, table 1
    "qwen2 7B": (model(3584, 152064, QWEN2), 7_615_616_512),
}


@all_cases(("published", "parameters"), CHECKPOINTS.values())
def test_a_published_model_has_its_published_parameters(published, parameters):
    assert published.parameters() == parameters


def test_gpt_3_has_the_174_6_billion_parameters_that_the_literature_rounds_to_175():
    gpt_3 = model(12288, 51200, gpt(96, 12288, count=96), tied=True, positions=2048)

    assert gpt_3.parameters() == pytest.approx(174.6e9, rel=3e-4)


def test_a_parallel_block_with_a_shared_norm_spares_one_norm():
    apart, shared = (
        model(HIDDEN, 100, gpt(8, HIDDEN, residual=order, count=5)).parameters()
        for order in ("parallel", "parallel_shared_norm")
    )

    assert apart - shared == 5 * 2 * HIDDEN


def test_a_tied_table_is_counted_once():
    tied, untied = (model(HIDDEN, 1000, BLOCKS["gpt"], tied).parameters() for tied in (True, False))

    assert untied - tied == 1000 * HIDDEN


def test_padding_rows_are_no_parameters():
    coarse, fine = (
        Model(hidden=HIDDEN, vocabulary=1001, vocabulary_multiple=n, blocks=(BLOCKS["gpt"],))
        for n in (512, 1)
    )

    assert coarse.parameters() == fine.parameters()


def test_rotary_positions_hold_no_parameters_and_learned_ones_a_table():
    without, learned = (model(HIDDEN, 1000, BLOCKS["llama"], False, n).parameters() for n in (0, 2048))

    assert learned - without == 2048 * HIDDEN


@given(counts=st.lists(st.integers(1, 50), min_size=1, max_size=4))
@settings(max_examples=30, deadline=None)
def test_blocks_in_several_runs_hold_what_they_hold_in_one(counts):
    runs = tuple(gpt(8, HIDDEN, count=count) for count in counts)
    whole = model(HIDDEN, 1000, gpt(8, HIDDEN, count=sum(counts)))

    apart = Model(hidden=HIDDEN, vocabulary=1000, blocks=runs)

    assert (apart.parameters(), apart.num_blocks) == (whole.parameters(), sum(counts))


def test_a_model_starts_with_its_table_and_ends_with_norm_and_head():
    kinds = [type(layer).__name__ for layer, _ in model(HIDDEN, 1000, BLOCKS["gpt"]).sequence()]

    assert kinds == ["Embedding", "Block", "FinalNorm", "Head"]


def test_weights_of_a_block_are_told_one_by_one():
    """GPT-2's tensors: two norms, fused q, k, v, output, two linears, each with a bias."""
    h = HIDDEN

    told = {weight.name: weight.total for weight in gpt(8, h).weights(h, split())}

    assert told == {
        "norm1.scale": h,
        "norm1.bias": h,
        "norm2.scale": h,
        "norm2.bias": h,
        "attention.qkv": 3 * h * h,
        "attention.qkv_bias": 3 * h,
        "attention.out": h * h,
        "attention.out_bias": h,
        "mlp.up": 4 * h * h,
        "mlp.up_bias": 4 * h,
        "mlp.down": 4 * h * h,
        "mlp.down_bias": h,
    }


def test_a_norm_without_mean_has_no_bias_to_add():
    names = {weight.name for weight in llama(8, 8, 160, norm_bias=True).weights(HIDDEN, split())}

    assert not any("norm" in name and "bias" in name for name in names)


def test_positions_are_held_whole_by_every_rank_and_the_table_is_cut():
    embedding = Embedding(vocabulary=1024, learned_positions=32)

    table, positions = embedding.weights(HIDDEN, split(tensor=4))

    assert table.elements.item() == 1024 * HIDDEN / 4
    assert positions.elements.item() == positions.total == 32 * HIDDEN
