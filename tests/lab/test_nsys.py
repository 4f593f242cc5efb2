"""Reports of Nsight Systems in SQLite: kernels, launches, ranges, steps; old schemas and broken files."""

import sqlite3

import pytest
from click.testing import CliRunner
from lab.test_kineto import words_of

from flopcast.cli.import_measurements import nsys
from flopcast.errors import SpecError
from flopcast.lab.calibration.trace import class_totals, seconds_per_step
from flopcast.lab.calibration.traced_shapes import samples
from flopcast.lab.traces.nsys import read_nsys

PROCESS = 0x1000000 * 4242  # a process's global id; its threads follow in the lower 24 bits
MAIN, ENGINE = PROCESS + 7, PROCESS + 9
STRINGS = {
    1: "nvjet_hsh_128x256_64x4",
    2: "void flash_fwd_kernel<x>",
    3: "ncclDevKernel_AllReduce_Sum_bf16",
    4: "their_kernel",
    5: "cudaLaunchKernel",
    6: "aten::mm, seq = 3, op_id = 12, sizes = [[64, 32], [32, 16]]",
    7: "step 11",
}
KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"
NEW = {  # tables as exports of 2024 have them, without the columns that are not read
    KERNELS: "start, end, deviceId, streamId, correlationId, globalPid, demangledName, shortName, gridX",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start, end, eventClass, globalTid, correlationId, nameId, returnValue",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "start, end, deviceId, streamId, correlationId, globalPid, bytes",
    "NVTX_EVENTS": "start, end, eventType, rangeId, text, globalTid, textId, domainId",
    "StringIds": "id INTEGER PRIMARY KEY, value",
}
ROWS = {
    KERNELS: [
        # ns: start, end, device, stream, correlation, process, names, grid
        (2_000, 3_000, 0, 7, 21, PROCESS, 1, 1, 8),
        (3_000, 3_500, 0, 7, 22, PROCESS, 2, 2, 8),
        (3_200, 4_200, 0, 13, 23, PROCESS, 3, 3, 8),
        (4_200, 5_200, 0, 7, 24, PROCESS, 1, 1, 8),
        (12_500, 13_500, 0, 7, 25, PROCESS, 1, 1, 8),
        (13_600, 13_700, 0, 7, 99, PROCESS, 4, 4, 8),
    ],
    "CUPTI_ACTIVITY_KIND_RUNTIME": [
        (1_100, 1_110, 0, MAIN, 21, 5, 0),
        (1_300, 1_310, 0, MAIN, 22, 5, 0),
        (1_500, 1_510, 0, MAIN, 23, 5, 0),
        (1_700, 1_710, 0, ENGINE, 24, 5, 0),
        (11_100, 11_110, 0, MAIN, 25, 5, 0),
        (1_100, 1_110, 0, PROCESS + 0x1000000 * 5, 24, 5, 0),  # another process uses the same id
    ],
    "CUPTI_ACTIVITY_KIND_MEMCPY": [(6_000, 6_400, 0, 7, 30, PROCESS, 4096)],
    "NVTX_EVENTS": [
        (1_000, 9_000, 59, 0, "step 10", MAIN, None, 0),
        (11_000, 16_000, 59, 0, None, MAIN, 7, 0),
        (1_050, 1_200, 59, 0, None, MAIN, 6, 0),
        (1_250, 1_400, 59, 0, "attention", MAIN, None, 0),
        (1_600, 1_900, 59, 0, "autograd::engine::evaluate_function: MmBackward0", ENGINE, None, 0),
        (1_650, 1_800, 59, 0, "aten::mm, op_id = 40, sizes = [[32, 64], [64, 16]]", ENGINE, None, 0),
        (11_050, 11_200, 59, 0, None, MAIN, 6, 0),
        (1_050, None, 34, 0, "a mark", MAIN, None, 0),
    ],
    "StringIds": list(STRINGS.items()),
}


def database(path, tables=None, rows=None):
    """An export with these tables."""
    with sqlite3.connect(path) as made:
        for name, columns in (NEW if tables is None else tables).items():
            made.execute(f"CREATE TABLE {name} ({columns})".replace("end,", '"end",'))
            for row in (rows or ROWS).get(name, []):
                made.execute(f"INSERT INTO {name} VALUES ({', '.join('?' * len(row))})", row)
    made.close()
    return path


@pytest.fixture
def trace(tmp_path):
    return read_nsys(database(tmp_path / "report.sqlite"))


def test_kernels_have_their_names_times_and_streams(trace):
    assert words_of(trace, "kernel")[:3] == [STRINGS[1], STRINGS[2], STRINGS[3]]
    assert trace.start_s[:3].tolist() == pytest.approx([0, 1e-6, 1.2e-6])
    assert (trace.end_s - trace.start_s)[:3].tolist() == pytest.approx([1e-6, 0.5e-6, 1e-6])
    assert trace.queue[:3].tolist() == [7, 7, 13]


def test_the_innermost_range_around_the_launch_is_the_operator(trace):
    assert words_of(trace, "operator") == ["aten::mm", "attention", "", "aten::mm", "", "aten::mm", ""]


