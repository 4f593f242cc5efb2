"""How a plan is chosen among screened ones: room to spare, exact play of the best few, what is told.

Screening and play are made up here, plan by plan, so that the right choice is known.
"""

from dataclasses import dataclass, field
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import make_job

from flopcast.errors import InfeasibleError
from flopcast.search import choose as choosing
from flopcast.search.choose import (
    HEADROOM_FRACTION,
    MICRO_BATCHES,
    PLAYED,
    RECOMPUTE,
    VIRTUAL_STAGES,
    Choice,
    candidates,
    choose,
)
from flopcast.search.screen import Screened
from flopcast.spec.divisors import divisors
from flopcast.spec.plan import Plan
from flopcast.units import show

JOB = make_job()
DEVICE_BYTES = JOB.cluster.node.device.memory_bytes


@dataclass
class World:
    """Plans in order, told apart by their global batch; each with what screening and play say of it."""

    plans: list = field(default_factory=list)
    rows: list = field(default_factory=list)
    played: list = field(default_factory=list)

    def add(self, screened_s, exact_s=None, used=0.5, possible=True, zero=0):
        """One more plan; `used` is the part of a device that its fullest stage needs."""
        plan = Plan(dp=8, gbs=8 * (len(self.plans) + 1), zero=zero, precision="fp16")
        self.plans.append(plan)
        self.rows.append((screened_s, exact_s or screened_s, used, possible))
        return plan

    def row(self, plan):
        return self.rows[plan.global_batch // 8 - 1]

    def candidates(self, job, fixed, zero=None):
        return [plan for plan in self.plans if plan.zero == (zero or 0)]

    def screen(self, job, plans, book):
        seconds, _, used, possible = (np.array(each) for each in zip(*map(self.row, plans), strict=True))
        return Screened(
            possible=possible,
            fits=possible & (used <= 1.0),
            step_time_s=np.where(possible, seconds, np.nan),
            device_used_bytes=np.where(possible, used * DEVICE_BYTES, np.nan),
        )

    def predict(self, job, book):
        self.played.append(job.plan)
        return SimpleNamespace(step_time_s=self.row(job.plan)[1])


@pytest.fixture
def world(monkeypatch):
    made = World()
    for name in ("candidates", "screen", "predict"):
        monkeypatch.setattr(choosing, name, getattr(made, name))
    return made


def chosen(job=JOB, fixed=None):
    return choose(job, fixed or {}, book=None)


def test_the_plan_that_plays_fastest_is_chosen_not_the_one_that_screens_fastest(world):
    world.add(1.0, exact_s=1.3)
    best = world.add(1.1, exact_s=1.2)
    world.add(1.5, exact_s=1.5)

    found = chosen()

    assert found.plan == best
    assert found.next_best == world.plans[0]
    assert found.next_ratio == pytest.approx(1.3 / 1.2)


def test_only_the_best_few_are_played(world):
    for number in range(3 * PLAYED):
        world.add(10.0 - 0.1 * number)

    assert chosen().plan == world.plans[-1]
    assert world.played == world.plans[:-PLAYED - 1:-1]  # fmt: skip


def test_of_equal_plans_the_first_is_chosen(world):
    first, second = world.add(1.0), world.add(1.0)

    assert (chosen().plan, chosen().next_best, chosen().next_ratio) == (first, second, 1.0)


@pytest.mark.parametrize(("used", "first"), [(HEADROOM_FRACTION, True), (HEADROOM_FRACTION + 1e-6, False)])
def test_a_plan_that_leaves_no_room_gives_way_to_a_slower_one_that_does(world, used, first):
    tight, roomy = world.add(1.0, used=used), world.add(2.0)

    assert chosen().plan == (tight if first else roomy)
    assert chosen().fitting == (2 if first else 1)


def test_where_all_that_fit_are_tight_the_fastest_of_them_is_chosen(world):
    world.add(1.0, used=1.01)
    tight = world.add(3.0, used=0.999)
    world.add(4.0, used=0.97)

    found = chosen()

    assert found.plan == tight
    assert (found.possible, found.fitting) == (3, 2)


def test_plans_that_break_a_rule_are_not_counted_as_possible(world):
    world.add(0.1, possible=False)
    only = world.add(2.0)

    found = chosen()

    assert (found.plan, found.possible, found.fitting) == (only, 1, 1)
    assert (found.next_best, found.next_ratio) == (None, 1.0)


SHARDING = make_job(stack="torch-fsdp2", plan="dp=8 mbs=1 gbs=16 zero=3 precision=bf16")


def test_where_nothing_fits_parameters_are_sharded_too_if_the_stack_can(world):
    world.add(1.0, used=1.5)
    sharded = world.add(2.0, used=0.8, zero=3)

    assert 3 in SHARDING.stack.sharding.zero_stages
    found = chosen(SHARDING)

    assert found.plan == sharded
    assert (found.possible, found.fitting) == (2, 1)


@pytest.mark.parametrize(("job", "fixed"), [(JOB, {}), (SHARDING, {"zero": 1})])
def test_parameters_stay_whole_where_the_stack_or_the_user_says_so(world, job, fixed):
    world.add(1.0, used=1.5)
    world.add(2.0, used=0.8, zero=3)

    assert fixed or 3 not in job.stack.sharding.zero_stages
    with pytest.raises(InfeasibleError, match="no plan fits"):
        chosen(job, fixed)


def test_parameters_stay_whole_where_something_fits(world):
    whole = world.add(3.0, used=0.99)
    world.add(1.0, used=0.5, zero=3)

    assert chosen(SHARDING).plan == whole


def test_a_model_that_is_too_large_is_told_by_its_smallest_plan_and_how_many_devices_it_would_take(world):
    world.add(1.0, used=4.0)
    least = world.add(5.0, used=2.4)
    world.add(1.0, used=0.1, possible=False)

    with pytest.raises(InfeasibleError) as told:
        chosen()

    text = str(told.value)
    assert least.short() in text
    assert "of 2 possible plans" in text
    assert "about 3 times the devices" in text  # 2.4, rounded up
    assert f"{show(2.4 * DEVICE_BYTES, 'B')} of {show(DEVICE_BYTES, 'B')}" in text


@pytest.mark.parametrize(
    ("fixed", "told"), [({}, "nothing"), ({"tensor_parallel": 3}, "tensor_parallel = 3")]
)
def test_where_every_plan_breaks_a_rule_it_is_told_what_was_settled(world, fixed, told):
    for _ in range(3):
        world.add(1.0, possible=False)

    with pytest.raises(InfeasibleError) as error:
        chosen(fixed=fixed)

    assert "each of 3 plans" in str(error.value)
    assert f"fixed was {told}" in str(error.value)


def test_a_choice_is_told_with_how_much_slower_the_next_is():
    first, second = Plan(dp=8, gbs=8), Plan(dp=4, tp=2, gbs=8)
    alone = Choice(plan=first, possible=7, fitting=1, next_best=None, next_ratio=1.0)
    ahead = Choice(plan=first, possible=7, fitting=3, next_best=second, next_ratio=1.125)

    assert alone.told() == "plan chosen: the fastest of 1 that fit, of 7 possible"
    assert ahead.told() == (
        f"plan chosen: the fastest of 3 that fit, of 7 possible; next is {second.short()}, 12.5% slower"
    )


def shapes(plans):
    return {(p.data_parallel, p.tensor_parallel, p.pipeline_parallel, p.virtual_stages) for p in plans}


def test_every_way_to_divide_the_devices_is_offered_with_every_micro_batch_and_recompute():
    """Eight blocks on eight devices: chunks only where stages hold equally many."""
    plans = list(candidates(JOB, {"global_batch": 64}))

    degrees = [(8 // tp // pp, tp, pp) for tp in divisors(8) for pp in divisors(8 // tp)]
    expected = {(*degree, v) for degree in degrees for v in (VIRTUAL_STAGES if degree[2] > 1 else (1,))}
    assert shapes(plans) == expected
    assert len(plans) == len(expected) * len(MICRO_BATCHES) * len(RECOMPUTE) == len(set(plans))
    assert all(plan.devices == 8 and plan.global_batch == 64 for plan in plans)
    assert all(plan.sequence_parallel == (plan.tensor_parallel > 1) for plan in plans)


def test_stages_that_blocks_do_not_divide_have_one_chunk_and_uneven_blocks():
    block = JOB.model.blocks[0].model_copy(update={"count": 7})
    job = JOB.model_copy(update={"model": JOB.model.model_copy(update={"blocks": (block,)})})

    plans = list(candidates(job, {"global_batch": 64}))

    assert max(plan.pipeline_parallel for plan in plans) == 4  # never more stages than blocks
    for plan in plans:
        uneven = plan.pipeline_parallel > 1
        assert bool(plan.stage_layers) == uneven
        assert plan.virtual_stages == 1
        assert not uneven or sum(plan.stage_layers) == 7


EXPERTS = {
    "hidden": 1024,
    "vocabulary": 1024,
    "blocks": [
        {
            "count": 8,
            "mixer": {"heads": 16},
            "feed_forward": {"num_experts": 4, "expert_hidden": 512, "top_k": 1},
        }
    ],
}


def test_experts_are_spread_over_every_common_divisor_of_their_number_and_of_a_stages_ranks():
    job = make_job(model=EXPERTS, stack="megatron-core", plan="dp=8 ep=4 gbs=16 precision=bf16")

    found = {}
    for plan in candidates(job, {"global_batch": 64}):
        ranks = (plan.tensor_parallel, plan.pipeline_parallel)
        found.setdefault(ranks, set()).add((plan.expert_parallel, plan.expert_tensor_parallel))

    for (tensor, stages), spreads in found.items():
        whole = {(degree, 1) for degree in divisors(min(4, 8 // stages))}
        cut = {(1, tensor)} if tensor > 1 else set()
        assert spreads == whole | cut


@pytest.mark.parametrize(
    ("name", "value"), [("virtual_stages", 2), ("recompute", "full"), ("micro_batch", 4)]
)
def test_a_settled_field_leaves_only_plans_that_have_it(name, value):
    free, settled = (list(candidates(JOB, {"global_batch": 64} | fixed)) for fixed in ({}, {name: value}))

    assert settled == [plan for plan in free if getattr(plan, name) == value]


def test_a_micro_batch_that_the_grid_does_not_try_leaves_nothing():
    assert list(candidates(JOB, {"global_batch": 64, "micro_batch": 3})) == []


@pytest.mark.parametrize(("micro", "recompute"), list(product(MICRO_BATCHES[:2], RECOMPUTE[:2])))
def test_two_settled_fields_hold_together(micro, recompute):
    plans = list(candidates(JOB, {"global_batch": 64, "micro_batch": micro, "recompute": recompute}))

    assert {(plan.micro_batch, plan.recompute) for plan in plans} == {(micro, recompute)}
