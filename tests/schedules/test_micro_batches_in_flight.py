"""Micro-batches in flight: the schedules' closed forms against counting along their orders."""

import numpy as np
import pytest
from all_cases import all_cases
from hypothesis import given, settings
from hypothesis import strategies as st
from order_cases import CASES, CHUNKED, FOLDED, INTERLEAVED, PAIRED, PLAIN, rows

from flopcast.schedules import SCHEDULES

EACH_CASE = all_cases(("name", "stages", "virtual", "micro"), CASES)


def counted(order, virtual):
    """Micro-batches of every chunk between their forward and their backward, after each task."""
    flying = np.zeros((len(order) + 1, virtual), dtype=int)
    for at, (kind, chunk, _) in enumerate(order):
        flying[at + 1] = flying[at]
        flying[at + 1, chunk] += {"F": 1, "B": -1, "W": 0}[kind]
    return flying


def column(value):
    return np.array([[float(value)]])


def in_flight(name, stage, stages, virtual, micro):
    """The closed form of every chunk, for one plan."""
    numbers = (column(number) for number in (stage, stages, virtual, micro))
    arguments = tuple(numbers)
    return [float(SCHEDULES[name].in_flight(*arguments, chunk)[0, 0]) for chunk in range(virtual)]


@all_cases(("name", "stages", "virtual", "micro"), [c for c in CASES if c[0] not in PAIRED])
def test_the_fullest_moment_of_a_stage_is_the_one_that_is_counted(name, stages, virtual, micro):
    for stage, order in enumerate(rows(name, stages, virtual, micro)):
        fullest = counted(order, virtual).sum(axis=1).max()

        assert sum(in_flight(name, stage, stages, virtual, micro)) == fullest


@EACH_CASE
def test_chunks_in_flight_are_those_at_the_first_backward(name, stages, virtual, micro):
    for stage, order in enumerate(rows(name, stages, virtual, micro)):
        first_backward = next(at for at, (kind, *_) in enumerate(order) if kind == "B")

        flying = counted(order, virtual)[first_backward]

        assert in_flight(name, stage, stages, virtual, micro) == flying.tolist()


@all_cases(("stages", "virtual", "micro"), PLAIN)
def test_1f1b_keeps_as_many_as_stages_are_left(stages, virtual, micro):
    kept = [in_flight("1f1b", stage, stages, virtual, micro)[0] for stage in range(stages)]

    assert kept == [
        min(stages - stage, micro) for stage in range(stages)
    ]  # arXiv:2104.04473, section 2.2.1


@all_cases(("stages", "virtual", "micro"), PLAIN)
def test_eager_1f1b_keeps_nearly_twice_as_many(stages, virtual, micro):
    kept = [in_flight("eager_1f1b", stage, stages, virtual, micro)[0] for stage in range(stages)]

    # arXiv:2211.05322, section 4, which counts stages from 1: 2 (p - i) + 1
    assert kept == [min(2 * (stages - i) + 1, micro) for i in range(1, stages + 1)]


@all_cases(("stages", "virtual", "micro"), PLAIN)
def test_gpipe_keeps_every_micro_batch_on_every_stage(stages, virtual, micro):
    kept = [in_flight("gpipe", stage, stages, virtual, micro)[0] for stage in range(stages)]

    assert kept == [micro] * stages  # arXiv:2104.04473, section 2.2.1: activations of all m


@all_cases(("stages", "virtual", "micro"), [c for c in INTERLEAVED if c[2] > c[0]])
def test_interleaving_keeps_more_by_korthikanti_s_factor(stages, virtual, micro):
    chunks = sum(in_flight("interleaved_1f1b", 0, stages, virtual, micro))

    # arXiv:2205.05198, section 4.2.3: 1 + (p - 1) / (p m) times the p micro-batches of 1F1B, m chunks
    assert chunks / virtual == pytest.approx(stages * (1 + (stages - 1) / (stages * virtual)))


@all_cases(("name", "stages", "virtual", "micro"), [c for c in CASES if c[0] not in FOLDED])
def test_a_later_stage_never_keeps_more(name, stages, virtual, micro):
    kept = [sum(in_flight(name, stage, stages, virtual, micro)) for stage in range(stages)]

    assert kept == sorted(kept, reverse=True)
    assert kept[-1] >= 1


@all_cases("name", SCHEDULES)
@all_cases("stages", [1, 2, 5])
def test_no_chunk_keeps_more_micro_batches_than_there_are(name, stages):
    virtual = 2 if name in FOLDED else 3 if name in CHUNKED and stages > 1 else 1

    for micro in (stages, 2 * stages):
        for stage in range(stages):
            assert max(in_flight(name, stage, stages, virtual, micro)) <= micro


@all_cases("name", SCHEDULES)
def test_a_chunk_that_a_plan_does_not_have_is_empty(name):
    virtual = 2 if name in CHUNKED else 1

    beyond = SCHEDULES[name].in_flight(column(0), column(4), column(virtual), column(8), virtual)

    assert beyond.tolist() == [[0.0]]


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from(sorted(SCHEDULES)),
    shapes=st.lists(
        st.tuples(st.integers(1, 9), st.integers(1, 4), st.integers(1, 5)), min_size=1, max_size=6
    ),
    chunk=st.integers(0, 4),
)
def test_arrays_over_plans_and_stages_give_what_their_elements_give(name, shapes, chunk):
    plans = [(p, v if name in CHUNKED else 1, p * groups) for p, v, groups in shapes]
    deepest = max(p for p, *_ in plans)
    stage = np.arange(deepest, dtype=float)[None, :]
    stages, virtual, micro = (np.array([[float(plan[n])] for plan in plans]) for n in range(3))

    together = SCHEDULES[name].in_flight(np.minimum(stage, stages - 1), stages, virtual, micro, chunk)

    assert together.shape == (len(plans), deepest)
    for row, (p, v, m) in enumerate(plans):
        for s in range(p):
            alone = SCHEDULES[name].in_flight(column(s), column(p), column(v), column(m), chunk)
            assert together[row, s] == alone[0, 0]
