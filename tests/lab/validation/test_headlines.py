"""The suite of headlines: its numbers are the sources', and what the sources claim comes out.

Left out: constants are those of other sources, which no row of the suite gave. Tolerances are those that
stand with the raw numbers (validation/headlines.yaml); what they do not print is in `assumptions`.
"""

import re
import statistics
from functools import cache

import pytest
import yaml
from accuracy_pages import suite_of
from conftest import REPOSITORY, SHARED

from flopcast.api import predict
from flopcast.lab.published.suite_files import load_suite

PEAK_TFLOPS = 989.5  # of H100 in bf16, as arXiv:2504.14960 counts it


@cache
def headlines():
    """The raw blocks; the folder of measurements is not part of a checkout."""
    path = SHARED / "validation" / "headlines.yaml"
    if not path.is_file():
        pytest.skip("the raw measurements (../shared/validation) are not beside this checkout")
    return yaml.safe_load(path.read_text(encoding="utf-8"))["headlines"]


def headline(name):
    return next(block for block in headlines() if block["id"] == name)


def test_the_page_of_headlines_judges_each_or_names_what_is_missing():
    page = (REPOSITORY / "docs/accuracy/headlines.md").read_text(encoding="utf-8")

    told = re.findall(r"^### `(\w+)`$", page, flags=re.MULTILINE)

    assert sorted(told) == sorted(block["id"] for block in headlines())


@pytest.fixture(scope="module")
def rows():
    """Compared rows by id."""
    return {row.id: row for row in suite_of("headlines", "others").rows}


@pytest.fixture(scope="module")
def suite():
    return {row.id: row for row in load_suite("headlines").rows}


def rate(rows, suite, name):
    """TFLOP/s per device as the source counts them, predicted."""
    row = rows[name]
    return suite[name].measured.tflops_per_device / (1.0 + row.relative_error)


def with_plan(job, **changes):
    return job.model_copy(update={"plan": job.plan.model_copy(update=changes)})


def test_rates_of_schedules_are_those_of_figures_12_and_18(suite):
    printed = headline("megatron_lm_interleaved_schedule")["results"]

    for variant, by_batch in printed.items():
        for batch, tflops in by_batch.items():
            row = suite[f"{variant.replace('_', '-')}-{batch}"]
            assert row.measured.tflops_per_device == tflops
            assert row.job.plan.global_batch == batch


def test_every_schedule_is_within_its_tolerance(rows):
    tolerance = headline("megatron_lm_interleaved_schedule")["tolerance"]

    found = [abs(row.relative_error) for row in rows.values() if row.system == "selene-schedules"]

    assert len(found) == 6
    assert max(found) <= tolerance


@pytest.mark.parametrize("batch", [12, 60])
@pytest.mark.parametrize("other", ["non_interleaved", "interleaved_no_scatter_gather"])
def test_interleaving_and_scattered_transfers_gain_what_they_gained(rows, suite, batch, other):
    block = headline("megatron_lm_interleaved_schedule")
    measured = block["results"]["interleaved"][batch] / block["results"][other][batch]
    names = f"interleaved-{batch}", f"{other.replace('_', '-')}-{batch}"

    gain = rate(rows, suite, names[0]) / rate(rows, suite, names[1])

    assert gain > 1.0
    assert gain == pytest.approx(measured, rel=block["tolerance"])


def test_end_points_of_the_tradeoffs_are_within_15_percent(rows):
    found = {row.id: row.relative_error for row in rows.values() if row.system == "selene-tradeoffs"}

    assert len(found) == 14
    assert {name: error for name, error in found.items() if abs(error) > 0.15} == {}


def test_rates_of_tradeoffs_are_those_of_figures_11_13_and_16(suite):
    pipelines, shapes, sizes = headline("megatron_lm_parallel_dimension_tradeoffs")["cases"]

    for batch in (8, 128):
        for stages, tflops in pipelines[f"batch_{batch}"].items():
            assert suite[f"figure-11-pp{stages}-{batch}"].measured.tflops_per_device == tflops
    for batch, points in ((32, shapes["batch_32_peak"]), (128, shapes["batch_128"])):
        for degrees, tflops in points.items():
            row = suite[f"figure-13-pp{degrees.split(',')[0]}-{batch}"]
            assert row.measured.tflops_per_device == tflops
            assert [row.job.plan.pipeline_parallel, row.job.plan.tensor_parallel] == [
                int(degree) for degree in degrees.split(",")
            ]
    for batch in (128, 512):
        for size, tflops in sizes[f"batch_{batch}"].items():
            assert suite[f"figure-16-mbs{size}-{batch}"].measured.tflops_per_device == tflops


