"""Tables of published runs: headers, cells, and rows that cannot be read."""

import pytest
from conftest import SHARED
from run_tables import VTRAIN, row_of, written

from flopcast.errors import SpecError
from flopcast.lab.published.headers import HEADERS
from flopcast.lab.published.table import read_table, read_tables

VALIDATION, PEERS = SHARED / "validation", SHARED / "data" / "peers"


def only(table):
    (run,) = table.runs
    return run


def fault_of(tmp_path, **changes):
    table = read_table(written(tmp_path, [row_of(**changes)]))
    (problem,) = table.problems
    return problem


def test_cells_become_facts_in_si_units(tmp_path):
    run = only(read_table(written(tmp_path, [row_of(tflops_per_gpu="412.5", peak_mem_gb="66.55")])))

    assert run.observed.device_flop_per_s == 412.5e12
    assert run.observed.memory_bytes == 66.55 * 2**30
    assert (run.mapping.tensor_parallel, run.sequence_length, run.architecture.gated) == (4, 2048, False)


def test_decimal_gigabytes_are_told_from_binary_ones(tmp_path):
    row = row_of(peak_mem_gb="40", peak_mem_unit="GB (as printed)")

    assert only(read_table(written(tmp_path, [row]))).observed.memory_bytes == pytest.approx(40e9)


def test_a_value_in_a_column_that_decides_nothing_is_kept_for_the_assumptions(tmp_path):
    row = row_of(intra_node_link="PCIe", evidence="transcription") | {"weather": "rain", "mood": ""}

    run = only(read_table(written(tmp_path, [row])))

    assert run.unused == ("intra_node_link = PCIe", "weather = rain")


def test_units_of_memory_are_converted_and_their_words_kept(tmp_path):
    cases = {"GiB (max allocated)": 2.0**30, "MB": 1e6, "MiB reserved": 2.0**20, "GB (nvidia-smi)": 1e9}
    for unit, factor in cases.items():
        row = row_of(peak_mem_gb="10", peak_mem_unit=unit)

        seen = only(read_table(written(tmp_path, [row]))).observed

        assert seen.memory_bytes == pytest.approx(10 * factor), unit
        assert seen.memory_unit == unit


def test_what_is_printed_counts_and_what_was_derived_only_fills_gaps(tmp_path):
    rows = [
        row_of(step_time_s="2.5", step_time_s_derived="2.6"),
        row_of(id="other", step_time_s="", step_time_s_derived="2.6"),
    ]

    found = [run.observed.step_time_s for run in read_table(written(tmp_path, rows)).runs]

    assert found == [2.5, 2.6]


def test_an_empty_cell_is_a_fact_that_nobody_knows(tmp_path):
    run = only(read_table(written(tmp_path, [row_of(recompute="", cp="", sequence_parallel="")])))

    assert run.mapping.recompute == ""
    assert run.mapping.context_parallel is None
    assert run.mapping.sequence_parallel is None


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"tp": "four"}, "tp"),
        ({"layers": "24.5"}, "layers"),
        ({"step_time_s": "-3"}, "step_time_s"),
        ({"step_time_s": "nan"}, "step_time_s"),
        ({"tp": "0"}, "tp"),
        ({"gated_mlp": "perhaps"}, "gated_mlp"),
        ({"step_time_s": "inf"}, "step_time_s"),
        ({"step_time_s": "0"}, "step_time_s"),
        ({"step_time_s": "0,9"}, "step_time_s"),
        ({"step_time_s": "4 s"}, "step_time_s"),
        ({"layers": "1e300"}, "layers"),
        ({"layers": "nan"}, "layers"),
        ({"layers": "inf"}, "layers"),
        ({"source_key": ""}, "source"),
        ({"kind": "benchmark"}, "kind"),
        ({"zero_stage": "4"}, "zero_stage"),
    ],
)
def test_a_cell_that_is_no_value_of_its_column_is_told_with_its_line(tmp_path, changes, field):
    problem = fault_of(tmp_path, **changes)

    assert problem.field == field
    assert problem.where.endswith("runs.csv:2")


