"""report/events.py: the timeline as rows, and memory over time."""

from itertools import pairwise

import numpy as np
import pytest
from all_cases import all_cases
from conftest import make_job
from sample_reports import LARGE, OVERLAPPED, PARTS, report_of, sample_report
from single_calls import memory_curve

from flopcast.report.events import MOST_INSIDE, events, memory_over_time
from flopcast.schedules.base import BACKWARD

PIPELINES = [name for name in PARTS if "pp=" in PARTS[name].get("plan", "")]
TINY = 1e-12


def rows(name):
    return list(events(sample_report(name)))


def tasks(found):
    return [row for row in found if row.stream == "tasks" and row.phase in ("forward", "backward")]


@all_cases("name", PARTS)
def test_every_task_is_a_row_with_its_moments(name):
    timeline = sample_report(name).timeline

    found = tasks(rows(name))

    keys = [(r.stage, r.chunk, r.micro_batch, r.phase == "backward") for r in found]
    columns = (timeline.stage, timeline.chunk, timeline.micro_batch, timeline.kind == BACKWARD)
    assert keys == list(zip(*(column.tolist() for column in columns), strict=True))
    assert [r.start_s for r in found] == timeline.start_s.tolist()
    assert [r.end_s for r in found] == timeline.end_s.tolist()


@all_cases("name", PARTS)
def test_operators_lie_inside_their_task(name):
    found = rows(name)
    task = {(r.stage, r.chunk, r.micro_batch, r.phase == "backward"): r for r in tasks(found)}

    inside = [r for r in found if r.stream != "tasks" and r.phase != "step" and r.stream != "dp"]

    assert inside
    for row in inside:
        own = task[row.stage, row.chunk, row.micro_batch, row.phase in ("backward", "recompute")]
        assert own.start_s - TINY <= row.start_s <= row.end_s <= own.end_s + TINY


@all_cases("name", PARTS)
def test_the_last_operator_of_a_task_ends_with_it(name):
    found = rows(name)
    ends = {}
    for row in found:
        if row.stream in ("compute", "tp", "host") and row.phase != "step":
            key = row.stage, row.chunk, row.micro_batch, row.phase in ("backward", "recompute")
            ends[key] = max(ends.get(key, 0.0), row.end_s)

    for task in tasks(found):
        key = task.stage, task.chunk, task.micro_batch, task.phase == "backward"
        assert ends[key] == pytest.approx(task.end_s, rel=1e-9)


@all_cases("name", PARTS)
def test_a_step_begins_with_the_update_and_ends_with_the_reduction_on_every_stage(name):
    report = sample_report(name)
    found = rows(name)

    for stage in range(len(report.memory.per_stage)):
        mine = [r for r in found if r.stage == stage and r.stream == "tasks"]
        mine.sort(key=lambda r: (r.start_s, r.end_s))
        assert (mine[0].operator, mine[-1].operator) == ("update", "reduce")
        assert mine[0].start_s == 0.0


def assert_no_overlap(found):
    queues = {}
    for row in sorted(found, key=lambda r: (r.start_s, r.end_s)):
        queues.setdefault((row.stage, row.stream), []).append(row)
    for queue in queues.values():
        assert all(after.start_s >= before.end_s - TINY for before, after in pairwise(queue))


@all_cases("name", PARTS)
def test_a_stream_of_a_stage_runs_one_thing_at_a_time(name):
    assert_no_overlap(rows(name))


def test_reductions_of_a_chunk_wait_for_those_of_the_chunk_before():
    # chunks of few layers end before their gradients are reduced: the next chunk's queue up behind them
    job = make_job(
        model=LARGE, cluster="dgx-a100:4", stack=OVERLAPPED, plan="dp=16 pp=2 vpp=4 gbs=64 precision=fp16"
    )

    assert_no_overlap(events(report_of(job)))


