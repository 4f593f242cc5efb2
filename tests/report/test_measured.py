"""A prediction beside a log: by which formula does it count, what was measured, do the two belong together?

Oracles are published log lines and formulas written out by hand. The job is the small GPT of conftest.
"""

import json
from pathlib import Path

import numpy as np
import pytest
from all_cases import all_cases
from conftest import make_job
from sample_reports import report_of, sample_report
from unmarked import unmarked

from flopcast.lab.logs.log import Log, LoggedSteps
from flopcast.lab.logs.prediction_check import compare_with_log
from flopcast.lab.logs.reader import read_log, read_log_file
from flopcast.render.log_comparison import as_json, marked_text
from flopcast.report.flop_conventions import CONVENTIONS, match_convention

as_text = unmarked(marked_text)

LOGS = Path(__file__).parents[1] / "lab" / "logs"
HIDDEN, LAYERS, LENGTH, BATCH, PADDED = (
    1024,
    8,
    1024,
    16,
    50304,
)  # the small GPT; 50257 tokens padded to 128
GQA = {
    "hidden": 4096,
    "vocabulary": 128256,
    "blocks": [
        {
            "count": 32,
            "mixer": {"heads": 32, "kv_heads": 8},
            "feed_forward": {"ffn_hidden": 14336, "activation": "swiglu"},
            "norm": "rmsnorm",
        }
    ],
}
BLOOM = {
    "hidden": 14336,
    "vocabulary": 250680,
    "tied_embeddings": True,
    "blocks": [{"count": 70, "mixer": {"heads": 112}, "feed_forward": {"ffn_hidden": 57344}}],
}


def made_log(times_s, framework="megatron-lm", device_flop_per_s=np.nan, **sizes):
    """A log of records with these step times, numbered from 1, the first of which is warm-up."""
    nothing = np.full(len(times_s), np.nan)
    steps = LoggedSteps(
        step=np.arange(1.0, len(times_s) + 1),
        step_time_s=np.array(times_s),
        device_flop_per_s=np.full(len(times_s), device_flop_per_s),
        tokens_per_s=nothing,
        device_tokens_per_s=nothing,
        samples_per_s=nothing,
        global_batch=nothing,
    )
    return Log(name="made.log", framework=framework, steps=steps, **sizes)


def compared(name):
    return compare_with_log(sample_report("one stage"), read_log_file(LOGS / f"{name}.log"))


def line_of(text, start):
    return next(line for line in text.splitlines() if line.startswith(start))


def test_the_rate_of_bloom_is_counted_with_recompute_as_in_2021():
    """BigScience's chronicle of its 176 B run: 105.22 s, 149.02 TFLOPs on 384 devices, 2048 sequences."""
    plan = "dp=128 tp=4 mbs=2 gbs=2048 recompute=full precision=bf16"
    job = make_job(model=BLOOM, batch={"seq": 2048}, cluster="dgx-a100:64", plan=plan)

    match = match_convention(job, 149.02e12 * 384 * 105.22, "megatron-deepspeed")

    assert (match.name, match.known) == ("megatron-2021", True)
    assert match.mismatch_ratio == pytest.approx(0, abs=1e-4)


@all_cases(
    ("name", "flop"),
    [
        (
            "megatron-2021",
            96 * BATCH * LENGTH * LAYERS * HIDDEN**2
            * (1 + LENGTH / (6 * HIDDEN) + PADDED / (16 * LAYERS * HIDDEN)),
        ),
        (
            "megatron-2021-without-recompute",
            72 * BATCH * LENGTH * LAYERS * HIDDEN**2
            * (1 + LENGTH / (6 * HIDDEN) + PADDED / (16 * LAYERS * HIDDEN)),
        ),
        (
            "megatron-core",
            12 * BATCH * LENGTH * LAYERS * HIDDEN**2 * (1 + 1 + 1 + 4 + PADDED / (2 * LAYERS * HIDDEN)),
        ),
        (
            "megatron-core-causal",
            12 * BATCH * LENGTH * LAYERS * HIDDEN**2 * (1 + 1 + 0.5 + 4 + PADDED / (2 * LAYERS * HIDDEN)),
        ),
        (
            "deepspeed-profiler",
            12 * BATCH * LENGTH * LAYERS * HIDDEN**2 * (1 + 1 + 1 + 4 + 50257 / (2 * LAYERS * HIDDEN)),
        ),
    ],
)  # fmt: skip
def test_a_formula_gives_what_its_source_writes(name, flop):
    assert CONVENTIONS[name].flop(make_job()) == pytest.approx(flop, rel=1e-12)