def test_milliseconds_in_the_place_of_seconds_are_found_by_the_rate_of_tokens(tmp_path):
    """16 sequences of 2048 tokens on 8 devices at 1024 tokens/s each take 4 s, not 4000."""
    right = read_table(written(tmp_path, [row_of(step_time_s="4", tokens_per_s_per_gpu="1024")]))
    problem = fault_of(tmp_path, step_time_s="4000", tokens_per_s_per_gpu="1024")

    assert right.problems == ()
    assert "another unit" in problem.because


def test_a_row_with_too_few_cells_is_left_out_and_the_others_are_kept(tmp_path):
    path = written(tmp_path, [row_of(id="whole")])
    path.write_text(path.read_text() + "cut,short\n")

    table = read_table(path)

    assert [run.id for run in table.runs] == ["whole"]
    assert [problem.where.rpartition(":")[2] for problem in table.problems] == ["3"]
    assert dict(table.unread) == {f"{path}:3": "cut"}


def test_a_header_that_is_none_says_what_the_nearest_kind_of_table_lacks(tmp_path):
    path = tmp_path / "runs.csv"
    path.write_text("num_gpus,heads,layers,seq_len,iteration_s\n8,16,24,1024,0.3\n")

    with pytest.raises(SpecError) as told:
        read_table(path)

    assert "iteration_ms" in told.value.problems[0].because


def test_no_column_that_is_read_is_proposed_for_one_that_is_missing(tmp_path):
    path = tmp_path / "runs.csv"
    columns = [mark for mark in HEADERS["published runs"].marks if mark != "kind"]
    path.write_text(",".join(["id", *columns]) + "\n" + ",".join("1" for _ in ["id", *columns]) + "\n")

    with pytest.raises(SpecError) as told:
        read_table(path)

    assert "kind" in told.value.problems[0].because
    assert told.value.problems[0].fix.startswith("add a column")


def test_all_files_that_cannot_be_read_are_told_at_once(tmp_path):
    with pytest.raises(SpecError) as told:
        read_tables([tmp_path / "none.csv", tmp_path / "neither.csv"])

    assert len(told.value.problems) == 2


def changed(folder, edit, rows=1):
    """A table of our row, as an editor left it."""
    path = written(folder, [row_of(id=f"run-{place}") for place in range(rows)])
    path.write_bytes(edit(path.read_bytes()))
    return path


@pytest.mark.parametrize(
    ("edit", "because"),
    [
        (lambda _: b"", "no header"),
        (lambda text: text.splitlines(keepends=True)[0], "a header but no rows"),
        (lambda text: text.replace(b",", b";"), "semicolons"),
        (lambda text: text.replace(b",", b"\t"), "tabs"),
        (lambda text: text.replace(b"ffn_hidden", b"hidden", 1), "contains these columns twice: hidden"),
        (lambda text: text.replace(b"num_gpus", b"gpus"), "does not contain num_gpus, which"),
        (
            lambda text: b"\n".join((text.split(b"\n")[0].upper(), *text.split(b"\n")[1:])),
            "contains no column",
        ),
        (lambda text: text.decode().encode("utf-16"), "decode"),
        (lambda text: text.replace(b"GPT", b"\xe9"), "decode"),
    ],
)
def test_a_file_that_is_no_table_is_refused_with_what_is_wrong(tmp_path, edit, because):
    with pytest.raises(SpecError) as told:
        read_table(changed(tmp_path, edit))

    (problem,) = told.value.problems
    assert because in problem.because


@pytest.mark.parametrize(
    "edit",
    [
        lambda text: b"\xef\xbb\xbf" + text,
        lambda text: text.replace(b"\r\n", b"\n"),
        lambda text: text.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n"),
        lambda text: text.replace(b",", b", "),
        lambda text: text + b"\r\n\r\n",
    ],
    ids=["mark before the header", "lines of Unix", "lines of Windows", "blanks", "empty lines"],
)
def test_what_editors_add_is_no_part_of_a_run(tmp_path, edit):
    plain = only(read_table(written(tmp_path, [row_of(id="run-0")])))

    assert only(read_table(changed(tmp_path, edit))) == plain


