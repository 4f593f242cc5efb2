"""The programs that make the numbers of docs/accuracy: each can be read, and asks what can be answered."""

import importlib
import pkgutil

import pytest

import benchmarks
from benchmarks.screen_right import LARGE, PROBLEMS
from flopcast.search.grid import num_plans


@pytest.mark.parametrize("module", [found.name for found in pkgutil.iter_modules(benchmarks.__path__)])
def test_every_benchmark_can_be_read(module):
    assert importlib.import_module(f"benchmarks.{module}").__doc__


@pytest.mark.parametrize("name", PROBLEMS | LARGE)
def test_every_problem_of_the_screen_is_a_question(name):
    question = (PROBLEMS | LARGE)[name].question()

    assert sum(num_plans(job, question.space) for job in question.jobs) > 500
    assert not question.space.refine
