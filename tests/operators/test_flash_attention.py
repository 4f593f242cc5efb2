"""Fused attention against its papers' conventions and against attention that writes its scores."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flopcast.dtypes import constant
from flopcast.operators.flash_attention import FlashAttention
from flopcast.operators.matmul import BatchedMatmul

lengths = st.integers(min_value=1, max_value=2**17)


def flash(queries, heads=16, kv_heads=None, head_size=128, sequences=1, causal=False):
    return FlashAttention(
        batch=constant(sequences * heads),
        kv_batch=constant(sequences * (kv_heads or heads)),
        queries=constant(queries),
        head_size=constant(head_size),
        causal=causal,
        dtype="bf16",
    )


def latent(queries, heads=16, causal=True):
    """DeepSeek-V3's heads: 128 + 64 elements of queries and keys, 128 of values (arXiv:2412.19437, 4.2)."""
    equal = flash(queries, heads=heads, head_size=192, causal=causal)
    return replace(equal, value_head_size=constant(128))


def materialised(fused):
    """The two products of the same attention with written scores."""
    scores = BatchedMatmul(
        role="scores",
        batch=fused.batch,
        kv_batch=fused.kv_batch,
        queries=fused.queries,
        keys=fused.queries,
        head_size=fused.head_size,
        dtype=fused.dtype,
    )
    return scores, replace(scores, role="context")


def tensors(sequences, heads, kv_heads, queries, head_size):
    """q, k, v and the output as 16-bit arrays."""
    many, few = (np.zeros((sequences, queries, n, head_size), np.float16) for n in (heads, kv_heads))
    return many, few, few, many


def backward(forward):
    ((suffix, gradient),) = forward.gradients()
    assert suffix == "dgrad"
    return gradient


@pytest.mark.parametrize(
    ("head_size", "hidden", "length", "sequences"), [(64, 2048, 512, 32), (128, 2048, 16384, 1)]
)
def test_flop_follow_the_convention_of_the_papers_benchmark(head_size, hidden, length, sequences):
    """4 · length² · head size · heads for each sequence: arXiv:2307.08691, section 4.1."""
    heads = hidden // head_size

    flop = flash(length, heads=heads, head_size=head_size, sequences=sequences).work().flop.item()

    assert flop == sequences * 4 * length**2 * head_size * heads


@given(queries=lengths)
@settings(max_examples=40, deadline=None)
def test_a_causal_kernel_needs_half_of_the_flop_in_both_passes(queries):
    full, causal = flash(queries), flash(queries, causal=True)

    assert 2 * causal.work().flop.item() == full.work().flop.item()
    assert 2 * backward(causal).work().flop.item() == backward(full).work().flop.item()


@given(queries=st.integers(min_value=1, max_value=300))
@settings(max_examples=40, deadline=None)
def test_half_is_what_a_triangle_of_pairs_tends_to(queries):
    pairs = int(np.tri(queries).sum())  # queries that see keys, themselves included

    flop = flash(queries, heads=1, head_size=1, causal=True).work().flop.item()

    assert flop / 4 == pytest.approx(pairs, rel=1 / queries)
    assert flop / 4 < pairs


def test_causal_or_not_the_same_tensors_are_moved_and_kept():
    full, causal = flash(4096), flash(4096, causal=True)

    assert causal.work().moved_bytes == full.work().moved_bytes
    assert [t.size_bytes for t in causal.saves()] == [t.size_bytes for t in full.saves()]


@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 4), (4, 2), (4, 1)])
def test_forward_moves_q_k_v_and_the_output_once(heads, kv_heads):
    arrays = tensors(2, heads, kv_heads, 24, 8)

    work = flash(24, heads=heads, kv_heads=kv_heads, head_size=8, sequences=2).work()

    assert work.moved_bytes.item() == sum(array.nbytes for array in arrays)


@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 4), (4, 2), (4, 1)])
def test_backward_moves_every_tensor_and_its_gradient_once(heads, kv_heads):
    arrays = tensors(2, heads, kv_heads, 24, 8)

    work = backward(flash(24, heads=heads, kv_heads=kv_heads, head_size=8, sequences=2)).work()

    assert work.moved_bytes.item() == 2 * sum(array.nbytes for array in arrays)


@pytest.mark.parametrize("kv_heads", [16, 4, 1])
def test_shared_keys_save_bytes_but_no_flop(kv_heads):
    own, shared = flash(2048), flash(2048, kv_heads=kv_heads)

    assert shared.work().flop.item() == own.work().flop.item()
    assert shared.work().moved_bytes.item() == own.work().moved_bytes.item() * (16 + kv_heads) / 32


def test_kept_are_q_k_v_the_output_and_one_fp32_number_a_row():
    q, k, v, out = tensors(3, 8, 2, 40, 16)
    log_sums = np.zeros((3, 8, 40), np.float32)

    kept = flash(40, heads=8, kv_heads=2, head_size=16, sequences=3).saves()

    assert {tensor.role: tensor.size_bytes.item() for tensor in kept} == {
        "input:0": q.nbytes,
        "input:1": k.nbytes,
        "input:2": v.nbytes,
        "output": out.nbytes,
        "log_sum": log_sums.nbytes,
    }


