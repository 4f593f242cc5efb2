"""The first suites: measured runs of three publications, and the targets that they must keep."""

import json
import math
import statistics

import pytest
from accuracy_pages import suite_of
from unmarked import unmarked

from flopcast import validate_suite
from flopcast.errors import SpecError
from flopcast.lab.published.suite_files import load_suite
from flopcast.lab.validation.compare import jitter_of
from flopcast.lab.validation.statistics import by_component
from flopcast.render.suite_comparison import as_json, marked_text

as_text = unmarked(marked_text)

EXCEPTED = ("127321", "dp_grad_allreduce")  # 194-204 ms there, 459 in its twin, 85 by the tables


@pytest.fixture(scope="module")
def paper():
    return suite_of("paper")


@pytest.fixture(scope="module")
def sc21():
    return suite_of("sc21")


@pytest.fixture(scope="module")
def korthikanti():
    return suite_of("korthikanti")


def rows_of(comparison, system, reference):
    return [r for r in comparison.rows if r.system.startswith(system) and r.reference == reference]


def mean_error(rows):
    return statistics.mean(abs(row.relative_error) for row in rows)


@pytest.mark.parametrize(
    ("system", "reference", "limit", "papers_own"),
    [
        ("perlmutter", "best", 0.03, 0.0498),  # arXiv:2509.22832, abstract
        ("vista", "best", 0.05, 0.0938),
        ("perlmutter", "mean", 0.04, 0.057),
        ("vista", "mean", 0.12, 0.193),
    ],
)
def test_the_papers_runs_are_predicted_closer_than_the_paper_does(
    paper, system, reference, limit, papers_own
):
    rows = rows_of(paper, system, reference)

    assert len(rows) == 5
    assert mean_error(rows) <= limit < papers_own


def test_components_are_right_and_not_only_their_sum(paper):
    judged = [c for c in paper.components if (c.id, c.component) != EXCEPTED]

    assert len(judged) == 128
    assert statistics.mean(abs(c.relative_error) for c in judged) <= 0.07


def test_no_class_of_component_is_far_off_but_the_optimizer_whose_cause_is_stated(paper):
    judged = [c for c in paper.components if (c.id, c.component) != EXCEPTED]
    classes = {name: found["mape"] for name, found in by_component(judged).items()}

    optimizer = classes.pop("optimizer_step_incl_param_allgather")
    assert max(classes.values()) <= 0.12
    # LLaMA-13B on Perlmutter skipped its update; what was measured there is 61 ms of waiting over TCP
    without = [c for c in judged if "optimizer" in c.component and c.id != "31674706"]
    assert statistics.mean(abs(c.relative_error) for c in without) <= 0.135 < optimizer


def test_peak_memory_of_the_papers_runs_is_within_six_percent_of_their_logs(paper):
    known = [row for row in paper.rows if row.measured_memory_bytes and row.reference == "best"]
    off = [row.predicted_memory_bytes / row.measured_memory_bytes - 1 for row in known]

    assert len(off) == 6
    assert max(abs(value) for value in off) <= 0.06
    assert statistics.mean(abs(value) for value in off) <= 0.035


def test_what_the_papers_runs_keep_between_steps_is_within_three_percent_of_their_logs(paper):
    """Of the first stage, also where another is fuller (run 31697099, whose second stage peaks higher)."""
    known = [row for row in paper.rows if row.measured_resident_bytes and row.reference == "best"]
    off = {row.id: row.predicted_resident_bytes / row.measured_resident_bytes - 1 for row in known}

    assert len(off) == 6
    assert max(abs(value) for value in off.values()) <= 0.03
    assert abs(off["31697099"]) <= 0.01


def test_the_weak_scaling_of_sc21_is_met_by_constants_of_other_sources():
    off = [abs(row.relative_error) for row in suite_of("sc21", "others").rows]

    assert len(off) == 10
    assert statistics.mean(off) <= 0.05
    assert max(off) <= 0.1


def test_a_suite_whose_runs_gave_constants_is_not_judged_by_them():
    with pytest.raises(SpecError, match="korthikanti-2022"):
        validate_suite("korthikanti", "others")


def test_table_5_of_korthikanti_is_met_with_nothing_fitted(korthikanti):
    derates = {row.job.stack.derate.ratio for row in korthikanti.suite.rows}

    assert derates == {1.0}
    assert len(korthikanti.rows) == 8
    assert mean_error(korthikanti.rows) <= 0.04


def test_nine_in_ten_measurements_lie_inside_their_intervals(paper, sc21, korthikanti):
    rows = [row for comparison in (paper, sc21, korthikanti) for row in comparison.rows]

    assert statistics.mean(row.covered for row in rows) >= 0.9


def test_the_host_is_fitted_on_the_other_system(paper):
    assert set(paper.host_ratio) == {"perlmutter-a100-sxm4-80gb", "vista-gh200"}
    assert all(0.5 < ratio < 2 for ratio in paper.host_ratio.values())
    assert len(set(paper.host_ratio.values())) == 2


def test_the_jitter_of_a_row_leaves_that_row_out(paper):
    vista = [row for row in paper.suite.rows if row.system == "vista-gh200"]
    logs = {r.id: math.log(r.measured.mean_step_time_s / r.measured.best_step_time_s) for r in vista}

    for row_id in logs:
        others = [value for other, value in logs.items() if other != row_id]
        assert paper.jitter_ratio[row_id] == pytest.approx(math.exp(statistics.mean(others)))


