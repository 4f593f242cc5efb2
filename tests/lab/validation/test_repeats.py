"""Noise floors and errors by configuration, against numbers made by hand."""

import math

import pytest
from conftest import make_job
from made_up_runs import JOB, judged, run

from flopcast.api import predict
from flopcast.lab.validation.published_statistics import of_rows
from flopcast.lab.validation.repeats import by_configuration, clustered_errors, noise_floor, release_errors
from flopcast.render.published_tables import runs_as_json
from flopcast.render.published_text import runs_as_text

OTHER = make_job(plan="dp=8 mbs=2 gbs=16 precision=fp16")


def compared(*runs):
    return judged(list(runs)).rows


def test_nothing_measured_twice_has_no_floor():
    within, across = noise_floor(by_configuration(compared(run("a"), run("b", job=OTHER))))

    assert (within.rows, within.mean_ratio) == (0, None)
    assert (across.rows, across.mean_ratio) == (0, None)


def test_two_runs_of_a_release_are_as_far_off_as_their_mean_is_uncertain():
    """0.1 and 0.121 s: 1/1.1 and 1.1 of their geometric mean, and √2 as that is of the same two."""
    within, across = noise_floor(
        by_configuration(compared(run("a", step_time_s=0.1), run("b", step_time_s=0.121)))
    )

    assert within.rows == 2
    assert within.mean_ratio == pytest.approx((0.1 + (1 - 1 / 1.1)) / 2 * math.sqrt(2))
    assert across.rows == 0


def test_releases_are_compared_by_their_means():
    """One release has 0.1 and 0.121 s, the other what their mean is: nothing between them."""
    rows = compared(
        run("a", version="1", step_time_s=0.1),
        run("b", version="1", step_time_s=0.121),
        run("c", version="2", step_time_s=0.11),
    )

    within, across = noise_floor(by_configuration(rows))

    assert (within.rows, across.rows) == (2, 2)
    assert across.mean_ratio == pytest.approx(0.0, abs=1e-12)


def test_errors_of_releases_are_those_of_their_mean_time_and_of_their_predictions():
    """0.1 and 0.121 s: both 10 % off 0.11 s, times √2; a configuration of one release has neither."""
    predicted_s = predict(JOB).step_time_s
    rows = compared(
        run("a", version="1", step_time_s=0.1),
        run("b", version="2", step_time_s=0.121),
        run("c", version="1", job=OTHER, step_time_s=1.0),
    )

    found = release_errors(by_configuration(rows))

    assert [best for best, _ in found] == pytest.approx([(1 - 1 / 1.1) * math.sqrt(2), 0.1 * math.sqrt(2)])
    assert [own for _, own in found] == pytest.approx([predicted_s / 0.1 - 1, predicted_s / 0.121 - 1])


def test_other_releases_are_no_repeats_of_one():
    within, across = noise_floor(
        by_configuration(
            compared(run("a", version="1", step_time_s=0.1), run("b", version="2", step_time_s=0.121))
        )
    )

    assert within.rows == 0
    assert across.mean_ratio == pytest.approx((0.1 + (1 - 1 / 1.1)) / 2 * math.sqrt(2))


def test_a_time_that_a_release_prints_twice_is_one_measurement():
    within, _ = noise_floor(
        by_configuration(compared(run("a", step_time_s=0.1), run("b", step_time_s=0.1)))
    )

    assert within.rows == 0


def test_repeats_count_once_where_errors_are_of_configurations():
    """Three runs of one job twice too slow, one of another right: half of the configurations are off."""
    slow_s, right_s = predict(JOB).step_time_s / 2, predict(OTHER).step_time_s
    rows = compared(
        *(run(name, step_time_s=slow_s) for name in "abc"), run("d", job=OTHER, step_time_s=right_s)
    )

    found = of_rows(rows)

    assert found["mape"] == pytest.approx(0.75)
    assert clustered_errors(by_configuration(rows))["mape"] == pytest.approx(0.5)
    assert (found["configurations"], found["clustered_mape"]) == (2, pytest.approx(0.5))


def test_the_floor_stands_beside_the_errors_of_its_source():
    published = judged([run("a", step_time_s=0.1), run("b", step_time_s=0.121)])

    found = runs_as_json(published)["sources"]["made-up"]

    assert found["noise_within_rows"] == 2
    assert f"{found['noise_within_mape']:.1%}" in runs_as_text(published)
    assert "noise_across_mape" not in found


def test_what_quotes_an_earlier_table_is_not_counted_twice_by_its_order():
    """Quoted times are dropped whichever comes first: 0.1, 0.121 and 0.1 again."""
    times = (0.1, 0.121, 0.1)

    floors = {
        noise_floor(by_configuration(compared(*(run(str(i), step_time_s=t) for i, t in enumerate(order)))))[
            0
        ]
        for order in (times, times[::-1])
    }

    assert {floor.rows for floor in floors} == {2}
