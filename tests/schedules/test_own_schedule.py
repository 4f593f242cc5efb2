"""A user's own schedule: the order that is written, and every way in which it cannot run."""

import numpy as np
import pytest
from all_cases import all_cases
from order_cases import INTERLEAVED, PLAIN, SPLIT, rows

from flopcast.errors import InternalError
from flopcast.schedules import schedule_of
from flopcast.schedules.base import BACKWARD
from flopcast.schedules.custom import OwnSchedule, Row, faults, schedule_of_rows

SHAPES = [(name, *shape) for name in ("1f1b", "eager_1f1b", "gpipe", *SPLIT[:2]) for shape in PLAIN]
SHAPES += [("interleaved_1f1b", *shape) for shape in INTERLEAVED]


def table(name, stages, virtual, micro):
    """Rows of a schedule that is built, as a user would write them."""
    return [
        Row(stage=stage, kind=kind, chunk=chunk, micro_batch=m, where=f"{stage}/{at}")
        for stage, order in enumerate(rows(name, stages, virtual, micro))
        for at, (kind, chunk, m) in enumerate(order)
    ]


def written(text):
    """Rows of "F0 B0 | F0 B0": stages between bars, all of chunk 0 and each word its own place."""
    return [
        Row(stage=stage, kind=word[0], chunk=0, micro_batch=int(word[1:]), where=f"{stage}/{at}")
        for stage, words in enumerate(text.split("|"))
        for at, word in enumerate(words.split())
    ]


@all_cases(("name", "stages", "virtual", "micro"), SHAPES)
def test_the_table_of_a_built_schedule_is_that_schedule(name, stages, virtual, micro):
    own = schedule_of_rows("mine.csv", table(name, stages, virtual, micro))

    order = schedule_of(own).order(stages, virtual, micro)

    built = schedule_of(name).order(stages, virtual, micro)
    assert (own.stages, own.chunks, own.micro_batches) == (stages, virtual, micro)
    for column in ("kind", "chunk", "micro_batch"):
        assert np.array_equal(getattr(order, column), getattr(built, column))


@all_cases(("name", "stages", "virtual", "micro"), SHAPES[::7])
def test_micro_batches_in_flight_are_counted_up_to_the_first_backward(name, stages, virtual, micro):
    own = schedule_of(schedule_of_rows("mine.csv", table(name, stages, virtual, micro)))
    numbers = (np.array([[float(n)]]) for n in (stages, virtual, micro))
    stage, sizes = np.arange(stages, dtype=float)[None], tuple(numbers)

    for chunk in range(virtual):
        counted = own.in_flight(stage, *sizes, chunk)
        assert counted.tolist() == schedule_of(name).in_flight(stage, *sizes, chunk).tolist()


def test_a_table_of_other_numbers_is_no_order_of_a_plan():
    own = schedule_of(schedule_of_rows("mine.csv", table("1f1b", 2, 1, 4)))

    with pytest.raises(InternalError, match="is not an order of 2 × 1 chunks and 8 micro-batches"):
        own.order(2, 1, 8)


@all_cases(
    ("text", "places", "because"),
    [
        ("F0 B0 F1 | F0 B0 F1 B1", ["0/2"], "runs each task of a step once"),  # B1 is missing
        ("F0 B0 B0 | F0 B0", ["0/2"], "runs each task of a step once"),
        ("B0 F0 | F0 B0", ["0/0"], "a B task reads what its F task saves"),
        ("F0 W0 B0 | F0 B0 W0", ["0/1"], "a W task reads what its B task writes"),
        ("F0 B0 F1 B1 | F1 F0 B0 B1", ["0/1", "1/0"], "wait for each other forever"),
        ("F0 B0 | F0 B0 W0", ["0/1"], "runs each task of a step once"),  # W on one stage only
        ("", [""], "no line below the names of its columns"),
    ],
)
def test_what_cannot_run_is_told_at_its_place(text, places, because):
    told = faults(written(text))

    assert [problem.where for problem in told] == places
    assert all(because in problem.because for problem in told)


def test_all_faults_of_a_table_are_told_at_once():
    told = faults(written("F0 B0 B0 | B0 F0 | F1 F0 B0 B1"))

    assert {problem.where.split("/")[0] for problem in told} == {"0", "1"}
    assert len(told) == 4  # stages 0 and 1 lack micro-batch 1, one repeats B0, one has it first


def test_a_deadlock_names_what_each_stage_waits_for():
    told = faults(written("F0 B0 F1 B1 | F1 F0 B0 B1"))

    assert [problem.allowed for problem in told] == ["after B0 of stage 1", "after F1 of stage 0"]


def test_a_whole_backward_in_the_table_is_not_split():
    whole, split = (OwnSchedule(name="t.csv", tasks=(text,)) for text in ("F0 B0", "F0 B0 W0"))

    assert not whole.splits_backward
    assert split.splits_backward
    assert BACKWARD in schedule_of(whole).order(1, 1, 1).kind
