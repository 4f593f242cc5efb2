"""Operators that only move bytes: what each moves and keeps, written out by hand, and how it scales."""

from dataclasses import replace

import pytest
from all_cases import all_cases
from hypothesis import given, settings
from hypothesis import strategies as st

from flopcast.dtypes import ELEMENT_BYTES, constant
from flopcast.operators.dequantise import STORED_BYTES, Dequantise
from flopcast.operators.embedding import EmbeddingLookup
from flopcast.operators.formats import FORMATS
from flopcast.operators.fused_pass import FusedPass
from flopcast.operators.optimizer import OptimizerUpdate

LAWS = settings(max_examples=60)
count = st.integers(1, 10**7)
dtype = st.sampled_from(["bf16", "fp16", "fp32"])


def moved(operator):
    return operator.work().moved_bytes.item()


@LAWS
@given(tokens=count, hidden=st.integers(1, 20_000), rows=st.integers(1, 200_000), kind=dtype)
def test_a_look_up_reads_and_writes_its_rows_and_its_gradient_writes_the_table_too(
    tokens, hidden, rows, kind
):
    look_up = EmbeddingLookup(
        tokens=constant(tokens), hidden=constant(hidden), vocabulary=constant(rows), dtype=kind
    )
    ((name, gradient),) = look_up.gradients()
    width = ELEMENT_BYTES[kind]

    assert moved(look_up) == 2 * tokens * hidden * width
    assert (name, moved(gradient)) == ("wgrad", (tokens + rows) * hidden * width)
    assert [(kept.role, kept.size_bytes.item()) for kept in look_up.saves()] == [("ids", 8 * tokens)]
    assert look_up.work().flop.item() == gradient.work().flop.item() == 0


def test_a_frozen_table_keeps_no_ids_and_has_no_gradient():
    table = EmbeddingLookup(
        tokens=constant(8), hidden=constant(4), vocabulary=constant(16), dtype="bf16", trained=False
    )

    assert (table.saves(), table.gradients()) == ((), ())


@LAWS
@given(parameters=count, each=st.floats(1, 64), tensors=st.integers(1, 1000))
def test_an_update_moves_its_bytes_of_every_parameter_however_many_tensors_they_lie_in(
    parameters, each, tensors
):
    update = OptimizerUpdate(
        parameters=constant(parameters), bytes_per_parameter=constant(each), dtype="fp32",
        tensors=constant(tensors),
    )  # fmt: skip
    whole, of_one = (coordinate.item() for coordinate in update.coordinates())

    assert moved(update) == whole == pytest.approx(parameters * each)
    assert of_one == pytest.approx(whole / tensors)
    assert (update.saves(), update.gradients()) == ((), ())


@LAWS
@given(parameters=count, ranks=st.integers(1, 64))
def test_an_update_that_ranks_share_moves_as_much_in_all(parameters, ranks):
    whole = OptimizerUpdate(parameters=constant(parameters), bytes_per_parameter=constant(28), dtype="fp32")

    assert ranks * moved(replace(whole, parameters=constant(parameters / ranks))) == pytest.approx(
        moved(whole)
    )


@LAWS
@given(elements=count, kind=dtype)
def test_weights_of_four_bits_are_read_with_their_scales_and_written_wide_in_both_passes(elements, kind):
    work = Dequantise(elements=constant(elements), stored="nf4", dtype=kind)

    assert moved(work) == pytest.approx(elements * (STORED_BYTES["nf4"] + ELEMENT_BYTES[kind]))
    assert [moved(again) for _, again in work.gradients()] == [moved(work)]
    assert work.saves() == ()


def test_a_weight_of_four_bits_takes_0_127_bits_more_with_doubly_quantised_scales():
    assert 8 * STORED_BYTES["nf4"] == pytest.approx(4.127, abs=5e-4)  # arXiv:2305.14314, section 3


@LAWS
@given(elements=st.tuples(count, count, count), kind=dtype)
def test_the_backward_of_a_fused_pass_reads_what_was_kept_besides(elements, kind):
    moves, *kept = elements
    forward = FusedPass(
        moved=constant(moves), kept=(("x", constant(kept[0])), ("y", constant(kept[1]))), dtype=kind
    )
    ((_, backward),) = forward.gradients()
    width = ELEMENT_BYTES[kind]

    assert moved(forward) == moves * width
    assert moved(backward) == (moves + sum(kept)) * width
    assert {saved.role: saved.size_bytes.item() for saved in forward.saves()} == {
        "tensor:x": kept[0] * width, "tensor:y": kept[1] * width
    }  # fmt: skip


@all_cases("name", FORMATS)
def test_a_narrow_element_with_its_scale_is_smaller_than_one_of_16_bits(name):
    assert FORMATS[name].element_bytes <= FORMATS[name].size_bytes < ELEMENT_BYTES["bf16"]
