"""The first suspect of an error: which factor, and by how much it would have to change."""

import math

import pytest
from made_up_runs import JOB, judged, run

from flopcast.accuracy import predict_unfitted as predict
from flopcast.lab.validation.diagnosis import first_suspect
from flopcast.render.published_tables import runs_as_json, runs_as_markdown
from flopcast.render.published_text import runs_as_text
from flopcast.report.labels import component_label
from flopcast.spec.factor_kinds import kind_of

REPORT = predict(JOB)


def test_the_suspect_is_the_factor_of_the_largest_share_times_sigma():
    widest = max(REPORT.factors, key=lambda factor: factor.share * factor.log_sigma_factor)

    assert first_suspect(REPORT, 0.1).factor == widest.name


def test_a_right_prediction_needs_nothing_changed():
    found = first_suspect(REPORT, REPORT.step_time_s)

    assert found.needed_ratio == pytest.approx(1.0)
    assert found.surprise_ratio == pytest.approx(0.0)


def test_the_needed_change_makes_the_step_as_measured():
    """Share s of the step times f, and the rest as it is: 1 − s + s · f of the prediction."""
    measured_s = 0.9 * REPORT.step_time_s

    found = first_suspect(REPORT, measured_s)

    new_s = REPORT.step_time_s * (1 - found.share + found.share * found.needed_ratio)
    assert new_s == pytest.approx(measured_s)


def test_an_error_larger_than_the_factors_share_is_not_its_alone():
    found = first_suspect(REPORT, 1e-3 * REPORT.step_time_s)

    assert found.needed_ratio is None
    assert "alone" in found.phrase()


def test_the_error_in_sigmas_is_where_the_interval_ends():
    """The 90 % interval reaches 1.6449 sigma."""
    assert first_suspect(REPORT, REPORT.step_time_low_s).surprise_ratio == pytest.approx(1.6449, abs=1e-4)
    assert first_suspect(REPORT, REPORT.step_time_high_s).surprise_ratio == pytest.approx(-1.6449, abs=1e-4)


def test_the_largest_component_is_named_with_its_share():
    found = first_suspect(REPORT, 0.1)

    assert math.isclose(found.component_share * REPORT.step_time_s, max(REPORT.breakdown.values()))
    assert f"largest component is {component_label(found.component)} (" in found.phrase()
    assert found.phrase().startswith(
        f'the factor "{kind_of(found.factor).label}" ({found.factor}) affects '
    )


def test_every_worst_row_is_told_with_its_suspect_in_every_form():
    published = judged([run("a", step_time_s=3 * REPORT.step_time_s)])

    likely = published.rows[0].likely
    phrase = likely.phrase()

    assert phrase in runs_as_text(published)
    page = runs_as_markdown(published)
    assert f"| {kind_of(likely.factor).label} | {likely.share:.0%} |" in page
    assert f"| {component_label(likely.component)} |" in page
    assert runs_as_json(published)["rows"][0]["likely"]["phrase"] == phrase
