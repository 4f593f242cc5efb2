"""Factors that scale an item in some plans of a batch only: each plan hangs on what it hangs on alone."""

import numpy as np
import pytest
from conftest import described_model, make_job

from flopcast.cost.factors import FactorBook
from flopcast.cost.item_prices import ItemPrice
from flopcast.cost.price import price
from flopcast.library.curves import load_book
from flopcast.spec.plan import Plan, batch_plans
from flopcast.workload.lower import lower
from flopcast.workload.realise import realise

EXPERTS = described_model(
    hidden=2048, vocabulary=32000, count=4, num_experts=8, top_k=2, expert_hidden=4096
)


def priced(job, *plans):
    programs = realise(lower(job.model, batch_plans(plans), job.batch), job.software)
    book = load_book(job.cluster)
    return price(programs, job.cluster, book, FactorBook(job.site, book.levels))


def names_of(made, plan=None):
    """Factors of every item that takes time in that plan, by the item's name, in order."""
    found = {}
    for number, item in enumerate(made.programs.items()):
        price_of = made.of(item)
        row = 0 if plan is None else min(plan, price_of.alone_s.shape[0] - 1)
        if (price_of.alone_s[row] > 0).any():
            found[number, item.name] = set(price_of.names(plan))
    return found


def test_a_name_holds_where_its_mask_does():
    one = ItemPrice(
        alone_s=np.ones((3, 1)),
        host_s=np.zeros((1, 1)),
        wholly=("always",),
        partly={"sometimes": np.array([[True], [False], [True]]), "everywhere": np.array([[True]])},
    )

    assert one.names(0) == ("always", "sometimes", "everywhere")
    assert one.names(1) == ("always", "everywhere")
    assert one.factors == one.names(0)


@pytest.mark.parametrize(
    ("job", "plans"),
    [
        (
            make_job(cluster="selene:2", stack="megatron-core", plan="dp=16 gbs=64"),
            [Plan(dp=16, gbs=64), Plan(dp=2, tp=8, gbs=64), Plan(dp=8, tp=2, gbs=64)],
        ),
        (
            make_job(cluster="vista:8", stack="megatron-core", plan="dp=8 gbs=64"),
            [Plan(dp=8, gbs=64), Plan(dp=4, tp=2, gbs=64), Plan(tp=8, gbs=64, mbs=4)],
        ),
        (
            make_job(model=EXPERTS, cluster="dgx-h100:1", stack="megatron-core", plan="dp=8 gbs=64"),
            [Plan(dp=8, gbs=64, ep=8), Plan(dp=8, gbs=64, ep=2), Plan(dp=4, tp=2, gbs=64, ep=4, etp=1)],
        ),
    ],
    ids=["two nodes", "a network between all", "experts alone on a rank, and not"],
)
def test_a_plan_of_a_batch_hangs_on_the_factors_that_it_hangs_on_alone(job, plans):
    together = priced(job, *plans)

    for place, plan in enumerate(plans):
        alone = names_of(priced(job, plan))
        among = names_of(together, place)
        assert {key[1] for key in among} == {key[1] for key in alone}
        assert [among[key] for key in sorted(among)] == [alone[key] for key in sorted(alone)]


def test_inside_a_node_and_across_nodes_are_different_fabrics_of_one_item():
    job = make_job(cluster="selene:2", stack="megatron-core", plan="dp=16 gbs=64")
    made = priced(job, Plan(dp=16, gbs=64), Plan(dp=2, tp=8, gbs=64), Plan(dp=1, tp=16, gbs=64))

    reduces = [item for item in made.programs.items() if item.stream == "tp" and made.of(item).partly]
    fabrics = [[n for n in made.of(reduces[0]).names(plan) if n.startswith("fabric")] for plan in range(3)]

    assert fabrics[0] == []  # one rank sends nothing
    assert len(fabrics[1]) == len(fabrics[2]) == 1
    assert fabrics[1] != fabrics[2]
