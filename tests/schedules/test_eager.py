"""Eager 1F1B against 1F1B where transfers take time, by the round trip of one micro-batch.

Stage s of p keeps n micro-batches in flight. One of them needs its own forward and backward, and those of
the p − 1 − s stages behind with two transfers of t each: (p − s) (f + b) + 2 t (p − 1 − s) seconds, in
which the stage works on n. So a micro-batch takes the larger of f + b and that over n: 1F1B, with
n = p − s, waits for a part of every transfer; running ahead, with n = 2 (p − s) − 1, for none up to
t = (f + b) / 2.
"""

import numpy as np
import pytest
from all_cases import all_cases
from conftest import make_job
from hypothesis import given, settings
from hypothesis import strategies as st
from order_cases import PLAIN, rows, simulated_s

from flopcast.api import predict
from flopcast.schedules import SCHEDULES

EAGER = SCHEDULES["eager_1f1b"]
FORWARD_S, BACKWARD_S = 1.0, 2.0


def played_s(name, stages, micro, transfer_s):
    """Seconds of a pipeline of equal stages whose transfers take `transfer_s` and occupy nobody."""
    todo = rows(name, stages, 1, micro)
    free_s, done_s = [0.0] * stages, {}
    lasts_s = {"F": FORWARD_S, "B": BACKWARD_S}
    while any(todo):
        for stage, tasks in enumerate(todo):
            while tasks:
                kind, _, number = tasks[0]
                before = stage - 1 if kind == "F" else stage + 1
                ends = before in (-1, stages)
                needs = (
                    None
                    if kind == "F" and ends
                    else ("F", stage, number)
                    if ends
                    else (kind, before, number)
                )
                if needs is not None and needs not in done_s:
                    break
                hop = 0.0 if ends else transfer_s
                start_s = max(free_s[stage], done_s[needs] + hop if needs is not None else 0.0)
                free_s[stage] = done_s[kind, stage, number] = start_s + lasts_s[kind]
                tasks.pop(0)
    return max(free_s)


def each_s(name, stages, transfer_s):
    """Seconds of one more micro-batch in a long step."""
    few, many = 24 * stages, 48 * stages
    return (played_s(name, stages, many, transfer_s) - played_s(name, stages, few, transfer_s)) / (
        many - few
    )


def round_trip_s(stages, transfer_s, in_flight):
    """The larger of a stage's work and its share of a round trip, over all stages."""
    work_s = FORWARD_S + BACKWARD_S
    trips = [
        ((stages - s) * work_s + 2 * transfer_s * (stages - 1 - s)) / in_flight(stages - s)
        for s in range(stages)
    ]
    return max(work_s, *trips)


@all_cases("stages", [2, 4, 8])
@all_cases("transfer_s", [0.0, 0.3, 1.5])
def test_1f1b_waits_for_its_part_of_every_transfer(stages, transfer_s):
    expected = round_trip_s(stages, transfer_s, lambda behind: behind)

    assert each_s("1f1b", stages, transfer_s) == pytest.approx(expected, rel=0.01)
    assert expected == pytest.approx(3.0 + 2 * transfer_s * (stages - 1) / stages)


@all_cases("stages", [2, 4, 8])
@all_cases("transfer_s", [0.0, 0.3, 0.9, 1.5])
def test_running_ahead_hides_transfers_up_to_half_of_a_micro_batchs_work(stages, transfer_s):
    assert each_s("eager_1f1b", stages, transfer_s) == pytest.approx(3.0, rel=0.01)


@pytest.mark.parametrize("stages", [2, 4])
def test_longer_transfers_are_waited_for_by_those_that_run_ahead_too(stages):
    expected = round_trip_s(stages, 6.0, lambda behind: 2 * behind - 1)

    assert expected > 3.0
    assert each_s("eager_1f1b", stages, 6.0) == pytest.approx(expected, rel=0.02)


@settings(max_examples=30)
@given(st.integers(1, 6), st.integers(1, 20), st.floats(0.0, 5.0))
def test_running_ahead_is_never_slower(stages, micro, transfer_s):
    ahead, plain = (played_s(name, stages, micro, transfer_s) for name in ("eager_1f1b", "1f1b"))

    assert ahead <= plain * (1 + 1e-12)


@all_cases(("stages", "virtual", "micro"), PLAIN)
def test_without_transfers_both_take_the_same_time(stages, virtual, micro):
    ahead, plain = (
        simulated_s(name, virtual, micro, [1.0] * stages, [2.0] * stages) for name in ("eager_1f1b", "1f1b")
    )

    assert ahead == pytest.approx(plain)


def numbers(*values):
    return [np.array([[float(value)]]) for value in values]


@all_cases("stages", [1, 2, 4, 8])
@all_cases("micro", [1, 3, 64])
def test_the_last_stage_keeps_one_and_each_before_it_two_more(stages, micro):
    kept = [
        float(EAGER.in_flight(*numbers(stage, stages, 1, micro), 0)[0, 0])
        for stage in reversed(range(stages))
    ]

    assert kept == [min(1 + 2 * behind, micro) for behind in range(stages)]
    assert float(EAGER.in_flight(*numbers(0, stages, 1, micro), 1)[0, 0]) == 0.0  # it has one chunk


@pytest.mark.parametrize("stages", [2, 3, 5])
def test_a_step_that_fills_it_holds_what_any_longer_one_holds(stages):
    full = EAGER.fills_after(stages, 1000)

    def held(micro):
        return [EAGER.in_flight(*numbers(s, stages, 1, micro), 0)[0, 0] for s in range(stages)]

    assert held(full) == held(1000)
    assert held(full - 1) != held(1000)
    assert EAGER.fills_after(stages, full - 1) == full - 1


def test_a_plan_that_runs_ahead_keeps_more_and_waits_less():
    """Four stages on a slow network: 7 micro-batches instead of 4 on the first."""
    slow = {"base": "dgx-a100", "groups": {"0": {"count": 4}}, "tiers": {"1": {"bytes_per_s": "2 GB/s"}}}
    block = {"count": 8, "mixer": {"heads": 16}, "feed_forward": {"ffn_hidden": 4096}}
    model = {"hidden": 1024, "vocabulary": 1024, "blocks": [block]}
    plans = [f"dp=2 pp=4 tp=4 gbs=64 precision=fp16 schedule={name}" for name in ("1f1b", "eager_1f1b")]
    overlapped = {"base": "megatron-2022", "pipeline": {"transfers": "overlapped"}}
    plain, ahead = (
        predict(make_job(model=model, cluster=slow, stack=overlapped, plan=plan)) for plan in plans
    )

    assert ahead.step_time_s < plain.step_time_s
    assert ahead.memory.by_category["activations"] == pytest.approx(
        7 / 4 * plain.memory.by_category["activations"], rel=0.25
    )
    assert ahead.memory.by_category["parameters"] == plain.memory.by_category["parameters"]
