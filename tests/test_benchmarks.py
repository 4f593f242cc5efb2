"""The programs that make the numbers of docs/accuracy: each can be read, and asks what can be answered."""

import importlib
import math
import pkgutil

import pytest
from all_cases import all_cases

import benchmarks
from benchmarks.screen_right import LARGE, PROBLEMS
from benchmarks.sharded_by_layer import Point, fastest
from flopcast.search.grid import num_plans
from flopcast.spec.plan import Plan


@all_cases("module", [found.name for found in pkgutil.iter_modules(benchmarks.__path__)])
def test_every_benchmark_can_be_read(module):
    assert importlib.import_module(f"benchmarks.{module}").__doc__


@all_cases("name", PROBLEMS | LARGE)
def test_every_problem_of_the_screen_is_a_question(name):
    question = (PROBLEMS | LARGE)[name].question()

    assert sum(num_plans(job, question.space) for job in question.jobs) > 500
    assert not question.space.refine


@all_cases(
    ("less", "more", "fastest_s"),
    [
        ((10.0, 40e9), (6.0, 80e9), 8.0),  # half of the layers of each fill 60 GB
        ((10.0, 60e9), (6.0, 80e9), 10.0),
        ((10.0, 40e9), (6.0, 60e9), 6.0),
        ((10.0, 70e9), (6.0, 80e9), math.inf),
    ],
)
def test_a_mixture_of_two_plans_fills_memory_and_no_more(less, more, fastest_s):
    plans = [Point(Plan(recompute=name), *one) for name, one in (("full", less), ("none", more))]

    assert fastest(plans, 60e9, ("recompute",))[0] == pytest.approx(fastest_s)
    assert fastest(plans, 60e9, ("sharding",))[0] == min(
        (one.step_s for one in plans if one.high_bytes <= 60e9), default=math.inf
    )
