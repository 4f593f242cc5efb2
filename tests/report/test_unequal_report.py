"""Reports of steps whose micro-batches differ: what adds up over sequences, and what is told of them."""

import pytest
from all_cases import all_cases
from conftest import make_job
from unmarked import unmarked

from flopcast.api import predict
from flopcast.render.report_json import as_json
from flopcast.render.report_page import as_html
from flopcast.render.report_text import marked_memory_text, marked_text
from flopcast.report.events import events, memory_over_time
from flopcast.report.flop_conventions import CONVENTIONS
from flopcast.report.recomputed import recomputed_flop

as_text = unmarked(marked_text)
memory_text = unmarked(marked_memory_text)

PLAN = "tp=2 pp=2 dp=2 sp mbs=1 gbs=16 recompute=full precision=bf16"
EIGHT = [{"seq": 512, "count": 3}, {"documents": [24, 1000]}, {}, {"seq": 2048, "count": 3}]
LENGTHS = [512] * 3 + [1024] + [4096] + [2048] * 3
LISTED = {"seq": 4096, "micro_batches": EIGHT}


def job_of(batch, plan=PLAN):
    return make_job(stack="megatron-core", batch=batch, plan=plan)


def report_of(batch, plan=PLAN):
    return predict(job_of(batch, plan))


def numbers_of(report):
    memory, metrics = report.memory, report.metrics
    return {
        "step": report.step_time_s,
        "low": report.step_time_low_s,
        "rate": metrics.tokens_per_s,
        "model": metrics.model_flop,
        "hardware": metrics.hardware_flop,
        "allocated": memory.allocated_bytes,
        "device": memory.device_used_bytes,
        **{f"stage {stage.stage}": stage.allocated_bytes for stage in memory.per_stage},
        **{f"time of {name}": seconds for name, seconds in report.breakdown.items()},
        **{f"memory of {name}": size for name, size in memory.by_category.items()},
        **{f"share of {factor.name}": factor.share for factor in report.factors},
    }


@all_cases(
    "plan",
    [
        PLAN,
        "dp=8 mbs=2 gbs=128 precision=bf16",
        "dp=8 zero=3 gbs=64 precision=bf16",
        "tp=2 pp=2 vpp=2 dp=2 gbs=16 zero=1 precision=bf16",
        "pp=2 dp=4 gbs=32 schedule=zb_h1 precision=bf16",
        "pp=2 dp=4 gbs=32 schedule=zb_h2 precision=bf16",
    ],
)
@all_cases("equal", [[{"count": 8}], [{"count": 3}, {"documents": [2048], "count": 4}, {"seq": 2048}]])
def test_equal_micro_batches_one_by_one_are_those_of_a_fixed_length(plan, equal):
    fixed = report_of({"seq": 2048}, plan)

    one_by_one = report_of({"seq": 2048, "micro_batches": equal}, plan)

    assert numbers_of(one_by_one) == pytest.approx(numbers_of(fixed), rel=1e-12)


def test_tokens_are_those_of_all_micro_batches_of_all_ranks():
    report = report_of(LISTED)

    assert report.metrics.tokens_per_s * report.step_time_s == pytest.approx(2 * sum(LENGTHS), rel=1e-12)


def test_flop_are_the_sum_of_those_of_every_micro_batch():
    alone = [report_of({"seq": length}).metrics for length in LENGTHS]
    alone[3] = report_of({"seq": 1024, "documents": [24, 1000]}).metrics

    metrics = report_of(LISTED).metrics

    for name in ("model_flop", "hardware_flop"):
        assert getattr(metrics, name) == pytest.approx(
            sum(getattr(one, name) for one in alone) / len(alone), rel=1e-12
        )


def test_flop_of_attention_follow_the_sum_of_squares():
    squares = [[4096], [1024, 1024], [512, 512, 3000]]
    even, uneven = (
        report_of(
            {"seq": 4096, "micro_batches": [{"documents": one} for one in kinds]},
            PLAN.replace("gbs=16", "gbs=12"),
        )
        for kinds in ([[2048]] * 6, [*squares, [1024], [512], [1024, 1024]])
    )

    lengths = [length for one in [*squares, [1024], [512], [1024, 1024]] for length in one]
    linear = (sum(lengths) / (6 * 2048)) * (even.metrics.model_flop - attention_flop([2048] * 6))
    assert uneven.metrics.model_flop == pytest.approx(linear + attention_flop(lengths), rel=1e-9)


