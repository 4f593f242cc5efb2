"""Tables of tasks that a user writes: every order that a machine could have run is taken, no other is."""

import pytest
from all_cases import all_cases
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from flopcast.schedules.custom import KINDS, OwnSchedule, Row, faults, schedule_of_rows

LAWS = settings(max_examples=60)
sizes = st.tuples(st.integers(1, 4), st.integers(1, 2), st.integers(1, 4), st.booleans())
chances = st.randoms(use_true_random=False)


def needs(task, stages, chunks):
    """Tasks that must have run before: (kind, stage, chunk, micro-batch)."""
    kind, stage, chunk, micro_batch = task
    number, found = chunk * stages + stage, []
    if kind == "W":
        return [("B", stage, chunk, micro_batch)]
    source = number + (-1 if kind == "F" else 1)
    if 0 <= source < stages * chunks:
        found.append((kind, source % stages, source // stages, micro_batch))
    if kind == "B":
        found.append(("F", stage, chunk, micro_batch))
    return found


def run_at_random(stages, chunks, micro_batches, split, chance):
    """Tasks of every stage in the order in which a machine ran them that always took any that it could."""
    left = [
        (kind, stage, chunk, micro_batch)
        for kind in (KINDS if split else KINDS[:2])
        for stage in range(stages)
        for chunk in range(chunks)
        for micro_batch in range(micro_batches)
    ]
    done = []
    while left:
        ready = [task for task in left if all(need in done for need in needs(task, stages, chunks))]
        task = chance.choice(ready)
        left.remove(task)
        done.append(task)
    rows = [Row(stage=s, kind=k, chunk=c, micro_batch=m) for k, s, c, m in done]
    rows.sort(key=lambda row: row.stage)
    return [
        Row(stage=r.stage, kind=r.kind, chunk=r.chunk, micro_batch=r.micro_batch, where=f"t.csv:{line}")
        for line, r in enumerate(rows, start=2)
    ]


@LAWS
@given(size=sizes, chance=chances)
def test_whatever_a_machine_could_have_run_is_taken_and_read_back(size, chance):
    stages, chunks, micro_batches, split = size
    rows = run_at_random(*size, chance)

    own = schedule_of_rows("mine.csv", rows)

    assert faults(rows) == ()
    assert (own.stages, own.chunks, own.micro_batches, own.splits_backward) == (
        stages, chunks, micro_batches, split
    )  # fmt: skip
    assert [(r.stage, *r.task) for r in own.rows()] == [(r.stage, *r.task) for r in rows]
    assert OwnSchedule.model_validate(own.model_dump()) == own


@LAWS
@given(size=sizes, chance=chances)
def test_a_task_that_is_left_out_is_named_and_adding_it_mends_the_table(size, chance):
    rows = run_at_random(*size, chance)
    missing = chance.choice(rows)
    kept = [row for row in rows if row is not missing]
    same = {(row.kind, row.chunk, row.micro_batch) for row in kept}
    assume((missing.kind, missing.chunk, missing.micro_batch) in same)  # or it tells how many there are
    assume(any(row.stage == missing.stage for row in kept))
    assume(max(row.stage for row in kept) == max(row.stage for row in rows))

    found = [problem for problem in faults(kept) if problem.fix.startswith("add ")]

    name = f"{missing.kind}{missing.micro_batch}" + (f".{missing.chunk}" if missing.chunk else "")
    assert [problem.fix for problem in found] == [f"add {name} of stage {missing.stage}"]
    assert {problem.field for problem in found} == {"plan.schedule"}


@LAWS
@given(size=sizes, chance=chances)
def test_a_task_that_stands_twice_is_told_with_its_second_place(size, chance):
    rows = run_at_random(*size, chance)
    again = chance.choice(rows)
    twice = [
        *rows,
        Row(
            stage=again.stage,
            kind=again.kind,
            chunk=again.chunk,
            micro_batch=again.micro_batch,
            where="last",
        ),
    ]

    assert [problem.where for problem in faults(twice) if problem.fix == "remove this row"] == ["last"]


@LAWS
@given(size=sizes, chance=chances)
def test_a_backward_before_its_own_forward_is_told_at_its_row(size, chance):
    rows = run_at_random(*size, chance)
    forward = chance.choice([row for row in rows if row.kind == "F"])
    at = rows.index(forward)
    late = next(
        number for number, row in enumerate(rows)
        if (row.stage, row.task) == (forward.stage, ("B", forward.chunk, forward.micro_batch))
    )  # fmt: skip
    swapped = [*rows[:at], rows[late], *rows[at + 1 : late], forward, *rows[late + 1 :]]

    found = {problem.where: problem.allowed for problem in faults(swapped)}

    assert rows[late].where in found
    assert found[rows[late].where].startswith("after F")


@all_cases("word", ["F", "Fx", "X0", "F-1", "G0", "F0.x", "f0", "0F"])
def test_a_word_that_is_no_task_is_refused(word):
    with pytest.raises(ValueError, match="task"):
        OwnSchedule(name="a", tasks=(f"{word} B0",))
