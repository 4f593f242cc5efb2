"""Reports of split backwards: rows for B and W, memory that W frees, a drawing that holds skewed steps."""

import re
from functools import cache

import numpy as np
import pytest
from conftest import make_job

import flopcast
from flopcast.render.page.time_axis import TIME_UNITS
from flopcast.render.report_page import as_html
from flopcast.report.events import events, memory_over_time
from flopcast.schedules.base import WEIGHT

EACH = pytest.mark.parametrize("schedule", ["zb_h1", "zb_h2"])


@cache
def report_of(schedule):
    return flopcast.predict(make_job(plan=f"dp=2 pp=4 gbs=16 precision=fp16 schedule={schedule}"))


@EACH
def test_every_weight_task_is_a_row_that_holds_weight_gradients(schedule):
    found = list(events(report_of(schedule)))

    tasks = [row for row in found if row.stream == "tasks" and row.operator.startswith("W")]
    inside = [row for row in found if row.operator.endswith(".wgrad") and row.stream == "compute"]

    assert len(tasks) == 4 * 8  # stages and micro-batches
    for row in inside:
        mine = [t for t in tasks if (t.stage, t.micro_batch) == (row.stage, row.micro_batch)]
        assert any(t.start_s <= row.start_s and row.end_s <= t.end_s + 1e-12 for t in mine)


@EACH
def test_memory_over_time_ends_as_it_began_with_the_last_weight_gradient(schedule):
    report = report_of(schedule)

    for stage in range(4):
        moments, level = memory_over_time(report, stage)
        last = report.timeline.end_s[
            (report.timeline.stage == stage) & (report.timeline.kind == WEIGHT)
        ].max()
        assert moments[-1] == last
        assert level[-1] == pytest.approx(report.memory.per_stage[stage].standing_bytes, rel=1e-9)
        assert (np.diff(moments) >= 0).all()


@EACH
def test_the_drawing_holds_every_task_of_a_skewed_step(schedule):
    drawn = as_html(report_of(schedule))

    weights = re.findall(r'<path class="hue-2 box" d="([^"]+)"', drawn)

    assert [path.count("M") for path in weights] == [8] * 4  # micro-batches, stages
    boxes = re.findall(r"M(\d+),\d+h(\d+)v", "".join(weights))
    assert max(int(x) + int(width) for x, width in boxes) <= TIME_UNITS
