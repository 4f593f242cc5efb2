"""Sections of a report's page: what is drawn stands where its numbers are, and adds up to the step."""

import math
import re
from dataclasses import replace
from html import escape
from itertools import pairwise

import numpy as np
import pytest
from all_cases import all_cases
from conftest import make_job
from page_reader import Page
from sample_reports import PARTS, page_of, report_of, sample_report

from flopcast.library.curves import load_book
from flopcast.render.page.limits import (
    LEAST_SHOWN,
    LEFT,
    LIMITS,
    MOST_DRAWN,
    by_limit,
    limits,
    moved,
    short_names,
)
from flopcast.render.page.limits import axis as limits_axis
from flopcast.render.page.memory import MOST_CORNERS, ROW_HEIGHT, memory, thinned
from flopcast.render.page.memory_bars import DRIVER, OTHERS, stage_bars
from flopcast.render.page.pipeline import (
    COLUMNS,
    MOST_STAGES,
    MOST_TASKS,
    busy_by_column,
    chosen,
    end_of,
    pipeline,
    tasks_as_data,
)
from flopcast.render.page.roofline import axes, kernels, roofline
from flopcast.render.page.scaling import MONEY, RATE, drawing, scaling
from flopcast.render.page.scaling import axes as scaling_axes
from flopcast.render.page.time_axis import TIME_UNITS, stacked
from flopcast.render.page.time_breakdown import operators_of
from flopcast.render.report_page import as_html
from flopcast.report.events import MemoryLevels, memory_levels
from flopcast.report.labels import component_label, memory_label
from flopcast.search.scaled import GROWN, KEPT, RATIOS, scaled
from flopcast.spec.factor_kinds import in_words, kind_of
from flopcast.timeline.uncertainty import interval, saved_share
from flopcast.units import show_seconds

EVERY = pytest.mark.parametrize("name", PARTS)
PIPELINES = pytest.mark.parametrize("name", ["batched", "interleaved", "sequential", "reduced beside"])


def numbers(text):
    return [float(number) for number in re.findall(r"-?[\d.]+(?:e-?\d+)?", text)]


# where the time goes


@EVERY
def test_operators_add_up_to_their_component_and_components_to_the_step(name):
    report = sample_report(name)

    found = operators_of(report)

    for component, inside in found.items():
        if inside:
            total_s = sum(part.path_s for part in inside)
            assert total_s == pytest.approx(report.breakdown[component], rel=1e-9)
    without = sum(report.breakdown[component] for component, inside in found.items() if not inside)
    every = sum(part.path_s for inside in found.values() for part in inside)
    assert every + without == pytest.approx(report.step_time_s, rel=1e-9)


@EVERY
def test_only_waiting_and_jitter_have_no_operators(name):
    empty = {component for component, inside in operators_of(sample_report(name)).items() if not inside}

    assert empty <= {"pipeline_bubble", "jitter"}


@EVERY
def test_each_component_opens_to_a_table_of_its_operators(name):
    page = page_of(name)

    for component, inside in operators_of(sample_report(name)).items():
        if inside:
            _, rows = page.table(f"{component_label(component)}, operator by operator")
            shown = [(row[0], row[1]) for row in rows]
            assert shown == [(part.operator, part.phase) for part in inside if part.path_s]


@EVERY
def test_the_step_is_a_bar_whose_parts_are_as_long_as_their_share(name):
    report = sample_report(name)
    text = as_html(report)

    drawing = text[text.index('<figure id="time-drawing">') :]
    boxes = re.findall(r'x="([\d.]+)" y="0" width="([\d.]+)"', drawing[: drawing.index("</figure>")])

    widths = [float(width) / 1000 for _, width in boxes]
    shares = [seconds / report.step_time_s for seconds in report.breakdown.values()]
    assert widths == pytest.approx(shares, abs=6e-6)
    assert [float(x) for x, _ in boxes] == pytest.approx(np.cumsum([0, *widths[:-1]]) * 1000, abs=0.1)


# memory