def test_grouped_heads_and_gated_feed_forwards_are_counted_by_the_newer_formula():
    """12 B s l h² (1 + 8/32 + s/h + 1.5 · 14336/4096 + V/2lh): Megatron-LM with GQA and SwiGLU."""
    job = make_job(model=GQA, batch={"seq": 8192}, plan="tp=8 mbs=1 gbs=4 sp precision=bf16")
    padded = 128 * 8 * 126  # 128256 tokens on 8 ranks

    inner = 1 + 8 / 32 + 8192 / 4096 + 1.5 * 14336 / 4096 + padded / (2 * 32 * 4096)
    assert CONVENTIONS["megatron-core"].flop(job) == pytest.approx(12 * 4 * 8192 * 32 * 4096**2 * inner)


def test_six_n_counts_the_parameters_of_llama_3_8b():
    """Its model card: 8.03 B parameters, of which 128256 · 4096 are a table; 4 · 8192 tokens a step."""
    job = make_job(model=GQA, batch={"seq": 8192}, plan="tp=8 mbs=1 gbs=4 sp precision=bf16")
    tokens, table, attention = 4 * 8192, 128256 * 4096, 12 * 32 * 4096 * 8192

    assert CONVENTIONS["6n"].flop(job) == pytest.approx(6 * 8.030e9 * tokens, rel=1e-3)
    expected = (6 * (8.030e9 - table) + attention) * tokens
    assert CONVENTIONS["torchtitan"].flop(job) == pytest.approx(expected, rel=1e-3)
    halved = (6 * (8.030e9 - table) + attention / 2) * tokens
    assert CONVENTIONS["torchtitan-causal"].flop(job) == pytest.approx(halved, rel=1e-3)


@pytest.mark.parametrize("causal", ["", "-causal"])
def test_the_hardware_counts_a_third_more_of_the_blocks_where_all_are_recomputed(causal):
    plain, full = make_job(), make_job(plan="dp=8 mbs=1 gbs=16 recompute=full precision=fp16")
    head = 6 * BATCH * LENGTH * HIDDEN * PADDED

    once = CONVENTIONS[f"hardware{causal}"].flop(plain) - head
    twice = CONVENTIONS[f"hardware{causal}"].flop(full) - head

    assert twice == pytest.approx(4 / 3 * once)


@all_cases("name", CONVENTIONS)
def test_every_convention_names_its_source(name):
    assert len(CONVENTIONS[name].source) > 20


@all_cases("name", CONVENTIONS)
def test_each_convention_is_recognised_within_rounding(name):
    """Formulas that differ by less than a printed rate's rounding may stand for one another."""
    job = make_job(plan="dp=8 mbs=1 gbs=16 recompute=full precision=fp16")
    flop = CONVENTIONS[name].flop(job)

    match = match_convention(
        job, flop, CONVENTIONS[name].frameworks[0] if CONVENTIONS[name].frameworks else ""
    )

    assert match.known
    assert CONVENTIONS[match.name].flop(job) == pytest.approx(flop, rel=0.005)


def test_the_frameworks_own_formula_is_named_where_two_cannot_be_told_apart():
    """torchtitan and Megatron-LM count the small GPT within 0.01 % of each other."""
    flop = CONVENTIONS["megatron-core"].flop(make_job())

    assert match_convention(make_job(), flop, "torchtitan").name == "torchtitan"
    assert match_convention(make_job(), flop, "megatron-lm").name == "megatron-core"


@pytest.mark.parametrize("times", [0.1, 3.0])
def test_a_rate_that_no_formula_explains_is_not_compared(times):
    report = sample_report("one stage")
    rate = times * 16.6e12 / 8 / 0.05

    measured = compare_with_log(report, made_log([1.0, 0.05, 0.05], device_flop_per_s=rate))

    assert not measured.convention.known
    assert measured.predicted_device_flop_per_s is None
    assert "no known formula gives a rate within 5% of it" in as_text(measured)


