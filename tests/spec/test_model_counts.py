"""Parameters and FLOP of models: against published counts and against the formulas of the papers."""

import pytest
from all_cases import all_cases
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from flopcast.library import catalog
from flopcast.spec.model import Model


def gpt(hidden, layers, heads, vocabulary=51200, positions=2048, tied=True, residual="sequential"):
    """A GPT-2 or GPT-NeoX: biases everywhere, layer norms, an MLP of four times the width."""
    block = {
        "count": layers,
        "residual": residual,
        "mixer": {"heads": heads, "qkv_bias": True, "out_bias": True},
        "feed_forward": {"ffn_hidden": 4 * hidden, "bias": True},
    }
    return Model(
        hidden=hidden,
        vocabulary=vocabulary,
        learned_positions=positions,
        tied_embeddings=tied,
        blocks=[block],
    )


def llama(hidden, layers, heads, ffn_hidden, kv_heads=None, vocabulary=32000):
    """A Llama: no biases, RMS norms, a gated MLP, an untied head."""
    block = {
        "count": layers,
        "norm": "rmsnorm",
        "mixer": {"heads": heads, "kv_heads": kv_heads},
        "feed_forward": {"ffn_hidden": ffn_hidden, "activation": "swiglu"},
    }
    return Model(hidden=hidden, vocabulary=vocabulary, blocks=[block])


@all_cases(
    ("model", "published"),
    [  # sums of tensor sizes of the released checkpoints
        (gpt(768, 12, 12, 50257, 1024), 124_439_808),  # GPT-2
        (gpt(1600, 48, 25, 50257, 1024), 1_557_611_200),  # GPT-2 XL
        (gpt(4096, 32, 32, 50432, 0, False, "parallel"), 6_857_302_016),  # Pythia 6.9B
        (gpt(6144, 44, 64, 50432, 0, False, "parallel"), 20_554_567_680),  # GPT-NeoX-20B, table 1
        (llama(4096, 32, 32, 11008), 6_738_415_616),  # Llama 2 7B
        (llama(5120, 40, 40, 13824), 13_015_864_320),  # Llama 2 13B
        (llama(8192, 80, 64, 28672, 8), 68_976_648_192),  # Llama 2 70B
        (llama(4096, 32, 32, 14336, 8), 7_241_732_096),  # Mistral 7B
        (llama(4096, 32, 32, 14336, 8, 128256), 8_030_261_248),  # Llama 3 8B
    ],
)
def test_a_released_model_has_as_many_parameters_as_its_checkpoint(model, published):
    assert model.parameters() == published


SC21 = {  # arXiv:2104.04473, Table 1: hidden, layers, 10⁹ parameters as printed
    "megatron-1.7b": (2304, 24, 1.7),
    "megatron-3.6b": (3072, 30, 3.6),
    "megatron-7.5b": (4096, 36, 7.5),
    "megatron-18b": (6144, 40, 18.4),
    "megatron-39b": (8192, 48, 39.1),
    "megatron-76b": (10240, 60, 76.1),
    "megatron-145b": (12288, 80, 145.6),
    "megatron-310b": (16384, 96, 310.1),
    "megatron-530b": (20480, 105, 529.6),
    "megatron-1t": (25600, 128, 1008.0),
}
KORTHIKANTI = {"megatron-22b": (6144, 48, 22), "gpt3-175b": (12288, 96, 175)}  # arXiv:2205.05198, Table 3
VOCABULARY, LENGTH = 51200, 2048


@all_cases("name", SC21 | KORTHIKANTI)
def test_a_model_of_the_papers_has_the_shape_and_the_size_that_they_print(name):
    hidden, layers, billions = (SC21 | KORTHIKANTI)[name]
    model = catalog.model(name)

    assert (model.hidden, model.num_blocks) == (hidden, layers)
    assert model.parameters() / 1e9 == pytest.approx(billions, rel=0.03)
    if name in SC21:
        assert abs(model.parameters() / 1e9 - billions) <= 0.055


@all_cases("name", SC21 | KORTHIKANTI)
def test_parameters_follow_equation_2_of_the_megatron_paper(name):
    hidden, layers, _ = (SC21 | KORTHIKANTI)[name]
    width = VOCABULARY + LENGTH
    equation_2 = 12 * layers * hidden**2 * (1 + 13 / (12 * hidden) + width / (12 * layers * hidden))

    final_norm = 2 * hidden  # which the equation leaves out

    assert catalog.model(name).parameters() == pytest.approx(equation_2 + final_norm, rel=1e-12)