@EVERY
def test_bars_of_memory_add_up_to_what_each_stage_needs(name):
    """The fullest bar is the expected need of the report, and the fullest stage has its verdict."""
    memory = sample_report(name).memory
    names = sorted({category for stage in memory.per_stage for category in stage.by_category})

    bars = stage_bars(memory, names)

    for bar, stage in zip(bars, memory.per_stage, strict=True):
        held_bytes = [held for _, label, held in bar.parts if label != DRIVER]
        assert sum(held_bytes) == pytest.approx(stage.allocated_bytes, rel=1e-9)
        assert sum(held for _, _, held in bar.parts) == pytest.approx(bar.expected_bytes, rel=1e-9)
    fullest = max(bars, key=lambda bar: bar.expected_bytes)
    assert fullest.expected_bytes == pytest.approx(memory.expected_bytes, rel=1e-9)
    assert fullest.word.lower() == memory.verdict


def test_a_category_without_a_colour_is_among_the_others():
    memory = sample_report("one stage").memory
    (stage,) = memory.per_stage
    first = max(stage.by_category, key=stage.by_category.get)

    (bar,) = stage_bars(memory, [first, OTHERS])

    rest = stage.allocated_bytes - stage.by_category[first]
    assert [held for _, _, held in bar.parts[:2]] == pytest.approx([stage.by_category[first], rest])


# the pipeline


def drawn_boxes(html):
    """(hue, top, left, width) of every box."""
    return [
        (int(hue), int(top), int(left), int(width))
        for hue, path in re.findall(r'<path class="hue-(\d) box" d="([^"]*)"', html)
        for left, top, width in re.findall(r"M(\d+),(\d+)h(\d+)v", path)
    ]


@EVERY
def test_every_task_update_and_reduction_is_a_box_on_its_stage(name):
    report = sample_report(name)
    timeline, end_s = report.timeline, end_of(sample_report(name))

    boxes = drawn_boxes(pipeline(report).html)

    stages = len(report.memory.per_stage)
    tops = sorted({top for _, top, _, _ in boxes})
    assert len(tops) == stages
    for stage, top in enumerate(tops):
        for kind in set(timeline.kind.tolist()):
            mine = (timeline.stage == stage) & (timeline.kind == kind)
            found = sorted((left, width) for hue, at, left, width in boxes if (hue, at) == (kind, top))
            starts, ends = (np.sort(each[mine]) / end_s for each in (timeline.start_s, timeline.end_s))
            assert [left for left, _ in found] == pytest.approx(starts * TIME_UNITS, abs=0.51)
            lengths = np.maximum((ends - starts) * TIME_UNITS, 1)
            assert [width for _, width in found] == pytest.approx(lengths, abs=1.01)
        assert sum((hue, at) == (7, top) for hue, at, _, _ in boxes) == 2


@EVERY
def test_boxes_of_a_stage_do_not_overlap_and_stay_inside(name):
    boxes = drawn_boxes(pipeline(sample_report(name)).html)

    for top in {at for _, at, _, _ in boxes}:
        row = sorted((left, left + width) for _, at, left, width in boxes if at == top)
        assert all(after[0] >= before[1] - 1 for before, after in pairwise(row))
        assert row[0][0] >= 0
        assert row[-1][1] <= TIME_UNITS + 1


@EVERY
def test_rows_of_the_table_add_up_to_the_step_without_jitter(name):
    report = sample_report(name)

    headings, rows = page_of(name).table("Time of each stage over the step")

    assert len(rows) == len(report.memory.per_stage)
    assert headings[-2:] == ["waits and transfers", "waits and transfers, share of the step"]
    for row in rows:
        assert math.fsum(row[1:-1]) == pytest.approx(report.clean_step_time_s, rel=1e-6)
        assert row[-1] == pytest.approx(row[-2] / report.clean_step_time_s, abs=1e-8)


@PIPELINES
def test_the_script_is_told_every_task(name):
    report = sample_report(name)
    told = tasks_as_data(report)

    assert told["stages"] == list(range(4))
    found = {
        (stage, kind, chunk, micro)
        for stage, flat in zip(told["stages"], told["tasks"], strict=True)
        for kind, chunk, micro in zip(flat[::5], flat[1::5], flat[2::5], strict=True)
    }
    columns = (getattr(report.timeline, key).tolist() for key in ("stage", "kind", "chunk", "micro_batch"))
    assert found == set(zip(*columns, strict=True))


