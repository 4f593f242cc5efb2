"""Axes of drawings: where values stand, which lines an axis has, what is told in words and escaped."""

import math
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from all_cases import all_cases
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from flopcast.render.page import table
from flopcast.render.page.drawing import Axis, described_svg, figure, grid, label, legend, names, spanning

LAWS = settings(max_examples=80)
positive = st.floats(1e-9, 1e12)


def axis(low, high, *, start=0.0, end=1000.0, logarithmic=False, **rest):
    return Axis(low=low, high=high, start=start, end=end, logarithmic=logarithmic, **rest)


@LAWS
@given(low=positive, ratio=st.floats(1.001, 1e9), logarithmic=st.booleans())
def test_both_ends_of_an_axis_stand_at_its_ends_and_nothing_beyond(low, ratio, logarithmic):
    one = axis(low, low * ratio, start=60.0, end=940.0, logarithmic=logarithmic)

    assert (one.at(low), one.at(low * ratio)) == pytest.approx((60.0, 940.0))
    assert one.at(low / 7) == one.at(low)
    assert one.at(low * ratio * 7) == one.at(low * ratio)


@LAWS
@given(
    low=positive, ratio=st.floats(1.1, 1e6), parts=st.tuples(st.floats(0, 1), st.floats(0, 1)),
    logarithmic=st.booleans(),
)  # fmt: skip
def test_a_larger_value_stands_further_along_whichever_way_the_axis_runs(low, ratio, parts, logarithmic):
    one, other = sorted(low + part * (low * ratio - low) for part in parts)
    right = axis(low, low * ratio, logarithmic=logarithmic)
    up = axis(low, low * ratio, start=400.0, end=20.0, logarithmic=logarithmic)

    assert right.at(one) <= right.at(other)
    assert up.at(one) >= up.at(other)


@LAWS
@given(low=positive, ratio=st.floats(1.5, 1e6), part=st.floats(0, 1))
def test_equal_steps_are_differences_on_a_linear_axis_and_ratios_on_a_logarithmic_one(low, ratio, part):
    high = low * ratio

    assert axis(low, high).at(low + part * (high - low)) == pytest.approx(1000 * part, abs=1e-6)
    assert axis(low, high, logarithmic=True).at(low * ratio**part) == pytest.approx(1000 * part, abs=1e-6)


@LAWS
@given(low=st.floats(0, 1e6), width=st.floats(1e-6, 1e9))
def test_a_linear_axis_has_four_to_nine_round_lines_that_are_equally_far(low, width):
    assume(low + width > low * (1 + 1e-6))
    ticks = axis(low, low + width).ticks

    steps = [after - before for before, after in pairwise(ticks)]
    assert 3 <= len(ticks) <= 9
    assert low - 1e-9 * width <= ticks[0] <= ticks[-1] <= low + width * (1 + 1e-9)
    assert steps == pytest.approx([steps[0]] * len(steps), rel=1e-3)
    first = steps[0] / 10.0 ** math.floor(math.log10(steps[0]) + 1e-6)
    assert min(abs(first - round_) for round_ in (1, 2, 5, 10)) < 1e-3


@LAWS
@given(low=st.floats(1e-9, 1e9), ratio=st.floats(3.5, 1e9))
def test_a_logarithmic_axis_has_lines_at_powers_of_ten_and_few_of_them_at_2_and_5_too(low, ratio):
    one = axis(low, low * ratio, logarithmic=True)

    leading = {round(tick / 10.0 ** math.floor(math.log10(tick) + 1e-9), 6) for tick in one.ticks}
    assert leading <= ({1.0} if ratio > 500 else {1.0, 2.0, 5.0})
    assert one.ticks
    assert all(low <= tick <= low * ratio for tick in one.ticks)


@all_cases(
    ("marked", "shown"), [((1, 2, 4, 8), [2, 4]), ((2, 4), [2, 4]), ((16,), []), ((1.5, 5.0), [1.5, 5.0])]
)
def test_lines_that_are_asked_for_are_those_inside(marked, shown):
    assert axis(1.5, 5.0, marked=marked).ticks == shown


@all_cases("logarithmic", [False, True])
def test_an_axis_of_memory_has_lines_at_the_round_values_of_its_unit(logarithmic):
    plain = axis(3.0, 70.0, logarithmic=logarithmic)
    memory = axis(3.0 * 2**30, 70.0 * 2**30, logarithmic=logarithmic, unit=2.0**30)

    assert memory.ticks == [tick * 2**30 for tick in plain.ticks]


@LAWS
@given(values=st.lists(positive, min_size=1, max_size=9))
def test_an_axis_that_spans_values_leaves_room_at_both_ends(values):
    one = spanning(values, 0.0, 1000.0)

    assert all(0.0 < one.at(value) < 1000.0 for value in values)


def test_a_grid_has_a_line_and_a_name_for_every_tick_of_both_axes():
    across, up = axis(0.0, 10.0, start=100.0, end=900.0), axis(0.0, 4.0, start=300.0, end=20.0)

    drawn = ElementTree.fromstring(
        "<svg>" + "".join(grid(across, up, "{:g} s".format, "{:g} GB".format)) + "</svg>"
    )

    told = [text.text for text in drawn.findall("text")]
    assert told == [f"{tick:g} s" for tick in across.ticks] + [f"{tick:g} GB" for tick in up.ticks]
    assert len(drawn.findall("path")) == len(told)


HOSTILE = '<script>alert("&")</script>'


@all_cases(
    "drawn",
    [
        lambda text: label(1, 2, text),
        lambda text: names(axis(0, 1), axis(0, 1), text, text),
        lambda text: described_svg("key", text, text, 10, ""),
        lambda text: figure("key", text, text, 10, ""),
        lambda text: legend([(1, text)]),
        table.markup,
        lambda text: table.markup(table.Quantity(1.0, text)),
    ],
)
def test_no_text_of_a_drawing_or_a_table_becomes_markup(drawn):
    html = drawn(HOSTILE)

    assert "<script" not in html
    read = ElementTree.fromstring(f"<div>{html}</div>")
    assert HOSTILE in "".join(read.itertext())


def test_a_drawing_is_named_and_described_by_ids_of_its_own():
    read = ElementTree.fromstring(described_svg("key", "Name", "What it shows", 50, "<path/>"))

    ids = read.get("aria-labelledby").split()
    told = [read.find(f"*[@id='{one}']").text for one in ids]
    assert (told, read.get("role"), read.get("class")) == (["Name", "What it shows"], "img", "bare")
    assert read.get("viewBox") == "0 0 1000 50"


def test_a_drawing_with_texts_keeps_its_width_and_may_be_cut_off_above():
    read = ElementTree.fromstring(described_svg("key", "a", "b", 50, "<text>x</text>", top=20))

    assert read.get("class") is None
    assert read.get("viewBox") == "0 20 1000 30"
