"""timeline/step.py: one step against steps simulated one after the other, and worked by hand."""

from collections import defaultdict

import numpy as np
import pytest
import slow_pipeline
import slow_program
from all_cases import all_cases
from conftest import make_job
from sample_jobs import PARTS, sample_priced
from slow_pipeline import DOWN, UP, Pipe
from workbench import only, priced_job, priced_plans, repriced

from flopcast.schedules.base import BACKWARD
from flopcast.spec.plan import Plan
from flopcast.timeline.step import run_step
from flopcast.workload.program import POSITIONS

BLOCK = {("mlp.up", "forward"): 1.0, ("mlp.up.dgrad", "backward"): 2.0}  # a block: 1 s there, 2 s back


def stage_seconds(priced, items, stage_class):
    """Items one after the other on one stage."""
    each = (priced.of(item).alone_s * item.count for item in items)
    return sum(float(seconds[0, min(stage_class, seconds.shape[1] - 1)]) for seconds in each)


def chunk_items(segments, chunk_class):
    rows = [(segment.items, int(segment.repeat[0, chunk_class])) for segment in segments]
    return slow_program.written_out(rows)


def position_of(micro_batch, count):
    if count == 1:
        return "only"
    return "first" if micro_batch == 0 else "last" if micro_batch == count - 1 else "middle"