LARGE = f"pp=8 gbs={MOST_TASKS // 16 + 8} precision=fp16"


def test_more_tasks_than_can_be_drawn_are_columns_that_keep_every_second():
    report = report_of(make_job(plan=LARGE))
    timeline = report.timeline

    for stage in (0, 7):
        busy = busy_by_column(report, stage)
        assert busy.shape == (3, COLUMNS)
        for kind in (0, 1):
            mine = (timeline.stage == stage) & (timeline.kind == kind)
            spent_s = (timeline.end_s - timeline.start_s)[mine].sum()
            assert busy[kind].sum() == pytest.approx(spent_s, rel=1e-9)
        ends_s = timeline.update_s[stage] + timeline.reduce_s[stage]
        assert busy[2].sum() == pytest.approx(ends_s, rel=1e-9)
        assert (busy.sum(axis=0) <= end_of(report) / COLUMNS * (1 + 1e-9)).all()


def test_areas_above_each_other_are_as_high_as_their_sums_and_the_highest_is_painted_first():
    across, low, high = np.array([0, 10, 20]), np.array([1.0, 1.0, 2.0]), np.array([4.0, 3.0, 3.0])

    drawn = stacked(across, [low, high], 50, (4, 7))

    assert drawn == (
        f'<path class="hue-7" d="M0,50V45H10V46H20V45H{TIME_UNITS}V50z"/>'
        f'<path class="hue-4" d="M0,50V49H20V48H{TIME_UNITS}V50z"/>'
    )


def test_a_large_pipeline_says_how_it_is_drawn_and_tells_no_tasks():
    report = report_of(make_job(plan=LARGE))

    html = pipeline(report).html

    assert f"{len(report.timeline.stage)} tasks are too many to draw one by one" in html
    assert f"cut into {COLUMNS} columns" in html
    assert drawn_boxes(html) == []
    assert tasks_as_data(report) == {"stages": list(range(8)), "tasks": []}


def test_one_task_more_than_the_most_is_drawn_by_columns():
    most = report_of(make_job(plan=f"pp=8 gbs={MOST_TASKS // 16} precision=fp16"))

    assert len(most.timeline.stage) == MOST_TASKS
    assert "Every task is a box" in pipeline(most).html


@all_cases("stages", [1, 2, 31, 32, 33, 128, 1000])
def test_stages_of_a_drawing_are_spread_evenly_from_the_first_to_the_last(stages):
    found = chosen(stages).tolist()

    assert len(found) == min(stages, MOST_STAGES)
    assert (found[0], found[-1]) == (0, stages - 1)
    assert max(np.diff(found), default=1) - min(np.diff(found), default=1) <= 1


# memory


@EVERY
def test_memory_is_drawn_as_high_as_it_is(name):
    report = sample_report(name)
    full_bytes = max(report.memory.capacity_bytes, report.memory.allocated_bytes)

    html = memory(report).html

    paths = re.findall(r'<path class="hue-\d" d="M\d+,(\d+)(V[^"]*)V\d+z"', html)
    for stage in report.memory.per_stage:
        base = (stage.stage + 1) * ROW_HEIGHT
        tops = [
            numbers(top)[0] for at, path in paths if int(at) == base for top in re.findall(r"V[\d.]+", path)
        ]
        height = stage.allocated_bytes / full_bytes * (ROW_HEIGHT - 3)
        assert base - min(tops) == pytest.approx(height, abs=0.051)


@EVERY
def test_categories_over_time_add_up_to_the_level_and_begin_with_what_stands(name):
    report = sample_report(name)

    for stage in report.memory.per_stage:
        levels = memory_levels(report, stage.stage)
        assert levels.moments_s[0] == 0.0
        total = levels.total_bytes[levels.state]
        assert total.max() == pytest.approx(stage.allocated_bytes, rel=1e-12)
        if stage.moment != "update":
            assert total[0] == pytest.approx(stage.standing_bytes, rel=1e-12)


