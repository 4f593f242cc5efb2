"""Seconds of stages, of devices in the mean and of factors, from counts of items, blocks and neighbours."""

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
from all_cases import all_cases
from conftest import make_job
from sample_jobs import PARTS, sample_priced
from workbench import only, priced_job, priced_plans, repriced

from flopcast.operators.base import AbstractOperator
from flopcast.schedules.base import WEIGHT
from flopcast.spec.factor_kinds import KINDS, kind_of
from flopcast.spec.plan import Plan
from flopcast.timeline.closed_form import micro_batch_seconds, step_terms
from flopcast.timeline.step import run_step
from flopcast.timeline.uncertainty import Sensitivity, log_sigmas, saved_share, sensitivities

BLOCK = {("mlp.up", "forward"): 1.0, ("mlp.up.dgrad", "backward"): 2.0}  # 3 s a block, eight blocks
HOP_S = 0.25
HOPS = {("hop.activation", "forward"): HOP_S, ("hop.gradient", "backward"): HOP_S}
EVEN_NEOX = {"base": "gpt-neox-deepspeed", "pipeline": {"partition": "even", "host_s": "0 s"}}
OVERLAPPED = {"base": "megatron-2022", "pipeline": {"transfers": "overlapped"}}
STACKS = {"batched": "megatron-2022", "sequential": EVEN_NEOX, "overlapped": OVERLAPPED}
RUNS_IN = {  # of m micro-batches, how many run an item that says so
    "every": lambda m: m,
    "first": lambda m: 1,
    "last": lambda m: 1,
    "not_first": lambda m: m - 1,
}
TWO_STAGES = "tp=4 pp=2 gbs=16 precision=fp16"


def priced_with(style, plan, seconds):
    return repriced(priced_job(make_job(stack=STACKS[style], plan=f"{plan} precision=fp16")), only(seconds))


def of_stages(priced, plan=0):
    """Seconds of a micro-batch, stage by stage."""
    return micro_batch_seconds(priced)[plan, priced.programs.stages.of(plan).stage_class].tolist()


@all_cases(
    ("style", "plan", "waits"),
    [
        ("sequential", "dp=2 pp=4 gbs=16", [2, 4, 4, 2]),  # a message each way over each of its boundaries
        ("sequential", "dp=4 pp=2 gbs=16", [2, 2]),
        ("batched", "dp=2 pp=4 gbs=16", [1, 2, 2, 1]),  # both ways at once
        ("batched", "dp=4 pp=2 vpp=2 gbs=16", [2, 2]),  # for each chunk
        ("overlapped", "dp=4 pp=2 vpp=2 gbs=16", [0, 0]),  # hidden beneath the other chunk
        ("batched", "dp=8 gbs=16", [0]),
        ("sequential", "dp=8 gbs=16", [0]),
    ],
)
def test_a_stage_takes_its_blocks_and_the_transfers_that_its_style_waits_for(style, plan, waits):
    found = of_stages(priced_with(style, plan, BLOCK | HOPS))

    blocks_s = 8 / len(waits) * 3.0
    assert found == pytest.approx([blocks_s + HOP_S * number for number in waits])


@all_cases("style", STACKS)
def test_ends_of_a_pipeline_take_their_layers_besides(style):
    ends = {("embedding.lookup", "forward"): 5.0, ("head.logits", "forward"): 7.0}

    found = of_stages(priced_with(style, "dp=2 pp=4 gbs=16", BLOCK | ends))

    assert found == pytest.approx([11.0, 6.0, 6.0, 13.0])


