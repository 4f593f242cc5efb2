"""prediction.py: the whole spine against physical laws, limits, and errors in the input."""

import pytest
from all_cases import all_cases
from conftest import make_job

import flopcast
from flopcast.errors import SpecError
from flopcast.library.curves import load_book
from flopcast.prediction import memory_of, predict
from flopcast.spec.plan import Plan

WIDE = {
    "hidden": 4096,
    "vocabulary": 51200,
    "blocks": [{"count": 8, "mixer": {"heads": 32}, "feed_forward": {"ffn_hidden": 16384}}],
}
ONE_DEVICE = {
    "base": "dgx-a100",
    "groups": [{"count": 1, "node": {"device": "a100-sxm4-80gb", "devices": 1, "host": "epyc-7763"}}],
}
STACKS = ("megatron-2021", "megatron-2022", "gpt-neox-deepspeed")


def step_of(job):
    return predict(job, load_book(job.cluster))


def changed(job, **plan):
    return job.model_copy(update={"plan": job.plan.model_copy(update=plan)})


@all_cases("stack", STACKS)
def test_one_rank_sends_nothing(stack):
    job = make_job(cluster=ONE_DEVICE, stack=stack, plan="dp=1 mbs=2 gbs=8 precision=fp16")

    report = step_of(job)

    assert not any("communication" in component for component in report.breakdown)
    assert not any(factor.name.startswith("fabric") for factor in report.factors)
    assert "pipeline_bubble" not in report.breakdown


@pytest.mark.parametrize(("plan", "kinds"), [
    ("dp=8 gbs=16", {"dp"}),
    ("tp=8 gbs=2", {"tp", "dp"}),
    ("pp=8 gbs=8", {"pp", "dp"}),
])  # fmt: skip
def test_each_axis_pays_for_its_own_messages(plan, kinds):
    # gradient norms are agreed on by all ranks of a model: counted with the data-parallel messages
    job = make_job(model=WIDE, plan=f"{plan} precision=fp16")

    components = {name for name in step_of(job).breakdown if name.endswith("_communication")}

    assert components == {f"{kind}_communication" for kind in kinds}


@all_cases("stack", STACKS)
def test_doubling_replicas_and_batch_changes_nothing_but_their_communication(stack):
    """Of devices with equal clocks: the slowest of many is slower than the slowest of few."""
    sizes = {
        "dgx-a100:2": "dp=2 tp=8 gbs=16 precision=fp16",
        "dgx-a100:4": "dp=4 tp=8 gbs=32 precision=fp16",
    }
    known = {"model": WIDE, "stack": stack, "site": {"name": "equal", "clock_spread_fraction": 0}}

    reports = [step_of(make_job(**known, cluster=cluster, plan=plan)) for cluster, plan in sizes.items()]

    rest = [r.clean_step_time_s - r.breakdown["dp_communication"] for r in reports]
    gain = reports[1].metrics.tokens_per_s / reports[0].metrics.tokens_per_s
    assert rest[0] == pytest.approx(rest[1], rel=1e-9)
    assert gain == pytest.approx(2 * reports[0].step_time_s / reports[1].step_time_s)
    assert 1 < gain < 2


def test_micro_batches_after_the_second_cost_the_same_each():
    job = make_job(model=WIDE, stack="megatron-2021", plan="dp=8 gbs=16 precision=fp16")

    steps = [step_of(changed(job, global_batch=8 * number)).clean_step_time_s for number in (2, 3, 4, 9)]

    each = steps[1] - steps[0]
    assert [steps[2] - steps[1], (steps[3] - steps[2]) / 5] == pytest.approx([each, each])


def test_more_layers_take_longer_by_the_same_each():
    def with_blocks(count):
        return step_of(
            make_job(model=WIDE | {"blocks": [WIDE["blocks"][0] | {"count": count}]})
        ).clean_step_time_s

    four, five, nine = with_blocks(4), with_blocks(5), with_blocks(9)

    assert five > four
    assert nine - five == pytest.approx(
        4 * (five - four), rel=0.02
    )  # gradient buckets come in whole numbers


@all_cases("stack", STACKS)
def test_full_recompute_adds_between_a_fifth_and_two_fifths_to_a_large_model(stack):
    # one more forward of every block: a third of forward and backward, less what is not recomputed
    job = make_job(
        model=WIDE, stack=stack, batch={"sequence_length": 2048}, plan="dp=8 mbs=2 gbs=128 precision=fp16"
    )

    plain, again = step_of(job), step_of(changed(job, recompute="full"))

    assert 1.2 < again.clean_step_time_s / plain.clean_step_time_s < 1.4
    assert again.memory.allocated_bytes < plain.memory.allocated_bytes