@EVERY
def test_areas_of_every_stage_have_the_hues_that_the_legend_names(name):
    report = sample_report(name)
    html = memory(report).html

    legend = re.findall(r'<rect class="hue-(\d)" width="10" height="10"/></svg> ([a-z ]+)', html)
    hue_of = {category: int(hue) for hue, category in legend}
    for stage in report.memory.per_stage:
        levels = memory_levels(report, stage.stage).by_category
        base = (stage.stage + 1) * ROW_HEIGHT
        found = re.findall(rf'<path class="hue-(\d)" d="M\d+,{base}V', html)
        wanted = {hue_of.get(memory_label(category), hue_of.get("others")) for category in levels}
        assert {int(hue) for hue in found} == wanted


def test_thinned_moments_keep_the_fullest_of_every_column():
    chance, bytes_of_state = np.random.default_rng(1), np.random.default_rng(2).uniform(0.0, 1.0, 300)
    moments, state = np.sort(chance.uniform(0.0, 10.0, 5000)), chance.integers(300, size=5000)
    by_category = {"a": bytes_of_state, "b": np.full(300, 2.0)}

    few, kept = thinned(MemoryLevels(moments_s=moments, state=state, by_category=by_category), 10.0, 50)

    assert len(few) == 50
    column = np.minimum((moments * 5).astype(int), 49)
    fullest = [bytes_of_state[state[column == each]].max() for each in range(50)]
    assert bytes_of_state[kept].tolist() == fullest
    assert few == pytest.approx(np.arange(50) * 0.2)


def test_moments_that_can_be_drawn_stay_as_they_are():
    moments, state = np.array([0.0, 1.0, 3.0]), np.array([0, 1, 0])
    by_category = {"a": np.array([1.0, 2.0])}

    few, kept = thinned(MemoryLevels(moments_s=moments, state=state, by_category=by_category), 4.0, 3)

    assert few is moments
    assert kept is state
    assert MOST_CORNERS > 0


# kernels


@EVERY
def test_no_kernel_stands_above_its_roof_but_for_levels_that_runs_taught(name):
    report = sample_report(name)
    device, priced = report.job.cluster.node.device, report.priced
    levels = {}
    for item in priced.programs.items():
        ratio = math.prod(priced.factors[factor].ratio for factor in priced.of(item).names())
        levels[item.name, item.phase] = min(levels.get((item.name, item.phase), 1.0), ratio)

    for one in kernels(report):
        assert 0 < one.bound_share <= 1 / levels[one.name, one.phase] * (1 + 1e-12)
        if one.flop > 0:
            roof = min(device.peak(one.unit), one.intensity_flop_per_byte * device.memory_bytes_per_s)
            assert one.attained_flop_per_s / roof == pytest.approx(one.bound_share, rel=1e-12)


@EVERY
def test_marks_stand_at_intensity_and_rate_below_the_line_of_the_roof(name):
    report = sample_report(name)
    products = [one for one in kernels(report) if one.flop > 0]
    across, up = axes(report, products)

    html = roofline(report).html

    marks = re.findall(r"<g><title>(\d+)\. .*?translate\(([\d.]+),([\d.]+)\)", html)
    assert sorted(int(number) for number, _, _ in marks) == list(range(1, len(products) + 1))
    for number, x, y in marks:
        one = products[int(number) - 1]
        left = math.log(one.intensity_flop_per_byte / across.low) / math.log(across.high / across.low)
        assert float(x) == pytest.approx(across.start + left * (across.end - across.start), abs=0.051)
        assert float(y) == pytest.approx(up.at(one.attained_flop_per_s), abs=0.051)
    roof = numbers(re.search(r'class="rule" d="([^"]+)"', html)[1])
    assert roof[3] == roof[5]  # from its bend on it is level
    assert min(float(y) for _, _, y in marks) >= roof[5] - 0.1