def test_the_measured_step_is_the_steady_median_and_the_forecast_the_reports():
    measured = compared("megatron-lm")

    assert measured.step.median_s == pytest.approx(0.05)
    assert measured.predicted_step_time_s == sample_report("one stage").step_time_s


@pytest.mark.parametrize(("times", "inside"), [(1.0, True), (0.5, False), (2.0, False)])
def test_a_median_outside_the_interval_is_told(times, inside):
    report = sample_report("one stage")

    measured = compare_with_log(report, made_log([9.0, *[times * report.step_time_s] * 3]))

    assert measured.inside == inside
    assert ("OUTSIDE the interval" in as_text(measured)) == (not inside)


def test_a_rate_is_predicted_by_the_logs_formula():
    """16.609 TFLOP a step by Megatron-LM's formula, over 8 devices and the predicted step."""
    measured = compared("megatron-lm")

    assert measured.convention.name == "megatron-core"
    assert measured.measured_device_flop_per_s == pytest.approx(41.5e12)
    expected = 16.6086e12 / 8 / measured.predicted_step_time_s
    assert measured.predicted_device_flop_per_s == pytest.approx(expected, rel=1e-4)


def test_tokens_per_second_follow_from_batch_and_step():
    """16 sequences of 1024 tokens in 50 ms."""
    assert compared("megatron-lm").measured_tokens_per_s == pytest.approx(327680)


def test_tokens_of_a_device_are_multiplied_by_the_devices():
    """torchtitan prints 80000, 81920, 82000 and 81000 after its first step; 8 devices."""
    measured = compared("torchtitan-two-ranks")

    assert measured.measured_tokens_per_s == pytest.approx(8 * (81000 + 81920) / 2)


def test_a_printed_rate_without_a_step_time_is_matched_by_the_tokens():
    measured = compared("torchtitan-two-ranks")

    assert (measured.convention.name, measured.convention.known) == ("torchtitan", True)


def test_memory_is_the_largest_over_ranks():
    measured = compared("megatron-lm")

    assert measured.measured_allocated_bytes == 4608 * 2**20
    assert measured.measured_reserved_bytes == 5120 * 2**20
    assert measured.predicted_allocated_bytes == sample_report("one stage").memory.allocated_bytes


def test_what_a_log_does_not_say_is_none_and_has_no_line():
    measured = compare_with_log(sample_report("one stage"), made_log([1.0, 0.05]))

    text = as_text(measured)

    assert measured.convention is None
    assert measured.measured_allocated_bytes is None
    assert not any(line.startswith(("rate", "allocated", "reserved")) for line in text.splitlines())


def test_a_log_of_the_same_job_has_no_warning():
    assert compared("megatron-lm").warnings == ()


@all_cases(
    ("sizes", "words"),
    [
        ({"global_batch": 32}, "global batch is 32 in the log and 16 in the job"),
        ({"micro_batch": 4}, "micro-batch is 4 in the log and 1 in the job"),
        ({"sequence_length": 2048}, "sequence length is 2048 in the log and 1024 in the job"),
        ({"world_size": 64}, "number of devices is 64 in the log and 8 in the job"),
    ],
)
def test_sizes_that_contradict_the_job_are_warned_of(sizes, words):
    measured = compare_with_log(sample_report("one stage"), made_log([1.0, 0.05], **sizes))

    assert words in line_of(as_text(measured), "warning")
    assert len(measured.warnings) == 1


def test_the_formula_is_found_in_a_log_of_another_batch_and_cluster_too():
    """Twice the batch on four times the devices: the same FLOP a sequence."""
    rate = 2 * 16.6086e12 / (32 * 0.05)
    log = made_log([1.0, 0.05, 0.05], device_flop_per_s=rate, global_batch=32, world_size=32)

    match = compare_with_log(sample_report("one stage"), log).convention

    assert (match.name, match.known) == ("megatron-core", True)
    assert match.mismatch_ratio == pytest.approx(0, abs=1e-4)


def test_a_log_of_other_software_names_a_stack_that_prints_it():
    warned = compared("deepspeed").warnings
    assert any("--stack deepspeed-zero" in text for text in warned), warned