@all_cases("name", PARTS)
def test_the_step_ends_a_synchronisation_after_its_last_row(name):
    report = sample_report(name)

    last = max(row.end_s for row in rows(name))

    assert last + report.timeline.synchronise_s == pytest.approx(report.clean_step_time_s, rel=1e-9)


@all_cases("name", PARTS)
def test_items_of_the_update_fill_it_without_gaps(name):
    report = sample_report(name)

    for stage in range(len(report.memory.per_stage)):
        inside = [r for r in rows(name) if r.stage == stage and r.phase == "step" and r.stream != "tasks"]
        update = [r for r in inside if r.end_s <= report.timeline.update_s[stage] + TINY]
        assert sum(r.end_s - r.start_s for r in update) == pytest.approx(report.timeline.update_s[stage])


def test_chunks_are_told_apart_in_the_names_of_tasks():
    names = {(row.chunk, row.operator) for row in tasks(rows("interleaved")) if row.micro_batch == 5}

    assert names == {(0, "F5"), (0, "B5"), (1, "F5.1"), (1, "B5.1")}


def test_recomputed_operators_are_rows_of_their_own_phase():
    phases = {row.phase for row in rows("sequential") if row.stream == "compute"}

    assert phases == {"forward", "recompute", "backward", "step"}


@pytest.fixture(scope="module")
def long_report():
    return report_of(make_job(plan="dp=2 pp=4 gbs=2048 precision=fp16"))


def test_long_runs_show_the_insides_of_first_and_last_micro_batches_only(long_report):
    found = list(events(long_report))

    shown = {row.micro_batch for row in found if row.stream == "compute" and row.micro_batch >= 0}
    assert {0, 1, 1022, 1023} <= shown
    assert 512 not in shown
    assert {row.micro_batch for row in tasks(found)} == set(range(1024))


def test_a_trace_of_a_long_run_stays_of_the_size_that_is_promised(long_report):
    inside = sum(row.stream not in ("tasks",) for row in events(long_report))

    assert inside <= 2 * MOST_INSIDE


@all_cases("name", PIPELINES)
def test_memory_comes_and_goes_with_micro_batches_and_ends_where_it_began(name):
    report = sample_report(name)

    for stage in range(len(report.memory.per_stage)):
        moments, sizes = memory_over_time(report, stage)
        steps = np.diff(sizes)
        size = sizes.max() - sizes.min()
        assert (np.diff(moments) >= 0).all()
        assert sizes[-1] == pytest.approx(sizes.min(), abs=1e-9 * size)
        assert (steps != 0).all()


@all_cases("name", PIPELINES)
def test_activations_come_when_a_forward_starts_and_go_when_its_backward_ends(name):
    report = sample_report(name)
    found = tasks(rows(name))

    for stage in range(len(report.memory.per_stage)):
        mine = [row for row in found if row.stage == stage]
        moments, _ = memory_over_time(report, stage)
        backwards = [row for row in mine if row.phase == "backward"]  # a layer is at work from their start
        expected = [row.start_s for row in mine] + [row.end_s for row in backwards]
        assert moments.tolist() == [0.0, *sorted(expected)]


@pytest.mark.parametrize("name", ["batched", "sequential"])
def test_a_stage_keeps_as_many_micro_batches_as_1f1b_says(name):
    # arXiv:2104.04473, section 2.2.1: stage s of p keeps at most p - s
    programs = sample_report(name).priced.programs

    for stage in range(4):
        curve = memory_curve(programs, stage)
        held = curve.by_category["activations"]
        one = held[1]  # behind the first forward
        assert held[1::2].max() / one == pytest.approx(4 - stage)


@all_cases("name", PIPELINES)
def test_the_counter_s_most_is_the_stage_s_peak(name):
    report = sample_report(name)

    for stage in report.memory.per_stage:
        _, sizes = memory_over_time(report, stage.stage)
        assert sizes.max() == pytest.approx(stage.allocated_bytes, rel=1e-12)
