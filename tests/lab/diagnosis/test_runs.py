"""What the records of a run show, however many steps each holds: pauses, slowing, ramps of the batch."""

import numpy as np
import pytest
from all_cases import all_cases
from judged import GOOD, PREDICTOR, suspects
from judged import without_plans as found

from flopcast.jobs import job
from flopcast.render.diagnosis import verdict
from flopcast.units import show_seconds

JOB = job(**GOOD)
STEP_S = PREDICTOR.predict(JOB).step_time_s
RECORDS = 80


def record(step, step_s, batch=128):
    return (
        f" iteration {step:8d}/   20000 | elapsed time per iteration (ms): {1e3 * step_s:.2f} |"
        f" global batch size: {batch:5d} | lm loss: 1.08E+01 |"
    )


def judged(lines, one=JOB):
    return found(one, "".join(f"{line}\n" for line in lines))


def block(**timers):
    """Timers as Megatron-LM prints them; underscores stand for hyphens."""
    lines = [
        f"    {name.replace('_', '-')} .....................: ({1e3 * seconds:.2f}, {1e3 * seconds:.2f})"
        for name, seconds in timers.items()
    ]
    return ["(min, max) time across ranks (ms):", *lines]


@all_cases("interval", (1, 10, 100))
def test_checkpoints_cost_the_same_whatever_the_interval_of_the_log_is(interval):
    """Each record is a mean; every tenth holds a pause of half an interval."""
    lines = []
    for place in range(1, RECORDS + 1):
        lines.append(record(place * interval, STEP_S * (1.5 if place % 10 == 0 else 1.0)))
        if place % 10 == 9:
            lines.append(f"saving checkpoint at iteration {place * interval + interval // 2} to /data")

    told = judged(lines)

    measured = suspects(told, "measured")
    assert list(measured) == ["checkpoints"]
    assert measured["checkpoints"].cost_s == pytest.approx(0.05 * STEP_S, rel=0.15)
    assert told.inside


def test_checkpoints_and_evaluations_that_step_times_leave_out_cost_what_their_timers_show():
    lines = []
    for step in range(1, 101):
        lines.append(record(step, STEP_S))
        if step % 20 == 0:
            lines += [f"saving checkpoint at iteration {step} to /data", *block(save_checkpoint=STEP_S)]
        if step % 50 == 0:
            lines += block(evaluate=4 * STEP_S)

    measured = suspects(judged(lines), "measured")

    assert measured["checkpoints"].cost_s == pytest.approx(5 * STEP_S / 90, rel=0.01)  # 10 are warm-up
    assert measured["evaluation"].cost_s == pytest.approx(8 * STEP_S / 90, rel=0.01)


def test_a_run_that_becomes_slower_names_the_timers_that_rise_and_blames_no_part_twice():
    lines = []
    for step in range(1, 101):
        slower = 1.4 if step > 30 else 1.0
        lines.append(record(step, STEP_S * slower))
        lines += block(
            forward_compute=0.3 * STEP_S * slower,
            backward_compute=0.6 * STEP_S * slower,
            optimizer=0.002 * STEP_S,
        )

    measured = suspects(judged(lines), "measured", "within doubt")

    assert list(measured) == ["slower_at_once"]
    (rise,) = [text for text in measured["slower_at_once"].evidence if "these timers become longer" in text]
    assert "forward" in rise
    assert "backward" in rise
    assert "optimizer" not in rise


def test_timers_of_a_batch_that_ramps_up_are_left_out():
    lines = []
    for step in range(1, 101):
        full = step > 60
        step_s = STEP_S if full else STEP_S / 2
        lines.append(record(step, step_s, 128 if full else 64))
        lines += block(forward_compute=0.31 * step_s, backward_compute=0.62 * step_s)

    told = judged(lines)

    assert told.inside
    assert suspects(told, "measured", "within doubt", "possible") == {}
    assert any(f"{0.93 * STEP_S:.2f} s for forward and backward" in text for text in told.cleared)


def test_a_run_that_restarts_has_no_suspect_for_that():
    noise = np.exp(0.005 * np.random.default_rng(4).standard_normal(140))
    steps = [*range(1, 61), *range(50, 130)]

    told = judged(map(record, steps, STEP_S * noise))

    assert suspects(told, "measured", "within doubt", "possible") == {}


@all_cases("number", (1, 2, 3, 11))
def test_few_records_are_compared_and_have_no_pattern(number):
    told = judged(record(step, STEP_S * (9.0 if step == 1 else 1.0)) for step in range(1, number + 1))

    assert told.inside is (number > 1)
    assert suspects(told, "measured") == {}


def test_what_neither_the_network_nor_clocks_can_explain_is_unexplained():
    """Without overlap, a step of forty seconds would need communication a hundred times as slow."""
    one = job(**GOOD | {"stack": "megatron-core"})

    told = judged((record(step, 40.0) for step in range(1, 20)), one)

    assert list(suspects(told, "possible")) == ["other_causes"]
    assert any("cannot explain the whole difference" in text for text in told.advice)
    step_s = told.report.step_time_s
    assert abs(told.unexplained_s - (40.0 - step_s)) < 0.001 * step_s


def test_the_first_lines_state_how_much_of_the_step_no_measurement_explains():
    slow = dict(verdict(judged(record(step, 3.0 * STEP_S) for step in range(1, 20))))
    as_predicted = dict(verdict(judged(record(step, STEP_S) for step in range(1, 20))))

    assert list(slow) == ["measured", "predicted", "unknown"]
    assert slow["unknown"].startswith(f"{show_seconds(2.0 * STEP_S)} of the difference")
    assert list(as_predicted) == ["measured", "predicted"]


def test_a_network_whose_messages_compute_hides_is_possible_whatever_it_exposes():
    told = judged(record(step, 3.0 * STEP_S) for step in range(1, 20))

    assert list(suspects(told, "possible")) == ["network", "other_causes"]


def test_settings_that_surely_cost_time_come_before_guesses_of_more_seconds():
    one = job(**GOOD | {"stack": "megatron-core"}, changes=("plan.recompute=full",))

    told = judged((record(step, 8.0) for step in range(1, 20)), one)

    bases = [suspect.basis for suspect in told.suspects]
    assert bases == sorted(bases, key=["predicted", "unsettled", "possible"].index)
    network = suspects(told, "possible")["network"]
    assert network.cost_s > told.suspects[0].cost_s > 0
    assert any("implausible" in text for text in network.against)
