"""Reports of combinations: rows never overlap, memory comes and goes, pages show every line."""

from functools import cache

import numpy as np
import pytest
from all_cases import all_cases
from combination_cases import LAYOUTS, MODELS, book_of, job_of, plan_of, programs_of, stack
from single_calls import memory_curve
from unmarked import unmarked

from flopcast.library import catalog
from flopcast.memory.curve import peak_of
from flopcast.memory.peak import peak_memory
from flopcast.prediction import predict
from flopcast.render.page.limits import by_limit
from flopcast.render.page.memory import thinned
from flopcast.render.page.pipeline import busy_by_column, end_of
from flopcast.render.page.roofline import kernels
from flopcast.render.page.time_breakdown import operators_of
from flopcast.render.report_page import as_html
from flopcast.render.report_text import marked_text
from flopcast.report.events import events, memory_levels
from flopcast.report.labels import component_label

as_text = unmarked(marked_text)

MIXED = {  # a model, a division of sixteen devices, modes, a stack
    "experts spread and recomputed, in 8 bits": (
        "experts",
        LAYOUTS[1],
        {"expert_parallel": 4, "recompute": "selective:moe", "precision": "fp8_blockwise", "zero": 1},
        "megatron-core-2026",
    ),
    "latents over stages that share sequences": (
        "latent",
        LAYOUTS[7],
        {"context_exchange": "all_to_all", "recompute": "full:block:1", "zero": 1},
        "megatron-core",
    ),
    "windows over many chunks": ("windows", LAYOUTS[4], {"recompute": "full:every:2"}, "megatron-core"),
    "windows, fully sharded, keys gathered": ("windows", LAYOUTS[5], {"zero": 3}, "torch-fsdp2"),
    "further tokens on uneven stages": (
        "further",
        LAYOUTS[3],
        {"stage_layers": (3, 2, 2, 1), "expert_parallel": 2, "zero": 1},
        "megatron-core",
    ),
    "adapters over stages": ("adapted", LAYOUTS[6], {"recompute": "full"}, "megatron-core"),
    "adapters, fully sharded in groups": (
        "adapted",
        LAYOUTS[0],
        {"zero": 3, "data_shard": 4},
        "torch-fsdp2",
    ),
    "zero bubble in 4 bits, states in 8": (
        "dense",
        LAYOUTS[6],
        {"schedule": "zb_h1", "precision": "nvfp4", "optimizer": "adamw_8bit"},
        "megatron-core-2026",
    ),
    "a ring in contiguous order": ("dense", LAYOUTS[2], {"context_order": "contiguous", "zero": 1}, "nemo"),
}
SLACK_S = 1e-12


@cache
def job(name):
    model, layout, modes, software = MIXED[name]
    return job_of(MODELS[model], plan_of(MODELS[model], layout, modes), stack(software))


@cache
def report(name):
    return predict(job(name), book_of())


def programs(name):
    return programs_of(job(name).model, job(name).plan, software=job(name).software)


@all_cases("name", MIXED)
def test_rows_of_one_stream_never_overlap(name):
    queues = {}
    for row in events(report(name)):
        queues.setdefault((row.stage, row.stream), []).append((row.start_s, row.end_s))

    for rows in queues.values():
        ordered = np.array(sorted(rows))
        assert (ordered[:, 0] <= ordered[:, 1]).all()
        assert (ordered[1:, 0] >= ordered[:-1, 1] - SLACK_S).all()


@all_cases("name", MIXED)
def test_rows_end_where_all_stages_agree_on_norms_and_the_step_ends_behind_that(name):
    found = [*events(report(name))]

    last_s = max(row.end_s for row in found)
    agreed_s = last_s + report(name).timeline.synchronise_s
    assert min(row.start_s for row in found) >= 0
    assert agreed_s == pytest.approx(report(name).clean_step_time_s, rel=1e-9)


@all_cases("name", MIXED)
def test_every_stage_runs_each_micro_batch_of_each_chunk_forward_and_backward(name):
    plan = job(name).plan
    tasks = [
        (row.stage, row.chunk, row.micro_batch, row.phase)
        for row in events(report(name))
        if row.stream == "tasks" and row.phase in ("forward", "backward")
    ]

    wanted = {
        (stage, chunk, micro, phase)
        for stage in range(plan.pipeline_parallel)
        for chunk in range(plan.virtual_stages)
        for micro in range(plan.num_micro_batches)
        for phase in ("forward", "backward")
    }
    assert set(tasks) == wanted


@all_cases("name", MIXED)
def test_memory_over_time_ends_as_empty_as_it_began_and_peaks_where_the_report_says(name):
    made = programs(name)
    memory = peak_memory(made)
    classes = made.stages.of(0).stage_class

    for stage, at in enumerate(classes.tolist()):
        curve = memory_curve(made, stage)
        level_bytes = curve.level_bytes
        assert level_bytes.min() >= curve.standing_bytes * (1 - 1e-12)
        assert level_bytes[-1] == pytest.approx(curve.standing_bytes, rel=1e-12)
        assert peak_of(curve).allocated_bytes <= memory.allocated_bytes[0, at] * (1 + 1e-12)
    peaks = [peak_of(memory_curve(made, stage)).allocated_bytes for stage in range(len(classes))]
    assert max(peaks) == pytest.approx(report(name).memory.allocated_bytes, rel=1e-12)