@given(queries=lengths, head_size=st.sampled_from([32, 64, 128, 256]))
@settings(max_examples=40, deadline=None)
def test_flop_are_those_of_both_products_of_written_attention(queries, head_size):
    fused = flash(queries, head_size=head_size)

    apart = sum(product.work().flop.item() for product in materialised(fused))

    assert fused.work().flop.item() == apart


@given(queries=lengths, head_size=st.sampled_from([32, 64, 128, 256]))
@settings(max_examples=40, deadline=None)
def test_bytes_spared_are_the_score_matrix_written_and_read(queries, head_size):
    fused = flash(queries, head_size=head_size)
    square_bytes = 2 * 16 * queries**2

    apart = sum(product.work().moved_bytes.item() for product in materialised(fused))

    assert apart - fused.work().moved_bytes.item() == 2 * square_bytes


def test_backward_multiplies_once_more_than_the_gradients_of_written_attention():
    fused = flash(1024)
    gradients = [g for product in materialised(fused) for _, g in product.gradients()]

    apart = sum(gradient.work().flop.item() for gradient in gradients)

    assert backward(fused).work().flop.item() == apart * 5 / 4


def test_a_causal_kernel_is_looked_up_as_a_square_of_as_many_pairs():
    full_length, *others = (c.item() for c in flash(4096, kv_heads=2, sequences=3).coordinates())
    causal_length, *same = (
        c.item() for c in flash(4096, kv_heads=2, sequences=3, causal=True).coordinates()
    )

    assert full_length == 4096
    assert causal_length**2 == pytest.approx(full_length**2 / 2)
    assert others == same == [128, 3 * 16]


def test_the_two_passes_have_curves_of_their_own():
    forward = flash(128)

    assert forward.kernel == "flash_attention"
    assert backward(forward).kernel == "flash_attention.backward"


@given(queries=lengths)
@settings(max_examples=40, deadline=None)
def test_latent_heads_multiply_scores_over_one_size_and_values_over_the_other(queries):
    """Per head: queries · keys · 192 for the scores and · 128 for the output, 2 FLOP each."""
    scores, _ = materialised(latent(queries, causal=False))
    _, context = materialised(flash(queries, head_size=128))

    flop = latent(queries, causal=False).work().flop.item()

    assert flop == scores.work().flop.item() + context.work().flop.item()


def test_the_backward_of_latent_heads_repeats_the_scores_and_adds_the_gradients_of_both_products():
    fused = latent(1024, causal=False)
    scores, _ = materialised(fused)
    _, context = materialised(flash(1024, head_size=128))
    gradients = [g for product in (scores, context) for _, g in product.gradients()]

    apart = scores.work().flop.item() + sum(gradient.work().flop.item() for gradient in gradients)

    assert backward(fused).work().flop.item() == apart


def test_a_causal_layer_of_deepseek_needs_the_flop_that_its_report_lets_count():
    """128 heads over 4096 tokens: 128 · 4096² · (192 + 128) = 687 GFLOP, half of the square's."""
    assert latent(4096, heads=128).work().flop.item() == pytest.approx(6.872e11, rel=1e-4)


def test_latent_heads_move_and_keep_arrays_of_two_sizes():
    wide, narrow = (np.zeros((1, 40, 16, size), np.float16) for size in (192, 128))
    log_sums = np.zeros((1, 16, 40), np.float32)

    forward = latent(40)

    moved = 2 * wide.nbytes + 2 * narrow.nbytes  # q and k, v and the output
    assert forward.work().moved_bytes.item() == moved
    assert backward(forward).work().moved_bytes.item() == 2 * moved
    assert {tensor.role: tensor.size_bytes.item() for tensor in forward.saves()} == {
        "input:0": wide.nbytes,
        "input:1": wide.nbytes,
        "input:2": narrow.nbytes,
        "output": narrow.nbytes,
        "log_sum": log_sums.nbytes,
    }


def test_values_as_wide_as_keys_need_what_heads_of_one_size_need():
    plain = flash(512, kv_heads=4)
    told = replace(plain, value_head_size=constant(128))

    for one, other in ((plain, told), (backward(plain), backward(told))):
        assert one.work().flop == other.work().flop
        assert one.work().moved_bytes == other.work().moved_bytes
        assert one.coordinates() == other.coordinates()


def test_latent_heads_are_looked_up_at_the_mean_of_their_sizes_in_curves_of_their_own():
    forward = latent(4096)

    assert forward.coordinates()[1].item() == (192 + 128) / 2
    assert forward.kernel == "flash_attention.latent"
    assert backward(forward).kernel == "flash_attention.latent.backward"
    assert backward(forward).value_head_size is forward.value_head_size
