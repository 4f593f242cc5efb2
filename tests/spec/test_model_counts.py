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


def test_runs_of_different_blocks_follow_each_other_in_their_order():
    wide, narrow = gpt(1024, 2, 16).blocks[0], gpt(1024, 3, 8).blocks[0]
    model = Model(hidden=1024, vocabulary=100, blocks=(wide, narrow))

    heads = [layer.mixer.heads for layer, _ in model.sequence()[1:-2]]

    assert heads == [16, 8]
    assert model.num_blocks == 5


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
