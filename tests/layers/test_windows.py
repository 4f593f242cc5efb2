"""Attention with windows: against masks counted pair by pair, and against shorter sequences."""

from dataclasses import replace

import numpy as np
import pytest
from all_cases import all_cases
from hypothesis import given, settings
from hypothesis import strategies as st
from layer_examples import split

from flopcast.cost.kernels.classes import class_of
from flopcast.cost.kernels.roofline import bound_seconds
from flopcast.cost.kernels.unscaled import kernel_seconds
from flopcast.dtypes import constant
from flopcast.layers.attention import Attention
from flopcast.layers.windows import mean_keys
from flopcast.library import catalog
from flopcast.library.curves import load_book
from flopcast.operators.flash_attention import FlashAttention
from flopcast.workload.rewrites import REWRITES
from flopcast.workload.rewrites.flash_attention import flash_attention

KINDS = ("sliding", "chunked")
HIDDEN = 1024


def mask(length, window, kind):
    """Which keys (columns) a query (row) sees, as the papers define it."""
    query, key = np.indices((length, length))
    near = query - key < window if kind == "sliding" else query // window == key // window
    return (key <= query) & near


def fused(length, **fields):
    """The fused kernel of one micro-batch of 16 heads."""
    items = Attention(heads=16, **fields).forward(HIDDEN, split(length=length))
    (kernel,) = [i.work for i in flash_attention(items) if isinstance(i.work, FlashAttention)]
    return kernel


@pytest.mark.parametrize("kind", KINDS)
@given(length=st.integers(1, 96), window=st.integers(1, 128))
@settings(max_examples=60, deadline=None)
def test_mean_keys_are_those_of_the_mask_but_for_half_of_the_diagonal(kind, length, window):
    """A continuous edge takes half of each pair on it: at most half a key of a query differs."""
    counted = mask(length, window, kind).sum() / length

    assert counted - 0.5 == pytest.approx(mean_keys(constant(length), window, kind).item(), abs=0.5)


@all_cases("kind", KINDS)
@all_cases("window", [2048, 4096])
def test_a_window_of_the_whole_sequence_changes_nothing(kind, window):
    with_window, without = fused(2048, window=window, window_kind=kind), fused(2048)

    assert with_window.kernel == without.kernel == "flash_attention"
    assert with_window.work().flop == without.work().flop


@pytest.mark.parametrize("passes", ["forward", "backward"])
def test_chunks_are_the_work_and_the_speed_of_as_many_short_sequences(passes):
    chunked, short = fused(8192, window=1024, window_kind="chunked"), fused(1024)
    short = replace(short, batch=8 * short.batch, kv_batch=8 * short.kv_batch)
    if passes == "backward":
        chunked, short = (kernel.gradients()[0][1] for kernel in (chunked, short))

    assert chunked.work().flop.item() == pytest.approx(short.work().flop.item())
    assert chunked.work().moved_bytes.item() == pytest.approx(short.work().moved_bytes.item())
    assert np.array(chunked.coordinates()).ravel() == pytest.approx(np.array(short.coordinates()).ravel())


@given(length=st.integers(2, 2**17), window=st.integers(1, 2**14))
@settings(max_examples=60, deadline=None)
def test_a_fused_kernel_computes_its_band_and_no_more(length, window):
    """Four FLOP an element of the head for each pair: twice a product, each a multiply and an add."""
    pairs = length * min(window, length) - min(window, length) ** 2 / 2

    assert fused(length, window=window).work().flop.item() == pytest.approx(16 * 4 * 64 * pairs)


def test_written_scores_hold_what_lies_outside_of_the_window_too():
    local, whole = (
        Attention(heads=16, window=window).forward(HIDDEN, split(length=2048)) for window in (128, None)
    )

    assert [i.work.work().flop for i in local[:-2] if i.group] == [
        i.work.work().flop for i in whole[:-2] if i.group
    ]


def test_a_window_keeps_the_tensors_that_a_whole_sequence_keeps():
    local, whole = fused(8192, window=128), fused(8192)

    assert [s.size_bytes.item() for s in local.saves()] == [s.size_bytes.item() for s in whole.saves()]


@all_cases("cluster", ["dgx-a100", "dgx-h100"])
@all_cases("passes", ["forward", "backward"])
def test_a_window_twice_as_wide_is_no_faster(cluster, passes):
    """Within 5 %: below 512 tokens time hardly depends on the window, and a fitted curve is that rough."""
    book, device = load_book(catalog.cluster(cluster)), catalog.cluster(cluster).node.device
    windows = 2.0 ** np.arange(6, 16)
    kernel = replace(fused(32768), mean_keys=windows - windows**2 / 65536)
    kernel = kernel if passes == "forward" else kernel.gradients()[0][1]
    owner, name = device.curves or device.name, class_of(kernel.kernel).curve
    curve = book.find(owner, name, device.kernel_launch_s, device.relatives).curve
    columns = tuple(np.broadcast_to(c, (1, len(windows)))[0] for c in kernel.coordinates())
    bound_s = bound_seconds(kernel.work(), device)[0]

    seconds = kernel_seconds(bound_s, columns, curve, device)

    assert (np.diff(seconds) >= -0.05 * seconds[:-1]).all()


def test_sinks_are_one_weight_for_each_head_of_a_rank():
    weights = Attention(heads=64, kv_heads=8, sinks=True).weights(2880, split(tensor=4))

    (sinks,) = [weight for weight in weights if weight.name == "attention.sinks"]
    assert (sinks.total, sinks.elements.item()) == (64, 16)


def test_heads_normed_without_a_scale_take_the_time_and_memory_of_scaled_ones_and_have_no_weights():
    scaled, unscaled = (Attention(heads=16, qk_norm=norm) for norm in ("per_head", "unscaled"))
    plan = split(length=2048)

    bytes_moved = [
        sum(item.work.work().moved_bytes for item in layer.forward(HIDDEN, plan))
        for layer in (scaled, unscaled)
    ]

    assert bytes_moved[0] == bytes_moved[1]
    assert sum(w.total for w in unscaled.weights(HIDDEN, plan)) == 4 * HIDDEN**2


def test_a_window_without_a_causal_mask_is_refused():
    with pytest.raises(ValueError, match="write causal=True"):
        Attention(heads=8, window=128, causal=False)


def test_gradients_that_skip_no_window_are_those_of_whole_attention():
    run = flash_attention(Attention(heads=16, window=128).forward(HIDDEN, split(length=4096)))
    (item,) = [i for i in REWRITES["whole_window_gradients"](run) if isinstance(i.work, FlashAttention)]
    windowed, whole = fused(4096, window=128), fused(4096)

    ((_, gradient),), ((_, expected),) = item.work.gradients(), whole.gradients()
    assert item.work.work().flop == windowed.work().flop
    assert (gradient.kernel, gradient.work().flop) == (expected.kernel, expected.work().flop)
