"""The table of measured rates with weights outside the device: rows become jobs, or say why they do not."""

from flopcast.lab.measured_tables import SERVING
from flopcast.lab.scores import statistics
from flopcast.lab.serving_runs.score import score_runs


def table_of(shared):
    return shared / "data" / "offload" / "offload_inference_throughput.yaml"


def test_rows_of_known_engines_are_predicted_within_a_quarter_in_the_median(shared):
    """18 rows: 3.6 % in the median. Rows on T4, on which nothing was fitted: 20 %."""
    scores = score_runs(SERVING.read(table_of(shared)))

    assert len(scores.rows) == 18
    assert statistics(scores.rows)["median"] < 0.10
    on_t4 = [row for row in scores.rows if row.run.groups["device"].startswith("T4")]
    assert statistics(on_t4)["median"] < 0.25


def test_fitted_rates_predict_better_than_those_of_other_models_and_these_better_than_none(shared):
    """On A6000, 12 rows: 1.8 % fitted, 7.9 % with the other model left in the fit, 28 % without rates."""
    runs = [run for run in SERVING.read(table_of(shared)) if run.groups["device"].startswith("A6000")]
    fitted, left_out, never = (
        statistics(score_runs(runs, constants).rows)["median"]
        for constants in ("catalogue", "model", "none")
    )

    assert fitted < left_out < 0.15 < never


def test_other_rows_are_left_out_with_a_reason(shared):
    left_out = [run for run in SERVING.read(table_of(shared)) if run.job is None]

    assert sorted({run.groups["engine"].split()[0] for run in left_out}) == ["FlexLLMGen", "Petals"]
    assert all(run.reason for run in left_out)


def test_a_row_has_the_memory_and_the_lengths_of_its_block(tmp_path):
    path = tmp_path / "rates.yaml"
    path.write_text(
        "- id: mine\n"
        "  hardware: {gpu: T4 16GB, host_memory_GB: 100}\n"
        "  workload: {prompt_tokens: 128, output_tokens: 8}\n"
        "  columns: [system, model, tokens_per_s, effective_batch, lowest_tier]\n"
        "  rows:\n"
        "    - [HF Accelerate, OPT-30B, 0.5, 4, cpu]\n",
        encoding="utf-8",
    )
    (run,) = SERVING.read(path)

    assert run.job is not None
    assert run.job.cluster.node.memory.capacity_bytes == 100e9
    assert run.job.plan.weights_on == "host"
    assert (run.job.traffic.concurrency, run.job.plan.max_tokens) == (4, 512)


def test_other_yaml_files_are_no_tables(tmp_path):
    for place, text in enumerate(("{model: opt-30b}", "- {columns: [a], rows: [[1]]}", "a: [", "- 1")):
        path = tmp_path / f"{place}.yaml"
        path.write_text(text, encoding="utf-8")
        assert not SERVING.holds(path)
