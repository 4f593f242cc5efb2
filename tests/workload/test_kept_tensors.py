"""Activation memory of one layer against arXiv:2205.05198 ("Korthikanti"), section 4 and table 2.

Its symbols: s tokens of a sequence, b sequences of a micro-batch, h hidden, a heads, t tensor-parallel
degree. Its bytes assume 16-bit activations, masks of one byte, and scores that are written to memory.
"""

import pytest
from all_cases import all_cases
from hypothesis import given, settings
from hypothesis import strategies as st
from workload_cases import (
    BARE,
    GPT,
    HEADS,
    HIDDEN,
    LENGTH,
    LLAMA,
    MEGATRON,
    at,
    block_of,
    logical_block,
    realised,
    stack_with,
)

from flopcast.layers.attention import CORE, Attention
from flopcast.layers.block import Block
from flopcast.layers.mlp import Mlp
from flopcast.spec.model import Model
from flopcast.workload.backward import kept_tensors

SIZES = {
    "tensor": st.sampled_from([1, 2, 4, 8]),
    "sequences": st.integers(1, 8),
    "length": st.sampled_from([256, 1024, 2048]),
    "width": st.sampled_from([512, 1024, 3072]),
}
LAWS = settings(max_examples=30, deadline=None)


def gpt(width, heads=8):
    """A GPT of another width; eight heads, so that eight ranks can share them."""
    mixer = Attention(heads=heads, qkv_bias=True, out_bias=True, rotary_fraction=0.0, dropout=0.1)
    mlp = Mlp(ffn_hidden=4 * width, bias=True)
    return Model(
        hidden=width, vocabulary=51200, blocks=(Block(mixer=mixer, feed_forward=mlp, dropout=0.1),)
    )


def kept_bytes(width, text, length, stack=BARE):
    return at(block_of(realised(gpt(width), stack, text, length=length)).kept_bytes)


@LAWS
@given(**SIZES)
def test_a_tensor_parallel_layer_keeps_what_equation_2_says(tensor, sequences, length, width):
    s, b, h, a, t = length, sequences, width, 8, tensor

    kept = kept_bytes(width, f"tp={t} mbs={b} gbs={b}", length)

    assert kept == pytest.approx(s * b * h * (10 + 24 / t + 5 * a * s / (h * t)), rel=1e-12)


@LAWS
@given(**SIZES)
def test_with_sequence_parallelism_it_keeps_what_equation_4_says(tensor, sequences, length, width):
    s, b, h, a, t = length, sequences, width, 8, tensor

    kept = kept_bytes(width, f"tp={t} sp mbs={b} gbs={b}", length)

    assert kept == pytest.approx(s * b * h / t * (34 + 5 * a * s / h), rel=1e-12)


@LAWS
@given(**SIZES)
def test_with_selective_recompute_too_it_keeps_34_bytes_an_element(tensor, sequences, length, width):
    s, b, h, t = length, sequences, width, tensor

    kept = kept_bytes(width, f"tp={t} sp mbs={b} gbs={b} recompute=selective", length)

    assert kept == pytest.approx(34 * s * b * h / t, rel=1e-12)  # table 2, next to last row


@LAWS
@given(**SIZES)
def test_selective_recompute_without_sequence_parallelism_keeps_table_2_s_third_row(
    tensor, sequences, length, width
):
    s, b, h, t = length, sequences, width, tensor

    kept = kept_bytes(width, f"tp={t} mbs={b} gbs={b} recompute=selective", length)

    assert kept == pytest.approx(s * b * h * (10 + 24 / t), rel=1e-12)


def test_on_one_device_it_keeps_what_equation_1_says():
    s, b, h, a = LENGTH, 4, HIDDEN, HEADS

    kept = at(block_of(realised(GPT, BARE, "mbs=4 gbs=4")).kept_bytes)

    assert kept == s * b * h * (34 + 5 * a * s / h)