def attention_flop(lengths):
    """Three passes of 4 h s² each (arXiv:2104.04473, appendix) in 8 blocks, on 2 ranks."""
    return 2 * 8 * 3 * 4 * 1024 * sum(length**2 for length in lengths)


@all_cases("name", CONVENTIONS)
def test_every_convention_counts_each_sequence_by_its_own_length(name):
    batch = {"seq": 4096, "micro_batches": [{"seq": length} for length in LENGTHS]}

    flop = CONVENTIONS[name].flop(job_of(batch))

    alone = [CONVENTIONS[name].flop(job_of({"seq": length})) for length in LENGTHS]
    assert flop == pytest.approx(sum(alone) / len(alone), rel=1e-12)


def test_what_runs_again_is_that_of_each_micro_batch():
    batch = {"seq": 4096, "micro_batches": [{"seq": length} for length in LENGTHS]}
    alone = [recomputed_flop(job_of({"seq": length}), causal=True) for length in LENGTHS]

    assert recomputed_flop(job_of(batch), causal=True) == pytest.approx(sum(alone) / 8, rel=1e-12)


def test_a_step_is_no_shorter_than_one_of_its_shortest_and_no_longer_than_of_its_longest():
    shortest, mixed, longest = (report_of(batch) for batch in ({"seq": 512}, LISTED, {"seq": 4096}))

    assert shortest.step_time_s < mixed.step_time_s < longest.step_time_s
    assert sum(mixed.breakdown.values()) == pytest.approx(mixed.step_time_s, rel=1e-9)


def test_that_all_ranks_run_the_same_is_told_as_an_assumption():
    told = "all 2 data-parallel ranks run the same micro-batches in the same order"

    assert told in report_of(LISTED).assumptions
    assert told not in report_of({"seq": 4096}).assumptions
    assert told not in report_of({"seq": 4096, "ranks": [{"count": 2, "micro_batches": EIGHT}]}).assumptions


def test_unequal_ranks_take_as_long_as_the_slowest_and_count_the_tokens_of_all():
    short = [{"seq": 512, "count": 8}]
    ranks = [{"micro_batches": EIGHT}, {"micro_batches": short}]
    slow, fast = report_of(LISTED), report_of({"seq": 4096, "micro_batches": short})

    report = report_of({"seq": 4096, "ranks": ranks})

    assert report.step_time_s == pytest.approx(slow.step_time_s, rel=1e-12)
    mean = (slow.metrics.model_flop + fast.metrics.model_flop) / 2
    assert report.metrics.model_flop == pytest.approx(mean, rel=1e-12)
    tokens = report.metrics.tokens_per_s * report.step_time_s
    assert tokens == pytest.approx(sum(LENGTHS) + 8 * 512, rel=1e-12)


def test_a_report_says_how_long_its_sequences_are():
    report = report_of(LISTED)

    mean = f"{sum(LENGTHS) / 8:.0f} on average"
    for told in (as_text(report), memory_text(report.job, report.memory), as_html(report)):
        assert "seq=512 to 4096 in 4 kinds of micro-batches" in told
        assert mean in told
    batch = as_json(report)["job"]["batch"]
    assert [each["sequence_length"] for each in batch["micro_batches"]] == [512, None, None, 2048]


def test_the_rows_of_a_trace_fill_the_tasks_of_their_micro_batch():
    report = report_of(LISTED)
    tasks, inside = {}, {}
    for event in events(report):
        key = (event.stage, event.micro_batch, event.phase in ("forward",))
        if event.stream == "tasks":
            tasks[key] = event
        elif event.micro_batch >= 0 and event.stream == "compute":
            inside.setdefault(key, []).append(event)

    for key, rows in inside.items():
        assert min(row.start_s for row in rows) >= tasks[key].start_s - 1e-12
        assert max(row.end_s for row in rows) <= tasks[key].end_s + 1e-12
        assert max(row.end_s for row in rows) > tasks[key].start_s + 0.5 * (
            tasks[key].end_s - tasks[key].start_s
        )


def test_memory_over_time_peaks_at_the_peak_of_its_stage():
    report = report_of(LISTED)

    for stage in report.memory.per_stage:
        _, level = memory_over_time(report, stage.stage)
        assert level.max() == pytest.approx(stage.allocated_bytes, rel=1e-12)
