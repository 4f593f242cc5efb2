"""report/report.py: what a report holds adds up, whatever the job."""

import pytest
from all_cases import all_cases
from conftest import make_job
from sample_reports import PARTS, report_of, sample_report, with_site
from unmarked import unmarked

from flopcast.cost.kernels.curve_book import CurveBook
from flopcast.jobs import job
from flopcast.prediction import memory_of, predict
from flopcast.predictor import Predictor
from flopcast.render.report_page import as_html
from flopcast.render.report_text import marked_text
from flopcast.report.report import BUBBLE, JITTER, LAUNCH

as_text = unmarked(marked_text)

COMPONENTS = {
    "attention", "mlp", "norm", "residual", "embedding", "head", "gradients", "optimizer", "host",
    "tp_communication", "pp_communication", "dp_communication", BUBBLE, JITTER,
}  # fmt: skip


@all_cases("name", PARTS)
def test_the_breakdown_sums_to_the_step_jitter_included(name):
    report = sample_report(name)

    assert sum(report.breakdown.values()) == pytest.approx(report.step_time_s, rel=1e-9)


@all_cases("name", PARTS)
def test_the_largest_component_comes_first_and_none_is_empty(name):
    seconds = list(sample_report(name).breakdown.values())

    assert seconds == sorted(seconds, reverse=True)
    assert min(seconds) > 0


@all_cases("name", PARTS)
def test_components_have_the_names_of_the_glossary(name):
    assert sample_report(name).breakdown.keys() <= COMPONENTS


def test_jitter_lengthens_a_clean_step_by_its_ratio_and_is_shown():
    report = sample_report("jitter")

    assert report.step_time_s == pytest.approx(1.1 * report.clean_step_time_s)
    assert report.breakdown[JITTER] == pytest.approx(0.1 * report.clean_step_time_s)


def test_a_machine_without_jitter_shows_none():
    cluster = {"base": "dgx-a100", "nodes": 1, "jitter": {"ratio": 1.0}}
    report = report_of(make_job(cluster=cluster))

    assert report.step_time_s == report.clean_step_time_s
    assert JITTER not in report.breakdown


def test_one_stage_has_no_bubble_and_several_have_one():
    assert BUBBLE not in sample_report("one stage").breakdown
    assert sample_report("batched").breakdown[BUBBLE] > 0


@pytest.mark.parametrize("micro_batches", [4, 8, 32])
def test_the_bubble_shrinks_as_the_textbook_says(micro_batches):
    # arXiv:2104.04473, section 2.2.1: bubble over ideal = (p - 1) / m; ends and unequal stages aside
    model = {
        "hidden": 4096,
        "vocabulary": 128,
        "blocks": [{"count": 32, "mixer": {"heads": 32}, "feed_forward": {"ffn_hidden": 16384}}],
    }
    plan = f"tp=8 pp=4 gbs={micro_batches} precision=fp16"
    report = report_of(make_job(model=model, cluster="dgx-a100:4", plan=plan))

    timeline = report.timeline
    ideal = sum(
        share.path_s
        for share in timeline.bottleneck_attribution
        if share.item is None or share.item.phase != "step"
    )

    assert timeline.bottleneck_waits_s / ideal == pytest.approx(3 / micro_batches, rel=0.1)


def test_a_host_that_cannot_feed_the_device_is_a_component():
    host = {"forward_item_s": "10 ms", "backward_item_s": "10 ms"}

    report = report_of(make_job(stack={"base": "megatron-2022", "host": host}))

    assert next(iter(report.breakdown)) == LAUNCH
    assert report.breakdown[LAUNCH] > 0.9 * report.step_time_s


@all_cases("name", PARTS)
def test_categories_of_memory_sum_to_what_is_allocated(name):
    memory = sample_report(name).memory

    assert sum(memory.by_category.values()) == pytest.approx(memory.allocated_bytes, rel=1e-9)


@all_cases("name", PARTS)
def test_the_told_stage_is_the_fullest(name):
    memory = sample_report(name).memory

    assert memory.device_used_bytes == max(stage.device_used_bytes for stage in memory.per_stage)
    assert [stage.stage for stage in memory.per_stage] == list(range(len(memory.per_stage)))


@all_cases("name", PARTS)
def test_memory_only_grows_from_resident_to_allocated_to_reserved_to_used(name):
    memory = sample_report(name).memory

    sizes = [memory.resident_bytes, memory.allocated_bytes, memory.reserved_bytes, memory.device_used_bytes]
    assert sizes == sorted(sizes)