def test_a_product_s_numbers_are_those_of_the_textbook():
    report = sample_report("one stage")
    up = next(one for one in kernels(report) if (one.name, one.phase) == ("mlp.up", "forward"))

    tokens, hidden, ffn = 1024, 1024, 4096
    assert up.flop == 2 * tokens * hidden * ffn
    assert up.moved_bytes == 2 * (tokens * hidden + hidden * ffn + tokens * ffn)


# limits


@EVERY
def test_limits_add_up_to_the_step(name):
    report = sample_report(name)

    found = by_limit(report)

    assert tuple(found) == LIMITS
    assert sum(found.values()) == pytest.approx(report.step_time_s, rel=1e-9)
    assert found["variation from step to step"] == report.breakdown.get("jitter", 0.0)


def test_products_are_bound_by_the_engine_and_norms_by_memory():
    report = sample_report("too large")

    found = by_limit(report)

    norms = report.breakdown["norm"] + report.breakdown["residual"] + report.breakdown["optimizer"]
    assert found["compute"] > 0.5 * report.breakdown["mlp"]
    assert found["memory bandwidth"] > norms


def test_ten_percent_faster_saves_what_the_step_says():
    """A step of which a share s scales with a factor lasts 1 - s + s / 1.1 when it is 10 % faster."""
    factors = [one for one in sample_report("batched").factors if kind_of(one.name).is_lever]

    assert len(factors) > 5
    for factor in factors:
        shorter = 1 - factor.share + factor.share / 1.1
        assert saved_share(factor) == pytest.approx(1 - shorter, rel=1e-12)


@EVERY
def test_bars_of_factors_are_as_wide_as_their_intervals(name):
    report = sample_report(name)

    widths = [float(w) for w in re.findall(r'width="([\d.]+)" height="14"', limits(report).html)]

    wide = [factor.share * factor.log_sigma_factor for factor in report.factors[: len(widths)]]
    assert np.array(widths) / widths[0] == pytest.approx(np.array(wide) / wide[0], abs=2e-3)


@EVERY
def test_names_of_factors_in_the_drawing_differ_and_are_short_enough_for_it(name):
    named = short_names(sample_report(name).factors[:MOST_DRAWN])

    assert len(set(named)) == len(named)
    assert max(map(len, named)) <= LEFT / 6.5  # dots of a character


def test_the_axis_of_factors_tells_the_step_at_the_ends_of_their_intervals():
    """The widest bar reaches from end to end: to the bounds of a step that hangs on it alone."""
    report = sample_report("one stage")
    widest = report.factors[0]
    axis = limits_axis(report)

    low_s, high_s = interval(report.step_time_s, (widest,))

    assert moved(report, axis.low) == show_seconds(low_s, like=report.step_time_s)
    assert moved(report, axis.high) == show_seconds(high_s, like=report.step_time_s)


@EVERY
def test_factors_that_move_nothing_are_folded_and_none_is_left_out(name):
    report = sample_report(name)

    seen, _, folded = limits(report).html.partition("<details>")

    for factor in report.factors:
        place = seen if factor.share * factor.log_sigma_factor >= LEAST_SHOWN else folded
        assert f">{escape(in_words(factor.name))}<" in place, factor.name


def test_a_curve_without_prices_has_no_drawing_of_money(curve):
    _, steps = curve

    assert "cost of 1e6 tokens" in scaling(steps, fine_tunes=True).html
    assert "1e12" not in scaling(steps, fine_tunes=True).html
    html = scaling([replace(one, many_usd=None) for one in steps]).html

    assert 'id="rate-drawing"' in html
    assert 'id="money-drawing"' not in html


# other numbers of devices


@pytest.fixture(scope="module")
def curve():
    report = sample_report("jitter")
    return report, scaled(report, load_book(report.job.cluster))


def test_the_plan_itself_is_a_point_of_both_curves(curve):
    report, steps = curve
    mine = [one for one in steps if one.num_devices == report.job.cluster.num_devices]

    assert {one.batch for one in mine} == {KEPT, GROWN}
    assert {one.step_time_s for one in mine} == {report.step_time_s}
    assert {one.tokens_per_s for one in mine} == {report.metrics.tokens_per_s}