@all_cases("name", MIXED)
def test_text_and_page_name_every_part_of_the_step_that_takes_a_hundredth(name):
    shown = report(name)

    text, page = as_text(shown), as_html(shown)

    for part, seconds in shown.breakdown.items():
        if seconds > 0.01 * shown.step_time_s:
            assert component_label(part) in text
            assert component_label(part) in page
    assert "nan" not in text.lower().split()
    assert page.count("<svg") == page.count("</svg>")


@all_cases("name", MIXED)
def test_factors_say_how_the_step_reacts_and_no_more_than_all_of_it(name):
    shares = [factor.share for factor in report(name).factors]

    assert all(0 <= share <= 1 + 1e-9 for share in shares)


@all_cases("name", MIXED)
def test_the_same_job_is_predicted_alike_twice(name):
    again = predict(job(name), book_of())

    assert again.step_time_s == report(name).step_time_s
    assert again.breakdown == report(name).breakdown
    assert again.memory == report(name).memory


@pytest.mark.parametrize(("rank", "millions"), [(1, 4.7), (8, 37.7)])
def test_adapters_of_gpt_3_have_the_parameters_of_their_paper(rank, millions):
    adapters = {"rank": rank, "targets": ["q", "v"]}

    model = type(MODELS["dense"]).model_validate(
        catalog.model("gpt3-175b").model_dump() | {"adapters": adapters}
    )

    # arXiv:2106.09685, table 4: LoRA of queries and values
    assert model.trained_parameters() / 1e6 == pytest.approx(millions, abs=0.05)


def test_weights_in_4_bits_take_the_bits_of_their_paper():
    adapters = {"rank": 8, "targets": ["q"], "base_dtype": "nf4"}
    plain, narrow = (
        MODELS["dense"].model_validate(MODELS["dense"].model_dump() | {"adapters": adapters | changed})
        for changed in ({"base_dtype": "model"}, {})
    )
    plan = plan_of(plain, {"data_parallel": 8})

    wide_bytes, narrow_bytes = (
        peak_memory(programs_of(model, plan)).by_category["parameters"].max() for model in (plain, narrow)
    )

    # arXiv:2305.14314, section 3: 4 bits, and 8 / 64 + 32 / (64 · 256) = 0.127 for scales of scales
    linears = 8 * (256 * (256 + 2 * 128) + 256 * 256 + 3 * 256 * 1024)
    saved_bits = 8 * (wide_bytes - narrow_bytes) / linears
    assert 16 - saved_bits == pytest.approx(4.127, abs=5e-4)


@all_cases("name", MIXED)
def test_operators_and_limits_add_up_to_the_step(name):
    shown = report(name)

    inside = operators_of(shown)

    for component, found in inside.items():
        total_s = sum(part.path_s for part in found)
        assert not found or total_s == pytest.approx(shown.breakdown[component], rel=1e-9)
    assert {component for component, found in inside.items() if not found} <= {"pipeline_bubble", "jitter"}
    assert sum(by_limit(shown).values()) == pytest.approx(shown.step_time_s, rel=1e-9)


@all_cases("name", MIXED)
def test_every_kernel_on_the_busiest_stage_has_a_roof_and_stays_below_it(name):
    shown = report(name)

    found = kernels(shown)

    spent_s = sum(one.path_s for one in found)
    engine_and_memory_s = [*by_limit(shown).values()][:2]
    assert spent_s == pytest.approx(sum(engine_and_memory_s), rel=1e-9)
    assert len({(one.name, one.phase) for one in found}) == len(found)
    for one in found:
        assert 0 < one.bound_share < 1.1  # levels that runs taught may be a little below one
        assert one.flop >= 0
        assert one.moved_bytes > 0


@all_cases("name", MIXED)
def test_columns_of_a_pipeline_keep_the_seconds_of_its_tasks(name):
    shown = report(name)
    timeline = shown.timeline

    for stage in range(len(timeline.update_s)):
        busy = busy_by_column(shown, stage, 37)
        mine = timeline.stage == stage
        spent_s = (timeline.end_s - timeline.start_s)[mine].sum()
        assert busy[:-1].sum() == pytest.approx(spent_s, rel=1e-9)
        assert busy.min() >= 0
        assert busy.sum(axis=0).max() <= end_of(shown) / 37 * (1 + 1e-9)


@all_cases("name", MIXED)
def test_memory_over_the_step_is_that_of_the_stage_and_thinning_keeps_its_peak(name):
    shown = report(name)

    for stage in shown.memory.per_stage:
        levels = memory_levels(shown, stage.stage)
        few, kept = thinned(levels, end_of(shown), 11)
        assert len(few) <= 11 or few is levels.moments_s
        for state in (levels.state, kept):
            assert levels.total_bytes[state].max() == pytest.approx(stage.allocated_bytes, rel=1e-9)
        assert sum(stage.by_category.values()) == pytest.approx(stage.allocated_bytes, rel=1e-9)
