"""Logs of nccl-tests: rows, ranks, nodes, sizes, and what does not agree with itself."""

import gzip
from pathlib import Path

import pytest
from all_cases import all_cases

from flopcast.errors import SpecError
from flopcast.lab.samples.nccl_tests import MOST_BYTES, nccl_tests_log, read_nccl_tests

TRACES = Path(__file__).parent / "traces"
HEADER = """\
#     size       count    type  redop  root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#      (B)  (elements)                          (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
"""
PUBLISHED = {  # rows as others printed them: program, ranks, row, average
    "NVIDIA/nccl-tests issue 232": (
        "all_reduce", 2,
        "16777216 4194304 float sum -1 420.5 39.90 39.90 0 419.9 39.95 39.95 0", 39.925,
    ),
    "kvcache-ai/Mooncake pull request 3484": (
        "all_reduce", 8,
        "1048576 262144 float sum -1 27.76 37.78 66.11 0 27.49 38.15 66.76 0", 66.435,
    ),
    "a public guide to two joined Dell Pro Max GB10 (nccl-tests 2.18.5)": (
        "all_gather", 2,
        "17179869184 2147483648 float none -1 374425 45.88 22.94 0 373792 45.96 22.98 0", 22.9611,
    ),
}  # fmt: skip


def devices(ranks, per_node=8):
    """The lines that name ranks."""
    return "".join(
        f"#  Rank {rank:2} Group  0 Pid {900 + rank} on gpu-{rank // per_node}"
        f" device {rank % per_node} [0x1a] NVIDIA H100\n"
        for rank in range(ranks)
    )


def run(program="all_reduce", ranks=8, rows=(), average=None, per_node=8):
    """One run's output."""
    end = f"# Avg bus bandwidth    : {average}\n" if average is not None else ""
    start = f"# Collective test starting: {program}_perf\n# nThread 1 nGpus 1 minBytes 8 maxBytes 8\n"
    return start + devices(ranks, per_node) + HEADER + "".join(f"  {row}\n" for row in rows) + end


def row_of(collective_ratio, size, count, time_us, dtype="float", redop="sum"):
    """A row whose rates are computed by hand: size / time, and that times the ratio."""
    algbw = size / time_us / 1e3
    half = f"{time_us} {algbw:.2f} {algbw * collective_ratio:.2f} 0"
    return f"{size} {count} {dtype} {redop} -1 {half} {half}"


@all_cases("source", PUBLISHED)
def test_published_rows_agree_with_themselves(source):
    program, ranks, row, average = PUBLISHED[source]

    log = nccl_tests_log(run(program, ranks, [row], average), "a.log")

    assert log.problems == ()
    assert [one.message_bytes for one in log.rows] == [float(row.split()[0])] * 2


def test_the_old_layout_of_all_gather_is_read_and_its_failure_told():
    # the row is that of NVIDIA/nccl-tests issue 37: 8 V100, whose algbw was the busbw of today
    log = read_nccl_tests(TRACES / "all_gather_old_layout.log")

    assert {(r.collective, r.ranks, r.nodes, r.message_bytes) for r in log.rows} == {
        ("all_gather", 8, 1, 2.0**32)
    }
    assert [row.time_s for row in log.rows] == pytest.approx([0.029122, 0.029169])
    assert [problem.field for problem in log.problems] == ["Out of bounds values"]


def test_a_log_under_mpirun_gives_ranks_nodes_and_both_halves_of_each_row():
    log = read_nccl_tests(TRACES / "all_reduce_h100_2x8.log")

    assert log.problems == ()
    assert {(row.collective, row.ranks, row.nodes, row.dtype) for row in log.rows} == {
        ("all_reduce", 16, 2, "float")
    }
    assert [row.in_place for row in log.rows] == [False, True] * 4
    assert log.rows[-1].busbw_bytes_per_s == 360.12e9


@all_cases(
    ("program", "ratio", "count"),
    [
        ("all_gather", 7 / 8, 2**18),
        ("reduce_scatter", 7 / 8, 2**18),
        ("alltoall", 7 / 8, 2**18),
        ("sendrecv", 1.0, 2**21),
    ],
)
def test_a_size_is_the_whole_array_for_every_collective(program, ratio, count):
    # 8 MiB of floats on 8 ranks: 2^21 elements in all, 2^18 of each rank
    row = row_of(ratio, 2**23, count, 100.0)

    log = nccl_tests_log(run(program, 8, [row]), "a.log")

    assert {one.message_bytes for one in log.rows} == {2.0**23}
    assert [problem.field for problem in log.problems] == ["run"]  # it has no average