@pytest.mark.parametrize("batch", [32, 128])
def test_tensor_parallelism_of_a_node_and_stages_beyond_it_are_best(suite, batch):
    """Figure 13: of (2, 32) to (32, 2), 8 stages of 8 ranks."""
    job = suite["figure-13-pp8-32"].job
    degrees = [(2**n, 64 // 2**n) for n in range(1, 6)]

    seconds = {
        pair: predict(
            with_plan(job, pipeline_parallel=pair[0], tensor_parallel=pair[1], global_batch=batch)
        ).step_time_s
        for pair in degrees
    }

    assert min(seconds, key=seconds.get) == (8, 8)


@pytest.mark.parametrize("batch", [128, 512])
def test_micro_batches_of_two_are_best(suite, batch):
    """Figure 16."""
    job = suite["figure-16-mbs1-128"].job

    seconds = {
        size: predict(with_plan(job, micro_batch=size, global_batch=batch)).step_time_s
        for size in (1, 2, 4, 8)
    }

    assert min(seconds, key=seconds.get) == 2


def folding():
    """Rows of table 3 by name of the suite."""
    block = headline("moe_parallel_folding_mfu")
    found = [dict(zip(block["columns"], row, strict=True)) for row in block["rows"]]
    return {f"{row['model']}-{row['method']}".lower().replace("+", "-"): row for row in found}


def test_rows_of_experts_are_those_of_table_3(suite):
    for name, printed in folding().items():
        if printed["mfu_pct"] == "OOM":
            assert name not in suite
            continue
        row, plan = suite[name], suite[name].job.plan
        assert row.measured.tflops_per_device == pytest.approx(
            printed["mfu_pct"] / 100 * PEAK_TFLOPS, abs=0.01
        )
        assert row.job.cluster.num_devices == printed["gpus"]
        assert [plan.tensor_parallel, plan.expert_parallel, plan.pipeline_parallel] == [
            printed[key] or 1 for key in ("tp", "ep", "pp")
        ]
        folded = "Folding" in printed["method"]
        assert plan.expert_tensor_parallel == (1 if folded else plan.tensor_parallel)


def test_mfu_of_megatron_core_with_experts_is_met_within_11_percent_on_average(rows):
    errors = [abs(row.relative_error) for row in rows.values() if row.system == "eos-folding"]

    assert len(errors) == 8
    assert statistics.mean(errors) <= 0.11


@pytest.mark.parametrize("model", ["mixtral-8x22b", "qwen2-57b-a14b", "mixtral-8x22b-g8t8", "llama3-8x70b"])
def test_folding_pays_where_it_paid(rows, suite, model):
    before, after = f"{model}-mcore", f"{model}-mcore-folding"

    assert rate(rows, suite, after) > rate(rows, suite, before)


def test_baselines_without_stages_rank_as_measured(rows, suite):
    """Ten rows from 2.2 to 36.6 % MFU."""
    names = [name for name, row in rows.items() if row.system == "eos-without-stages"]

    predicted = sorted(names, key=lambda name: rate(rows, suite, name))
    measured = sorted(names, key=lambda name: suite[name].measured.tflops_per_device)

    steps = sum((predicted.index(name) - measured.index(name)) ** 2 for name in names)
    spearman = 1 - 6 * steps / (len(names) * (len(names) ** 2 - 1))
    assert spearman >= 0.9


def test_all_plans_that_ran_fit(suite):
    ran = [row for row in suite.values() if row.system.startswith("eos")]

    assert [row.id for row in ran if not predict(row.job).memory.fits] == []


@pytest.mark.parametrize(
    "plan",
    [{"data_parallel": 4, "context_parallel": 8, "expert_parallel": 1, "zero": 3}, {"zero": 1}],
    ids=["FSDP", "TP+EP+DP"],
)
def test_plans_that_ran_out_of_memory_do_not_fit(suite, plan):
    """Llama3-8x70B on 256 devices; FSDP + EP, from which these differ, ran and fits."""
    ran = suite["llama3-8x70b-fsdp-ep"].job

    assert not predict(with_plan(ran, **plan)).memory.fits
    assert predict(ran).memory.fits


def v100():
    block = headline("oneflow_vs_megatron_v100")
    found = [dict(zip(block["columns"], row, strict=True)) for row in block["rows"]]
    return {row["case"].lower().replace("_", "-"): row for row in found}


def test_steps_on_v100_are_the_sequences_per_second_of_the_report(suite):
    for name, printed in v100().items():
        row = suite[name]
        rate_per_s = row.job.plan.global_batch / row.measured.step_time_s
        assert rate_per_s == pytest.approx(printed["megatron_seq_s"], rel=0.005)
        assert row.job.cluster.num_devices == printed["gpus"]


def test_megatron_on_v100_is_within_15_percent_but_for_tensor_parallelism_across_four_nodes(rows):
    tolerance = headline("oneflow_vs_megatron_v100")["tolerance"]["absolute"]

    found = {row.id: row.relative_error for row in rows.values() if row.system == "v100-infiniband"}

    assert len(found) == 18
    far = {name for name, error in found.items() if abs(error) > tolerance}
    assert far == {"mp-1x32x1-16-3072x32"}


def test_tensor_parallelism_across_nodes_collapses_as_measured(rows, suite):
    """Per device and FLOP, 16 ranks of two nodes take more than three times what 8 of one take."""
    printed = v100()
    names = "mp-1x8x1-16-1536x16", "mp-1x16x1-16-3072x16"

    measured = printed[names[0]]["megatron_tflops"] / printed[names[1]]["megatron_tflops"]
    ratio = measured * (1 + rows[names[1]].relative_error) / (1 + rows[names[0]].relative_error)

    assert measured > 4
    assert ratio > 3


@pytest.mark.parametrize(
    ("case", "base"),
    [
        ("dp-16x1x1-32-1536x16", "dp-8x1x1-16-1536x16"),
        ("dp-32x1x1-64-1536x16", "dp-8x1x1-16-1536x16"),
        ("2d-1x8x1-16-1536x16", "2d-8x1x1-16-1536x16"),
        ("2d-2x4x1-16-1536x16", "2d-8x1x1-16-1536x16"),
        ("2d-4x2x1-16-1536x16", "2d-8x1x1-16-1536x16"),
        ("2d-pp-2x4x4-512-2304x24", "mp-pp-1x8x4-512-2304x24"),
        ("2d-pp-2x8x2-512-2304x24", "mp-pp-1x8x4-512-2304x24"),
    ],
)
def test_another_division_on_v100_costs_or_gains_as_measured(rows, case, base):
    block = headline("oneflow_vs_megatron_v100")
    measured = v100()[case]["megatron_seq_s"] / v100()[base]["megatron_seq_s"]

    ratio = measured * (1 + rows[base].relative_error) / (1 + rows[case].relative_error)

    assert ratio == pytest.approx(measured, rel=block["tolerance"]["ratio"])


# Of these the ratio is not reached: Megatron-LM took 0.8 and 3.8 s longer than the same messages take under
# OneFlow and than its own reductions suggest; OneFlow's whole activations did not hide under compute.
FAR_RATIOS = {"mp-1x16x1-16-3072x16", "mp-1x32x1-16-3072x32", "mp-pp-1x8x4-512-2304x24"}


def test_oneflow_s_steps_on_v100_are_those_of_its_report(suite):
    for name, printed in v100().items():
        row = suite[f"oneflow-{name}"]
        rate_per_s = row.job.plan.global_batch / row.measured.step_time_s
        assert rate_per_s == pytest.approx(printed["oneflow_seq_s"], rel=0.005)
        assert row.job.cluster == suite[name].job.cluster
        assert row.job.model == suite[name].job.model


def test_oneflow_on_v100_is_within_15_percent_but_for_whole_activations_of_sixteen_sequences(rows):
    tolerance = headline("oneflow_vs_megatron_v100")["tolerance"]["absolute"]

    found = {row.id: row.relative_error for row in rows.values() if row.system == "v100-oneflow"}

    assert len(found) == 18
    far = {name for name, error in found.items() if abs(error) > tolerance}
    assert far == {"oneflow-mp-pp-1x8x4-512-2304x24"}


def test_oneflow_gains_over_megatron_what_it_gained_in_15_of_18_cases(rows):
    tolerance = headline("oneflow_vs_megatron_v100")["tolerance"]["ratio"]

    far = set()
    for name, printed in v100().items():
        measured = printed["oneflow_seq_s"] / printed["megatron_seq_s"]
        megatron, oneflow = rows[name], rows[f"oneflow-{name}"]
        ratio = measured * (1 + megatron.relative_error) / (1 + oneflow.relative_error)
        if abs(ratio / measured - 1) > tolerance:
            far.add(name)

    assert far == FAR_RATIOS
