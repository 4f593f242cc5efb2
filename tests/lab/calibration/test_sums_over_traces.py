"""What is summed over a trace: against the same sums counted moment by moment."""

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
from all_cases import all_cases
from hypothesis import given, settings
from hypothesis import strategies as st

from flopcast.lab.calibration.trace import (
    NO_STEP,
    Trace,
    Words,
    class_totals,
    exposed_communication_s,
    inside,
    seconds_per_step,
    stream_of,
    unrecognised,
)

LAWS = settings(max_examples=30)
CLASSES = ("gemm", "flash_attention", "layernorm", "all_reduce", "all_gather", "memcpy", "")
KINDS = {
    "gemm": "gemm",
    "flash_attention": "attention",
    "layernorm": "memory_bound",
    "all_reduce": "communication",
    "all_gather": "communication",
}
kernels = st.lists(
    st.tuples(st.integers(0, 40), st.integers(1, 12), st.sampled_from(CLASSES), st.integers(-1, 2)),
    min_size=1,
    max_size=25,
)  # start and length in milliseconds, class, step


def trace_of(rows, steps=(0.05, 0.07, 0.06)):
    """A trace of kernels that begin and end on whole milliseconds."""
    rows = sorted(rows)
    words = Words()
    names = [words.number(f"kernel of {row[2]}") for row in rows]
    classes = [words.number(row[2]) for row in rows]
    nothing = np.zeros(len(rows), dtype=np.intp)
    start_s = np.array([row[0] for row in rows]) * 1e-3
    return Trace(
        name="made up",
        words=words.all(),
        kernel=np.array(names),
        operator=nothing,
        shapes=nothing,
        dtypes=nothing,
        kernel_class=np.array(classes),
        phase=nothing,
        stream=nothing,
        call=nothing - 1,
        queue=nothing,
        step=np.array([row[3] for row in rows]),
        start_s=start_s,
        end_s=start_s + np.array([row[1] for row in rows]) * 1e-3,
        message_bytes=np.full(len(rows), np.nan),
        ranks=np.full(len(rows), np.nan),
        step_times_s=np.array(steps),
        device=0,
    )


def used(rows):
    return [row for row in rows if row[3] != NO_STEP]


def moments(rows):
    """Which kinds run in each millisecond."""
    found = defaultdict(set)
    for start, length, name, _ in rows:
        for moment in range(start, start + length):
            found[moment].add(KINDS.get(name, "other") == "communication")
    return found


@LAWS
@given(rows=kernels)
def test_every_kernel_of_a_step_is_counted_in_one_class(rows):
    trace = trace_of(rows)

    totals = class_totals(trace)

    expected = defaultdict(list)
    for _, length, name, _ in used(rows):
        expected[name].append(length)
    assert {t.name: t.num_kernels for t in totals} == {name: len(each) for name, each in expected.items()}
    assert {t.name: t.total_s for t in totals} == pytest.approx(
        {name: sum(each) * 1e-3 for name, each in expected.items()}
    )
    assert [t.total_s for t in totals] == sorted((t.total_s for t in totals), reverse=True)


@LAWS
@given(rows=kernels)
def test_shares_are_of_the_annotated_steps(rows):
    trace = trace_of(rows)

    for total in class_totals(trace):
        assert total.step_share == pytest.approx(total.total_s / (0.05 + 0.07 + 0.06))


@LAWS
@given(rows=kernels)
def test_communication_is_exposed_where_nothing_else_runs(rows):
    found = exposed_communication_s(trace_of(rows))

    alone = [moment for moment, kinds in moments(used(rows)).items() if kinds == {True}]
    assert found == pytest.approx(len(alone) * 1e-3, abs=1e-12)


@LAWS
@given(rows=kernels, later=st.integers(1, 1000))
def test_a_clock_that_begins_later_changes_no_sum(rows, later):
    one, other = trace_of(rows), trace_of([(start + later, *rest) for start, *rest in rows])

    assert exposed_communication_s(other) == pytest.approx(exposed_communication_s(one), abs=1e-9)
    assert {t.name: t.num_kernels for t in class_totals(other)} == {
        t.name: t.num_kernels for t in class_totals(one)
    }