def test_a_size_that_is_one_ranks_share_is_multiplied_by_the_ranks():
    share, ranks = 2**20, 8
    row = row_of(7.0, share, share // 4, 100.0)  # busbw of 8 · share over 100 µs, times 7/8

    log = nccl_tests_log(run("all_gather", ranks, [row]), "a.log")

    assert {one.message_bytes for one in log.rows} == {8.0 * share}
    assert "busbw" not in {problem.field for problem in log.problems}


@pytest.mark.parametrize(("error", "told"), [(1.019, False), (1.021, True), (0.979, True)])
def test_a_bus_bandwidth_that_is_off_by_more_than_two_per_cent_is_told(error, told):
    row = row_of(1.75 * error, 2**30, 2**28, 5000.0)

    log = nccl_tests_log(run(rows=[row], average=375.8), "a.log")

    assert ("busbw" in {problem.field for problem in log.problems}) == told


def test_tiny_messages_are_not_blamed_for_the_rounding_of_their_rates():
    row = "8 2 float sum -1 20.10 0.00 0.00 0 19.80 0.00 0.00 0"

    log = nccl_tests_log(run(rows=[row], average=0), "a.log")

    assert log.problems == ()
    assert [one.time_s for one in log.rows] == pytest.approx([20.1e-6, 19.8e-6])


def test_several_runs_in_one_file_keep_their_own_collective_and_ranks():
    first = run("all_reduce", 8, [row_of(1.75, 2**23, 2**21, 100.0)], average=f"{1.75 * 83.88608:.2f}")
    second = run(
        "reduce_scatter", 16, [row_of(15 / 16, 2**23, 2**17, 100.0)], average=f"{15 / 16 * 83.88608:.2f}"
    )

    log = nccl_tests_log(first + second, "both.log")

    assert {(row.collective, row.ranks, row.nodes) for row in log.rows} == {
        ("all_reduce", 8, 1),
        ("reduce_scatter", 16, 2),
    }
    assert log.problems == ()


def test_a_split_run_has_the_ranks_and_nodes_of_one_group():
    # NCCL_TESTS_SPLIT="MOD 2": four groups' worth of lines, two groups of four ranks on two nodes
    ranks = "".join(
        f"#  Rank {rank} Group {rank % 2} Pid 1 on node-{rank // 4} device {rank % 4} [0x1a] NVIDIA H100\n"
        for rank in range(8)
    )
    text = (
        "# Collective test starting: all_reduce_perf\n" + ranks + HEADER + row_of(1.5, 2**23, 2**21, 100.0)
    )

    log = nccl_tests_log(text, "split.log")

    assert {(row.ranks, row.nodes) for row in log.rows} == {(4, 2)}
    assert "busbw" not in {problem.field for problem in log.problems}


def test_wrong_values_and_cut_rows_are_left_out_and_told_with_their_lines():
    rows = [
        "8388608 2097152 float sum -1 212.5 39.48 69.09 7 208.1 40.31 70.54 0",
        "16777216 4194304 float sum -1 412.5 40.67",
    ]

    log = nccl_tests_log(run(rows=rows), "cut.log")

    assert [row.in_place for row in log.rows] == [True]
    assert [problem.field for problem in log.problems] == ["#wrong", "row", "run"]
    assert log.problems[0].where == "cut.log:13"


def test_an_average_that_the_rows_do_not_have_says_that_rows_are_missing():
    row = row_of(1.75, 2**30, 2**28, 5000.0)  # 375.8 GB/s

    log = nccl_tests_log(run(rows=[row], average=300.0), "part.log")

    assert [problem.field for problem in log.problems] == ["Avg bus bandwidth"]


def test_in_place_columns_that_were_not_measured_give_no_row():
    row = "8388608 262144 float none -1 100.0 83.89 73.40 0 N/A N/A N/A N/A"

    log = nccl_tests_log(run("alltoall", 8, [row], 73.40), "a.log")

    assert [(one.collective, one.in_place) for one in log.rows] == [("all_to_all", False)]


def test_processes_that_ran_alone_are_told_instead_of_counted_as_ranks():
    # without MPI support each process is rank 0 of its own run (NVIDIA/nccl-tests issue 107)
    text = run(ranks=1, rows=[])[: -len(HEADER)] + devices(1) + HEADER + row_of(1.0, 2**23, 2**21, 100.0)

    with pytest.raises(SpecError, match="each process ran its own test"):
        nccl_tests_log(text, "alone.log")


def test_a_log_without_a_program_takes_the_collective_of_its_caller_or_its_name(tmp_path):
    text = run(rows=[row_of(1.75, 2**23, 2**21, 100.0)]).replace("all_reduce_perf", "it")
    path = tmp_path / "all_reduce.txt.gz"
    path.write_bytes(gzip.compress(text.encode()))

    named, told = read_nccl_tests(path), nccl_tests_log(text, "a.log", "all_reduce")

    assert named.rows[0].collective == told.rows[0].collective == "all_reduce"
    with pytest.raises(SpecError, match="collective"):
        nccl_tests_log(text, "a.log")


def test_marks_between_the_words_and_eaten_hashes_are_read_through():
    row = "[0]  8388608 2097152 float sum -1[0]   100.0 83.89 146.80 0[0]  100.0 83.89 146.80 0"
    text = (
        run(rows=[row], average=146.8).replace("#  Rank", "  Rank").replace("#       size", "       size")
    )

    log = nccl_tests_log(text, "issue.log")

    assert len(log.rows) == 2
    assert log.problems == ()


@pytest.mark.parametrize("text", ["", "a picture, or so", "# nThread 1 nGpus 8\n"])
def test_a_text_without_a_row_is_refused(text):
    with pytest.raises(SpecError, match="the file contains no usable row of results"):
        nccl_tests_log(text, "none.log")


def test_a_log_that_is_too_large_is_refused_and_not_read_in_part(tmp_path):
    path = tmp_path / "all_reduce.log"
    path.write_text(run(rows=[row_of(1.75, 2**20, 2**18, 30)]))
    with path.open("r+b") as file:
        file.truncate(MOST_BYTES + 1)

    with pytest.raises(SpecError, match=str(MOST_BYTES)):
        read_nccl_tests(path)


def test_a_damaged_archive_is_refused(tmp_path):
    path = tmp_path / "cut.log.gz"
    path.write_bytes(gzip.compress(b"# nThread")[:-6])

    with pytest.raises(SpecError, match="end-of-stream"):
        read_nccl_tests(path)
