"""render/page: axes keep order and ratios, ticks are round, and every colour can be read."""

import re
from functools import cache
from itertools import pairwise

import pytest
from all_cases import all_cases
from page_reader import Page
from sample_reports import PARTS, page_of

from flopcast.render.page.drawing import Axis
from flopcast.render.page.frame import Section, document
from flopcast.render.page.table import Markup, Quantity, bar, markup, rate, seconds, share, size, table


def test_logarithmic_ticks_of_few_decades_are_1_2_5():
    assert Axis(low=0.9, high=110.0, start=0, end=1, logarithmic=True).ticks == pytest.approx(
        [1, 2, 5, 10, 20, 50, 100]
    )


# tables


def test_columns_of_quantities_stand_to_the_right_and_rows_are_named():
    rows = [("a<b", Quantity(1.5, "1.5 s"), "–"), ("c", Quantity(2.0, "2 s"), Markup("<em>x</em>"))]

    page = Page(table("told", ("name", "time", "more"), rows))

    assert page.wrong == []
    scopes = [(found["scope"], found.get("class")) for found in page.of("th")]
    assert scopes == [("col", None), ("col", "number"), ("col", None), ("row", None), ("row", None)]
    assert page.table("told") == (["name", "time", "more"], [["a<b", 1.5, "–"], ["c", 2.0, "x"]])


@all_cases(
    ("cell", "html"),
    [
        (seconds(0.25), '<data value="0.25">250 ms</data>'),
        (share(1 / 3), '<data value="0.333333333">33.3%</data>'),
        (size(80 * 2**30), '<data value="8.58993459e+10">80.0 GiB</data>'),
        (rate(1.5e6, "tokens/s"), '<data value="1500000">1.50 Mtokens/s</data>'),
        (Quantity(2.0, "<2>"), '<data value="2">&lt;2&gt;</data>'),
        ("a & b", "a &amp; b"),
        (Markup("<b>x</b>"), "<b>x</b>"),
    ],
)
def test_a_cell_is_a_number_for_programs_and_a_text_for_people(cell, html):
    assert markup(cell) == html


@all_cases(("fraction", "width"), [(-1.0, 0), (0.0, 0), (0.123456, 12.35), (1.0, 100), (7.0, 100)])
def test_a_bar_is_as_long_as_its_share_and_hidden_from_readers_of_text(fraction, width):
    page = Page(bar(fraction, 3).html)

    (box,) = page.of("rect")
    assert float(box["width"]) == width
    assert box["class"] == "hue-3"
    assert page.of("svg")[0]["aria-hidden"] == "true"


@all_cases("rows", [0, 1, 3, 4, 9])
def test_tables_worth_sorting_can_be_sorted(rows):
    html = table("told", ("name", "time"), [(f"row {n}", seconds(float(n))) for n in range(rows)])

    assert ('class="sorts"' in html) == (rows >= 4)
    assert html.count("<tr>") == rows + 1


def test_texts_of_a_table_are_escaped_wherever_they_stand():
    evil = '<i>&"'

    page = Page(table(evil, (evil, evil), [(evil, evil)]))

    assert page.of("i") == []
    assert page.wrong == []
    assert page.tables == {evil: [[evil, evil], [evil, evil]]}


def test_what_is_said_to_be_numeric_stands_to_the_right_whatever_it_holds():
    page = Page(table("", ("a", "b"), [("x", "1.5 s")], (False, True)))

    assert page.of("td") == [{"class": "number"}]
    assert page.of("caption") == []


@all_cases("text", ["</script>", "<!--", "a\u2028b", "模型"])
def test_data_of_a_page_are_json_that_ends_no_element(text):
    page = document("t", [], data={"told": text}, script="1;")

    assert Page(page).data == {"told": text}
    assert page.count("</script>") == 2


def test_a_page_may_run_the_script_it_was_given_and_no_other():
    one, other = document("t", [], script="1;"), document("t", [], script="2;")

    policies = [re.search(r"script-src '(sha256-[^']+)'", page)[1] for page in (one, other)]
    assert policies[0] != policies[1]
    assert "script-src" not in document("t", [])
    assert "<noscript>" not in document("t", [])


