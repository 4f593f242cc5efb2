"""What jumps in a kernel's efficiency: waves, padding and uneven sizes, against counts by hand."""

import numpy as np
import pytest
from all_cases import all_cases
from hypothesis import given, settings
from hypothesis import strategies as st

from flopcast.cost.kernels.features import FEATURES, features_of, padding, uneven, wave

A100 = 108  # multiprocessors


def shape(*sizes):
    """One shape, as arrays of one row."""
    return tuple(np.array([float(size)]) for size in sizes)


@all_cases(("tiles", "share"), [(54, 0.5), (108, 1.0), (109, 109 / 216), (216, 1.0), (220, 220 / 324)])
def test_a_wave_that_is_not_full_takes_as_long_as_a_full_one(tiles, share):
    assert np.exp(wave(np.array([float(tiles)]), A100)).item() == pytest.approx(share)


@pytest.mark.parametrize(
    ("size", "tile", "share"), [(128, 128, 1.0), (129, 128, 129 / 256), (40, 32, 40 / 64)]
)
def test_padding_is_computed_and_thrown_away(size, tile, share):
    assert np.exp(padding(np.array([float(size)]), tile)).item() == pytest.approx(share)


def test_a_size_is_uneven_or_it_is_not():
    assert uneven(np.array([127.0, 128.0, 129.0, 256.0]), 128).tolist() == [-1.0, 0.0, -1.0, 0.0]


def test_a_product_counts_its_tiles():
    """4096 × 4096 in tiles of 128 × 128: 1024 tiles, 9.48 waves of 108, so ten."""
    found = features_of("gemm").terms["wave_128x128"](shape(4096, 4096, 512), A100)

    assert np.exp(found).item() == pytest.approx(1024 / 1080)


def test_attention_counts_blocks_of_queries_over_all_heads():
    """16 heads of 2048 queries in blocks of 128: 256 blocks, 2.37 waves, so three."""
    found = features_of("flash_attention").terms["wave_128"](shape(2048, 64, 16), A100)

    assert np.exp(found).item() == pytest.approx(256 / 324)


def test_the_head_of_an_attention_kernel_is_padded_to_32():
    view = features_of("flash_attention.backward")

    queries, head, batch = view.table(shape(1024, 72, 8))

    assert (queries.item(), head.item(), batch.item()) == (1024, 96, 8)
    assert np.exp(view.terms["padding_head_32"](shape(1024, 72, 8), A100)).item() == pytest.approx(72 / 96)


@pytest.mark.parametrize("kind", [".latent", ".latent.backward"])
def test_attention_with_heads_of_two_sizes_has_the_blocks_of_plain_attention(kind):
    assert features_of(f"flash_attention{kind}") is features_of("flash_attention")


def test_a_precision_of_a_class_is_seen_as_the_class():
    assert features_of("grouped_gemm.fp8") is features_of("grouped_gemm")


def test_narrow_products_are_seen_as_products_that_do_not_saturate():
    narrow, wide = features_of("gemm.fp8"), features_of("gemm")

    assert (narrow.saturates, wide.saturates) == (False, True)
    assert narrow.terms is wide.terms


def test_a_stream_of_bytes_has_no_tiles():
    view = features_of("gelu")

    assert view.terms == {}
    assert view.table(shape(1e6)) == shape(1e6)


@pytest.mark.parametrize("name", FEATURES)
@given(seed=st.integers(0, 99))
@settings(max_examples=20, deadline=None)
def test_a_term_takes_something_off_or_nothing(name, seed):
    draw = np.random.default_rng(seed)
    sizes = tuple(draw.integers(1, 9000, 50).astype(float) for _ in range(6))
    sizes = sizes if name.endswith(("grouped_gemm", "fused_experts")) else sizes[:3]

    for term in FEATURES[name].terms.values():
        assert (term(sizes, A100) <= 1e-12).all()


def test_waves_take_their_share_of_how_fast_a_table_may_rise():
    """Attention's work grows as the square of its queries: what waves of 0.7 leave is 2 - 0.7."""
    rises = features_of("flash_attention").rises(
        3, {"wave_64": 0.2, "wave_128": 0.5, "padding_head_32": 1.0}
    )

    assert rises == pytest.approx((1.3, 1.0, 0.3))


def test_an_axis_that_no_power_is_known_of_is_free():
    assert features_of("softmax").rises(2, {}) == (1.0, None)