def test_every_fault_is_told_at_once_with_what_would_mend_it():
    job = changed(make_job(), tensor_parallel=3, global_batch=17, precision="fp8")

    with pytest.raises(SpecError) as caught:
        step_of(job)

    told = caught.value.problems
    heads = next(problem for problem in told if "heads" in problem.allowed)
    assert {p.field for p in told} == {"plan.tensor_parallel", "plan.precision"}
    assert (heads.field, heads.value) == ("plan.tensor_parallel", 3)
    assert heads.allowed == (
        "(1) a divisor of heads (16): 1, 2, 4, 8, 16; (2) a divisor of ffn_hidden (4096);"
        " (3) data_parallel · tensor_parallel · pipeline_parallel · context_parallel = 8 (the number of"
        " devices of the cluster)"
    )
    assert heads.fix == "set tensor_parallel to 8 and data_parallel to 1"
    assert all(problem.because and problem.fix and problem.allowed for problem in told)
    assert "plan.tensor_parallel = 3 is not allowed" in str(caught.value)


def test_memory_alone_refuses_the_same_jobs():
    job = changed(make_job(), tensor_parallel=3, global_batch=17)

    with pytest.raises(SpecError) as of_memory:
        memory_of(job)
    with pytest.raises(SpecError) as of_all:
        step_of(job)

    assert of_memory.value.problems == of_all.value.problems


def test_what_is_not_built_is_refused_and_never_ignored():
    with pytest.raises(SpecError, match="supports only the zigzag order"):
        step_of(
            changed(
                make_job(), context_exchange="all_gather", context_order="contiguous", context_parallel=2
            )
        )


def test_the_public_function_predicts_with_the_curves_of_the_catalogue():
    job = make_job()

    assert flopcast.predict(job).step_time_s == step_of(job).step_time_s


def test_the_job_is_part_of_its_report_unchanged():
    job = make_job(plan="dp=4 tp=2 gbs=16 precision=fp16")

    report = step_of(job)

    assert report.job == job
    assert report.job.plan == Plan(dp=4, tp=2, gbs=16, precision="fp16")


@pytest.mark.parametrize("schedule", ["gpipe", "zb_h1", "zb_h2"])
def test_a_report_of_every_pipeline_schedule_adds_up(schedule):
    report = flopcast.predict(make_job(plan=f"dp=2 pp=4 gbs=16 precision=fp16 schedule={schedule}"))

    assert sum(report.breakdown.values()) == pytest.approx(report.step_time_s, rel=1e-9)
    assert sum(report.memory.by_category.values()) == pytest.approx(report.memory.allocated_bytes, rel=1e-9)


def test_a_block_fewer_beside_a_large_head_makes_the_step_shorter():
    even = make_job(model=WIDE | {"vocabulary": 256000}, plan="pp=4 dp=2 gbs=64 precision=fp16")
    listed = changed(even, stage_layers=(2, 3, 2, 1))

    even_s, listed_s = (step_of(job).step_time_s for job in (even, listed))

    assert listed_s < 0.97 * even_s  # its last stage decides: a head of 4096 · 256000 beside 2 blocks, or 1


def test_blocks_listed_evenly_are_the_stacks_own_division():
    even = make_job(model=WIDE, plan="pp=4 dp=2 gbs=64 precision=fp16")

    listed = step_of(changed(even, stage_layers=(2, 2, 2, 2)))

    assert listed.step_time_s == step_of(even).step_time_s
    assert listed.memory == step_of(even).memory


def test_devices_with_equal_work_are_no_faster_on_more_nodes():
    """Each H100 trains four sequences; messages between nodes take no less time than inside of one."""
    for stack, settings in (("torch-fsdp2", "zero=3"), ("megatron-core", "zero=1")):
        steps = [
            flopcast.predict(
                make_job(
                    model="llama-3-8b",
                    cluster=f"dgx-h100:{nodes}",
                    stack=stack,
                    batch={"sequence_length": 4096},
                    plan=f"dp={8 * nodes} gbs={32 * nodes} mbs=1 recompute=full {settings}",
                )
            ).device_step_time_s
            for nodes in (1, 2, 4)
        ]

        assert steps == sorted(steps), stack