@all_cases("name", SC21 | KORTHIKANTI)
def test_flop_follow_equation_3_of_the_megatron_paper(name):
    hidden, layers, _ = (SC21 | KORTHIKANTI)[name]
    more = 1 + LENGTH / (6 * hidden) + VOCABULARY / (16 * layers * hidden)
    equation_3 = 96 * LENGTH * layers * hidden**2 * more  # one sequence; recompute makes four passes
    head = 2 * LENGTH * hidden * VOCABULARY  # which is not recomputed: three passes

    forward = catalog.model(name).forward_flop(LENGTH)

    assert 4 * forward - head == pytest.approx(equation_3, rel=1e-12)


@settings(max_examples=60, deadline=None)
@given(
    groups=st.integers(1, 8),
    repeats=st.integers(1, 8),
    size=st.sampled_from([16, 64, 128]),
    inner=st.integers(1, 1000),
    gated=st.booleans(),
    length=st.integers(1, 512),
)
def test_flop_are_two_for_each_weight_and_token_and_for_each_pair_of_positions(
    groups, repeats, size, inner, gated, length
):
    heads = groups * repeats
    hidden = heads * size
    matrices = [
        (hidden, heads * size),  # queries
        (hidden, groups * size),  # keys
        (hidden, groups * size),  # values
        (heads * size, hidden),
        (hidden, inner),
        *([(hidden, inner)] if gated else []),
        (inner, hidden),
    ]
    model = Model(
        hidden=hidden,
        vocabulary=1,
        blocks=[
            {
                "count": 3,
                "mixer": {"heads": heads, "kv_heads": groups},
                "feed_forward": {"ffn_hidden": inner, "activation": "swiglu" if gated else "gelu"},
            }
        ],
    )

    products = sum(2 * rows * columns for rows, columns in matrices) * length
    pairs = 2 * (2 * heads * size * length * length)  # scores, and their sums over values
    head = 2 * hidden * length

    assert model.forward_flop(length) == pytest.approx(3 * (products + pairs) + head, rel=1e-12)


def test_a_causal_mask_halves_the_attention_and_nothing_else():
    model = gpt(1024, 4, 16)

    full, causal = model.forward_flop(512), model.forward_flop(512, causal=True)

    assert full - causal == model.attention_flop(512) / 2
    assert model.attention_flop(512, causal=True) == model.attention_flop(512) / 2


def test_twice_the_sequence_is_four_times_the_attention_and_twice_the_rest():
    model = gpt(1024, 4, 16)
    rest = model.forward_flop(512) - model.attention_flop(512)

    assert model.attention_flop(1024) == 4 * model.attention_flop(512)
    assert model.forward_flop(1024) == 2 * rest + 4 * model.attention_flop(512)


def test_a_sequence_of_layers_begins_with_the_embedding_and_ends_with_the_head():
    kinds = [(layer.kind, count) for layer, count in gpt(1024, 4, 16).sequence()]

    assert kinds == [("embedding", 1), ("block", 4), ("final_norm", 1), ("head", 1)]


def test_runs_of_different_blocks_follow_each_other_in_their_order():
    wide, narrow = gpt(1024, 2, 16).blocks[0], gpt(1024, 3, 8).blocks[0]
    model = Model(hidden=1024, vocabulary=100, blocks=(wide, narrow))

    heads = [layer.mixer.heads for layer, _ in model.sequence()[1:-2]]

    assert heads == [16, 8]
    assert model.num_blocks == 5


def test_splitting_a_run_of_equal_blocks_changes_no_count():
    whole = gpt(1024, 6, 16)
    first, second = (whole.blocks[0].model_copy(update={"count": count}) for count in (2, 4))
    split = whole.model_copy(update={"blocks": (first, second)})

    assert split.parameters() == whole.parameters()
    assert split.forward_flop(777) == whole.forward_flop(777)


def test_tying_the_head_saves_one_table():
    tied, free = gpt(1024, 2, 16, tied=True), gpt(1024, 2, 16, tied=False)

    assert free.parameters() - tied.parameters() == 51200 * 1024


def test_a_shared_norm_saves_one_norm_in_every_block():
    own = gpt(1024, 6, 16, residual="parallel")
    shared = gpt(1024, 6, 16, residual="parallel_shared_norm")

    assert own.parameters() - shared.parameters() == 6 * 2 * 1024


def test_padding_the_vocabulary_adds_no_parameter_to_the_count():
    rough = gpt(1024, 2, 16, vocabulary=50257).model_copy(update={"vocabulary_multiple": 1024})

    assert rough.parameters() == gpt(1024, 2, 16, vocabulary=50257).parameters()


@all_cases(
    "wrong",
    [
        {"hidden": 0},
        {"vocabulary": 0},
        {"vocabulary_multiple": 0},
        {"learned_positions": -1},
        {"blocks": []},
        {"embedding_dropout": 1.0},
        {"embedding_dropout": -0.1},
        {"layers": 3},
    ],
)
def test_a_model_refuses_what_no_model_has(wrong):
    right = gpt(1024, 2, 16).model_dump()

    with pytest.raises(ValidationError):
        Model.model_validate(right | wrong)
