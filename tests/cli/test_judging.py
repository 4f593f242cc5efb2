"""Ways of judging published runs, as options name them."""

import pytest
from all_cases import all_cases
from command_line import flopcast

from flopcast.cli.validate_options import OPTIONS, Judging
from flopcast.errors import SpecError


def judging(*chosen, left_out=None):
    return Judging(left_out=left_out, report=None, chosen=chosen)


@pytest.mark.parametrize(
    ("asked", "ways", "constants"),
    [
        (judging(), ("catalogue", "others", "none"), "catalogue"),
        (judging(left_out="some-source"), ("others",), "catalogue"),
        *((judging(name), (name,), name) for name in OPTIONS),
    ],
)
def test_decisions_are_judged_in_the_way_that_is_named_and_in_all_where_none_is(asked, ways, constants):
    asked.check()
    assert asked.ways == ways
    assert asked.constants == constants


@all_cases(
    "asked",
    [
        judging("others", "none"),
        judging("others", left_out="a"),
        judging("none", left_out="a"),
        judging("others", "generations"),
        judging("generations", "models"),
        judging("others", "none", left_out="a"),
    ],
)
def test_two_ways_at_once_are_refused(asked):
    with pytest.raises(SpecError) as refused:
        asked.check()

    (problem,) = refused.value.problems
    assert problem.fix == "keep one of them"


def test_without_a_table_every_option_that_needs_one_is_refused_at_once():
    with pytest.raises(SpecError) as refused:
        judging(*OPTIONS, left_out="a").refuse()

    assert {problem.field for problem in refused.value.problems} == {
        "--leave-out",
        "--leave-one-source-out",
        "--leave-one-generation-out",
        "--leave-one-model-out",
        "--no-constants",
    }


def test_suites_are_judged_without_constants_and_as_left_out():
    judging("others").refuse(of_suites=True)
    judging("none").refuse(of_suites=True)
    with pytest.raises(SpecError):
        judging("generations", "models").refuse(of_suites=True)


def test_without_a_table_and_without_options_nothing_is_refused():
    judging().refuse()


def test_suites_are_predicted_with_one_choice_of_constants():
    ended = flopcast("validate", "--suite", "paper", "--leave-one-source-out", "--no-constants")

    assert ended.code == 1
    assert "constants are chosen by several options" in ended.err
