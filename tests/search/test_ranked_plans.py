"""How a plan is chosen among screened ones: room to spare, exact play of the best few, what is told.

Screening and play are made up here, plan by plan, so that the right choice is known.
"""

from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import make_job

from flopcast.cost.between_plans import TIED_RATIO
from flopcast.errors import InfeasibleError
from flopcast.records import replace
from flopcast.search import default_plan as choosing
from flopcast.search import top_candidates as sifting
from flopcast.search import usual_plans
from flopcast.search.chosen_plan import NO_TIGHT_PLANS, ChosenPlan, FasterTight
from flopcast.search.default_plan import PLAYED, choose
from flopcast.search.grid import plan_at
from flopcast.search.screen import Screened
from flopcast.spec.plan import Plan, batch_plans
from flopcast.timeline.uncertainty import Sensitivity
from flopcast.units import show_memory

JOB = make_job()
DEVICE_BYTES = JOB.cluster.node.device.memory_bytes


@dataclass
class World:
    """Plans in order, told apart by their global batch; each with what screening and play say of it.

    Every plan has one factor of its own, with the same sigma.
    """

    plans: list = field(default_factory=list)
    rows: list = field(default_factory=list)
    played: list = field(default_factory=list)
    own_log_sigma_factor: float = 0.0

    def add(self, screened_s, exact_s=None, used=0.5, possible=True, **fields):
        """One more plan; `used` is the part of a device that its fullest stage needs."""
        plan = Plan(**{"dp": 8, "gbs": 8 * (len(self.plans) + 1), "precision": "fp16"} | fields)
        self.plans.append(plan)
        self.rows.append((screened_s, exact_s or screened_s, used, possible))
        return plan

    def row(self, plan):
        return self.rows[plan.global_batch // 8 - 1]

    def batches_on(self, job, space):
        plans = [plan for plan in self.plans if plan.zero == (3 if space.zero == (3,) else 0)]
        for half in (plans[: len(plans) // 2], plans[len(plans) // 2 :]):
            if half:
                yield job, batch_plans(half)

    def screen(self, job, plans, book, kept, wanted, worth=None):
        rows = [self.row(plan_at(plans, row)) for row in range(plans.size)]
        seconds, _, used, possible = (np.array(each) for each in zip(*rows, strict=True))
        return Screened(
            possible=possible,
            fits=possible & (used <= 1.0),
            step_time_s=np.where(possible, seconds, np.nan),
            device_used_bytes=np.where(possible, used * DEVICE_BYTES, np.nan),
            high_bytes=np.where(possible, used * DEVICE_BYTES, np.nan) / 0.95,
            outside_ratio=np.zeros(plans.size),
        )

    def play_each(self, jobs, book_of, kept, *, energy=True):
        for place, job in enumerate(jobs):
            self.played.append(job.plan)
            step_s, used_bytes = self.row(job.plan)[1], self.row(job.plan)[2] * DEVICE_BYTES
            own = Sensitivity(
                name=str(job.plan.global_batch), log_sigma_factor=self.own_log_sigma_factor, share=1.0
            )
            yield (
                place,
                SimpleNamespace(
                    job=job,
                    plan=job.plan,
                    step_time_s=step_s,
                    factors=(own,) if self.own_log_sigma_factor else (),
                    expected_bytes=used_bytes,
                    high_bytes=used_bytes / 0.95,
                    device_used_bytes=used_bytes,
                    capacity_bytes=DEVICE_BYTES,
                    verdict="fits" if used_bytes <= 0.95 * DEVICE_BYTES else "tight",
                ),
            )


@pytest.fixture
def world(monkeypatch):
    made = World()
    for module, name in ((usual_plans, "batches_on"), (sifting, "screen"), (choosing, "play_each")):
        monkeypatch.setattr(module, name, getattr(made, name))
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


@pytest.mark.parametrize(
    ("step_s", "is_chosen"), [(1.001, True), (TIED_RATIO - 1e-6, True), (TIED_RATIO + 1e-6, False)]
)
def test_a_simpler_plan_is_chosen_if_it_is_tied_within_what_repeats_differ_by(world, step_s, is_chosen):
    """The rule by which a search recommends a plan (search/rank.py)."""
    world.own_log_sigma_factor = 0.05
    fastest = world.add(1.0, dp=2, tp=4)
    simpler = world.add(step_s)

    found = chosen()

    assert (found.plan, found.next_best) == ((simpler, fastest) if is_chosen else (fastest, simpler))
    assert found.next_ratio == pytest.approx(1 / step_s if is_chosen else step_s)
    assert found.tied == 1 + is_chosen


@pytest.mark.parametrize(
    ("used", "first"), [(0.95, True), (0.95 + 1e-6, False)]
)  # the high end is 1/0.95 of it
def test_a_plan_that_leaves_no_room_gives_way_to_a_slower_one_that_does(world, used, first):
    tight, roomy = world.add(1.0, used=used), world.add(2.0)

    found = chosen()

    assert found.plan == (tight if first else roomy)
    assert found.fitting == (2 if first else 1)
    left_out = found.faster_tight
    assert left_out is None if first else (left_out.plan, left_out.ratio) == (tight, 0.5)


def test_where_all_that_fit_are_tight_the_fastest_of_them_is_chosen(world):
    world.add(1.0, used=1.01)
    tight = world.add(3.0, used=0.999)
    world.add(4.0, used=0.97)

    found = chosen()

    assert found.plan == tight
    assert (found.possible, found.fitting, found.tight) == (3, 2, True)
    assert "(2 only just fit)" in found.sentence()


def test_plans_that_break_a_rule_are_not_counted_as_possible(world):
    world.add(0.1, possible=False)
    only = world.add(2.0)

    found = chosen()

    assert (found.plan, found.possible, found.fitting) == (only, 1, 1)
    assert (found.next_best, found.next_ratio) == (None, 1.0)


SHARDING = make_job(stack="megatron-core", plan="dp=8 mbs=1 gbs=16 zero=1 precision=bf16")


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
    whole = world.add(3.0, used=0.9)
    world.add(1.0, used=0.5, zero=3)

    assert chosen(SHARDING).plan == whole


def test_parameters_are_sharded_before_a_tight_plan_is_taken(world):
    world.add(1.0, used=0.99)
    sharded = world.add(3.0, used=0.5, zero=3)

    assert chosen(SHARDING).plan == sharded
    assert not chosen(SHARDING).tight


def test_a_model_that_is_too_large_is_told_by_its_smallest_plan_and_what_that_needs(world):
    world.add(1.0, used=4.0)
    least = world.add(5.0, used=2.4)
    world.add(1.0, used=0.1, possible=False)

    with pytest.raises(InfeasibleError) as told:
        chosen()

    text = str(told.value)
    assert least.short() in text
    assert "of 2 possible plans" in text
    assert told.value.needed_ratio == pytest.approx(2.4)
    needs = f"needs {show_memory(2.4 * DEVICE_BYTES)}; a device has {show_memory(DEVICE_BYTES)}"
    assert needs in text


@pytest.mark.parametrize(
    ("fixed", "told"), [({}, "nothing"), ({"tensor_parallel": 2}, "tensor_parallel = 2")]
)
def test_where_every_plan_breaks_a_rule_it_is_told_what_was_settled(world, fixed, told):
    for _ in range(3):
        world.add(1.0, possible=False)

    with pytest.raises(InfeasibleError) as error:
        chosen(fixed=fixed)

    assert "each of 3 plans" in str(error.value)
    assert f"you fixed {told}" in str(error.value)


def test_a_choice_is_told_with_how_much_slower_the_next_or_how_much_faster_the_fastest_is():
    first, second = Plan(dp=8, gbs=8), Plan(dp=4, tp=2, gbs=8)
    alone = ChosenPlan(plan=first, possible=7, fitting=1, tight=False, next_best=None, next_ratio=1.0)
    ahead = ChosenPlan(plan=first, possible=7, fitting=3, tight=False, next_best=second, next_ratio=1.125)

    behind = ChosenPlan(
        plan=first, possible=7, fitting=3, tight=False, tied=2, next_best=second, next_ratio=0.99
    )

    more = f". {NO_TIGHT_PLANS}"
    fastest = "plan chosen automatically: the fastest of 7 typical plans"
    assert alone.sentence() == f"{fastest} (1 fit){more}"
    assert ahead.sentence() == (
        f"{fastest} (3 fit). The next best plan, {second.short()}, is 12.5% slower{more}"
    )
    assert behind.sentence() == (
        "plan chosen automatically: the simplest of 2 plans within 2% of the fastest"
        "; flopcast tried 7 typical plans (3 fit)."
        f" The fastest plan, {second.short()}, is 1.0% faster{more}"
    )
    varied = replace(alone, num_variants=2)
    assert varied.sentence() == (
        f"{fastest} (1 fit) and 2 variants with layers divided differently or with less recompute{more}"
    )
    left_out = FasterTight(plan=second, ratio=0.9, need="53.1 GiB expected of 80.0 GiB")
    assert left_out.sentence() == (
        f'plan "{second.short()}" would be 10.0% faster, but may not fit:'
        " 53.1 GiB expected of 80.0 GiB; check with a short test run"
    )