def test_a_log_without_any_time_says_that_nothing_follows():
    measured = compare_with_log(sample_report("one stage"), made_log([np.nan, np.nan]))

    assert measured.step is None
    assert measured.inside is None
    assert "no step time" in as_text(measured)


def test_the_mean_of_a_whole_run_is_warned_of():
    assert any(
        "mean step time of the whole run" in text for text in compared("hugging-face-trainer").warnings
    )


def test_many_unusable_records_are_warned_of_and_few_are_not():
    report = sample_report("one stage")

    many = compare_with_log(report, made_log([0.05] * 10, num_bad=2))
    few = compare_with_log(report, made_log([0.05] * 100, num_bad=2))

    assert "flopcast skipped 2 of the 12 printed steps" in as_text(many)
    assert few.warnings == ()


def test_the_text_names_the_log_and_how_much_of_it_was_used():
    text = as_text(compared("megatron-lm"))

    assert text.splitlines()[0] == "log       megatron-lm.log: megatron-lm, 10 of 12 printed steps used"


def test_steps_that_were_left_out_because_they_were_told_twice_are_counted():
    """Rank 0 prints five steps, rank 1 four of them: four records are not used."""
    measured = compared("torchtitan-two-ranks")

    assert as_text(measured).splitlines()[0].endswith(", 4 lines ignored (repeated, or of other ranks)")
    assert as_json(measured)["num_repeated"] == 4


def test_restarts_are_told():
    text = as_text(compared("megatron-lm-2021-restart"))

    assert text.splitlines()[0].endswith("5 of 7 printed steps used, 1 restart")


def test_the_text_tells_the_difference_of_each_quantity():
    measured = compared("megatron-lm")

    text = as_text(measured)

    off = measured.predicted_step_time_s / 0.05 - 1
    assert line_of(text, "step").startswith("step      50.0 ms measured,")
    assert f"({off:+.1%})" in line_of(text, "step")
    assert "counted as megatron-core (off by +0." in line_of(text, "rate")
    assert "4.50 GiB measured" in line_of(text, "allocated")  # 4608 · 2²⁰ bytes
    assert "5.00 GiB measured" in line_of(text, "reserved")


def test_the_text_is_plain_and_of_readable_width():
    text = as_text(compared("megatron-lm"))

    assert "\x1b" not in text
    assert max(len(line) for line in text.splitlines()) <= 120


@all_cases("name", sorted(path.stem for path in LOGS.glob("*.log")))
def test_every_log_is_told_as_text_and_as_json(name):
    measured = compared(name)

    written = json.loads(json.dumps(as_json(measured), allow_nan=False))

    assert written["framework"] == measured.framework
    assert as_text(measured).startswith(f"log       {name}.log: ")


def test_json_has_the_numbers_and_how_they_were_counted():
    written = as_json(compared("megatron-lm"))

    assert written["step"]["measured_median_s"] == 0.05
    assert written["step"]["num_used"] == 10
    assert written["convention"]["name"] == "megatron-core"
    assert written["measured_reserved_bytes"] == 5120 * 2**20
    assert written["warnings"] == []


def test_a_forecast_of_recompute_is_compared_by_a_formula_that_counts_it():
    """A log of GPT-NeoX with recompute: 96 B s l h² (…) FLOP in 60 ms on 8 devices."""
    report = report_of(make_job(plan="dp=8 mbs=1 gbs=16 recompute=full precision=fp16"))
    text = "".join(
        f" samples/sec: 266.7 | iteration {step:8d}/ 100 | elapsed time per iteration (ms): 60.0 |"
        f" learning rate: 1.0E-04 | approx flops per GPU: 42.6TFLOPS | lm_loss: 7.1E+00 |\n"
        for step in (10, 20, 30)
    )

    measured = compare_with_log(report, read_log(text, "neox.log"))

    assert measured.convention.name == "megatron-2021"
    assert measured.convention.mismatch_ratio == pytest.approx(0, abs=0.002)


def test_a_single_record_has_no_spread():
    several, one = (as_text(compared(name)) for name in ("megatron-lm", "deepspeed-profiler"))

    assert "80 % of the steps: 49.6 ms to 63.5 ms, mean 63.0 ms, best 49.4 ms" in several
    assert "80 %" not in one