def test_a_page_of_one_section_has_no_list_of_them():
    one = Section("a", "A", html="")

    assert "<nav" not in document("t", [one])
    assert Page(document("t", [one, Section("b", "B", html="")])).of("a") == [
        {"href": "#a"},
        {"href": "#b"},
    ]


# reading


def palettes(style):
    """Colours of both schemes by name: those of the dark one replace the first."""
    light, dark = (
        dict(re.findall(r"--([\w-]+):(#[0-9a-f]{6});", rules))
        for rules in re.findall(r":root\{([^}]*)\}", style)
    )
    return {"light": light, "dark": light | dark}


@cache
def shown_palettes():
    """The colours of a page, by scheme."""
    return palettes(page_of("one stage").text("style"))


def luminance(colour):
    """Relative luminance (WCAG 2.2, definitions)."""
    channels = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@all_cases("scheme", ["light", "dark"])
@all_cases("ground", ["paper", "panel", "tint"])
@all_cases("text", ["ink", "soft", "link", "warn", "good", "amber", "bad"])
def test_every_text_can_be_read_on_every_ground(scheme, ground, text):
    colours = shown_palettes()[scheme]

    assert contrast(colours[text], colours[ground]) >= 4.5


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_mark_can_be_seen_on_paper(scheme):
    colours = shown_palettes()[scheme]
    hues = {name: colour for name, colour in colours.items() if name.startswith("hue-")}

    assert len(hues) == 8
    assert {name for name, colour in hues.items() if contrast(colour, colours["paper"]) < 3} == set()


def test_the_measure_of_contrast_is_the_published_one():
    """Black on white is 21; #767676 is the lightest grey on white that passes 4.5 (WCAG 2.2, 1.4.3)."""
    assert contrast("#000000", "#ffffff") == pytest.approx(21.0)
    assert contrast("#767676", "#ffffff") >= 4.5 > contrast("#777777", "#ffffff")


def test_colours_stand_in_variables_alone():
    style = page_of("one stage").text("style")

    rest = re.sub(r":root\{[^}]*\}", "", style)
    assert not re.search(r"#[0-9a-fA-F]{3,8}\b|rgba?\(|hsl", rest)


@all_cases("name", PARTS)
def test_headings_are_in_order(name):
    page = page_of(name)

    levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


@all_cases("name", PARTS)
def test_every_drawing_is_told_in_words_and_every_other_one_is_hidden(name):
    page = page_of(name)
    nested = [found for found in page.of("svg") if "plot" in found.get("class", "")]

    named = [found for found in page.of("svg") if found.get("role") == "img"]
    hidden = [found for found in page.of("svg") if found.get("aria-hidden") == "true"]

    assert len(named) >= 5
    assert len(named) + len(hidden) + len(nested) == len(page.of("svg"))
    for found in named:
        words = found["aria-labelledby"].split()
        assert len(words) == 2
        assert set(words) <= set(page.ids)
    assert all(found["viewbox"] for found in page.of("svg"))  # their height is known before they load


@all_cases("name", PARTS)
def test_tables_have_captions_and_every_heading_a_scope(name):
    page = page_of(name)

    assert len(page.of("caption")) == len(page.of("table"))
    assert {found.get("scope") for found in page.of("th")} == {"col", "row"}


def test_what_can_be_focused_stands_in_the_order_of_reading_and_has_a_name():
    page = page_of("interleaved")

    orders = {found["tabindex"] for _, found in page.tags if "tabindex" in found}
    assert orders == {"0"}
    groups = [found for found in page.of("div") if "tabindex" in found]
    assert [found["role"] for found in groups] == ["group", "group"]
    assert all("plus and minus zoom" in found["aria-label"] for found in groups)
    assert all(found["aria-label"] for found in page.of("button"))


def test_paper_is_light_and_shows_no_controls():
    style = page_of("one stage").text("style")

    assert "@media screen and (prefers-color-scheme:dark)" in style
    printed = style[style.index("@media print") :]
    assert re.search(r"nav,\.needs-script\{display:none\}", printed)