def test_a_plan_among_deeper_ones_has_the_seconds_that_it_has_alone_and_none_of_what_pads_it():
    job = make_job()
    plans = [Plan(dp=8 // stages, pp=stages, gbs=32, precision="fp16") for stages in (1, 2, 4)]
    priced = repriced(priced_plans(job, plans), only(BLOCK | HOPS))

    seconds = micro_batch_seconds(priced)

    here = priced.programs.stages.multiplicity > 0
    assert (~here).any()
    assert (seconds[~here] == 0).all()
    for row, plan in enumerate(plans):
        alone = repriced(priced_plans(job, [plan]), only(BLOCK | HOPS))
        assert of_stages(priced, row) == pytest.approx(of_stages(alone))


@all_cases("stages", [1, 2, 4, 8])
def test_terms_of_a_step_are_turns_of_the_busiest_stage_and_the_way_through_all_of_them(stages):
    plan = f"dp={8 // stages} pp={stages} gbs=64"
    head = {("head.logits", "forward"): 4.0, ("optimizer.update", "step"): 0.5}

    terms = step_terms(priced_with("batched", plan, BLOCK | head))

    assert terms.turn_s.item() == pytest.approx(24.0 / stages + 4.0)
    assert terms.first_s.item() == pytest.approx(24.0 + 4.0)
    assert terms.outside_s.item() == pytest.approx(0.5)
    assert (terms.several_s.item(), terms.only_s.item()) == pytest.approx((0.0, 0.0))


def executions_of_a_step(programs, number):
    """How often all stages of one plan run each item of its micro-batches, by item."""
    division, found = programs.stages.of(0), defaultdict(float)
    for segments in programs.passes:
        for segment in segments:
            repeats = np.broadcast_to(segment.repeat, (1, division.chunk_class.max() + 1))
            times = repeats[0, division.chunk_class.ravel()].sum()
            for item in segment.items:
                found[item] += times * item.count.max() * RUNS_IN[item.when](number)
    return found


@all_cases("name", PARTS)
def test_devices_are_busy_with_every_kernel_as_often_as_micro_batches_and_blocks_have_it(name):
    """Counted from the programs: layers of each chunk, times micro-batches, over the stages."""
    priced = sample_priced(name)
    programs = priced.programs
    stages, number = (
        int(getattr(programs.plans, field).item()) for field in ("pipeline_parallel", "num_micro_batches")
    )
    by_place = executions_of_a_step(programs, number)
    within = [item for segments in programs.passes for s in segments for item in s.items]
    kernels = {item: item for item in within if isinstance(item.work, AbstractOperator)}

    told = defaultdict(float)
    for share in run_step(priced).mean_attribution:
        told[share.item] += share.path_s

    for place, item in kernels.items():
        expected_s = by_place[place] * priced.of(item).alone_s.max() / stages
        assert told[place] == pytest.approx(expected_s, rel=1e-9, abs=1e-15), item.name


@all_cases("name", PARTS)
def test_messages_keep_devices_no_longer_than_all_of_them_last(name):
    """Those of the queue that is shared with others twice as long at most."""
    priced = sample_priced(name)
    programs = priced.programs
    number = int(programs.plans.num_micro_batches.item())
    stages = int(programs.plans.pipeline_parallel.item())
    timeline, by_place = run_step(priced), executions_of_a_step(programs, number)
    told = defaultdict(float)

    for share in timeline.mean_attribution:
        told[share.item] += share.path_s

    lasting_s = {item: priced.of(item).alone_s.max() for item in programs.items()}
    for place in by_place.keys() & told.keys():
        assert told[place] <= 2 * by_place[place] * lasting_s[place] / stages * (1 + 1e-9)
    mean, busiest = (
        sum(s.path_s for s in shares if s.item and s.item.component == "pp_communication")
        for shares in (timeline.mean_attribution, timeline.bottleneck_attribution)
    )
    assert mean * stages >= busiest * (1 - 1e-9)  # the busiest stage is one of them


@all_cases("view", ["shares", "bottleneck_attribution", "mean_attribution"])
@all_cases("name", PARTS)
def test_nothing_is_charged_to_what_takes_no_time(name, view):
    """A share's item names the factors that the step hangs on: one that moves nothing names none."""
    priced = sample_priced(name)

    for share in getattr(run_step(priced), view):
        if share.item is not None and share.path_s > 0:
            assert priced.of(share.item).alone_s.max() > 0, share.item.name
            assert priced.of(share.item).names(0) or share.item.work is None


@pytest.mark.parametrize("slow", ["gradients.reduce", "gradients.reduce_experts"])
def test_reductions_that_stick_out_are_told_by_the_one_that_lasts(slow):
    """Only one of both kinds takes time: all that sticks out is its own, on one stage as on the path."""
    mixture = {"num_experts": 8, "top_k": 2, "expert_hidden": 4096}
    block = {"count": 8, "mixer": {"heads": 16}, "feed_forward": mixture}
    job = make_job(
        model={"hidden": 1024, "vocabulary": 32000, "blocks": [block]},
        cluster="dgx-a100:8",
        stack={
            "base": "megatron-core",
            "contention": {"kernel_share": 0.0},
            "gradients": {"overlap": True},
        },
        plan="dp=64 ep=8 gbs=128 precision=bf16",
    )
    forward = {("mlp.norm", "forward"): 1.0, ("attention.norm", "forward"): 1.0}

    timeline = run_step(repriced(priced_job(job), only(forward | {(slow, "backward"): 100.0})))

    for shares in (timeline.shares, timeline.bottleneck_attribution, timeline.mean_attribution):
        late = {share.item.name for share in shares if share.item.stream == "dp"}
        assert late == {slow}
        assert sum(share.path_s for share in shares) == pytest.approx(timeline.step_time_s)


def test_what_one_stage_does_is_a_share_of_the_mean_over_all_of_them():
    lookup, update = ("embedding.lookup", "forward"), ("optimizer.update", "step")
    priced = priced_with("batched", "dp=2 pp=4 gbs=16", BLOCK | {lookup: 5.0, update: 3.0})

    told = defaultdict(float)
    for share in run_step(priced).mean_attribution:
        told[share.item.name, share.item.phase] += share.path_s

    assert told[lookup] == pytest.approx(8 * 5.0 / 4)  # eight micro-batches, on one of four stages
    assert told[update] == pytest.approx(3.0)  # on all of them
    assert told["mlp.up", "forward"] == pytest.approx(8 * 8 * 1.0 / 4)


@pytest.mark.parametrize("plan", ["dp=8 gbs=16 precision=fp16", "dp=2 tp=4 gbs=16 precision=fp16"])
def test_a_factor_that_is_a_tenth_faster_saves_what_is_told(plan):
    """Played again with all prices that the factor moves divided by 1.1; one stage has one path."""
    priced = priced_job(make_job(plan=plan))
    timeline = run_step(priced)
    told = {f.name: f for f in sensitivities(timeline, priced, {})}
    checked = 0

    for name, factor in told.items():
        if not kind_of(name).is_lever or name.startswith("host"):
            continue
        prices = {
            item: replace(price, alone_s=price.alone_s / 1.1 ** (price.moves * (name in price.names(0))))
            for item in priced.programs.items()
            for price in [priced.of(item)]
        }
        faster_s = run_step(replace(priced, prices=prices)).step_time_s
        assert 1 - faster_s / timeline.step_time_s == pytest.approx(saved_share(factor), rel=1e-6), name
        checked += 1

    assert checked >= 3


@all_cases("name", [name for name, kind in KINDS.items() if not kind.is_lever])
def test_nobody_saves_by_what_no_machine_changes(name):
    assert saved_share(Sensitivity(name=f"{name}[any]", log_sigma_factor=0.1, share=0.5)) == 0.0
    assert saved_share(Sensitivity(name=f"gemm_{name}", log_sigma_factor=0.1, share=0.5)) > 0.0


def test_the_widest_contribution_stands_first_not_the_largest_share():
    priced = priced_job(make_job(plan=TWO_STAGES))

    found = sensitivities(run_step(priced), priced, {})

    widths = [factor.share * factor.log_sigma_factor for factor in found]
    assert widths == sorted(widths, reverse=True)
    assert [f.share for f in found] != sorted((f.share for f in found), reverse=True)
    assert log_sigmas(found)[1] == pytest.approx(np.linalg.norm(widths))


@pytest.mark.parametrize("reduce_s", [0.0, 0.5, 10.0])
def test_reductions_of_a_split_backward_follow_the_weight_gradients_of_the_last_micro_batch(reduce_s):
    """Eight blocks on two stages, a second for each pass of each: every layer's reduction in one queue."""
    stack = {
        "base": "megatron-2022",
        "contention": {"kernel_share": 0.0},
        "gradients": {"overlap": True, "bucket_elements": 1},
    }
    job = make_job(stack=stack, plan="dp=4 pp=2 gbs=32 precision=fp16 schedule=zb_h1")
    passes = {("mlp.up", "forward"), ("mlp.up.dgrad", "backward"), ("mlp.up.wgrad", "backward")}

    def seconds_of(item):
        reducing = item.name == "gradients.reduce" and item.phase == "backward"
        return (
            reduce_s / max(item.count.max(), 1e-9) if reducing else float((item.name, item.phase) in passes)
        )

    timeline = run_step(repriced(priced_job(job), seconds_of))

    for stage, (last_layer, layers) in enumerate([(1.0, 5), (0.0, 6)]):  # embedding; final norm and head
        weights = (timeline.stage == stage) & (timeline.kind == WEIGHT)
        start_s = timeline.start_s[weights].max()
        end_s = timeline.end_s[timeline.stage == stage].max()
        queue_s = start_s + last_layer + layers * reduce_s
        behind_blocks_s = start_s + 4.0 + (2 - stage) * reduce_s  # the last of them, and an embedding
        assert timeline.end_s[weights].max() == pytest.approx(start_s + 4.0)
        assert timeline.reduce_start_s[stage] == pytest.approx(max(end_s, queue_s, behind_blocks_s))