def test_the_terms_are_those_that_section_4_1_lists():
    s, b, h, a = LENGTH, 1, HIDDEN, HEADS
    sbh, square = s * b * h, a * s * s * b

    kept = {name: at(size) for name, size in kept_tensors(logical_block(GPT, "gbs=1"), frozenset()).items()}

    assert kept == {
        "x": 2 * sbh,  # of the first norm
        "attention.in.full": 2 * sbh,  # shared by q, k and v
        "attention.q": 2 * sbh,
        "attention.k": 2 * sbh,
        "attention.weights": 2 * square,  # the softmax's output
        "attention.dropout.mask": square,
        "attention.dropped": 2 * square,
        "attention.v": 2 * sbh,
        "attention.joined": 2 * sbh,  # of the output projection
        "attention.drop.mask": sbh,
        "middle": 2 * sbh,  # of the second norm
        "mlp.in.full": 2 * sbh,
        "mlp.up": 8 * sbh,  # of the GELU
        "mlp.inner": 8 * sbh,  # of the second linear
        "mlp.drop.mask": sbh,
    }


@all_cases("text", ["tp=4", "tp=4 sp", "tp=4 sp recompute=selective", "recompute=full"])
def test_megatron_s_fusions_keep_the_same_bytes(text):
    logical = block_of(realised(GPT, BARE, text))

    fused = block_of(realised(GPT, MEGATRON, text))

    # bias-GELU keeps its input, bias-dropout-add its mask, the fused softmax its output: as counted there
    assert at(fused.kept_bytes) == pytest.approx(at(logical.kept_bytes), rel=1e-12)


def test_flash_attention_keeps_no_square_tensor():
    flash = stack_with(BARE, attention_kernel="flash")

    short, long = (
        at(block_of(realised(GPT, flash, "gbs=1", length=length)).kept_bytes) for length in (1024, 2048)
    )

    assert long == pytest.approx(2 * short, rel=1e-12)


def test_flash_attention_keeps_its_output_and_one_fp32_number_a_row_instead():
    flash = stack_with(BARE, attention_kernel="flash")
    sbh = LENGTH * HIDDEN

    kept = at(block_of(realised(GPT, flash, "gbs=1")).kept_bytes)

    # arXiv:2205.14135, section 3.1: the output, which is the projection's input, and the softmax statistics
    assert kept == 34 * sbh + 4 * HEADS * LENGTH


def test_grouped_keys_and_values_are_kept_once_a_group_by_flash_attention():
    sbh, sbf = LENGTH * HIDDEN, LENGTH * 2816
    flash = stack_with(BARE, attention_kernel="flash")

    kept = at(block_of(realised(LLAMA, flash, "gbs=1")).kept_bytes)

    attention = 2 * sbh + 2 * sbh + 2 * (2 * sbh / 2) + 2 * sbh  # in, q, k and v of 8 heads of 16, out
    mlp = 2 * sbh + 2 * 2 * sbf + 2 * sbf  # in, both halves before the product, the product
    norms = 2 * 2 * sbh
    assert kept == attention + 4 * HEADS * LENGTH + mlp + norms


def test_dropout_after_the_sum_leaves_nothing_but_its_mask_once_it_is_fused():
    fused = block_of(realised(GPT, MEGATRON, "gbs=1")).forward

    kept = {name: at(size) for item in fused if "drop+" in item.name for name, size in item.saved()}

    assert kept == {
        "attention.bias+drop+residual.mask": LENGTH * HIDDEN,
        "mlp.bias+drop+residual.mask": LENGTH * HIDDEN,
    }


def test_tensors_made_inside_a_recomputed_group_are_not_kept_but_those_that_enter_it_are():
    forward = logical_block(GPT, "gbs=1")

    dropped = kept_tensors(forward, frozenset()).keys() - kept_tensors(forward, frozenset({CORE})).keys()

    assert dropped == {"attention.weights", "attention.dropout.mask", "attention.dropped"}


def test_a_recomputed_layer_at_work_holds_again_all_that_a_plain_layer_keeps():
    plain = block_of(realised(GPT, BARE, "tp=2"))

    cut = block_of(realised(GPT, BARE, "tp=2 recompute=full partition_activations"))

    output_bytes = 2 * LENGTH * HIDDEN  # which autograd holds while its second graph runs
    assert at(cut.working_bytes) - at(plain.working_bytes) == pytest.approx(
        at(plain.kept_bytes) + output_bytes
    )