def test_points_are_predictions_of_the_job_on_so_many_devices(curve):
    _, steps = curve

    for one in steps:
        replicas = 4 * one.num_devices // 8
        nodes = (
            {"nodes": one.num_devices // 8}
            if one.num_devices >= 8
            else {"nodes": 1, "groups": {"0": {"node": {"devices": one.num_devices}}}}
        )
        cluster = PARTS["jitter"]["cluster"] | nodes
        plan = f"dp={replicas} tp=2 gbs={one.global_batch} precision=fp16"
        again = report_of(make_job(cluster=cluster, plan=plan))
        assert one.step_time_s == pytest.approx(again.step_time_s, rel=1e-12)
        assert one.global_batch == (16 if one.batch == KEPT else 16 * one.num_devices // 8)
        assert one.many_usd == pytest.approx(again.cost.per_many_tokens(again.cost.step_usd).value)


def test_a_kept_batch_ends_where_a_replica_has_no_micro_batch_left(curve):
    _, steps = curve

    most = {batch: max(one.num_devices for one in steps if one.batch == batch) for batch in (KEPT, GROWN)}
    assert most == {KEPT: 8 * 4, GROWN: 8 * max(RATIOS)}  # 16 sequences over 16 replicas


@pytest.mark.parametrize("quantity", [RATE, MONEY], ids=lambda each: each.key)
def test_marks_of_the_curve_stand_at_devices_and_their_quantity(curve, quantity):
    _, steps = curve
    across, up = scaling_axes(steps, quantity)

    marks = re.findall(r"translate\(([\d.]+),([\d.]+)\)", drawing(steps, quantity))

    values = {"rate": lambda one: one.tokens_per_s, "money": lambda one: one.many_usd}
    expected = {(across.at(one.num_devices), up.at(values[quantity.key](one))) for one in steps}
    assert drawing(steps, quantity) in scaling(steps).html
    assert len(marks) == len(steps)
    for x, y in marks:
        assert any(abs(float(x) - a) < 0.06 and abs(float(y) - b) < 0.06 for a, b in expected)


def test_the_table_of_the_curve_has_its_numbers(curve):
    report, steps = curve

    headings, rows = Page(as_html(report, steps)).table("more or fewer data-parallel replicas")

    shown = {(row[0], row[1]): dict(zip(headings, row, strict=True)) for row in rows}
    for one in steps:
        row = shown[one.num_devices, one.batch]
        assert row["step"] == pytest.approx(one.step_time_s, rel=1e-8)
        assert row["rate"] == pytest.approx(one.tokens_per_s, rel=1e-8)
        assert row["cost of 1e12 tokens"] == pytest.approx(one.many_usd, rel=1e-8)
        assert row["fits"] == ("yes" if one.fits else "no")


def test_without_other_sizes_there_is_no_section_of_them():
    assert "scaling" not in page_of("jitter").ids


def test_memory_outside_the_devices_is_a_bar_for_each_tier_with_the_colours_of_the_stages():
    job = make_job(
        cluster="dgx-h100:1",
        stack="deepspeed-zero",
        plan="dp=8 gbs=16 zero=3 offload=optimizer:host,parameters:nvme",
    )
    report = report_of(job)
    text = as_html(report)

    drawing = text[text.index('<figure id="tier-bars">') :]
    drawing = drawing[: drawing.index("</figure>")]
    hues = dict(re.findall(r'hue-(\d+)" x="[^>]*><title>([^:]*):', drawing))
    stages = text[text.index('<figure id="memory-bars">') :]
    known = dict(re.findall(r'hue-(\d+)" x="[^>]*><title>([^:]*):', stages[: stages.index("</figure>")]))

    held = {memory_label(name) for tier in report.memory.tiers for name in tier.by_category}
    assert set(hues.values()) == held
    assert all(known[hue] == name for hue, name in hues.items() if hue in known)
    for tier in report.memory.tiers:
        assert tier.need in drawing
    assert 'id="tier-bars"' not in as_html(sample_report("one stage"))