def test_a_row_that_was_copied_is_left_out_with_the_line_of_the_first(tmp_path):
    table = read_table(written(tmp_path, [row_of(id="a"), row_of(id="b"), row_of(id="a")]))

    (problem,) = table.problems
    assert [run.id for run in table.runs] == ["a", "b"]
    assert problem.where.endswith("runs.csv:4")
    assert "runs.csv:2 has the same" in problem.because
    assert list(table.unread.values()) == ["a"]


def test_a_row_with_more_cells_than_the_header_says_so(tmp_path):
    path = changed(tmp_path, lambda text: text.rstrip() + b",more\r\n")

    (problem,) = read_table(path).problems

    assert "more cells than the header" in problem.because


def test_a_quote_left_open_is_told_with_the_lines_that_it_swallows(tmp_path):
    path = changed(tmp_path, lambda text: text.replace(b"\nrun-1", b'\n"run-1'), rows=3)

    table = read_table(path)

    assert [run.id for run in table.runs] == ["run-0"]
    assert "a closing quote may be missing" in table.problems[0].because


def test_every_fault_of_a_row_is_told_at_once(tmp_path):
    table = read_table(written(tmp_path, [row_of(tp="four", pp="two", step_time_s="fast")]))

    assert [problem.field for problem in table.problems] == ["tp", "pp", "step_time_s"]


def test_steps_of_vtrain_are_milliseconds_of_megatron_deepspeed_with_full_recompute(tmp_path):
    path = tmp_path / "multi.csv"
    path.write_text(f"{VTRAIN}\n3.6,64,512,8,3072,32,30,2048,1,64,1,3566.5\n")

    run = only(read_table(path))

    assert run.observed.step_time_s == 3.5665
    assert (run.mapping.recompute, run.software.framework) == ("full", "Megatron-DeepSpeed")
    assert run.refused == ""


def test_composed_steps_of_vtrain_are_runs_that_may_not_be_judged_by(tmp_path):
    path = tmp_path / "single.csv"
    path.write_text(f"{VTRAIN.removeprefix('params_b,')}\n2,16,8,1024,16,24,1024,1,1,2,372.16\n")

    assert "computed, not measured" in only(read_table(path)).refused


def test_micro_batches_of_simumax_become_a_global_batch(tmp_path):
    """4 replicas of 1 sequence and 32 micro-batches."""
    path = tmp_path / "steps.csv"
    path.write_text(
        "case,gpu,num_gpus,model,layers,seq_len,micro_batch_size,micro_batches,tp,pp,cp,ep,dp,measured_ms,"
        "measured_peak_alloc_gib\nc,B200-SXM,8,llama3_70b,12,4096,1,32,1,2,1,1,4,843.0,66.55\n"
    )

    run = only(read_table(path))

    assert run.mapping.global_batch == 4 * 32
    assert run.observed.step_time_s == pytest.approx(0.843)


@pytest.mark.skipif(not VALIDATION.is_dir(), reason="the published runs are not beside this checkout")
@pytest.mark.parametrize(
    ("path", "rows", "training"),
    [
        (VALIDATION / "published_runs.csv", 1016, 865),
        (PEERS / "vtrain" / "a100_multi_node_iterations.csv", 73, 73),
        (PEERS / "vtrain" / "a100_single_node_iterations.csv", 720, 720),
        (PEERS / "simumax" / "b200_measured_training_steps.csv", 22, 22),
        (SHARED / "data" / "training_mlperf" / "mlperf_training_v5.1.csv", 60, 60),
    ],
    ids=lambda value: getattr(value, "stem", None),
)
def test_every_row_of_the_real_tables_is_read(path, rows, training):
    table = read_table(path)

    assert table.problems == ()
    assert len(table.runs) == rows
    assert sum(run.kind == "train" for run in table.runs) == training
