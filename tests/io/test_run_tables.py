"""Tables of published runs: headers, cells, and rows that cannot be read."""

import pytest
from conftest import SHARED
from run_tables import PUBLISHED, VTRAIN, row_of, written

from flopcast.errors import SpecError
from flopcast.io.runs.table import read_table, read_tables

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
    assert run.observed.allocated_bytes == 66.55 * 2**30
    assert (run.mapping.tensor_parallel, run.sequence_length, run.architecture.gated) == (4, 2048, False)


def test_decimal_gigabytes_are_told_from_binary_ones(tmp_path):
    row = row_of(peak_mem_gb="40", peak_mem_unit="GB (as printed)")

    assert only(read_table(written(tmp_path, [row]))).observed.allocated_bytes == pytest.approx(40e9)


def test_what_is_printed_counts_and_what_was_derived_only_fills_gaps(tmp_path):
    rows = [
        row_of(step_time_s="2.5", step_time_s_derived="2.6"),
        row_of(step_time_s="", step_time_s_derived="2.6"),
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
        ({"step_time_s": "-3"}, "observed.step_time_s"),
        ({"step_time_s": "nan"}, "observed.step_time_s"),
        ({"tp": "0"}, "mapping.tensor_parallel"),
        ({"gated_mlp": "perhaps"}, "gated_mlp"),
        ({"kind": "benchmark"}, "kind"),
        ({"zero_stage": "4"}, "mapping.zero"),
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


def test_a_header_that_is_none_says_what_the_nearest_kind_of_table_lacks(tmp_path):
    path = tmp_path / "runs.csv"
    path.write_text("num_gpus,heads,layers,seq_len,iteration_s\n8,16,24,1024,0.3\n")

    with pytest.raises(SpecError) as told:
        read_table(path)

    assert "iteration_ms" in told.value.problems[0].because


def test_all_files_that_cannot_be_read_are_told_at_once(tmp_path):
    with pytest.raises(SpecError) as told:
        read_tables([tmp_path / "none.csv", tmp_path / "neither.csv"])

    assert len(told.value.problems) == 2


def test_an_empty_table_is_refused(tmp_path):
    path = tmp_path / "runs.csv"
    path.write_text(",".join(PUBLISHED) + "\n")

    with pytest.raises(SpecError):
        read_table(path)


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

    assert "composed" in only(read_table(path)).refused


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
    ],
    ids=lambda value: getattr(value, "stem", None),
)
def test_every_row_of_the_real_tables_is_read(path, rows, training):
    table = read_table(path)

    assert table.problems == ()
    assert len(table.runs) == rows
    assert sum(run.kind == "train" for run in table.runs) == training