class SlowStep:
    """A job's steps by plain loops: programs, pipeline, reduction, and a barrier over all stages."""

    def __init__(self, priced):
        programs, plan = priced.programs, priced.programs.plans
        self.priced, self.programs = priced, programs
        self.division = programs.stages.of(0)
        stages, virtual = self.division.chunk_class.shape
        self.pipe = Pipe(stages, virtual, int(plan.num_micro_batches[0, 0]))
        self.stride = int(plan.tensor_parallel[0, 0] * plan.data_parallel[0, 0])
        self.items = {
            kind: [chunk_items(segments, number) for number in range(len(self.division.chunk_counts))]
            for kind, segments in ((DOWN, programs.forward), (UP, programs.backward))
        }

        self.links = {
            kind: [slow_program.links_of(segments, at, priced) for at in range(len(self.items[kind]))]
            for kind, segments in ((DOWN, programs.forward), (UP, programs.backward))
        }

    def program_of(self, task):
        items = self.items[task.kind][self.division.chunk_class[task.stage, task.chunk]]
        return items, self.priced.of, position_of(task.micro_batch, self.pipe.micro_batches)

    def run(self, task, start_s, reduced_s):
        links = self.links[task.kind][self.division.chunk_class[task.stage, task.chunk]]
        return slow_program.run_on(*self.program_of(task), start_s, reduced_s, links)

    def hops(self):
        """A hop leaves its node if any rank's neighbour stands on another one."""
        devices, stages = self.priced.cluster.node.devices, self.pipe.stages
        found = {}
        for sender in range(stages):
            for kind, receiver in ((DOWN, (sender + 1) % stages), (UP, (sender - 1) % stages)):
                ranks = [range(s * self.stride, (s + 1) * self.stride) for s in (sender, receiver)]
                leaves = any(a // devices != b // devices for a, b in zip(*ranks, strict=True))
                hop = self.programs.hop_across if leaves else self.programs.hop_inside
                found[kind, sender] = stage_seconds(
                    self.priced, hop.forward if kind == DOWN else hop.backward, 0
                )
        return found

    def after(self, agreed_s):
        """The moment of the next agreement of all stages, from the moment of the last."""
        priced, programs, pipe = self.priced, self.programs, self.pipe
        classes = self.division.stage_class.tolist()
        free = [agreed_s + stage_seconds(priced, programs.update, at) for at in classes]
        tasks = [task for stage in range(pipe.stages) for task in slow_pipeline.order_of(stage, pipe)]
        durations = defaultdict(float)
        seconds = {}
        for task in tasks:
            key = task.kind, self.division.chunk_class[task.stage, task.chunk], self.program_of(task)[2]
            if key not in durations:
                durations[key] = self.run(task, 0.0, 0.0)[0]
            seconds[task] = durations[key]
        style = slow_pipeline.SIMULATIONS[programs.transfers(interleaved=pipe.virtual > 1)]
        started, ended = style(pipe, seconds, self.hops(), free)
        done = []
        for stage, at in enumerate(classes):
            mine = slow_pipeline.order_of(stage, pipe)
            reduced_s = -np.inf
            for task in mine:
                if task.kind == UP and task.micro_batch == pipe.micro_batches - 1:
                    reduced_s = self.run(task, started[task], reduced_s)[1]
            ready = max(reduced_s, *(ended[task] for task in mine))
            done.append(ready + stage_seconds(priced, programs.reduce, at))
        return max(done) + stage_seconds(priced, programs.synchronise, 0)


@all_cases("name", PARTS)
def test_the_step_is_the_period_of_steps_that_follow_each_other(name):
    priced = sample_priced(name)
    slow = SlowStep(priced)
    second = slow.after(slow.after(0.0))

    timeline = run_step(priced)

    assert timeline.step_time_s == pytest.approx(slow.after(second) - second, rel=1e-9)


@all_cases(
    ("plan", "expected"),
    [
        ("dp=8 gbs=24", 3 * 8 * 3.0),  # three micro-batches of eight blocks
        ("dp=2 pp=4 gbs=16", (8 + 3) * 2 * 3.0),  # (m + p - 1) turns of two blocks
        ("pp=8 gbs=4", (4 + 7) * 1 * 3.0),
        ("dp=2 pp=4 vpp=2 gbs=16", (8 + 3 / 2) * 2 * 3.0),  # the bubble divided by the chunks
    ],
)
@all_cases("stack", ["megatron-2021", "megatron-2022"])
def test_equal_stages_with_free_transfers_take_the_time_of_the_textbook(stack, plan, expected):
    job = make_job(stack=stack, plan=f"{plan} precision=fp16")

    timeline = run_step(repriced(priced_job(job), only(BLOCK)))

    assert timeline.step_time_s == pytest.approx(expected)


def test_update_tasks_reduction_and_agreement_follow_each_other():
    ends = {
        ("optimizer.update", "step"): 10.0,
        ("gradients.reduce", "step"): 5.0,
        ("gradients.overflow_0", "step"): 0.5,
    }
    priced = repriced(sample_priced("one device a replica"), only(BLOCK | ends))

    timeline = run_step(priced)

    # all gradients go in one message; two micro-batches of eight blocks
    assert timeline.update_s.tolist() == [10.0]
    assert timeline.start_s.min() == pytest.approx(10.0)
    assert timeline.reduce_start_s.tolist() == pytest.approx([10.0 + 2 * 8 * 3.0])
    assert timeline.reduce_s.tolist() == pytest.approx([5.0])
    assert timeline.synchronise_s == pytest.approx(0.5)
    assert timeline.step_time_s == pytest.approx(10.0 + 48.0 + 5.0 + 0.5)


def test_the_first_micro_batch_adds_to_no_gradient():
    seconds = {("gradients.accumulate", "backward"): 1.0}
    job = make_job(stack="megatron-2021", plan="dp=1 tp=8 gbs=5 precision=fp16")

    timeline = run_step(repriced(priced_job(job), only(seconds)))

    # embedding, eight blocks, final norm and head accumulate in four of five micro-batches
    assert timeline.step_time_s == pytest.approx(4 * 11.0)


def test_under_gpipe_the_backward_that_runs_first_adds_to_no_gradient_and_the_last_one_reduces():
    overlapping = {
        "base": "megatron-2021",
        "contention": {"kernel_share": 0.0},
        "gradients": {"overlap": True},
    }
    plan = "dp=2 tp=4 gbs=10 precision=fp16 schedule=gpipe"
    timeline = run_step(priced_job(make_job(stack=overlapping, plan=plan)))

    backwards = np.flatnonzero(timeline.kind == BACKWARD)

    assert timeline.micro_batch[backwards].tolist() == [4, 3, 2, 1, 0]
    told = [POSITIONS[at] for at in timeline.position[backwards]]
    assert told == ["first", "middle", "middle", "middle", "last"]


def test_a_reduction_under_the_last_backward_sticks_out_by_what_is_not_hidden():
    # eight blocks whose backward takes 2 s, whose gradients take 3 s to reduce: the first reduction
    # starts after the first block's backward, then one follows the other: 2 + 8 · 3, of which 8 · 2 hidden
    job = make_job(
        stack={"base": "megatron-2022", "contention": {"kernel_share": 0.0}, "gradients": {"overlap": True}}
    )
    priced = priced_job(job)
    blocks = next(s.items for s in priced.programs.backward if s.repeat[0, 0] == 8)
    reduce = next(item for item in blocks if item.name == "gradients.reduce")
    parts = float(reduce.count[0, 0])  # buckets of a block
    rule = only({("mlp.up.dgrad", "backward"): 2.0})

    timeline = run_step(repriced(priced, lambda item: 3.0 / parts if item is reduce else rule(item)))

    last_backward = float(timeline.end_s.max())
    assert last_backward == pytest.approx(2 * 8 * 2.0)
    assert timeline.reduce_start_s.tolist() == pytest.approx([8 * 2.0 + 2.0 + 8 * 3.0])
    assert timeline.step_time_s == pytest.approx(last_backward + 26.0 - 16.0)


def test_a_hop_costs_more_where_it_leaves_a_node():
    # four stages of four ranks on two nodes of eight: only the hop in the middle leaves
    priced = priced_job(make_job(cluster="dgx-a100:2", plan="tp=4 pp=4 gbs=1 precision=fp16"))
    programs = priced.programs
    inside = [*programs.hop_inside.forward, *programs.hop_inside.backward]
    across = [*programs.hop_across.forward, *programs.hop_across.backward]

    timeline = run_step(repriced(priced, lambda item: 1.0 * (item in inside) + 5.0 * (item in across)))

    assert timeline.step_time_s == pytest.approx(2 * (1.0 + 5.0 + 1.0))


def test_the_slowest_stage_decides_when_all_agree():
    # the head's optimizer state makes the last stage's update longest, the first stage's tasks wait for it
    priced = sample_priced("batched")

    timeline = run_step(priced)

    done = timeline.reduce_start_s + timeline.reduce_s
    assert timeline.step_time_s == pytest.approx(done.max() + timeline.synchronise_s)
    assert (timeline.start_s >= timeline.update_s[timeline.stage] - 1e-12).all()


@all_cases("name", PARTS)
def test_columns_hold_every_task_once(name):
    timeline = run_step(sample_priced(name))

    rows = list(zip(timeline.stage, timeline.chunk, timeline.micro_batch, timeline.kind, strict=True))
    stages, virtual = sample_priced(name).programs.stages.of(0).chunk_class.shape
    micro_batches = int(sample_priced(name).programs.plans.num_micro_batches[0, 0])
    assert len(set(rows)) == len(rows) == 2 * stages * virtual * micro_batches
    assert (timeline.end_s >= timeline.start_s).all()


@all_cases("name", PARTS)
def test_a_backward_follows_its_forward(name):
    timeline = run_step(sample_priced(name))
    keys = list(zip(timeline.stage, timeline.chunk, timeline.micro_batch, strict=True))
    forward = {
        k: end for k, kind, end in zip(keys, timeline.kind, timeline.end_s, strict=True) if kind != BACKWARD
    }

    backward = {
        k: s for k, kind, s in zip(keys, timeline.kind, timeline.start_s, strict=True) if kind == BACKWARD
    }

    assert forward.keys() == backward.keys()
    assert all(backward[key] >= forward[key] for key in forward)


def test_a_plan_played_from_a_batch_equals_the_plan_played_alone():
    job = make_job(cluster="dgx-a100:4", plan="dp=32 gbs=32 precision=fp16")
    words = {"gbs": 32, "precision": "fp16"}
    plans = [
        Plan(dp=32, **words),
        Plan(dp=4, tp=2, pp=4, **words),
        Plan(tp=4, pp=8, mbs=2, **words),
        Plan(dp=16, pp=2, mbs=1, **words),
    ]
    together = priced_plans(job, plans)

    steps = [run_step(together, number).step_time_s for number in range(len(plans))]

    alone = [run_step(priced_plans(job, [plan])).step_time_s for plan in plans]
    assert steps == pytest.approx(alone, rel=1e-12)


@all_cases("number", range(1, 9))
def test_fewer_micro_batches_than_stages_still_make_a_step(number):
    # the published order of DeepSpeed leaves slots empty there; all styles give the textbook's time
    job = make_job(
        stack={"base": "gpt-neox-deepspeed", "pipeline": {"partition": "even", "host_s": "0 s"}},
        plan=f"pp=8 gbs={number} precision=fp16",
    )

    timeline = run_step(repriced(priced_job(job), only(BLOCK)))

    assert timeline.step_time_s == pytest.approx((number + 7) * 3.0)


def test_positions_cover_the_micro_batches_of_a_step():
    counted = [position_of(i, 4) for i in range(4)]

    assert counted == ["first", "middle", "middle", "last"]
    assert {*counted, position_of(0, 1)} == set(POSITIONS) - {"alone"}  # which pairs of passes have