def test_ranges_of_emit_nvtx_give_the_sizes_of_products_in_both_passes(trace):
    products = [sample for sample in samples(trace) if sample.kernel_class == "gemm"]

    assert [(s.phase, s.sizes["m"], s.sizes["n"], s.sizes["k"], s.num_calls) for s in products] == [
        ("backward", 32, 16, 64, 1),
        ("forward", 64, 16, 32, 2),
    ]


def test_ranges_named_as_steps_are_steps(trace):
    assert trace.step_times_s.tolist() == pytest.approx([8e-6, 5e-6])
    assert trace.step.tolist() == [10, 10, 10, 10, 10, 11, 11]


def test_totals_hold_copies_and_what_no_class_knows(trace):
    totals = {total.name: (total.num_kernels, total.total_s) for total in class_totals(trace)}

    assert totals["memcpy"] == (1, pytest.approx(0.4e-6))
    assert totals[""] == (1, pytest.approx(0.1e-6))
    assert sum(count for count, _ in totals.values()) == 7


def test_exposed_communication_is_what_no_kernel_runs_beside(trace):
    # the all-reduce runs from 3.2 to 4.2 µs, the attention until 3.5: 0.7 µs over two steps
    assert seconds_per_step(trace)["communication"] == pytest.approx(0.35e-6)


def test_the_command_prints_totals_and_writes_samples(tmp_path):
    out = tmp_path / "samples.csv"

    ended = CliRunner().invoke(nsys, [str(database(tmp_path / "report.sqlite")), "--out", str(out)])

    assert ended.exit_code == 0, ended.output
    assert "2 steps" in ended.stdout
    assert "their_kernel" in ended.stdout
    assert [line.split(",")[:3] for line in out.read_text(encoding="utf-8").splitlines()[1:]] == [
        ["gemm", "backward", "unknown"],
        ["gemm", "forward", "unknown"],
    ]


def test_an_export_without_ranges_launches_and_processes_is_read(tmp_path):
    tables = {
        KERNELS: "start, end, deviceId, streamId, correlationId, shortName",
        "StringIds": NEW["StringIds"],
    }
    rows = {KERNELS: [(0, 1_000, 0, 7, 1, 1)], "StringIds": ROWS["StringIds"]}

    trace = read_nsys(database(tmp_path / "old.sqlite", tables, rows))

    assert words_of(trace, "kernel_class") == ["gemm"]
    assert words_of(trace, "phase") == [""]
    assert "no step annotations" in " ".join(trace.remarks)


def test_kernels_that_do_not_say_their_process_are_joined_by_correlation_alone(tmp_path):
    tables = {name: columns.replace("globalPid, ", "") for name, columns in NEW.items()}
    rows = {
        **ROWS,
        KERNELS: [(*row[:5], *row[6:]) for row in ROWS[KERNELS]],
        "CUPTI_ACTIVITY_KIND_MEMCPY": [],
        "CUPTI_ACTIVITY_KIND_RUNTIME": ROWS["CUPTI_ACTIVITY_KIND_RUNTIME"][:-1],
    }

    trace = read_nsys(database(tmp_path / "old.sqlite", tables, rows))

    assert words_of(trace, "operator")[:2] == ["aten::mm", "attention"]


def test_ranges_whose_text_stands_in_the_row_alone_are_read(tmp_path):
    tables = NEW | {"NVTX_EVENTS": "start, end, eventType, rangeId, text, globalTid"}
    rows = ROWS | {"NVTX_EVENTS": [(1_000, 9_000, 59, 0, "iteration 3", MAIN)]}

    trace = read_nsys(database(tmp_path / "old.sqlite", tables, rows))

    assert set(trace.step[trace.used].tolist()) == {3}


def test_the_file_is_only_read(tmp_path):
    path = database(tmp_path / "report.sqlite")
    before = path.read_bytes()

    read_nsys(path)

    assert path.read_bytes() == before
    assert sorted(tmp_path.iterdir()) == [path]


def test_an_absent_file_is_not_made(tmp_path):
    with pytest.raises(SpecError, match="No such file"):
        read_nsys(tmp_path / "absent.sqlite")

    assert not (tmp_path / "absent.sqlite").exists()


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"QDSTRM report of Nsight" * 50, "not a database"),
        (b"SQLite format 3\x00" + b"\xff" * 2000, "database"),
        (b"", "no table"),
    ],
)
def test_what_is_no_database_is_refused(tmp_path, raw, why):
    path = tmp_path / "report.sqlite"
    path.write_bytes(raw)

    with pytest.raises(SpecError, match=why):
        read_nsys(path)


def test_a_truncated_database_is_refused(tmp_path):
    path = database(tmp_path / "report.sqlite", rows=ROWS | {KERNELS: ROWS[KERNELS] * 2000})
    path.write_bytes(path.read_bytes()[:40_000])

    with pytest.raises(SpecError, match="malformed"):
        read_nsys(path)


def test_a_report_without_kernels_says_what_to_trace(tmp_path):
    empty = database(tmp_path / "empty.sqlite", rows={"StringIds": []})
    bare = database(tmp_path / "bare.sqlite", {"StringIds": NEW["StringIds"]})

    with pytest.raises(SpecError, match="the report contains no kernels"):
        read_nsys(empty)
    with pytest.raises(SpecError, match="no table CUPTI_ACTIVITY_KIND_KERNEL"):
        read_nsys(bare)
