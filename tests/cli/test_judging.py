"""Ways of judging published runs, as options name them."""

import pytest

from flopcast.cli.validate_options import Judging
from flopcast.errors import SpecError


def judging(**changes):
    flags = dict.fromkeys(("each_out", "generations", "models", "bare"), False)
    return Judging(**({"left_out": None, "report": None} | flags | changes))


@pytest.mark.parametrize(
    ("named", "ways", "constants"),
    [
        ({}, ("catalogue", "others", "none"), "catalogue"),
        ({"each_out": True}, ("others",), "others"),
        ({"left_out": "some-source"}, ("others",), "catalogue"),
        ({"generations": True}, ("generations",), "generations"),
        ({"models": True}, ("models",), "models"),
        ({"bare": True}, ("none",), "none"),
    ],
    ids=["none named", "each", "one source", "generations", "models", "bare"],
)
def test_decisions_are_judged_in_the_way_that_is_named_and_in_all_where_none_is(named, ways, constants):
    asked = judging(**named)

    asked.check()
    assert asked.ways == ways
    assert asked.constants == constants


@pytest.mark.parametrize(
    "named",
    [
        {"each_out": True, "bare": True},
        {"each_out": True, "left_out": "a"},
        {"bare": True, "left_out": "a"},
        {"generations": True, "each_out": True},
        {"generations": True, "models": True},
        {"each_out": True, "bare": True, "left_out": "a"},
    ],
    ids=" and ".join,
)
def test_two_ways_at_once_are_refused(named):
    with pytest.raises(SpecError) as refused:
        judging(**named).check()

    (problem,) = refused.value.problems
    assert problem.fix == "keep one of them"


def test_without_a_table_every_option_that_needs_one_is_refused_at_once():
    with pytest.raises(SpecError) as refused:
        judging(left_out="a", each_out=True, generations=True, models=True, bare=True).refuse()

    assert {problem.field for problem in refused.value.problems} == {
        "--leave-out",
        "--leave-one-source-out",
        "--leave-one-generation-out",
        "--leave-one-model-out",
        "--no-constants",
    }


def test_suites_are_judged_without_constants_and_as_left_out():
    judging(each_out=True).refuse(of_suites=True)
    judging(bare=True).refuse(of_suites=True)
    with pytest.raises(SpecError):
        judging(generations=True, models=True).refuse(of_suites=True)


def test_without_a_table_and_without_options_nothing_is_refused():
    judging().refuse()
