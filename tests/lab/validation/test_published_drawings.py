"""Drawings of published runs: where axes end, where bands and intervals stand, what a mark says."""

import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from all_cases import all_cases
from made_up_runs import JOB, judged, run

from flopcast.api import predict
from flopcast.render.page.drawing import WIDTH, Axis
from flopcast.render.published_drawing import (
    BAND_RATIO,
    COLOURS,
    EDGE,
    HEIGHT,
    RATIO_TICKS,
    SHAPES,
    mark,
    ratios_drawing,
    times_drawing,
)

REPORT = predict(JOB)
ONE = judged([run("a", step_time_s=REPORT.step_time_s)]).rows
UP = Axis(low=RATIO_TICKS[0], high=RATIO_TICKS[-1], start=HEIGHT - EDGE, end=EDGE, logarithmic=True)


def tree(drawing):
    """The drawing inside of its box."""
    return ElementTree.fromstring(drawing).find(".//svg")


def numbers(text):
    return [float(number) for number in re.findall(r"-?[\d.]+", text)]


def paths(drawing, style):
    """Corners of every path of one style, as pairs."""
    found = [node.get("d") for node in tree(drawing).iter("path") if node.get("class") == style]
    return [list(zip(numbers(path)[::2], numbers(path)[1::2], strict=False)) for path in found]


def names(drawing, anchor):
    """Texts at the ticks: below the drawing they are centred, left of it they end there."""
    return [n.text for n in tree(drawing).iter("text") if n.get("text-anchor") == anchor]


@all_cases(
    ("seconds", "ticks"),
    [
        ((0.2,), ["100 ms", "1.00 s"]),
        ((0.02, 3.0), ["10.0 ms", "100 ms", "1.00 s", "10.0 s"]),
        ((1.0, 10.0), ["1.00 s", "10.0 s"]),
        ((1.0,), ["1.00 s", "10.0 s"]),
    ],
)
def test_the_measured_axis_has_whole_decades_around_all_runs_and_one_at_least(seconds, ticks):
    rows = judged([run(f"r{number}", step_time_s=each) for number, each in enumerate(seconds)]).rows

    found = names(ratios_drawing(rows, ["made-up"]), "middle")

    assert found[: len(ticks)] == ticks
    assert found[len(ticks) :] == ["measured step", "predicted over measured"]


def test_ratios_are_named_at_their_ticks_and_stand_in_order():
    drawing = ratios_drawing(ONE, ["made-up"])

    assert names(drawing, "end") == [f"× {ratio:g}" for ratio in RATIO_TICKS]
    heights = [numbers(n.get("y"))[0] for n in tree(drawing).iter("text") if n.get("text-anchor") == "end"]
    assert heights == sorted(heights, reverse=True)


def test_the_line_of_right_predictions_is_the_diagonal_and_in_the_other_drawing_level():
    ((low, high),) = paths(times_drawing(ONE, ["made-up"]), "rule")
    ((left, right),) = paths(ratios_drawing(ONE, ["made-up"]), "rule")

    assert low == (EDGE, WIDTH - EDGE)
    assert high == (WIDTH - EDGE, EDGE)
    assert left[1] == right[1]
    assert (left[0], right[0]) == (EDGE, WIDTH - EDGE)


def test_the_band_is_ten_percent_to_either_side_of_the_line():
    (corners,) = paths(ratios_drawing(ONE, ["made-up"]), "band")

    assert [y for _, y in corners] == pytest.approx(
        [UP.at(BAND_RATIO)] * 2 + [UP.at(1 / BAND_RATIO)] * 2, abs=0.06
    )
    assert BAND_RATIO == 1.1  # as the page says


def test_an_interval_reaches_from_the_low_to_the_high_end_of_the_prediction():
    drawing = ratios_drawing(ONE, ["made-up"])
    (path,) = [n.get("d") for n in tree(drawing).iter("path") if n.get("class") == "faint"]

    _, low, high = numbers(path)

    assert low == pytest.approx(UP.at(REPORT.step_time_low_s / REPORT.step_time_s), abs=0.06)
    assert high == pytest.approx(UP.at(REPORT.step_time_high_s / REPORT.step_time_s), abs=0.06)
    assert high < UP.at(1.0) < low  # upwards is to smaller numbers


@pytest.mark.parametrize(("times", "end"), [(0.01, 0.25), (100.0, 4.0)])
def test_a_run_that_is_off_by_more_than_four_stands_on_the_edge(times, end):
    rows = [replace(row, predicted_step_time_s=times * row.measured_step_time_s) for row in ONE]
    group = tree(ratios_drawing(rows, ["made-up"])).find("g")

    _, height = numbers(group.find("g").get("transform"))

    assert height == pytest.approx(UP.at(end), abs=0.06)


@pytest.mark.parametrize(("ratio", "told"), [(0.5, "+100.0%"), (1.0, "+0.0%"), (2.0, "-50.0%")])
def test_a_mark_says_its_run_its_machine_and_its_error(ratio, told):
    rows = judged([run("a<b", step_time_s=ratio * REPORT.step_time_s)]).rows

    text = tree(times_drawing(rows, ["made-up"])).find("g").findtext("title")

    assert text.startswith("a<b: ")
    assert "8 × a100-sxm4-80gb" in text
    assert text.endswith(f"({told})")


def test_marks_of_one_colour_differ_in_shape_and_of_one_shape_in_colour():
    marks = [mark(place) for place in range(len(SHAPES) * COLOURS)]
    looks = [(re.search(r'd="([^"]+)"', m)[1], re.search(r"hue-(\d)", m)[1]) for m in marks]

    assert len(set(looks)) == len(SHAPES) * COLOURS
    assert {int(colour) for _, colour in looks} == set(range(COLOURS))
    assert mark(len(SHAPES) * COLOURS) == mark(0)


def test_runs_of_two_sources_carry_the_marks_of_their_sources():
    rows = judged([run("a", source="first"), run("b", source="second")]).rows

    drawn = tree(times_drawing(rows, ["first", "second"])).findall("g")

    assert [group.find("g").find("path").get("class") for group in drawn] == ["hue-0", "hue-1"]
