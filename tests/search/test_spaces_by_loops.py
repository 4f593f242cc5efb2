"""Spaces, sizes and rounds against plain loops; costs of many plans against each of them alone."""

from itertools import combinations, pairwise, product

import pytest
from all_cases import all_cases
from conftest import described_model, make_job
from hypothesis import given, settings
from hypothesis import strategies as st

from flopcast.library.curves import load_book
from flopcast.prediction import predict
from flopcast.search.chunks import _cuts
from flopcast.search.exact import play_each
from flopcast.search.grid import batches, num_plans, plan_at
from flopcast.search.scaled import KEPT, scaled
from flopcast.search.space import Space
from flopcast.search.stage_chunks import tracks_of

EXPERTS = described_model(vocabulary=1024, num_experts=8, expert_hidden=512, top_k=1)
SETTLED = {"zero": 1, "recompute": "none", "vpp": 1, "sp": [False], "dp_shard": 0}
DEGREES = (
    "data_parallel", "tensor_parallel", "context_parallel", "pipeline_parallel", "expert_parallel",
    "expert_tensor_parallel", "micro_batch", "global_batch",
)  # fmt: skip


def plans_of(job, space):
    return [plan_at(plans, row) for _, plans in batches(job, space) for row in range(plans.size)]


def loops(devices, experts, micro_batches, global_batches):
    """Every way to cut so many devices, written out: experts over the ranks of a stage, whole or cut."""
    every = range(1, devices + 1)
    for tp, cp, pp, ep in product(every, every, every, every):
        if devices % (tp * cp * pp) or experts % ep:
            continue
        dp = devices // (tp * cp * pp)
        for etp, micro, batch in product({1, tp}, micro_batches, global_batches):
            if (tp * cp * dp) % (ep * etp) == 0 and batch % (dp * micro) == 0:
                yield dp, tp, cp, pp, ep, etp, micro, batch


@pytest.mark.parametrize(("devices", "experts"), [(8, 8), (4, 8), (8, 6)])
def test_experts_are_spread_in_every_way_that_the_ranks_of_a_stage_allow(devices, experts):
    model = described_model(vocabulary=1024, num_experts=experts, expert_hidden=512, top_k=1)
    job = make_job(model=model, stack="megatron-core", plan="dp=8 gbs=24 zero=1")
    space = Space(gpus=devices, gbs="16,24", mbs="1,2,3", **SETTLED)

    plans = plans_of(job, space)

    found = [tuple(getattr(plan, name) for name in DEGREES) for plan in plans]
    expected = set(loops(devices, experts, (1, 2, 3), (16, 24)))
    assert set(found) == expected
    assert len(found) == len(expected) == num_plans(job, space)


