"""What may be asked for: each objective is what `predict` and `run` say of the plan, and estimates order
plans as the exact values do."""

from functools import cache

import numpy as np
import pytest
from all_cases import all_cases
from conftest import make_job

from flopcast.economics.run import phase_of
from flopcast.library.curves import load_book
from flopcast.prediction import predict
from flopcast.render.search_table import rows_of
from flopcast.render.search_text import as_text, question_lines
from flopcast.search.exact import play_each
from flopcast.search.find import find
from flopcast.search.grid import batches, plan_at
from flopcast.search.objectives import OBJECTIVES, Estimates
from flopcast.search.question import Question
from flopcast.search.screen import screen
from flopcast.search.space import Space
from flopcast.units import show_seconds, show_usd

TOKENS = 1e11
JOB = make_job(cluster="dgx-a100:1", stack="megatron-core", plan="dp=8 gbs=64")
SPACE = Space(
    gbs=64, mbs="1,2", vpp=1, cp=1, zero=1, dp_shard=0, sp=[True], recompute="none full", refine=False
)
FEW = SPACE.model_copy(update={"pipeline_parallel": (1,)})  # where only the columns of a table are asked
BOOK = load_book(JOB.cluster)


def said_by_predict(report):
    """Every objective from the report of one plan."""
    cost = report.cost
    run = phase_of("run", TOKENS, cost, report.job.cluster)
    return {
        "step_time": report.step_time_s,
        "tokens_per_s": report.metrics.tokens_per_s,
        "tokens_per_s_per_device": report.metrics.device_tokens_per_s,
        "memory": report.memory.device_used_bytes,
        "cost": cost.per_many_tokens(cost.step_usd).value,
        "energy": cost.per_many_tokens(cost.energy.step_j).value / 3.6e6,
        "time_to_train": run.wall_s.value,
        "run_cost": run.usd.value,
    }


def bounds_said_by_predict(report):
    """The intervals of those that are amounts."""
    cost = report.cost
    run = phase_of("run", TOKENS, cost, report.job.cluster)
    return {
        "step_time": (report.step_time_low_s, report.step_time_high_s),
        "cost": cost.per_many_tokens(cost.step_usd).bounds,
        "time_to_train": run.wall_s.bounds,
        "run_cost": run.usd.bounds,
    }


PLAN = JOB.model_copy(
    update={"plan": JOB.plan.model_copy(update={"data_parallel": 4, "tensor_parallel": 2})}
)
PLAYED = dict(play_each([PLAN, JOB], lambda _: BOOK))[0]
REPORT = predict(PLAN, BOOK)


@all_cases("name", OBJECTIVES)
def test_an_objective_of_a_played_plan_is_what_predict_says(name):
    objective = OBJECTIVES[name]

    value = objective.shown(objective.exact(PLAYED, TOKENS).value)

    assert value == pytest.approx(said_by_predict(REPORT)[name], rel=1e-12)


@all_cases("name", bounds_said_by_predict(REPORT))
def test_an_objective_has_the_interval_that_predict_gives_it(name):
    bounds = OBJECTIVES[name].exact(PLAYED, TOKENS).bounds

    assert bounds == pytest.approx(bounds_said_by_predict(REPORT)[name], rel=1e-9)


@cache
def cheapest_runs():
    """A search of the whole space for the cheapest run."""
    asked = Question(jobs=(JOB,), space=SPACE, objectives=("run_cost",), total_tokens=TOKENS)
    return find(asked, lambda _: BOOK)


@cache
def estimated_and_played():
    """What estimates are made of, and the exact play, of batches whose plans run nothing again."""
    found = []
    for job, plans in batches(JOB, SPACE):
        if plans.structure.recompute != "none" or not plans.structure.sequence_parallel:
            continue
        part = screen(job, plans, BOOK)
        kept = np.flatnonzero(part.fits)
        of = Estimates(
            job=job,
            step_s=part.step_time_s[kept],
            global_batch=plans.global_batch[kept, 0],
            used_bytes=part.device_used_bytes[kept],
        )
        jobs = [job.model_copy(update={"plan": plan_at(plans, row)}) for row in kept.tolist()]
        found.append((of, dict(play_each(jobs, lambda _: BOOK))))
    return found


@all_cases("name", OBJECTIVES)
def test_an_estimate_is_near_the_exact_value_or_in_its_order(name):
    """Energy is estimated by device-seconds alone: its order counts, not its size."""
    objective = OBJECTIVES[name]
    for of, played in estimated_and_played():
        exact = np.array([objective.exact(played[place], TOKENS).value for place in range(len(played))])
        estimate = objective.estimate(of, TOKENS)
        ratio = exact / estimate
        assert np.ptp(ratio) / ratio.mean() < (0.25 if name == "energy" else 0.1)
        if name != "energy":
            assert ratio == pytest.approx(1.0, abs=0.1)


def test_the_cheapest_way_and_the_fastest_way_differ_in_the_devices():
    question = Question(
        jobs=(JOB,),
        space=SPACE.model_copy(update={"num_devices": (2, 4, 8)}),
        objectives=("time_to_train", "run_cost"),
        total_tokens=TOKENS,
    )

    found = find(question, lambda _: BOOK)

    fastest = min(found.plans, key=lambda one: one.losses[0].value)
    cheapest = min(found.plans, key=lambda one: one.losses[1].value)
    devices = [one.played.job.cluster.num_devices for one in (fastest, cheapest)]
    assert devices[0] == 8
    assert devices[1] < 8
    assert {id(one) for one in (fastest, cheapest)} <= {id(one) for one in found.on_front}