@all_cases("name", PARTS)
def test_a_plan_fits_where_the_device_holds_what_the_driver_sees(name):
    report = sample_report(name)

    fits = report.memory.device_used_bytes <= report.job.cluster.node.device.memory_bytes

    assert report.memory.fits == fits
    assert any(text.startswith("does not fit") for text in report.warnings) == (not fits)


def test_what_does_not_fit_is_told_with_how_far_it_is_off():
    report = sample_report("too large")

    share = report.memory.expected_bytes / (80 * 2**30)
    assert not report.memory.fits
    assert report.warnings == (f"does not fit: the job needs {share:.0%} of the device's memory",)


def test_only_a_pipeline_has_a_fullest_and_a_busiest_stage():
    for pp in (1, 2):
        report = Predictor().predict(
            job("llama-3-8b", cluster="dgx-h100:1", plan=f"dp={8 // pp} pp={pp} gbs=64")
        )

        for told in (as_text(report), as_html(report)):
            shown = told.lower()
            assert ("fullest stage" in shown) == (pp > 1)
            assert ("busiest stage" in shown) == (pp > 1)


@pytest.mark.parametrize(("update_bytes", "moment"), [("0 B", "backward"), ("500 B", "update")])
def test_a_stage_is_fullest_where_it_needs_most(update_bytes, moment):
    # 500 bytes a parameter while the optimizer runs are more than any activation of the small GPT
    job = make_job(stack={"base": "megatron-2022", "memory": {"update_bytes": update_bytes}})

    memory = memory_of(job)

    assert [stage.moment for stage in memory.per_stage] == [moment]
    assert ("update" in memory.by_category) == (moment == "update")


def test_an_mfu_above_one_is_explained_and_never_above_two():
    """Attention at its roofline, of which the convention counts twice what a causal kernel does."""
    long = make_job(
        stack="megatron-core", batch={"sequence_length": 262144}, plan="dp=8 mbs=1 gbs=16 precision=bf16"
    )
    levels = ("gemm_level", "attention_level", "memory_level")
    fast = {f"{level}[a100-sxm4-80gb]": 0.01 for level in levels}

    usual, report = report_of(long), report_of(with_site(long, fast))

    assert usual.metrics.mfu_ratio < 1 < report.metrics.mfu_ratio <= 2
    assert any(text.startswith("MFU is above 1") for text in report.warnings)
    assert not any(text.startswith("MFU is above 1") for text in usual.warnings)


def test_without_any_curve_the_report_says_that_it_is_uncalibrated():
    job = make_job()

    report = predict(job, CurveBook(curves={}))

    assert any(text.startswith("uncalibrated: no curve covers") for text in report.warnings)
    assert all("data sheet" in evidence.source for evidence in report.evidence)


def test_an_uncalibrated_prediction_is_less_sure_than_a_calibrated_one():
    sure, guessed = sample_report("one stage"), predict(make_job(), CurveBook(curves={}))

    widths = [report.step_time_high_s / report.step_time_low_s for report in (sure, guessed)]

    assert widths[1] > widths[0]


@all_cases("name", PARTS)
def test_every_curve_that_priced_something_is_named_once_with_its_source(name):
    evidence = sample_report(name).evidence

    assert len({entry.curve for entry in evidence}) == len(evidence) > 3
    assert all(entry.source and entry.relative_error >= 0 for entry in evidence)
    assert any(entry.curve.endswith("/gemm") for entry in evidence)


def test_shapes_outside_the_measured_range_are_marked_as_extrapolated():
    # data/operators of the A100 times GEMMs of 2048 rows and more, sums over 512 to 32768 products
    block = {"count": 2, "mixer": {"heads": 32}, "feed_forward": {"ffn_hidden": 16384}}
    model = {"hidden": 4096, "vocabulary": 32000, "blocks": [block]}
    rows = {length: make_job(model=model, batch={"sequence_length": length}) for length in (1024, 2048)}

    told = {length: report_of(job) for length, job in rows.items()}

    marks = {n: [e.extrapolated for e in r.evidence if e.curve.endswith("/gemm")] for n, r in told.items()}
    names = {n: {factor.name for factor in r.factors} for n, r in told.items()}
    assert marks == {1024: [True], 2048: [False]}
    assert "extrapolated[gemm]" in names[1024] - names[2048]


def test_what_the_job_assumes_is_handed_on():
    job = make_job().model_copy(update={"assumptions": ("dropout 0.1",)})

    assert report_of(job).assumptions == ("dropout 0.1",)


@all_cases("name", PARTS)
def test_the_interval_holds_the_step(name):
    report = sample_report(name)

    assert report.step_time_low_s < report.step_time_s < report.step_time_high_s
