"""interop/exports/chrome.py: the same rows as the Perfetto trace, in JSON."""

import json
from functools import cache

from all_cases import all_cases
from hypothesis import given, settings
from hypothesis import strategies as st
from sample_reports import PARTS, sample_report
from wire_reader import Trace

from flopcast.interop.exports.chrome import chrome
from flopcast.interop.exports.perfetto import STREAMS
from flopcast.interop.exports.trace_files import chrome_trace, perfetto_trace, write_trace


@cache
def rows(name):
    return json.loads(chrome_trace(sample_report(name)))["traceEvents"]


def of_kind(name, kind):
    return [row for row in rows(name) if row["ph"] == kind]


@all_cases("name", PARTS)
def test_both_formats_hold_the_same_slices(name):
    trace = Trace(perfetto_trace(sample_report(name)))
    place = {track: (pid, STREAMS.index(text) + 1) for track, (pid, _, text) in trace.threads.items()}

    perfetto = sorted((*place[s.track], s.name, s.category, s.begin_ns, s.end_ns) for s in trace.slices())
    found = sorted(
        (
            row["pid"],
            row["tid"],
            row["name"],
            row["cat"],
            round(row["ts"] * 1e3),
            round((row["ts"] + row["dur"]) * 1e3),
        )
        for row in of_kind(name, "X")
    )

    assert [row[:4] for row in found] == [row[:4] for row in perfetto]
    for one, two in zip(found, perfetto, strict=True):
        assert max(abs(one[4] - two[4]), abs(one[5] - two[5])) <= 1  # nanoseconds


@all_cases("name", PARTS)
def test_every_slice_stands_on_a_named_thread_of_a_named_process(name):
    named = {(row["pid"], row["tid"]) for row in of_kind(name, "M") if row["name"] == "thread_name"}
    processes = {row["pid"] for row in of_kind(name, "M") if row["name"] == "process_name"}

    assert {(row["pid"], row["tid"]) for row in of_kind(name, "X")} <= named
    assert len(processes) == len(sample_report(name).memory.per_stage)


@all_cases("name", PARTS)
def test_the_most_memory_of_a_stage_is_its_peak(name):
    report = sample_report(name)

    seen = {}
    for row in of_kind(name, "C"):
        seen[row["pid"] - 1] = max(seen.get(row["pid"] - 1, 0), row["args"]["bytes"])

    assert seen == {s.stage: round(s.allocated_bytes) for s in report.memory.per_stage}


@settings(max_examples=30, deadline=None)
@given(name=st.text(max_size=50), size=st.integers(-5, 10**12))
def test_any_name_and_size_is_json(name, size):
    (named, *_, counter) = json.loads(chrome([], {0: [(0.5, float(size))]}, {0: name}))["traceEvents"]

    assert named["args"] == {"name": name}
    assert (counter["ts"], counter["args"]["bytes"]) == (500_000.0, max(size, 0))


def test_the_ending_of_a_path_chooses_the_format(tmp_path):
    report = sample_report(next(iter(PARTS)))

    for name, content in (("a.json", chrome_trace(report)), ("a.pftrace", perfetto_trace(report))):
        write_trace(report, tmp_path / name)
        assert (tmp_path / name).read_bytes() == content