def test_a_budget_leaves_plans_that_cost_no_more():
    costs = sorted(one.losses[0].value for one in cheapest_runs().plans)
    middle = costs[len(costs) // 2]

    tight = find(Question(jobs=(JOB,), space=SPACE, total_tokens=TOKENS, budget_usd=middle), lambda _: BOOK)

    spent = [OBJECTIVES["run_cost"].exact(one.played, TOKENS).value for one in tight.plans]
    assert len(spent) == sum(cost <= middle for cost in costs)
    assert max(spent) <= middle


def test_the_table_has_the_time_and_cost_of_the_run_that_limits_are_about():
    """A plan's cells are those of `run`, and within the limits that one line states."""
    days = 1e5 * 86400
    limited = Question(jobs=(JOB,), space=SPACE, total_tokens=TOKENS, deadline_s=days, budget_usd=1e9)

    result = find(limited, lambda _: BOOK)

    head, *rows = rows_of(result, result.plans)
    for row, one in zip(rows, result.plans, strict=True):
        cells = dict(zip(head, row, strict=True))
        run = phase_of("run", TOKENS, one.played.cost, one.played.job.cluster)
        assert cells["time of the run"] == show_seconds(run.wall_s.value)
        assert cells["cost of the run"] == show_usd(run.usd.value)
    told = "limits    a deadline of 100000 d and a budget of $1.00 B: every plan in the table meets both"
    assert f"{told} with its whole 90 % interval" in question_lines(result)


@all_cases("named", [(), ("time_to_train",), ("run_cost",), ("run_cost", "time_to_train")])
def test_no_column_of_the_run_stands_twice(named):
    asked = Question(jobs=(JOB,), space=FEW, total_tokens=TOKENS, objectives=named or ("memory",))

    found = find(asked, lambda _: BOOK)

    head, *_ = rows_of(found, found.plans)
    assert (head.count("time of the run"), head.count("cost of the run")) == (1, 1)
    assert not any(line.startswith("limits") for line in question_lines(found))


def test_a_run_of_unknown_length_or_price_has_no_column():
    unpriced = JOB.model_copy(update={"cluster": JOB.cluster.model_copy(update={"price": None})})
    without_price, without_tokens = (
        find(Question(jobs=(job,), space=FEW, total_tokens=tokens), lambda _: BOOK)
        for job, tokens in ((unpriced, TOKENS), (JOB, 0.0))
    )

    heads = [rows_of(one, one.plans)[0] for one in (without_price, without_tokens)]

    assert [head.count("time of the run") for head in heads] == [1, 0]
    assert [head.count("cost of the run") for head in heads] == [0, 0]


def test_intervals_of_cost_ratios_on_one_cluster_hold_no_price():
    """What an hour costs scales both plans alike."""
    priced = JOB.cluster.price.model_copy(update={"log_sigma_factor": 0.5})
    dear = JOB.model_copy(update={"cluster": JOB.cluster.model_copy(update={"price": priced})})
    asked = {"space": SPACE, "objectives": ("cost",)}

    sure, unsure = (find(Question(jobs=(job,), **asked), lambda _: BOOK) for job in (JOB, dear))

    for one, other in zip(sure.plans, unsure.plans, strict=True):
        assert (one.ratio_low, one.ratio_high) == pytest.approx((other.ratio_low, other.ratio_high))
    assert unsure.plans[0].losses[0].bounds[1] > sure.plans[0].losses[0].bounds[1] * 1.2


def test_where_no_plan_keeps_a_budget_the_nearest_is_one_that_fits_into_memory():
    """Half of the plans lack memory, and the fastest of these are the cheapest of all."""
    sizes = sorted(one.played.high_bytes for one in cheapest_runs().plans)
    middle = {"memory_bytes": sizes[len(sizes) // 2]}
    small = JOB.cluster.node.device.model_copy(update=middle)
    node = JOB.cluster.node.model_copy(update={"device": small})
    group = JOB.cluster.groups[0].model_copy(update={"node": node})
    job = JOB.model_copy(update={"cluster": JOB.cluster.model_copy(update={"groups": (group,)})})
    free = find(Question(jobs=(job,), space=SPACE, total_tokens=TOKENS), lambda _: BOOK)
    cheapest = min(OBJECTIVES["run_cost"].exact(one.played, TOKENS).value for one in free.plans)

    poor = find(
        Question(jobs=(job,), space=SPACE, total_tokens=TOKENS, budget_usd=0.5 * cheapest), lambda _: BOOK
    )

    assert not poor.plans
    assert poor.feasible == 0
    assert 0 < free.feasible == poor.in_memory < poor.possible
    assert poor.nearest[0].played.verdict == "fits"
    assert OBJECTIVES["run_cost"].exact(poor.nearest[0].played, TOKENS).value == pytest.approx(cheapest)
    told = as_text(poor)
    assert f"{poor.in_memory} fit into memory, 0 of these are estimated to meet all limits" in told
    assert "more than the budget" in told
    assert "GiB more" not in told
