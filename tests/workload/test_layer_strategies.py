"""Blocks with strategies of their own: what changes nothing, what is conserved, what is linear."""

import numpy as np
import pytest
from all_cases import all_cases

from flopcast.errors import SpecError
from flopcast.interop.exports.traces import export_chakra
from flopcast.jobs import job
from flopcast.library.curves import load_book
from flopcast.memory.categories import IN_FLIGHT, STANDING, sizes
from flopcast.prediction import predict, programs_of
from flopcast.report.recomputed import recomputed_flop
from flopcast.spec.plan import Plan
from flopcast.workload.layer_strategies import by_layout

PLAN = "dp=4 tp=2 mbs=2 gbs=32 zero=1"
STATES = ("parameters", "gradients", "optimizer_states")


def job_with(layers, plan=PLAN):
    words = {"model": "llama-2-7b", "cluster": "dgx-a100:1", "seq": 4096, "stack": "megatron-core"}
    return job(**words, plan=f"{plan} {layers}".strip())


def predicted(layers, plan=PLAN):
    asked = job_with(layers, plan)
    return predict(asked, load_book(asked.cluster))


def test_strategies_that_repeat_the_plan_change_nothing():
    alone, same = predicted(""), predicted("layers=0-7:tp=2:zero=1,8-31:recompute=none")

    assert same.step_time_s == pytest.approx(alone.step_time_s, rel=1e-12)
    assert same.memory.device_used_bytes == pytest.approx(alone.memory.device_used_bytes, rel=1e-12)
    assert "resharding" not in same.breakdown


def test_a_plan_in_words_reads_as_itself():
    plan = Plan(dp=4, tp=2, gbs=32, layers="0-7:tp=4:zero=3,9:recompute=full")

    assert "layers=0-7:tp=4:zero=3,9:recompute=full" in plan.short()
    assert Plan(layers=[one.model_dump() for one in plan.layers]).layers == plan.layers


@all_cases("own", ["tp=4", "tp=8", "zero=3", "recompute=full", "tp=1:zero=3:recompute=full"])
def test_states_and_activations_are_linear_in_the_number_of_blocks(own):
    held = {}
    for blocks in (4, 8, 16):
        programs = programs_of(job_with(f"layers=0-{blocks - 1}:{own}"))

        every = sizes(STANDING, programs) | sizes(IN_FLIGHT, programs)
        held[blocks] = np.array([every[name].sum() for name in (*STATES, "activations")])

    np.testing.assert_allclose(held[16] - held[8], 2 * (held[8] - held[4]), rtol=1e-9)


def test_all_ranks_of_a_stage_hold_every_parameter_once_in_each_layout():
    programs = programs_of(job_with("layers=8-15:tp=4,16-19:tp=8"))
    whole = programs_of(job_with("", "dp=8 tp=1 mbs=1 gbs=32"))

    held = sum(
        (
            layer.logical.count
            * sum(w.elements.item() * leg.plans.tensor_parallel.item() for w in layer.weights if w.matrix)
        )
        for leg in programs.legs
        for part, layer in enumerate(leg.layers)
        if leg.stages.stage_counts[0, 0, part]
    )
    once = sum(
        layer.logical.count * sum(w.elements.item() for w in layer.weights if w.matrix)
        for layer in whole.layers
    )
    assert held == pytest.approx(once, rel=1e-12)


@all_cases(
    ("plan", "layers", "sent"),
    [
        # a gather of the wider layout where ranks get more sequences; of gradients on the way back
        (PLAN, "layers=8-15:tp=4", {"forward": [4], "backward": [4]}),
        (PLAN, "layers=8-15:tp=1", {"forward": [2], "backward": [2]}),
        (PLAN, "layers=8-15:zero=3", {"forward": [], "backward": []}),
    ],
)
def test_activations_are_gathered_where_ranks_get_more_sequences_and_sliced_where_fewer(plan, layers, sent):
    programs = programs_of(job_with(layers, plan))
    sequence_bytes = 4096 * 4096 * 2.0
    for phase, expected in sent.items():
        segments = programs.forward if phase == "forward" else programs.backward
        found = [
            item.work.message_bytes.item()
            for one in segments
            for item in one.items
            if item.component == "resharding"
        ]
        wanted = [number * sequence_bytes for number in expected]
        assert found == pytest.approx(wanted)


