"""lab/logs/log.py: which steps are steady, counted by hand, and what is read off them."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flopcast.lab.logs.log import Log, LoggedSteps, steady_records

RUNS = st.lists(st.integers(2, 150), min_size=1, max_size=4)
NOWHERE = math.nan
FEW = settings(max_examples=30)


def counted(lengths):
    """Step numbers of runs of so many records: each starts again at one."""
    return np.concatenate([np.arange(1.0, length + 1) for length in lengths])


def log_of(records=30, **columns):
    names = ("step_time_s", "device_flop_per_s", "tokens_per_s", "device_tokens_per_s", "samples_per_s")
    empty = {name: np.full(records, NOWHERE) for name in (*names, "global_batch")}
    facts = {name: columns.pop(name) for name in list(columns) if name not in empty}
    given_columns = {
        name: np.broadcast_to(np.asarray(values, float), (records,)) for name, values in columns.items()
    }
    steps = LoggedSteps(step=np.arange(1.0, records + 1), **(empty | given_columns))
    return Log(name="made up", framework="megatron", steps=steps, **facts)


@FEW
@given(RUNS)
def test_of_every_run_a_tenth_is_warm_up_at_least_one_and_at_most_ten(lengths):
    steady = steady_records(counted(lengths), np.full(sum(lengths), NOWHERE))

    by_hand = []
    for length in lengths:
        tenth = -(-length // 10)
        by_hand += [place >= min(10, max(1, tenth)) for place in range(length)]
    assert steady.tolist() == (by_hand if any(by_hand) else [True] * sum(lengths))


@FEW
@given(RUNS, st.integers(1, 20))
def test_steps_of_another_batch_than_the_last_are_left_out(lengths, ramp):
    step = counted(lengths)
    batch = np.where(np.arange(step.size) < ramp, 16.0, 32.0)

    steady = steady_records(step, batch)

    full = batch == batch[-1]
    assert not (steady & ~full).any()
    assert steady.any()


@FEW
@given(RUNS)
def test_a_batch_that_was_not_printed_leaves_nothing_out(lengths):
    step = counted(lengths)

    assert (
        steady_records(step, np.full(step.size, NOWHERE)).tolist()
        == steady_records(step, np.full(step.size, 64.0)).tolist()
    )


def test_a_log_without_records_has_no_steady_one():
    assert steady_records(np.zeros(0), np.zeros(0)).size == 0


@FEW
@given(st.floats(0.01, 100.0), st.integers(2, 200))
def test_the_time_of_equal_steps_is_that_of_each(step_s, records):
    found = log_of(records, step_time_s=step_s).step_time()

    for value in (found.median_s, found.mean_s, found.best_s, found.low_s, found.high_s):
        assert value == pytest.approx(step_s)
    assert found.num_used + found.num_skipped == records


@pytest.mark.parametrize(
    ("column", "of_a_step"),
    [
        ("tokens_per_s", 32 * 2048),  # of the whole job
        ("device_tokens_per_s", 32 * 2048 / 8),
        ("samples_per_s", 32),
    ],
)
def test_every_kind_of_rate_gives_the_step_that_it_is_a_rate_of(column, of_a_step):
    found = log_of(**{column: of_a_step / 2.5}).step_time(32, 2048, 8)

    assert found.median_s == pytest.approx(2.5)


def test_what_the_log_says_of_its_job_goes_before_what_is_asked():
    log = log_of(device_tokens_per_s=1000.0, global_batch=16.0, sequence_length=1000, world_size=4)

    assert log.step_time(1, 1, 1).median_s == pytest.approx(16 * 1000 / 4 / 1000.0)


def test_a_printed_time_goes_before_every_rate():
    assert log_of(step_time_s=3.0, samples_per_s=1.0).step_time(100).median_s == 3.0


def test_without_time_and_rate_there_is_no_step_time():
    assert log_of(device_flop_per_s=1e14).step_time(32, 2048, 8) is None


@FEW
@given(st.lists(st.floats(1.0, 2.0), min_size=20, max_size=60), st.randoms())
def test_the_order_of_steady_steps_plays_no_part(times_s, chance):
    warm_up = math.ceil(len(times_s) / 10)
    mixed = times_s[warm_up:]
    chance.shuffle(mixed)

    first = log_of(len(times_s), step_time_s=times_s).step_time()
    other = log_of(len(times_s), step_time_s=times_s[:warm_up] + mixed).step_time()

    assert (first.median_s, first.best_s, first.low_s) == (other.median_s, other.best_s, other.low_s)
    assert first.mean_s == pytest.approx(other.mean_s)
    assert first.best_s <= first.low_s <= first.median_s <= first.high_s <= max(times_s)


def test_one_stutter_moves_the_mean_and_not_the_median():
    times_s = np.ones(50)
    times_s[40] = 100.0

    found = log_of(50, step_time_s=times_s).step_time()

    assert found.median_s == 1.0
    assert found.mean_s == pytest.approx(1.0 + 99.0 / found.num_used)


def test_restarts_are_counted_where_the_step_falls():
    log = log_of(9)
    steps = LoggedSteps(
        **{name: getattr(log.steps, name) for name in LoggedSteps.__dataclass_fields__ if name != "step"},
        step=np.array([1.0, 2, 3, 2, 3, 4, 1, 2, 3]),
    )

    assert Log(name="", framework="megatron", steps=steps).num_restarts == 2


def test_a_column_s_median_is_over_steady_records_that_print_it():
    flop = np.r_[np.full(3, 1.0), np.full(14, 5.0), np.full(13, NOWHERE)]

    assert log_of(device_flop_per_s=flop).median_of(flop) == 5.0
    assert log_of().median_of(np.full(30, NOWHERE)) is None
