"""Errors: what a reader is told, what a caller may catch, and that all faults are told at once."""

import ast
import copy
from dataclasses import FrozenInstanceError

import pytest
from all_cases import all_cases
from conftest import PACKAGE

import flopcast
from flopcast import errors
from flopcast.errors import FlopcastError, InfeasibleError, InternalError, Problem, SpecError
from flopcast.interop.shell.parameters import parsed_values
from flopcast.strict_model import NotAllowedError
from flopcast.ui.layout_searches import finds

DELIBERATE = (SpecError, InfeasibleError, InternalError)


def problem(**changes):
    fields = {
        "field": "plan.tensor_parallel",
        "value": 6,
        "allowed": "a divisor of kv_heads (8): 1, 2, 4, 8",
        "because": "each rank holds whole key/value heads",
        "fix": "set tensor_parallel to 4",
    }
    return Problem(**(fields | changes))


def test_a_problem_names_field_value_allowed_reason_and_fix_in_four_lines():
    assert str(problem()).splitlines() == [
        "plan.tensor_parallel = 6 is not allowed",
        "  allowed: a divisor of kv_heads (8): 1, 2, 4, 8",
        "  because: each rank holds whole key/value heads",
        "  fix:     set tensor_parallel to 4",
    ]


def test_a_fault_that_is_not_a_value_is_told_in_its_own_words():
    told = str(problem(fault="is missing", where="job.yaml:12")).splitlines()

    assert told[0] == "job.yaml:12: plan.tensor_parallel is missing"
    assert told[1:] == str(problem()).splitlines()[1:]


def test_a_problem_with_a_place_starts_with_it():
    assert str(problem(where="job.yaml:12")).startswith("job.yaml:12: plan.tensor_parallel = 6")


@all_cases(("value", "shown"), [("bf32", "'bf32'"), (None, "null"), (True, "true"), ([1, 2], "[1, 2]")])
def test_a_value_is_shown_so_that_text_and_numbers_differ(value, shown):
    assert f"= {shown} is" in str(problem(value=value))


@pytest.mark.parametrize("length", [1_000, 10**6])
def test_a_huge_value_does_not_bury_the_message(length):
    first = str(problem(value="x" * length)).splitlines()[0]

    assert len(first) < 120
    assert "…" in first


def test_a_long_path_is_cut_in_the_middle_so_that_both_ends_can_be_told():
    first = str(problem(value="/scratch/" + "run/" * 40 + "samples/gemm.csv")).splitlines()[0]

    assert "= '/scratch/run/" in first
    assert first.endswith("samples/gemm.csv' is not allowed")
    assert len(first) == len("plan.tensor_parallel =  is not allowed") + 80


def test_a_value_of_eighty_characters_is_shown_whole():
    value = "x" * 78

    assert repr(value) in str(problem(value=value))


@all_cases("missing", ["field", "value", "allowed", "because", "fix"])
def test_a_problem_without_one_of_its_parts_cannot_be_made(missing):
    fields = {"field": "a", "value": 1, "allowed": "b", "because": "c", "fix": "d"}
    del fields[missing]

    with pytest.raises(TypeError, match=missing):
        Problem(**fields)


def test_problems_are_values():
    assert problem() == problem()
    assert problem(value=7) != problem()
    with pytest.raises(FrozenInstanceError):
        problem().value = 7


@pytest.mark.parametrize("count", [1, 2, 50])
def test_every_fault_is_told_not_only_the_first(count):
    faults = [problem(field=f"plan.field_{number}") for number in range(count)]

    error = SpecError(faults)

    assert error.problems == tuple(faults)
    assert all(f"plan.field_{number} = 6" in str(error) for number in range(count))


def test_one_value_that_breaks_two_conditions_is_one_error_if_one_edit_mends_both():
    error = SpecError([problem(), problem(allowed="an even number", because="ranks form pairs")])

    assert len(error.problems) == 1
    assert [line.split(":")[0].strip() for line in str(error).splitlines()[1:]] == [
        *("allowed", "because") * 2,
        "fix",
    ]


def test_faults_may_come_from_a_generator_and_are_kept():
    error = SpecError(problem(value=value) for value in (3, 5))

    assert [fault.value for fault in error.problems] == [3, 5]
    assert len(str(error).splitlines()) == 8


@pytest.mark.parametrize("make", [copy.copy, copy.deepcopy])
def test_a_copied_error_says_what_the_original_says(make):
    """Errors are copied on their way out of a process pool."""
    error = SpecError([problem()])

    again = make(error)

    assert again.problems == error.problems
    assert str(again) == str(error)


def test_wrong_input_can_be_caught_as_a_value_error():
    with pytest.raises(ValueError, match="tensor_parallel"):
        raise SpecError([problem()])


@all_cases("kind", DELIBERATE)
def test_every_deliberate_error_can_be_caught_as_one(kind):
    assert issubclass(kind, FlopcastError)
    assert not issubclass(FlopcastError, kind)


def test_an_infeasible_job_and_a_bug_of_ours_are_not_wrong_input():
    assert not issubclass(InfeasibleError, ValueError)
    assert not issubclass(InternalError, (ValueError, SpecError))


def test_the_tree_in_the_docstring_is_the_tree_of_classes():
    classes = {
        name
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, Exception)
    }

    drawn = {word.strip("├└─ ") for line in errors.__doc__.splitlines() for word in line.split()[:2]}

    assert {word for word in drawn if word.endswith("Error")} == classes


def test_nothing_is_raised_that_a_caller_cannot_catch_as_ours_or_as_a_value_error():
    """In the core; the edge may also raise what files and numbers raise in Python."""
    allowed = {kind.__name__ for kind in (*DELIBERATE, ValueError, NotAllowedError)}
    nodes = [
        node
        for folder in ("operators", "layers", "spec", "workload", "schedules", "memory", "cost", "timeline")
        for path in (PACKAGE / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    ]
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef) and node.returns]
    allowed |= {each.name for each in functions if ast.unparse(each.returns) in allowed}
    raised = {
        node.exc.func.id
        for node in nodes
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and hasattr(node.exc.func, "id")
    }

    assert raised - allowed == set()
    assert issubclass(NotAllowedError, ValueError)


WRONG_CALLS = [  # a wrong call, a part of the reason, and the fix of its only error
    (lambda: flopcast.Space(gbs=512, tp=[1, 2, "x"]), "not a whole number", "leave out 'x'"),
    (
        lambda: flopcast.serving_job(model="llama-3-8b", gpus=1, engine="vllm", traffic={"rate": "4 rpx"}),
        "requests per unit of time",
        "write rate=4/s",
    ),
    (lambda: flopcast.job(model="gpt2", gpus="64"), "the value is a text", "set gpus to 64"),
    (lambda: finds({"find": "biggest"}), "only these searches", "write largest in place of biggest"),
    (lambda: parsed_values(["2"], "--arg"), "each value follows its position", "write --arg 1=2"),
]


@all_cases("call, reason, fix", WRONG_CALLS)
def test_the_fix_of_a_wrong_call_keeps_what_was_meant(call, reason, fix):
    with pytest.raises(SpecError, match=reason) as error:
        call()

    assert [problem.fix for problem in error.value.problems] == [fix]