@pytest.mark.parametrize("length", [1024, 16384])
def test_micro_batches_that_nobody_names_divide_a_batch_and_stay_below_a_size(length):
    """65,536 tokens on a rank, and eight sequences in any case."""
    job = make_job(batch={"sequence_length": length}, plan="dp=8 gbs=480")
    space = Space(gbs=480, tp=8, pp=1, cp=1, **SETTLED)

    found = sorted({plan.micro_batch for plan in plans_of(job, space)})

    most = max(8, 65536 // length)
    assert found == [micro for micro in range(1, most + 1) if 480 % micro == 0]


@pytest.mark.parametrize(
    ("nodes", "plan", "sizes"),
    [
        (3, "dp=24 gbs=48", {6, 24, 48, 96, 192}),  # half would be a node and a half
        (2, "dp=16 gbs=32", {4, 8, 16, 32, 64, 128}),
        (6, "dp=6 tp=8 gbs=12", {24, 48, 96, 192, 384}),  # a quarter would be a replica and a half
    ],
)
def test_other_sizes_are_whole_nodes_or_a_part_of_one_and_whole_replicas(nodes, plan, sizes):
    job = make_job(cluster=f"dgx-a100:{nodes}", plan=f"{plan} precision=fp16")

    found = scaled(predict(job, load_book(job.cluster)), load_book(job.cluster))

    assert {one.num_devices for one in found} == sizes
    replicas = {one.num_devices * job.plan.data_parallel // job.plan.devices for one in found}
    kept = {
        one.num_devices * job.plan.data_parallel // job.plan.devices for one in found if one.batch == KEPT
    }
    assert kept == {number for number in replicas if job.plan.global_batch % number == 0}


def every_division(blocks, chunks):
    """Where chunks begin and end, all ways; none is empty but the ends of the model."""
    for inner in combinations(range(blocks + chunks - 1), chunks - 1):
        cuts = (0, *(place - number for number, place in enumerate(inner)), blocks)
        if all(low < high for low, high in pairwise(cuts[1:-1])):
            yield cuts


@settings(max_examples=25, deadline=None)
@given(
    runs=st.lists(st.integers(1, 5), min_size=1, max_size=4).map(tuple),
    stages=st.integers(2, 3),
    virtual=st.integers(2, 3),
)
def test_rounds_that_are_one_track_hold_blocks_of_one_kind_in_every_division(runs, stages, virtual):
    """And only those are tracks of their own in which another kind may stand."""
    blocks, chunks = sum(runs), stages * virtual
    tracks = tracks_of(runs, stages, virtual)
    together = range(tracks.leading, tracks.leading + tracks.together)

    assert (tracks.leading + tracks.together + tracks.trailing, tracks.together >= 0) == (virtual, True)
    assert sorted((*tracks.rounds, *together)) == list(range(virtual))
    if blocks + 2 < chunks:
        return
    for cuts in every_division(blocks, chunks):
        for number in range(chunks):
            low, high = cuts[number], cuts[number + 1]
            if number // stages in together and low < high:
                assert tracks.low <= low < high <= tracks.high


@given(numbers=st.lists(st.integers(0, 30), max_size=12), most=st.integers(1, 40))
@settings(max_examples=100)
def test_parts_of_a_space_are_as_few_as_leave_structures_whole_that_may_be(numbers, most):
    """Every plan stands in one part, in order; what fits one part is not cut; no two parts would be one."""
    plans = [(structure, place) for structure, number in enumerate(numbers) for place in range(number)]

    parts = [(plans.index((structure, first)), number) for structure, first, number in _cuts(numbers, most)]

    assert [place for first, number in parts for place in range(first, first + number)] == [
        *range(len(plans))
    ]
    assert all(number <= most for _, number in parts)
    own = [{plans[place][0] for place in range(first, first + number)} for first, number in parts]
    for structure, number in enumerate(numbers):
        assert sum(structure in each for each in own) <= max(1, -(-number // most))
    for one, other in pairwise(range(len(parts))):
        if not own[one] & own[other]:
            next_whole = numbers[min(own[other])]
            assert parts[one][1] + next_whole > most


BATCHES = {
    "unlike degrees": (
        {"cluster": "dgx-a100:2", "stack": "megatron-core"},
        ["dp=16", "dp=8 tp=2", "dp=4 tp=2 pp=2", "dp=1 tp=8 pp=2", "dp=4 pp=4"],
    ),
    "sharded": (
        {"cluster": "dgx-a100:2", "stack": "torch-fsdp2"},
        ["dp=16 zero=3", "dp=8 tp=2 zero=3", "dp=16 zero=3 mbs=2"],
    ),
    "experts": (
        {"cluster": "dgx-a100:2", "stack": "megatron-core", "model": EXPERTS},
        ["dp=16 ep=8 zero=1", "dp=8 tp=2 sp ep=4 zero=1", "dp=8 pp=2 ep=8 zero=1"],
    ),
}


@all_cases("name", BATCHES)
def test_energy_and_money_of_a_plan_among_others_are_what_predict_says_of_it_alone(name):
    """Values, intervals, and every factor that they hang on, in each row of a batch."""
    parts, plans = BATCHES[name]
    jobs = [make_job(**parts, plan=f"{plan} gbs=64 precision=bf16") for plan in plans]

    played = dict(play_each(jobs, load_book))

    for place, job in enumerate(jobs):
        alone, among = predict(job, load_book(job.cluster)).cost, played[place].cost
        for one, other in (
            (alone.step_usd, among.step_usd),
            (alone.energy.step_j, among.energy.step_j),
            (alone.energy.device_power_w, among.energy.device_power_w),
        ):
            assert other.value == pytest.approx(one.value, rel=1e-9)
            assert other.bounds == pytest.approx(one.bounds, rel=1e-9)
            assert {f.name: f.share for f in other.factors} == pytest.approx(
                {f.name: f.share for f in one.factors}, rel=1e-6, abs=1e-12
            )
        assert among.energy.busy == pytest.approx(alone.energy.busy, rel=1e-9)
    assert len({one.cost.energy.step_j.value for one in played.values()}) == len(jobs)
