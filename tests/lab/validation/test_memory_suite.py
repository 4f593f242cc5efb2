"""Memory against what runs logged: the target of each source, and the arithmetic of the comparison."""

import pytest

from flopcast.accuracy import validate_memory
from flopcast.lab.published.suite_files import load_memory_suite
from flopcast.lab.validation.memory import ComparedMemory, compare_memory, summary
from flopcast.memory.peak import fits
from flopcast.prediction import memory_by_class
from flopcast.render.suite_comparison import memory_as_json, memory_as_markdown, memory_as_text


def compared(*errors):
    """Rows of 100 bytes with these relative errors."""
    return [
        ComparedMemory(
            id=str(n), quantity="allocated", measured_bytes=100.0, predicted_bytes=100.0 * (1 + e)
        )
        for n, e in enumerate(errors)
    ]


def test_peaks_of_llama_and_deepseek_on_b200_are_met_within_1_percent_on_average():
    found = summary(validate_memory("memory"))

    assert found["rows"] == 10
    assert found["mean"] <= 0.01  # SimuMax, which was fitted on them, reaches 0.46 %


def test_no_peak_of_a_dense_model_is_off_by_more_than_half_a_percent():
    dense = [row for row in validate_memory("memory") if row.id.startswith("llama")]

    assert len(dense) == 8
    assert max(abs(row.relative_error) for row in dense) <= 0.005


def test_runs_that_ran_are_found_to_fit():
    for row in load_memory_suite("memory").rows:
        memory, _ = memory_by_class(row.job)
        assert fits(memory, row.job.cluster).all(), row.id


def test_a_summary_counts_errors_without_their_sign_and_bias_with_it():
    found = summary(compared(0.1, -0.3, 0.2, 0.0))

    assert found["mean"] == pytest.approx(0.15)
    assert found["median"] == pytest.approx(0.15)
    assert found["largest"] == pytest.approx(0.3)
    assert found["bias"] == pytest.approx(0.0)


def test_text_json_and_markdown_hold_every_row_and_what_was_left_out():
    rows, left_out = compared(0.012, -0.25), {"third": "a reason"}

    text = memory_as_text("some", rows, left_out)
    data = memory_as_json({"some": (rows, left_out)})
    page = memory_as_markdown({"some": (rows, left_out)})

    assert "+1.2%" in text
    assert "-25.0%" in text
    assert "left out, 1: a reason" in text
    assert [row["predicted_bytes"] for row in data["some"]["rows"]] == [101.2, 75.0]
    assert data["some"]["left_out"] == left_out
    assert "| 1 | allocated | 100 B | 75 B | -25.0% |" in page


def test_memory_is_shown_in_the_unit_of_reports():
    (row, *_) = validate_memory("memory")

    shown = memory_as_text("memory", [row], {}), memory_as_markdown({"memory": ((row,), {})})

    assert all(f"{row.measured_bytes / 2**30:.1f} GiB" in text for text in shown)
    assert all(" GB" not in text for text in shown)


@pytest.mark.parametrize(("stage", "expected"), [("first", 0), ("last", -1)])
def test_a_row_names_the_stage_whose_rank_was_read(stage, expected):
    row = load_memory_suite("memory").rows[0].model_copy(update={"stage": stage})
    memory, stage_class = memory_by_class(row.job)

    (found,) = compare_memory([row], memory_by_class)

    assert found.predicted_bytes == memory.allocated_bytes[0, stage_class[expected]]


def test_a_table_without_a_row_that_can_be_compared_says_so():
    text = memory_as_text("runs.csv", (), {"gpt3 dev 0": "num_layers is '8GB', not a whole number above 0"})

    assert "no rows\nleft out, 1: num_layers" in text
    assert memory_as_json({"runs.csv": ((), {})})["runs.csv"]["summary"] == {"rows": 0.0}
