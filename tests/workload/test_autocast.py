"""Kernels of `torch.autocast` with fp32 weights, byte by byte."""

import pytest
from workload_cases import GPT, HIDDEN, LENGTH, LLAMA, at, flop_of, logical_block, moved_bytes_of

from flopcast.operators.matmul import Matmul
from flopcast.workload.backward import derive_backward, kept_tensors, total_bytes
from flopcast.workload.rewrites import REWRITES

CAST = 4 + 2  # bytes an element: from fp32 to 16 bits, or the gradient back
TOKENS = LENGTH * HIDDEN  # elements of the residual stream


def weights_of(items):
    return sum(at(item.work.n * item.work.k) for item in items if isinstance(item.work, Matmul))


def moved_bytes(items):
    return [moved_bytes_of(items), moved_bytes_of(derive_backward(items, frozenset()))]


def test_a_block_moves_its_stream_in_fp32_and_casts_what_products_read():
    items = logical_block(GPT, "gbs=1")

    before, after = moved_bytes(items), moved_bytes(REWRITES["autocast"](items))

    norms, sums = 2, 2
    forward = norms * (4 + 4 - 2 - 2) + sums * (2 + 4 + 4 - 3 * 2) + 2 * CAST  # of qkv, and of up
    assert after[0] - before[0] == pytest.approx(TOKENS * forward + weights_of(items) * CAST)
    # fp32 gradients of two uses are added, and the branch's is cast; a norm reads two tensors, writes one
    backward = norms * 3 * (4 - 2) + sums * (3 * 4 + CAST - 3 * 2) + 2 * CAST
    assert after[1] - before[1] == pytest.approx(TOKENS * backward + weights_of(items) * CAST)


def test_queries_keys_and_values_of_their_own_cast_their_input_each():
    joined = logical_block(LLAMA, "gbs=1")
    apart = REWRITES["separate_projections"](joined)

    casts = [
        {
            item.name: at(item.work.elements)
            for item in REWRITES["autocast"](items)
            if "input_cast" in item.name
        }
        for items in (joined, apart)
    ]

    assert casts[0] == {"attention.qkv_input_cast": TOKENS, "mlp.up_input_cast": TOKENS}
    assert casts[1] == {"attention.qkv_input_cast": 3 * TOKENS, "mlp.up_input_cast": 2 * TOKENS}


@pytest.mark.parametrize("model", [GPT, LLAMA])
def test_16_bit_copies_of_weights_are_kept_and_flop_stay(model):
    items = logical_block(model, "gbs=1")

    after = REWRITES["autocast"](items)

    kept = [at(total_bytes(kept_tensors(each, frozenset()))) for each in (items, after)]
    assert kept[1] - kept[0] >= 2 * weights_of(items)
    assert flop_of(after) == flop_of(items)


def test_fp32_training_has_no_autocast():
    items = logical_block(GPT, "gbs=1 precision=fp32")

    assert REWRITES["autocast"](items) == items
