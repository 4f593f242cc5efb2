"""spec/divisors.py and spec/recompute.py: what divides a number, blocks dealt out, words taken apart."""

from itertools import pairwise

import pytest
from all_cases import all_cases
from conftest import make_job
from hypothesis import given
from hypothesis import strategies as st

from flopcast.errors import SpecError
from flopcast.spec.divisors import MANY, divided_over_chunks, divisors, listed, nearest_divisor
from flopcast.spec.plan import Plan
from flopcast.spec.recompute import FIELDS, one_word, split_word

NUMBERS = st.integers(1, 3000)
MODULES = st.lists(
    st.sampled_from(["core_attention", "mlp", "layernorm", "moe_act"]), min_size=1, unique=True
)


@given(NUMBERS)
def test_divisors_are_the_numbers_that_leave_no_rest(number):
    assert divisors(number) == [d for d in range(1, number + 1) if number % d == 0]


def test_of_numbers_that_are_too_large_only_one_is_tried():
    assert divisors(MANY + 1) == [1]


@given(NUMBERS, st.integers(1, 4000))
def test_no_divisor_is_nearer_than_the_nearest_and_none_smaller_is_as_near(number, wanted):
    nearest = nearest_divisor(number, wanted)

    others = [d for d in range(1, number + 1) if number % d == 0 and d != nearest]
    assert number % nearest == 0
    assert all(abs(d - wanted) >= abs(nearest - wanted) for d in others)
    assert all(abs(d - wanted) > abs(nearest - wanted) for d in others if d < nearest)


@given(st.integers(0, 60))
def test_a_list_shows_its_ends_and_hides_its_middle_where_it_is_long(length):
    numbers = list(range(100, 100 + length))

    shown = listed(numbers).split(", ") if length else []

    assert len(shown) <= 16
    assert shown[:8] == [str(n) for n in numbers[:8]]
    assert shown[-3:] == [str(n) for n in numbers[-3:]]
    assert ("…" in shown) == (length > 16)


@given(st.integers(2, 40), st.integers(2, 200))
def test_with_embedding_and_head_as_blocks_all_stages_hold_as_many_but_one(chunks, blocks):
    held = list(divided_over_chunks(blocks, chunks))

    assert sum(held) == blocks
    if blocks % chunks:
        held[0] += 1
        held[-1] += 1
        assert max(held) - min(held) <= 1
    else:
        assert len(set(held)) == 1


@given(st.integers(3, 40), st.integers(40, 200))
def test_what_is_left_over_stands_late(chunks, blocks):
    inner = divided_over_chunks(blocks, chunks)[1:-1]

    assert all(earlier <= later for earlier, later in pairwise(inner))


@given(st.sampled_from(["uniform", "block", "every"]), st.integers(1, 99))
def test_a_word_of_full_recompute_is_taken_apart_as_it_was_made(method, layers):
    word = one_word("full", method, layers, ())

    said = split_word({"recompute": word})

    assert said.get("recompute_method", "uniform") == method
    assert int(said.get("recompute_layers", 1)) == layers
    assert said["recompute"] == "full"


@given(MODULES)
def test_a_word_of_modules_is_taken_apart_as_it_was_made(modules):
    said = split_word({"recompute": one_word("selective", "uniform", 1, tuple(modules)), "zero": 1})

    assert said == {"recompute": "selective", "recompute_modules": tuple(modules), "zero": 1}


@pytest.mark.parametrize("mode", ["none", "full", "selective"])
def test_a_mode_alone_is_its_own_word_and_says_no_more(mode):
    assert one_word(mode, "uniform", 1, ()) == mode
    assert split_word({"recompute": mode}) == {"recompute": mode}


@pytest.mark.parametrize(
    ("word", "field"),
    [
        ("full:block:4", "recompute_method"),
        ("full:block:4", "recompute_layers"),
        ("selective:mlp", "recompute_modules"),
    ],
)
def test_what_a_word_says_may_not_be_said_by_its_field_too(word, field):
    with pytest.raises(ValueError, match=f"recompute: {word} or the field {field}"):
        split_word({"recompute": word, field: "block"})


def test_every_field_of_a_word_is_one_of_a_plan():
    assert set(FIELDS) <= set(Plan.model_fields)


@all_cases("word", ["selective:", "selective:mlp,", "selective:core_attention:mlp", "selective:x"])
def test_a_module_without_a_name_or_of_another_name_is_refused_and_not_passed_over(word):
    with pytest.raises(SpecError) as told:
        make_job(stack="megatron-core", plan=f"dp=8 gbs=16 precision=fp16 recompute={word}")

    (problem,) = told.value.problems
    assert (problem.field, problem.value) == ("plan.recompute", word)
    assert "mlp" in problem.allowed