def test_with_sequence_parallelism_both_passes_exchange_what_a_rank_holds():
    programs = programs_of(job_with("layers=8-15:tp=8", "dp=4 tp=2 sp mbs=1 gbs=32 zero=1"))
    for segments in (programs.forward, programs.backward):
        items = [item for one in segments for item in one.items if item.component == "resharding"]
        assert [item.work.collective for item in items] == ["all_to_all"] * 2
        assert [item.work.message_bytes.item() for item in items] == pytest.approx(
            [4096 * 4096 * 2.0 / 2] * 2
        )
    ranks = programs.between[0].plans
    assert (ranks.tensor_parallel.item(), ranks.data_shard.item()) == (2, 4)


def test_chunks_begin_and_end_in_the_layout_of_the_plan():
    programs = programs_of(job_with("layers=12-19:tp=4", "dp=2 tp=2 pp=2 mbs=1 gbs=32"))
    repeats = [
        one.repeat for one in programs.forward for item in one.items if item.component == "resharding"
    ]

    assert np.sum(repeats) == 2  # one gather on each stage; slices send nothing
    assert programs.hop_across.forward[0].work.message_bytes.item() == 4096 * 4096 * 2.0


def test_steps_of_more_blocks_with_the_slower_strategy_are_longer_by_as_much_each():
    plan = "tp=8 mbs=1 gbs=32"
    step_s = {n: predicted(f"layers=0-{n - 1}:recompute=full", plan).step_time_s for n in (4, 8, 16)}

    assert step_s[16] - step_s[8] == pytest.approx(2 * (step_s[8] - step_s[4]), rel=0.01)
    assert step_s[8] > step_s[4] > predicted("", plan).step_time_s


def test_the_first_blocks_recomputed_need_as_much_as_with_the_plans_own_words():
    own, words = predicted("layers=0-7:recompute=full"), predicted("", f"{PLAN} recompute=full:block:8")

    assert own.memory.high_bytes == pytest.approx(words.memory.high_bytes, rel=1e-3)
    assert own.step_time_s == pytest.approx(words.step_time_s, rel=0.005)


def test_recomputed_flop_are_those_of_the_blocks_that_run_again():
    some, every = (
        recomputed_flop(job_with(f"layers=0-{last}:recompute=full"), causal=False) for last in (7, 31)
    )
    uniform = recomputed_flop(job_with("", f"{PLAN} recompute=full"), causal=False)

    assert every == pytest.approx(uniform, rel=1e-12)
    assert some == pytest.approx(uniform / 4, rel=1e-12)
    assert (
        sum(
            model.num_blocks
            for model, _ in by_layout(job_with("").model, Plan(dp=4, tp=2, layers="3:tp=4"))
        )
        == 32
    )


@all_cases(
    ("layers", "part", "right"),
    [
        ("layers=0-7:tp=3", "degrees that divide each other and the 8 ranks", "none"),
        ("layers=0-40:tp=4", "blocks from 0 to 31", "0-31:tp=4"),
        ("layers=0-7:tp=4,7:tp=1", "without overlap", "none"),
        ("layers=0-7:zero=3 rank_order=dp-tp-cp-pp", "because the job has rank_order=dp-tp-cp-pp", "none"),
    ],
)
def test_strategies_that_do_not_fit_the_plan_are_one_fault(layers, part, right):
    with pytest.raises(SpecError) as caught:
        predicted(layers)

    (problem,) = caught.value.problems
    assert (problem.field, problem.fix) == ("plan.layers", f"set layers to {right}")
    assert part in problem.allowed


@all_cases("word", ["7-0:tp=2", "0-7", "0-7:pp=2", "x:tp=2"])
def test_words_of_another_form_are_refused_with_one_that_is_right(word):
    with pytest.raises(ValueError, match=r"fix: +write layers='0-7:tp=2"):
        Plan(layers=word)


def test_a_range_in_the_wrong_order_keeps_the_rest_of_its_strategy():
    with pytest.raises(ValueError, match="write layers='3-7:zero=1:offload=optimizer:host'"):
        Plan(layers="7-3:zero=1:offload=optimizer@host")


def test_traces_that_name_groups_of_ranks_are_refused():
    with pytest.raises(SpecError, match="not supported yet"):
        export_chakra(job_with("layers=8-15:tp=4"))
