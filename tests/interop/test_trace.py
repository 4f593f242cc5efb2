"""interop/exports/trace_files.py: the trace file of a report, read back by an independent reader of its
bytes."""

import sys

import pytest
from conftest import REPOSITORY, make_job

from flopcast.interop.exports.trace_files import write_trace
from flopcast.library.curves import load_book
from flopcast.prediction import predict

sys.path.append(str(REPOSITORY / "tests" / "report"))

from wire_reader import BrokenError, Trace

PLAN = "dp=2 pp=4 gbs=16 precision=fp16"


@pytest.fixture(scope="module")
def report():
    job = make_job(plan=PLAN)
    return predict(job, load_book(job.cluster))


@pytest.fixture
def written(report, tmp_path):
    write_trace(report, tmp_path / "out.pftrace")
    return (tmp_path / "out.pftrace").read_bytes()


def test_every_stage_is_a_named_process_with_a_memory_counter(written):
    trace = Trace(written)

    names = {name for _, name in trace.processes.values()}
    owners = {trace.processes[parent][1] for _, parent, _ in trace.counters.values()}
    assert names == owners == {f"pipeline stage {stage}" for stage in range(4)}


def test_every_counter_begins_with_the_step_and_has_a_point_a_forward_and_two_a_backward(written):
    points = Trace(written).values()

    assert [len(found) for found in points.values()] == [
        1 + 3 * 8
    ] * 4  # a backward's layer at work, its end
    assert [found[0][0] for found in points.values()] == [0] * 4


def test_counters_hold_bytes_of_the_size_of_the_device(report, written):
    values = [value for points in Trace(written).values().values() for _, value in points]

    assert 0 < min(values) <= max(values) <= report.memory.capacity_bytes


def test_an_older_file_is_replaced_whole(report, tmp_path):
    path = tmp_path / "out.pftrace"
    path.write_bytes(b"\xff" * 10_000_000)

    write_trace(report, path)

    assert Trace(path.read_bytes()).slices()


def test_half_a_file_is_not_a_trace(written):
    # the reader that these tests trust does notice when bytes are missing
    with pytest.raises(BrokenError):
        Trace(written[: len(written) // 2])
