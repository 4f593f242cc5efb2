"""interop/exports/perfetto.py: bytes that an independent reader understands."""

from functools import cache

import pytest
from all_cases import all_cases
from hypothesis import given, settings
from hypothesis import strategies as st
from sample_reports import PARTS, sample_report
from wire_reader import BEGIN, END, SEQUENCE, TIMESTAMP, Slice, Trace

from flopcast.interop.exports.perfetto import STREAMS, perfetto
from flopcast.report.events import Event, events

LAWS = settings(max_examples=50, deadline=None)


def event(operator="F0", stage=0, stream="tasks", start_s=0.0, end_s=1.0, layer=-1, phase="forward"):
    return Event(
        stage=stage,
        chunk=0,
        micro_batch=0,
        layer=layer,
        operator=operator,
        phase=phase,
        stream=stream,
        start_s=start_s,
        end_s=end_s,
    )


@cache
def trace_of(name):
    report = sample_report(name)
    stages = len(report.memory.per_stage)
    return Trace(perfetto(events(report), {}, {stage: f"stage {stage}" for stage in range(stages)}))


def track_of(trace, stage, stream):
    return next(
        track for track, (pid, _, name) in trace.threads.items() if (pid, name) == (stage + 1, stream)
    )


@all_cases("name", PARTS)
def test_every_packet_parses_and_belongs_to_one_sequence(name):
    trace = trace_of(name)

    assert len(trace.packets) > 100
    assert all(packet[SEQUENCE] == [1] and len(packet[TIMESTAMP]) == 1 for packet in trace.packets)


@all_cases("name", PARTS)
def test_there_is_a_process_for_each_stage_and_a_thread_for_each_stream(name):
    trace = trace_of(name)

    stages = len(sample_report(name).memory.per_stage)
    assert sorted(trace.processes.values()) == [(s + 1, f"stage {s}") for s in range(stages)]
    assert sorted((pid, stream) for pid, _, stream in trace.threads.values()) == sorted(
        (stage + 1, stream) for stage in range(stages) for stream in STREAMS
    )
    assert len({(pid, tid) for pid, tid, _ in trace.threads.values()}) == stages * len(STREAMS)


@all_cases("name", PARTS)
def test_no_two_tracks_share_a_number(name):
    trace = trace_of(name)

    tracks = [*trace.processes, *trace.threads, *trace.counters]
    assert len(set(tracks)) == len(tracks)
    assert {track for _, _, track, _ in trace.events} <= set(tracks)


@all_cases("name", PARTS)
def test_every_slice_begins_and_ends_once_on_its_track(name):
    trace = trace_of(name)

    kinds = [kind for _, kind, _, _ in trace.events]
    assert kinds.count(BEGIN) == kinds.count(END) == len(list(events(sample_report(name))))
    assert len(trace.slices()) == kinds.count(BEGIN)  # raises where they do not nest


@all_cases("name", PARTS)
def test_slices_are_seen_with_the_moments_of_their_events(name):
    # a viewer sorts by time and closes what began last: a slice that ends where the next begins must not
    # swallow it
    report = sample_report(name)
    trace = trace_of(name)

    seen = {(s.track, s.name, s.begin_ns, s.end_ns) for s in trace.slices()}

    told = {
        (
            track_of(trace, e.stage, e.stream),
            e.operator if e.layer < 0 else f"{e.operator} [{e.layer}]",
            round(e.start_s * 1e9),
            round(e.end_s * 1e9),
        )
        for e in events(report)
    }
    assert seen == told


@all_cases("name", PARTS)
def test_times_are_nanoseconds_of_the_step(name):
    report = sample_report(name)

    moments = [moment for moment, _, _, _ in trace_of(name).events]

    synchronised_s = report.clean_step_time_s - report.timeline.synchronise_s
    assert min(moments) == 0
    assert max(moments) == pytest.approx(1e9 * synchronised_s, abs=1)


@LAWS
@given(
    start_ns=st.integers(0, 10**12),
    length_ns=st.integers(0, 10**12),
    stage=st.integers(0, 200),
    stream=st.sampled_from(STREAMS),
    operator=st.text(min_size=1, max_size=300),
)
def test_any_event_comes_back_as_it_was(start_ns, length_ns, stage, stream, operator):
    written = event(operator, stage, stream, start_ns / 1e9, (start_ns + length_ns) / 1e9, phase="step")

    trace = Trace(perfetto([written], {}, {stage: "s"}))

    track = track_of(trace, stage, stream)
    assert trace.slices() == [Slice(track, operator, "step", start_ns, start_ns + length_ns)]


def test_operators_carry_the_number_of_their_layer():
    trace = Trace(perfetto([event("mlp.up", layer=3), event("F1", start_s=1.0, end_s=2.0)], {}, {0: "s"}))

    assert [s.name for s in trace.slices()] == ["mlp.up [3]", "F1"]


@LAWS
@given(points=st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 10**12)), min_size=1, max_size=9))
def test_counters_carry_bytes_over_time(points):
    points = sorted(points)
    rows = [(moment_ns / 1e9, float(size)) for moment_ns, size in points]

    trace = Trace(perfetto([], {0: rows}, {0: "stage 0"}))

    (name, parent, described), *others = trace.counters.values()
    assert (name, others) == ("allocated memory", [])
    assert trace.processes[parent] == (1, "stage 0")
    assert described[3] == [3]  # CounterDescriptor.Unit: UNIT_SIZE_BYTES
    assert list(trace.values().values()) == [points]


def test_a_stage_without_a_counter_describes_none():
    trace = Trace(perfetto([], {1: [(0.0, 5.0)]}, {0: "a", 1: "b"}))

    parents = {parent for _, parent, _ in trace.counters.values()}
    assert {trace.processes[parent][1] for parent in parents} == {"b"}


def test_memory_below_zero_is_written_as_zero():
    trace = Trace(perfetto([], {0: [(0.0, -1e-6), (1.0, -5.0)]}, {0: "a"}))

    assert [value for _, value in next(iter(trace.values().values()))] == [0, 0]


def test_a_trace_of_nothing_is_empty():
    assert perfetto([], {}, {}) == b""


def test_the_same_report_gives_the_same_bytes():
    report = sample_report("batched")

    traces = [perfetto(events(report), {}, {0: "a"}) for _ in range(2)]

    assert traces[0] == traces[1]
