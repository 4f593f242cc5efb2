"""Micro-batches that are listed belong to one plan: many at once are refused."""

import pytest
from conftest import make_job

from flopcast.errors import InternalError, SpecError
from flopcast.library.curves import load_book
from flopcast.search.screen import screen
from flopcast.spec.plan import Plan, batch_plans, one_plan
from flopcast.workload.lower import lower

JOB = make_job(batch={"seq": 1024, "micro_batches": [{"seq": 512}, {}]})


def test_plans_are_not_screened_for_micro_batches_of_one_of_them():
    with pytest.raises(SpecError, match=r"batch.micro_batches = '2 kinds of micro-batches' is not allowed"):
        screen(JOB, one_plan(JOB.plan), load_book(JOB.cluster))


def test_several_plans_are_not_lowered_with_micro_batches_that_differ():
    plans = batch_plans([Plan(dp=8, gbs=16), Plan(dp=4, tp=2, gbs=8)])

    with pytest.raises(InternalError, match="for several plans at once"):
        lower(JOB.model, plans, JOB.batch)
