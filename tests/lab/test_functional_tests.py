"""Megatron-LM's functional tests: columns and names of cases as jobs, and their logged memory."""

import pytest
from accuracy_pages import FUNCTIONAL, functional_tests

from flopcast.errors import SpecError
from flopcast.lab.published.functional_tests import functional_rows, read_runs
from flopcast.lab.validation.memory import summary

COLUMNS = (
    "family,case,environment,median_mem_allocated_bytes,num_layers,hidden_size,num_attention_heads,seq_length,"
    "micro_batch_size,global_batch_size,tensor_model_parallel_size,pipeline_model_parallel_size,"
    "num_layers_per_virtual_pipeline_stage,context_parallel_size,expert_model_parallel_size,num_experts,"
    "sequence_parallel,use_distributed_optimizer,recompute_granularity,transformer_impl,fp16,"
    "deterministic_mode"
)


def rows_of(**changes):
    """The rows and left-out rows of a table of one row."""
    row = dict.fromkeys(COLUMNS.split(","), "") | {
        "family": "gpt",
        "case": "gpt3",
        "environment": "dev",
        "median_mem_allocated_bytes": "5e8",
        "transformer_impl": "transformer_engine",
    }
    return functional_rows(f"{COLUMNS}\n{','.join((row | changes).values())}\n")


def job_of_row(**changes):
    (row,), _ = rows_of(**changes)
    return row.job


@pytest.mark.skipif(
    not FUNCTIONAL.exists(), reason="the table of functional tests is not beside this checkout"
)
def test_what_stays_behind_a_step_is_met_within_2_percent_and_by_nine_of_ten_rows_within_5():
    compared, left_out = functional_tests()

    found = summary(compared)
    assert found["rows"] >= 125
    assert found["median"] <= 0.02
    assert found["p90"] <= 0.05
    assert len(left_out) < 0.1 * found["rows"]


def test_devices_that_no_model_takes_are_replicas():
    plan = job_of_row(tensor_model_parallel_size="2", pipeline_model_parallel_size="2").plan

    assert (plan.data_parallel, plan.devices) == (2, 8)


def test_layers_of_a_virtual_stage_give_their_number():
    plan = job_of_row(pipeline_model_parallel_size="4", num_layers_per_virtual_pipeline_stage="1").plan

    assert plan.virtual_stages == 3  # 12 layers over 4 stages


@pytest.mark.parametrize(
    ("name", "tied", "learned"),
    [("gpt3", True, 1024), ("gpt3_untied", False, 1024), ("gpt3_rope", True, 0)],
)
def test_the_name_of_a_case_says_what_its_columns_do_not(name, tied, learned):
    model = job_of_row(case=name).model

    assert (model.tied_embeddings, model.learned_positions) == (tied, learned)


@pytest.mark.parametrize(("fp16", "dtype"), [("true", "fp16"), ("", "fp32")])
def test_gradients_are_fp32_in_bf16_runs_and_copied_to_it_in_fp16_runs(fp16, dtype):
    stack = job_of_row(fp16=fp16).stack

    assert stack.gradients.dtype == dtype
    assert stack.optimizer.fp32_gradients == bool(fp16)


@pytest.mark.parametrize(
    ("deterministic", "engine", "mebibytes"),
    [
        ("true", "transformer_engine", 2 * 32 + 4),
        ("", "transformer_engine", 2 * 8.125 + 4),
        ("", "local", 2 * 8.125),
    ],
)
def test_workspaces_follow_from_the_libraries(deterministic, engine, mebibytes):
    stack = job_of_row(deterministic_mode=deterministic, transformer_impl=engine).stack

    assert stack.memory.workspace_bytes == mebibytes * 2**20
    assert stack.memory.score_buffer == (engine == "local")


@pytest.mark.parametrize("word", ["uneven", "frozen", "multi_dist_optimizer_instances"])
def test_a_case_that_cannot_be_compared_is_left_out_with_its_reason(word):
    rows, left_out = rows_of(case=f"gpt3_{word}_more")

    assert rows == []
    assert len(next(iter(left_out.values()))) > 20


def test_a_plan_that_a_rule_refuses_is_left_out_with_the_field():
    rows, left_out = rows_of(pipeline_model_parallel_size="8", num_layers="4")

    assert rows == []
    assert "refuses" in next(iter(left_out.values()))


def test_other_families_and_rows_without_memory_are_passed_over():
    assert rows_of(family="bert") == ([], {})
    assert rows_of(median_mem_allocated_bytes="") == ([], {})


def test_a_table_with_other_columns_is_refused_with_those_that_are_missing(tmp_path):
    path = tmp_path / "runs.csv"
    path.write_text("id,step_time_s\n1,2\n")

    with pytest.raises(SpecError, match="transformer_impl") as told:
        read_runs(path)

    assert told.value.problems[0].field == "--runs"


def test_a_cell_that_is_no_value_of_its_column_leaves_its_row_out():
    cells = {
        "num_layers": "8GB",
        "hidden_size": "2.5",
        "tensor_model_parallel_size": "0",
        "fp16": "1",
        "deterministic_mode": "yes",
        "transformer_impl": "Local",
        "median_mem_allocated_bytes": "nan",
    }
    for name, cell in cells.items():
        rows, left_out = rows_of(**{name: cell})

        assert rows == []
        assert f"{name} is {cell!r}" in next(iter(left_out.values()))


def test_layers_that_virtual_stages_do_not_divide_leave_their_row_out():
    _, left_out = rows_of(pipeline_model_parallel_size="2", num_layers_per_virtual_pipeline_stage="5")

    assert "12 layers are not a multiple" in next(iter(left_out.values()))


def test_a_table_without_a_column_that_is_read_is_refused(tmp_path):
    path = tmp_path / "runs.csv"
    path.write_text(COLUMNS.replace(",seq_length", "") + "\n")

    with pytest.raises(SpecError, match="no column seq_length"):
        read_runs(path)


def test_a_table_from_an_editor_is_the_same_table(tmp_path):
    path, text = tmp_path / "runs.csv", f"{COLUMNS}\ngpt,gpt3,dev,5e8{',' * 18}\n"
    path.write_text(text)
    plain = functional_rows(read_runs(path))
    for changed in (text.replace("\n", "\r\n"), text.replace("\n", "\r"), "\ufeff" + text):
        path.write_bytes(changed.encode())

        assert functional_rows(read_runs(path)) == plain


def test_a_line_that_is_no_csv_is_refused_with_its_number():
    with pytest.raises(SpecError, match="line 2 of --runs"):
        rows_of(case="x" * 200_000)
