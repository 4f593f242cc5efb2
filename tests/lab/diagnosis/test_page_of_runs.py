"""The page of a diagnosis: suspects with their seconds, and the steps of the log as points."""

import re
from html import unescape

import numpy as np
import pytest
from judged import GOOD, PREDICTOR
from judged import without_plans as found
from perturbed_logs import checkpoints, log_text, run_of
from unmarked import unmarked

from flopcast.jobs import job
from flopcast.render.diagnosis import marked_text, verdict
from flopcast.render.page.measured import LEFT, MOST_POINTS, RIGHT, drawn_steps, measured
from flopcast.render.report_page import as_html
from flopcast.render.terminal import capital, plain

as_text = unmarked(marked_text)

JOB = job(**GOOD)
REPORT = PREDICTOR.predict(JOB)


def diagnosed(change=None):
    run = run_of(REPORT)
    if change is not None:
        change(run)
    return found(JOB, log_text(run)), run


def test_every_step_is_a_point_and_every_suspect_a_line_with_its_seconds():
    told, run = diagnosed(checkpoints)

    html = measured(told).html
    steps, times_s = drawn_steps(told, told.log)

    points = re.findall(r'<circle class="hue-1" cx="([\d.]+)"', html)
    assert len(points) == len(run.steps_s) == len(steps)
    assert times_s == pytest.approx(run.steps_s, rel=1e-3)
    assert (float(points[0]), float(points[-1])) == (LEFT, RIGHT)
    assert "checkpoints" in {one.name for one in told.suspects}
    for suspect in told.suspects:
        assert suspect.title in html
        if suspect.cost_s is not None:
            assert f'<data value="{suspect.cost_s:.9g}">' in html
    assert "outside the interval" in html or "inside the interval" in html


def test_of_many_steps_medians_of_neighbours_are_drawn():
    line = (
        " iteration {0:8d}/ 9000 | elapsed time per iteration (ms): {1:.1f} | global batch size:  128 |\n"
    )
    seconds = REPORT.step_time_s * (1.0 + 0.1 * (np.arange(1, 5001) % 2))
    text = "".join(line.format(step, 1e3 * taken_s) for step, taken_s in enumerate(seconds, 1))

    told = found(JOB, text)
    steps, times_s = drawn_steps(told, told.log)

    assert len(steps) == len(times_s) == MOST_POINTS
    assert times_s == pytest.approx(np.full(MOST_POINTS, 1.05 * REPORT.step_time_s), rel=1e-3)
    assert np.all(np.diff(steps) > 0)


def test_the_page_of_a_diagnosis_begins_with_what_was_measured():
    told, _ = diagnosed()

    with_run, without = as_html(told.report, found=told), as_html(told.report)

    assert with_run.index('id="measured"') < with_run.index('id="time"')
    assert 'id="measured"' not in without
    assert "<strong>Measured</strong>" not in measured(found(JOB)).html


def test_the_page_gives_the_verdict_of_the_text_and_what_contradicts_the_job():
    faster, _ = diagnosed(lambda run: run.steps_s.__imul__(0.5))
    run = run_of(REPORT)
    run.facts["micro_batch_size"] = 2
    other = found(JOB, log_text(run))

    for told in (faster, other):
        lines, html = as_text(told), unescape(re.sub(r"<[^>]*>", " ", measured(told).html))
        for _, text in verdict(told):
            assert plain(text) in lines
            assert plain(text) in html
    assert "the run is faster than predicted" in as_text(faster)
    for text in (
        "the log has a micro-batch of 2, but the job has a micro-batch of 1",
        "plan.micro_batch=2",
    ):
        assert text in as_text(other)
        assert capital(text) in measured(other).html or text in measured(other).html