@LAWS
@given(rows=kernels)
def test_more_compute_never_exposes_more_communication(rows):
    covered = [*rows, (0, 60, "gemm", 0)]

    assert exposed_communication_s(trace_of(covered)) == 0.0
    assert exposed_communication_s(trace_of([*rows, (5, 9, "gemm", 0)])) <= (
        exposed_communication_s(trace_of(rows)) + 1e-12
    )


@LAWS
@given(rows=kernels)
def test_seconds_of_a_mean_step_are_sums_of_kernels_and_exposed_messages(rows):
    trace = trace_of(rows)

    found = seconds_per_step(trace)

    expected = defaultdict(float)
    for _, length, name, _ in used(rows):
        if name in KINDS and KINDS[name] != "communication":
            expected[KINDS[name]] += length * 1e-3 / 3
    exposed = exposed_communication_s(trace) / 3
    assert found == pytest.approx(expected | ({"communication": exposed} if exposed else {}))


@LAWS
@given(rows=kernels)
def test_what_no_class_knows_is_listed_by_name_and_never_dropped(rows):
    listed = unrecognised(trace_of(rows))

    unknown = [length for _, length, name, _ in used(rows) if name == ""]
    assert sum(total.num_kernels for total in listed) == len(unknown)
    assert sum(total.total_s for total in listed) == pytest.approx(sum(unknown) * 1e-3)
    assert {total.name for total in listed} <= {"kernel of "}


@LAWS
@given(rows=kernels)
def test_without_annotated_steps_every_kernel_counts_over_the_whole_trace(rows):
    trace = replace(trace_of(rows), step_times_s=np.array([]))

    whole = max(start + length for start, length, *_ in rows) - min(row[0] for row in rows)
    assert sum(total.num_kernels for total in class_totals(trace)) == len(rows)
    assert trace.span_s == pytest.approx(whole * 1e-3)
    assert trace.step_time_s is None


@all_cases(
    ("steps", "expected"), [((9.0, 1.0, 3.0, 2.0), 2.0), ((9.0, 2.0), 2.0), ((9.0,), 9.0), ((), None)]
)
def test_the_step_is_the_median_without_the_one_that_warms_up(steps, expected):
    assert trace_of([(0, 1, "gemm", 0)], steps).step_time_s == expected


@LAWS
@given(lengths=st.lists(st.integers(1, 5), min_size=1, max_size=6), moment=st.integers(-2, 50))
def test_a_moment_lies_in_the_interval_that_holds_it_or_in_none(lengths, moment):
    bounds = np.cumsum([0, *(length + 2 for length in lengths)])[:-1]
    start_s, end_s = bounds * 1.0, bounds + np.array(lengths) * 1.0

    (found,) = inside(np.array([moment + 0.5]), start_s, end_s).tolist()

    holds = [at for at in range(len(lengths)) if start_s[at] <= moment + 0.5 <= end_s[at]]
    assert found == (holds[0] if holds else -1)


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 0, 1], [1, 2, 0]])
def test_intervals_are_found_in_any_order(order):
    start_s, end_s = np.array([0.0, 10.0, 20.0])[order], np.array([5.0, 15.0, 25.0])[order]

    assert inside(np.array([12.0, 7.0, 22.0]), start_s, end_s).tolist() == [
        order.index(1),
        -1,
        order.index(2),
    ]


def test_of_no_intervals_none_holds_a_moment():
    assert inside(np.array([1.0, 2.0]), np.array([]), np.array([])).tolist() == [-1, -1]


@all_cases(
    ("kind", "group", "stream"),
    [
        ("gemm", "TENSOR_MODEL_PARALLEL_GROUP", "compute"),
        ("memory_bound", "", "compute"),
        ("copy", "mesh_dp", "copy"),
        ("communication", "mesh_tp", "tp"),
        ("communication", "PIPELINE_MODEL_PARALLEL_GROUP", "pp"),
        ("communication", "mesh_fsdp", "dp"),
        ("communication", "DATA_PARALLEL_GROUP_WITH_CP", "dp"),
        ("communication", "default_pg", "communication"),
        ("communication", "", "communication"),
    ],
)
def test_a_kernel_runs_on_the_stream_of_its_kind_and_group(kind, group, stream):
    assert stream_of(kind, group) == stream


def test_words_are_numbered_by_their_first_use_and_the_empty_one_is_zero():
    words = Words()

    assert [words.number(word) for word in ("b", "a", "b", "", "c")] == [1, 2, 1, 0, 3]
    assert words.all() == ("", "b", "a", "c")
