"""The drawing of a search: every mark stands at its plan's numbers, and the front is joined."""

import re
from xml.etree import ElementTree

import pytest
from made_plans import JOB, factor, found, played

from flopcast.render.page.front import HUES
from flopcast.render.search_drawing import drawing_of
from flopcast.search.question import Question

STYLES = dict(zip(HUES, ("plan", "equal", "front", "first"), strict=True))
COMMON = factor("gemm_level[a100]", 0.1, 0.5)
PLANS = [
    played(10.0, COMMON, factor("fabric[x]", 0.05, 0.3), used_bytes=60e9, tp=2, dp=4),
    played(12.0, COMMON, used_bytes=40e9),
    played(14.0, COMMON, used_bytes=50e9, tp=4, dp=2),
    played(20.0, COMMON, used_bytes=30e9, tp=8, dp=1),
]
SPREAD = [(1.0, 60e9, 1), (10.0, 50e9, 2), (100.0, 40e9, 4)]  # seconds, bytes, degree


def drawn(question=None, front=(0, 1, 3), plans=PLANS):
    """The drawing of these plans, some of them on the front."""
    answer = found(*plans, question=question or Question(jobs=(JOB,)))
    on_front = tuple(one for one in answer.plans if plans.index(one.played) in front)
    answer = found(*plans, question=answer.question, on_front=on_front, plans=answer.plans)
    return drawing_of(answer).svg()


def marks(svg):
    """Place and style of every mark by what its title says."""
    pattern = r"<g><title>([^<]*)</title>.*?<circle class=\"hue-(\d)\" cx=\"([\d.]+)\" cy=\"([\d.]+)\""
    return {
        title.split(" on ")[0]: (STYLES[int(hue)], float(x), float(y))
        for title, hue, x, y in re.findall(pattern, svg)
    }


def test_slower_plans_stand_further_right_and_larger_ones_higher():
    where = marks(drawn())
    by_time = [where[one.plan.short()][1] for one in PLANS]
    by_memory = [
        where[one.plan.short()][2] for one in sorted(PLANS, key=lambda each: each.device_used_bytes)
    ]

    assert by_time == sorted(by_time)
    assert by_memory == sorted(by_memory, reverse=True)  # dots count from the top


def test_differences_are_as_long_as_they_are_large():
    where = marks(drawn())
    ten, twelve, _, twenty = (where[one.plan.short()][1] for one in PLANS)

    assert (twenty - ten) / (twelve - ten) == pytest.approx(5.0, rel=0.01)


def test_plans_that_differ_a_hundredfold_stand_as_far_apart_as_their_ratios():
    slow = [played(seconds, COMMON, used_bytes=room, tp=tp) for seconds, room, tp in SPREAD]

    where = marks(drawn(front=(0, 1, 2), plans=slow))
    one, ten, hundred = (where[each.plan.short()][1] for each in slow)

    assert hundred - ten == pytest.approx(ten - one, abs=0.2)


def test_the_recommended_plan_the_front_and_the_others_are_told_by_colour():
    styles = [marks(drawn())[one.plan.short()][0] for one in PLANS]

    assert styles == ["first", "front", "plan", "front"]


def test_an_equal_plan_that_is_not_on_the_front_has_a_colour_of_its_own():
    near = played(10.05, COMMON, used_bytes=70e9, tp=2, pp=2, dp=2)

    styles = marks(drawn(plans=[*PLANS, near]))

    assert styles[near.plan.short()][0] == "equal"


def test_higher_rates_stand_further_right():
    where = marks(drawn(Question(jobs=(JOB,), objectives=("tokens_per_s",))))

    across = [where[one.plan.short()][1] for one in PLANS]
    assert across == sorted(across, reverse=True)


def test_the_front_is_joined_where_there_are_two_objectives_and_only_there():
    names = ("step_time", "memory", "tokens_per_s_per_device")

    assert '<path class="line-0"' in drawn()
    assert '<path class="line-0"' not in drawn(Question(jobs=(JOB,), objectives=names))
    assert '<path class="line-0"' not in drawn(front=(0,))


def test_the_line_of_the_front_goes_through_its_marks():
    svg = drawn()
    corners = re.search(r'class="line-0" d="M([\d.]+),([\d.]+)((?:H[\d.]+V[\d.]+)+)"', svg)
    steps = re.findall(r"H([\d.]+)V([\d.]+)", corners.group(3))
    points = [(float(corners.group(1)), float(corners.group(2))), *((float(x), float(y)) for x, y in steps)]

    where = marks(svg)
    assert points == [where[PLANS[place].plan.short()][1:] for place in (0, 1, 3)]


def test_the_interval_of_a_ratio_is_drawn_around_its_plan():
    svg = drawn()
    behind = PLANS[1].plan.short()
    part = svg[svg.index(f"<g><title>{behind}") :]
    low, high = map(float, re.search(r'class="faint" d="M([\d.]+),[\d.]+H([\d.]+)"', part).groups())

    assert low < marks(svg)[behind][1] < high


def test_the_same_answer_is_drawn_with_the_same_bytes():
    assert drawn() == drawn()


def test_a_page_holds_the_drawing_and_the_text():
    answer = found(*PLANS)

    page = drawing_of(answer).html("Plans", "every plan: mbs=1")

    drawing = drawing_of(answer).svg()
    assert drawing[drawing.index("</style>") + 8 :].strip() in page
    assert "<style>" not in page[page.index("</head>") :]  # its own rules allow none there
    assert "every plan: mbs=1" in page
    assert page.startswith("<!doctype html>")


def test_a_drawing_alone_is_an_xml_document_with_its_own_colours_for_both_schemes():
    tree = ElementTree.fromstring(drawing_of(found(*PLANS)).svg())

    space = "{http://www.w3.org/2000/svg}"
    style = tree.findtext(f"{space}style")
    assert tree.tag == f"{space}svg"
    assert "prefers-color-scheme:dark" in style
    used = {circle.get("class") for circle in tree.iter(f"{space}circle")}
    assert all(f".{hue}{{fill:var(--{hue})}}" in style for hue in used)


def test_a_drawing_is_told_in_words():
    tree = ElementTree.fromstring(drawing_of(found(*PLANS)).svg())

    first, _, second = list(tree)[:3]
    assert (tree.get("role"), tree.get("aria-labelledby")) == (
        "img",
        f"{first.get('id')} {second.get('id')}",
    )
    assert first.text == "step time against memory in use of 4 plans"
    assert "Orange: the recommended plan" in second.text


def test_names_of_both_axes_stand_beside_their_ticks():
    tree = ElementTree.fromstring(drawing_of(found(*PLANS)).svg())

    texts = [node.text for node in tree.iter("{http://www.w3.org/2000/svg}text")]
    assert texts[-2:] == ["step time", "memory in use"]
    assert {"10.0 s", "12.0 s", "20.0 s"} <= set(texts)
    assert any(text.endswith(" GiB") for text in texts)


def test_the_page_of_a_search_allows_its_style_alone():
    page = drawing_of(found(*PLANS)).html("Plans", "text")

    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]+)"', page)
    assert "script-src" not in policy
    assert "<script" not in page
    assert page.count("<style>") == 1
    assert re.findall(r'href="([^"]+)"', page) == ["#front", "#answer"]
