"""Edits of plain data: merging a base with changes, dotted paths, KEY=VALUE, short names of a plan."""

import copy

import pytest
from all_cases import all_cases
from hypothesis import given, settings
from hypothesis import strategies as st

from flopcast.errors import SpecError
from flopcast.files.yaml_text import Document
from flopcast.library.edits import edited, edited_document, in_long_names, long_names, merged
from flopcast.spec.batch import Batch
from flopcast.spec.plan import Plan

WORDS = st.sampled_from("abc")
MAPPINGS = st.recursive(
    st.dictionaries(WORDS, st.integers(0, 9), min_size=1, max_size=3),
    lambda inner: st.dictionaries(WORDS, inner | st.integers(0, 9), min_size=1, max_size=3),
    max_leaves=8,
)


def leaves(data, path=()):
    """Every value that is not a mapping, by its path."""
    if not isinstance(data, dict):
        return {path: data}
    return {p: v for key, value in data.items() for p, v in leaves(value, (*path, key)).items()}


def document(**data):
    return Document("job.yaml", data, {("plan",): 3, ("plan", "tp"): 4})


@settings(max_examples=30, deadline=None)
@given(base=MAPPINGS, changes=MAPPINGS)
def test_a_merge_holds_every_change_and_what_no_change_replaces(base, changes):
    found = leaves(merged(base, changes))

    changed = leaves(changes)
    blocked = {path[:end] for path in changed for end in range(1, len(path) + 1)}
    kept = {
        path: value
        for path, value in leaves(base).items()
        if not any(path[:end] in changed for end in range(1, len(path) + 1)) and path not in blocked
    }
    assert found == kept | changed


@settings(max_examples=30, deadline=None)
@given(base=MAPPINGS)
def test_merging_nothing_or_itself_changes_nothing(base):
    assert merged(base, {}) == base
    assert merged(base, base) == base


@settings(max_examples=30, deadline=None)
@given(base=MAPPINGS, path=st.lists(WORDS, min_size=1, max_size=3), value=st.integers())
def test_an_edit_puts_its_value_there_and_leaves_the_original_alone(base, path, value):
    before = copy.deepcopy(base)

    found = edited(base, path, value)

    assert leaves(found)[tuple(path)] == value
    others = {p: v for p, v in leaves(base).items() if p[: len(path)] != tuple(path[: len(p)])}
    assert others.items() <= leaves(found).items()
    assert base == before


def test_an_entry_of_a_list_is_edited_by_its_position():
    data = {"blocks": [{"count": 1}, {"count": 2, "norm": "rmsnorm"}]}

    found = edited(data, ["blocks", "1", "count"], 5)

    assert found == {"blocks": [{"count": 1}, {"count": 5, "norm": "rmsnorm"}]}


def test_an_edit_inside_a_name_makes_it_a_base():
    assert edited({"stack": "megatron-2022"}, ["stack", "era"], "2023") == {
        "stack": {"base": "megatron-2022", "era": "2023"}
    }


def test_changes_of_a_command_line_are_applied_in_order_and_remembered_as_its_own():
    found = edited_document(document(plan={"tp": 2}), ["plan.tp=4", "seq=[1, 2]"])

    assert found.data == {"plan": {"tensor_parallel": 4}, "seq": [1, 2]}
    assert found.where(("plan", "tensor_parallel")) == "argument plan.tp=4"
    assert found.where(("seq",)) == "argument seq=[1, 2]"


@all_cases(
    ("text", "value"),
    [
        ("8", 8),
        ("true", True),
        ("1e-3", 0.001),
        ("no", "no"),
        ("", None),
        ("a=b", "a=b"),
        ("[a, 1]", ["a", 1]),
    ],
)
def test_the_value_of_a_change_is_read_as_in_a_file(text, value):
    assert edited_document(document(), [f"key={text}"]).data == {"key": value}


def test_a_second_change_of_the_same_field_is_refused_under_either_of_its_names():
    with pytest.raises(SpecError) as told:
        edited_document(document(plan={"tp": 2}), ["plan.tp=4", "plan.tensor_parallel=8"])

    assert [problem.fix for problem in told.value.problems] == ["remove plan.tensor_parallel=8"]


def test_every_word_that_is_no_change_is_told():
    with pytest.raises(SpecError) as told:
        edited_document(document(), ["plan", "=1", "a..b=1", ".a=1", "good=1"])

    assert [problem.value for problem in told.value.problems] == ["plan", "=1", "a..b=1", ".a=1"]


def test_a_short_name_keeps_its_line_under_the_long_one():
    found, plan = in_long_names(document(), "plan", {"tp": 8, "zero": 1})

    assert plan == {"tensor_parallel": 8, "zero": 1}
    assert found.where(("plan", "tensor_parallel")) == "job.yaml:4"


@pytest.mark.parametrize("noun", [Plan, Batch])
def test_every_name_of_a_plan_or_a_batch_is_long_or_stands_for_a_long_one(noun):
    assert set(long_names(noun).values()) <= set(noun.model_fields)
    assert set(long_names(noun)) & set(noun.model_fields) == set()


@all_cases("written", ["seq", "sequence_length"])
@all_cases("changed", ["seq", "sequence_length"])
def test_a_change_of_a_batch_replaces_the_length_by_whichever_name_either_has(written, changed):
    found = edited_document(document(batch={written: 2048, "packed": True}), [f"batch.{changed}=4096"])

    assert found.data["batch"] == {"sequence_length": 4096, "packed": True}
    assert found.where(("batch", "sequence_length")) == f"argument batch.{changed}=4096"


@all_cases("data", [None, 7, ["dp"], True])
def test_a_plan_that_is_no_mapping_is_left_for_validation_to_refuse(data):
    assert in_long_names(document(), "plan", data)[1] == data