def test_the_catalogues_jitter_is_what_the_suite_shows(paper):
    from flopcast.library.catalog import cluster

    known = jitter_of(paper.suite)

    for system, name in (("perlmutter-a100-sxm4-80gb", "perlmutter-tcp"), ("vista-gh200", "vista")):
        assert cluster(name).jitter.ratio == pytest.approx(known[system][0], abs=5e-4)
        assert cluster(name).jitter.log_sigma_factor == pytest.approx(known[system][1], abs=5e-4)


def test_a_step_without_update_is_not_charged_for_one(paper):
    skipped = {row.id for row in paper.suite.rows if row.update_skipped}
    told = [r for r in paper.rows if r.id in skipped and r.reference == "best"]

    assert skipped == {"31674706", "136645"}
    assert all(any("OVERFLOW" in text for text in row.assumptions) for row in told)


def test_measurements_in_the_suite_are_those_of_the_raw_data(shared):
    import csv

    suite = {row.id: row for row in load_suite("paper").rows}
    with (shared / "data/end_to_end/runs.csv").open() as file:
        runs = {r["run_id"]: r for r in csv.DictReader(file) if r["reported_in_paper"] == "yes"}
    with (shared / "data/end_to_end/components.csv").open() as file:
        components = {
            (r["run_id"], r["component"], r["stage"]): float(r["measured_us"]) for r in csv.DictReader(file)
        }

    assert suite.keys() == runs.keys()
    for run_id, row in suite.items():
        printed, plan = runs[run_id], row.job.plan
        assert row.measured.best_step_time_s == pytest.approx(float(printed["best_step_s"]), abs=1e-4)
        assert (plan.pipeline_parallel, plan.tensor_parallel, plan.data_parallel) == tuple(
            int(printed[key]) for key in ("pp", "tp", "dp")
        )
        assert row.job.cluster.num_devices == int(printed["gpus"])
        assert plan.num_micro_batches == int(printed["microbatches"])
        for entry in row.components:
            raw_us = components[run_id, entry.component, entry.stage]
            assert entry.measured_s == pytest.approx(raw_us * 1e-6, rel=1e-4)


def test_layers_stand_on_the_stages_that_the_runs_print(shared):
    import csv

    from flopcast import predict

    with (shared / "data/end_to_end/runs.csv").open() as file:
        printed = {r["run_id"]: r["layers_per_stage"] for r in csv.DictReader(file)}

    for row in load_suite("paper").rows:
        division = predict(row.job).priced.programs.stages.of(0)
        blocks = division.chunk_counts[division.chunk_class[:, 0], 1].astype(int)
        assert "-".join(map(str, blocks)) == printed[row.id]


def test_sc21_and_korthikanti_are_the_published_tables(shared):
    import csv

    yaml = pytest.importorskip("yaml")
    headlines = yaml.safe_load((shared / "validation/headlines.yaml").read_text(encoding="utf-8"))
    table = next(h for h in headlines["headlines"] if h["id"] == "megatron_lm_weak_scaling")["rows"]
    with (shared / "validation/published_runs.csv").open(encoding="utf-8") as file:
        published = {r["id"]: r for r in csv.DictReader(file) if r["source_key"] == "korthikanti-2022"}

    for row, printed in zip(load_suite("sc21").rows, table, strict=True):
        plan, block = row.job.plan, row.job.model.blocks[0]
        assert [block.mixer.heads, row.job.model.hidden, block.count] == printed[1:4]
        assert [plan.tensor_parallel, plan.pipeline_parallel, row.job.cluster.num_devices] == printed[4:7]
        assert [plan.global_batch, plan.micro_batch] == printed[7:9]
        assert row.measured.tflops_per_device == printed[11]
    for row in load_suite("korthikanti").rows:
        printed = published[row.id]
        assert row.measured.step_time_s == float(printed["step_time_s"])
        assert row.job.model.hidden == float(printed["hidden"])
        assert row.job.plan.virtual_stages == float(printed["vpp"])
        assert row.job.plan.recompute == printed["recompute"]


def test_the_json_of_a_validation_has_its_public_keys(paper):
    plain = as_json([paper])

    assert plain.keys() >= {"format_version", "rows", "components", "sources"}
    assert plain["rows"][0].keys() >= {
        "id", "source", "system", "reference", "measured_step_time_s", "predicted_step_time_s", "low_s",
        "high_s", "measured_memory_bytes", "predicted_memory_bytes", "refused", "assumptions",
    }  # fmt: skip
    assert plain["components"][0].keys() == {"id", "component", "stage", "measured_s", "predicted_s"}
    assert len(plain["rows"]) == 20
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain


def test_the_jitter_that_a_mean_step_was_predicted_with_is_told(paper):
    """Vista's runs are the noisier: means are 1.10 to 1.15 of the best steps, Perlmutter's 1.01 to 1.02."""
    told = {(row["id"], row["reference"]): row["jitter_ratio"] for row in as_json([paper])["rows"]}

    assert told["136645", "best"] is None
    assert told["136645", "mean"] == pytest.approx(paper.jitter_ratio["136645"])
    assert "steps on vista-gh200: multiplied by 1.098 to 1.150" in as_text(paper)


def test_the_text_names_every_run_and_every_component_class(paper):
    text = as_text(paper)

    assert all(row.id in text for row in paper.suite.rows)
    assert all(entry.component in text for entry in paper.components)
