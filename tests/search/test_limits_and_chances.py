"""The probability to miss a deadline: that of a log-normal time whose 90 % interval is printed."""

import math
from statistics import NormalDist

import pytest
from made_plans import JOB, factor, played

from flopcast.render.search_runs import chance_to_miss, risk_text
from flopcast.search.question import Question

TOKENS = 1e9


PLAN = played(10.0, factor("own", 0.2), dp=8)


def asked(deadline_s):
    return Question(jobs=(JOB,), objectives=("time_to_train",), total_tokens=TOKENS, deadline_s=deadline_s)


def test_the_chance_is_that_of_the_interval_of_the_run():
    loss = asked(1.0).first.exact(PLAN, TOKENS)
    low, high = loss.bounds
    sigma = math.log(high / low) / (2 * NormalDist().inv_cdf(0.95))

    for deadline_s in (low, loss.value, 1.1 * loss.value, high):
        (limit,) = asked(deadline_s).limits
        expected = 1 - NormalDist(math.log(loss.value), sigma).cdf(math.log(deadline_s))
        assert chance_to_miss(limit, PLAN, TOKENS) == pytest.approx(expected, abs=1e-6)


def test_a_plan_whose_interval_crosses_the_deadline_is_marked():
    loss = asked(1.0).first.exact(PLAN, TOKENS)

    assert risk_text(PLAN, asked(loss.value)) == "misses the deadline with a probability of 50%"
    assert risk_text(PLAN, asked(1.01 * loss.bounds[1])) == ""
