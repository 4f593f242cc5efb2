"""render/report_text.py: the answer first, every number as the report has it."""

import re

import pytest
from all_cases import all_cases
from conftest import make_job
from sample_reports import PARTS, report_of, sample_report
from unmarked import unmarked

import flopcast
from flopcast.cost.kernels.curve_book import CurveBook
from flopcast.prediction import memory_of, predict
from flopcast.render.report_text import marked_memory_text, marked_text
from flopcast.render.tables import BAR, BAR_WIDTH
from flopcast.report.labels import component_label
from flopcast.spec.factor_kinds import KINDS, kind_of
from flopcast.units import show, show_count, show_memory, show_seconds

as_text = unmarked(marked_text)
memory_text = unmarked(marked_memory_text)


def line_of(text, start):
    return next(line for line in text.splitlines() if line.strip().startswith(start))


@all_cases("name", PARTS)
def test_the_answer_stands_in_the_first_lines(name):
    report = sample_report(name)

    lines = as_text(report).splitlines()

    job = report.job
    assert lines[0].startswith(f"{job.model.name} on {job.cluster.name}: {job.cluster.num_devices} × ")
    assert lines[2].startswith(f"step      {show_seconds(report.step_time_s)} ")


@all_cases("name", PARTS)
def test_the_interval_is_printed_beside_the_step(name):
    report = sample_report(name)

    told = line_of(as_text(report), "step ")

    bounds = f"{show_seconds(report.step_time_low_s)} to {show_seconds(report.step_time_high_s)}"
    assert told.endswith(f"(90 %: {bounds})")


@all_cases("name", PARTS)
def test_what_is_printed_of_the_breakdown_sums_to_about_everything(name):
    text = as_text(sample_report(name))

    block = text.split("where the time goes")[1].split("\n\n")[0]
    shares = [float(found) for found in re.findall(r"(\d+\.\d)%", block)]
    assert sum(shares) == pytest.approx(100.0, abs=0.05 * len(shares) + 0.5)


def test_bars_are_as_long_as_their_shares():
    report = sample_report("one stage")

    lines = as_text(report).split("where the time goes")[1].split("\n\n")[0].splitlines()[1:]

    for line, (name, seconds) in zip(lines, report.breakdown.items(), strict=False):
        share = seconds / report.step_time_s
        assert line.strip().startswith(component_label(name))
        assert line.count(BAR) == (max(1, round(share * BAR_WIDTH)) if share > 0.02 else 0)


@pytest.mark.parametrize(("name", "verdict"), [("one stage", ": fits"), ("too large", ": DOES NOT FIT")])
def test_the_verdict_on_memory_cannot_be_missed(name, verdict):
    text = as_text(sample_report(name))

    assert line_of(text, "memory ").endswith(verdict)


def test_warnings_stand_among_the_first_lines():
    lines = as_text(sample_report("too large")).splitlines()

    assert lines[5].startswith("memory")
    assert lines[6].startswith("warning   does not fit")


def test_assumptions_are_listed_last_and_only_if_there_are_any():
    job = make_job().model_copy(update={"assumptions": ("fabric as in the data sheet", "no dropout")})

    text, plain = as_text(report_of(job)), as_text(sample_report("one stage"))

    assert text.endswith("assumed\n  fabric as in the data sheet\n  no dropout")
    assert "assumed" not in plain


def test_the_widest_unknown_is_printed_with_its_share_and_sigma():
    report = sample_report("one stage")
    first = report.factors[0]

    table = as_text(report).split("what the uncertainty depends on")[1]
    told = next(line for line in table.splitlines() if first.name in line)

    assert told.split(maxsplit=3) == [
        f"{first.share:.0%}",
        f"{first.log_sigma_factor:.0%}",
        f"{first.share * first.log_sigma_factor:.1%}",
        f"{kind_of(first.name).label} ({first.name})",
    ]


@all_cases("name", PARTS)
def test_every_factor_of_a_report_is_told_in_words(name):
    for factor in sample_report(name).factors:
        assert kind_of(factor.name) in KINDS.values()


def test_the_weakest_evidence_is_named():
    report = sample_report("one stage")
    weakest = max(report.evidence, key=lambda entry: entry.relative_error)

    told = line_of(as_text(report), "least accurate efficiency curves, by mean error:")

    owner, _, kernel = weakest.curve.partition("/")
    assert f"{kernel} on {owner} {weakest.relative_error:.0%}" in told


def test_extrapolated_curves_are_named():
    report = sample_report("one stage")

    told = line_of(as_text(report), "curves used outside their measured range:")

    far = [entry.curve.partition("/") for entry in report.evidence if entry.extrapolated]
    assert all(f"{kernel} on {owner}" in told for owner, _, kernel in far)


def test_numbers_are_told_in_the_units_of_their_kind():
    report = sample_report("batched")

    text = as_text(report)

    assert f"{show(report.metrics.tokens_per_s, 'tokens/s')}," in text
    assert f"{report.metrics.device_flop_per_s / 1e12:.0f} TFLOP/s per device" in text
    assert f"{report.metrics.mfu_ratio:.1%}" in text


def test_the_rate_of_a_device_is_shown_if_there_are_several():
    for devices in (1, 2):
        report = report_of(flopcast.job("llama-3.2-1b", gpus=devices, plan=f"dp={devices} mbs=1 gbs=8"))

        assert ("per device" in line_of(as_text(report), "rate ")) == (devices > 1)


def test_memory_alone_lists_every_stage():
    job = make_job(**PARTS["batched"])
    memory = memory_of(job)

    lines = memory_text(job, memory).splitlines()

    rows = [line.split() for line in lines[-4:]]
    assert [int(row[0]) for row in rows] == [0, 1, 2, 3]
    assert all(
        show_memory(stage.device_used_bytes) in line
        for stage, line in zip(memory.per_stage, lines[-4:], strict=True)
    )
    assert lines[2].endswith("fits")


def test_memory_alone_names_the_era_of_its_stack():
    job = make_job(stack="megatron-2021")

    first = memory_text(job, memory_of(job)).splitlines()[0]

    assert first.endswith("megatron-2021@2021-04")  # eras of one stack differ in what they keep


def test_memory_alone_says_when_it_does_not_fit():
    job = make_job(**PARTS["too large"])

    assert memory_text(job, memory_of(job)).splitlines()[2].endswith("DOES NOT FIT")


@all_cases("name", PARTS)
def test_the_report_is_plain_text_of_readable_width(name):
    text = as_text(sample_report(name))

    assert "\x1b" not in text
    assert max(len(line) for line in text.split("what the uncertainty")[0].splitlines()) <= 108


def test_an_uncalibrated_report_warns_in_its_first_lines():
    report = predict(make_job(), CurveBook(curves={}))

    assert line_of(as_text(report), "warning ").startswith("warning   uncalibrated")


@all_cases("base", ["model", "nf4"])
def test_a_job_with_adapters_says_what_is_trained(base):
    adapters = {"rank": 8, "targets": ["q", "v"], "base_dtype": base}
    job = make_job(model={"base": "megatron-1.7b", "adapters": adapters})
    report = report_of(job)

    lines = as_text(report).splitlines()

    assert lines[2].startswith(f"trains    {show_count(job.model.trained_parameters())} of ")
    assert lines[3] == "adapters  rank 8 on q, v" + (
        "" if base == "model" else "; frozen weights stored in nf4"
    )
    assert not any(line.startswith("trains") for line in as_text(sample_report("one stage")).splitlines())
