"""FLOP of blocks and models against arXiv:2104.04473 (Narayanan et al.), section 5.1 and appendix.

Its equations count two FLOP a multiply-add of matrix products, and the scores in full, masked or not.
"""

import pytest
from all_cases import all_cases
from hypothesis import given, settings
from hypothesis import strategies as st
from layer_examples import BLOCKS, HIDDEN, RESIDUALS, flop, gpt, split

from flopcast.spec.model import Model
from flopcast.workload.backward import derive_backward
from flopcast.workload.rewrites import REWRITES

NONE = frozenset()
SC21 = {  # table 1: billions of parameters → hidden, layers, heads
    "1.7": (2304, 24, 24),
    "18.4": (6144, 40, 48),
    "145.6": (12288, 80, 96),
    "1008": (25600, 128, 160),
}
VOCABULARY, LENGTH = 51200, 2048


def forward_and_backward(layer, hidden, cut, recomputed=NONE):
    forward = layer.forward(hidden, cut)
    return flop(forward).item(), flop(derive_backward(forward, recomputed)).item()


@all_cases(("h", "a"), [(2304, 24), (6144, 48), (12288, 96), (25600, 160)])
@all_cases("b", [1, 3])
def test_a_block_needs_24_b_s_h_squared_and_4_b_s_squared_h_forward(h, a, b):
    s = LENGTH

    forward, _ = forward_and_backward(gpt(a, h), h, split(b, s))

    assert forward == 24 * b * s * h**2 + 4 * b * s**2 * h


@all_cases("name", BLOCKS)
def test_selective_recompute_adds_both_products_of_attention_once(name):
    mixer = BLOCKS[name].mixer
    s, heads, size = 32, mixer.heads, mixer.size(HIDDEN)
    core = frozenset(["core_attention"])

    _, plain = forward_and_backward(BLOCKS[name], HIDDEN, split(1, s))
    _, selective = forward_and_backward(BLOCKS[name], HIDDEN, split(1, s), core)

    assert selective - plain == 2 * (2 * heads * s * s * size)


@all_cases(("h", "layers", "a"), SC21.values())
def test_the_models_own_count_is_that_of_its_items(h, layers, a):
    model = Model(hidden=h, vocabulary=VOCABULARY, blocks=(gpt(a, h, count=layers),))

    items = sum(
        count * flop(layer.forward(h, split(1, LENGTH))).item() for layer, count in model.sequence()
    )

    assert model.forward_flop(LENGTH) == items


@all_cases("name", [name for name, block in BLOCKS.items() if block.mixer.causal])
def test_a_fused_causal_kernel_spares_half_of_the_scores(name):
    block, s = BLOCKS[name], 128
    written = block.forward(HIDDEN, split(1, s))

    spared = flop(written).item() - flop(REWRITES["flash_attention"](written)).item()

    assert spared == 4 * s**2 * block.mixer.heads * block.mixer.size(HIDDEN) / 2


def test_a_fused_kernel_without_a_mask_spares_no_flop():
    written = BLOCKS["bidirectional"].forward(HIDDEN, split(1, 128))

    assert flop(REWRITES["flash_attention"](written)).item() == flop(written).item()


@given(b=st.integers(1, 16), s=st.integers(1, 4096), name=st.sampled_from(sorted(BLOCKS)))
@settings(max_examples=60, deadline=None)
def test_flop_are_linear_in_sequences_and_quadratic_in_length(b, s, name):
    block = BLOCKS[name]
    at = {n: flop(block.forward(HIDDEN, split(1, n))).item() for n in (s, 2 * s)}
    square = 4 * s**2 * block.mixer.heads * block.mixer.size(HIDDEN)

    assert flop(block.forward(HIDDEN, split(b, s))).item() == b * at[s]
    assert at[2 * s] - 2 * at[s] == pytest.approx(2 * square)


@all_cases("residual", RESIDUALS)
def test_norms_dropout_and_sums_count_no_flop(residual):
    items = gpt(8, HIDDEN, residual=residual).forward(HIDDEN, split(1, 32))

    assert flop([item for item in items if item.component in ("norm", "residual")]).item() == 0
