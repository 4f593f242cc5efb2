"""Rows of text: whatever is measured is read back; whatever else is written is a sample or a fault."""

from contextlib import suppress

import pytest
from all_cases import all_cases
from hypothesis import given
from hypothesis import strategies as st

from flopcast.lab.measure import sample_pack
from flopcast.lab.measure.shapes import SPACES, Shape

TIMES = st.lists(st.floats(min_value=1e-3, max_value=1e9), min_size=1, max_size=7).map(tuple)
READINGS = st.builds(
    sample_pack.Reading,
    clock_mhz=st.none() | st.floats(0, 5000),
    power_w=st.none() | st.floats(0, 2000),
    temperature_c=st.none() | st.floats(0, 120),
)


def row_of(**changes):
    """A good row, changed."""
    shape = Shape(kernel="gelu", dtype="bf16", sizes=(("tokens", 64), ("width", 8)))
    sample = sample_pack.Sample(device="d", shape=shape, condition="cold", repetitions_us=(1.0, 2.0, 4.0))
    return sample_pack.sample_row(sample) | changes


@given(space=st.sampled_from(SPACES), index=st.integers(0, 500), times=TIMES, reading=READINGS)
def test_every_shape_that_can_be_planned_is_read_back(space, index, times, reading):
    shape = space.shape(index, False, 0)
    sample = sample_pack.Sample(
        device="d", shape=shape, condition="loaded", repetitions_us=times, reading=reading
    )

    found = sample_pack.sample_of(sample_pack.sample_row(sample), "d")

    assert found.key == sample.key
    assert found.repetitions_us == pytest.approx(times, rel=1e-5)


@given(times=TIMES, size=st.integers(1, 2**40), inside=st.integers(1, 72), nodes=st.integers(1, 4096))
def test_every_collective_is_read_back(times, size, inside, nodes):
    sample = sample_pack.MessageSample(
        device="d",
        collective="all_to_all",
        message_bytes=size,
        inside=inside,
        nodes=nodes,
        condition=sample_pack.ALONE,
        repetitions_us=times,
    )

    found = sample_pack.message_of(sample_pack.message_row(sample), "d")

    assert found.key == sample.key
    assert found.repetitions_us == pytest.approx(times, rel=1e-5)


@given(name=st.sampled_from(sample_pack.SAMPLE_COLUMNS), text=st.text(max_size=20))
def test_any_text_in_any_column_is_a_sample_or_a_fault(name, text):
    row = row_of(**{name: text})

    with suppress(ValueError):  # the only fault that a reader catches
        found = sample_pack.sample_of(row, "d")
        assert min(found.repetitions_us) > 0
        assert found.shape.kernel


@all_cases("name", sample_pack.SAMPLE_COLUMNS)
def test_a_row_without_a_column_is_refused(name):
    row = row_of()
    del row[name]

    with pytest.raises(ValueError, match="12 columns"):
        sample_pack.sample_of(row, "d")


def test_columns_stand_in_the_order_of_the_header():
    assert tuple(row_of()) == sample_pack.SAMPLE_COLUMNS


def test_the_median_is_the_middle_repetition():
    assert row_of()["median_us"] == "2"
    assert sample_pack.sample_of(row_of(), "d").median_s == pytest.approx(2e-6)


def test_a_fault_says_what_was_found():
    with pytest.raises(ValueError, match="a number instead of 'fast'"):
        sample_pack.sample_of(row_of(repetitions_us="1;fast"), "d")


def test_superscripts_are_no_digits_of_a_size():
    with pytest.raises(ValueError, match="whole numbers"):
        sample_pack.sample_of(row_of(sizes="tokens=²"), "d")
