"""Rows that are worked out once, mappings that do not change, words of schedules: against plain Python."""

from typing import Literal

import numpy as np
import pytest
from all_cases import all_cases
from hypothesis import given, settings
from hypothesis import strategies as st

from flopcast.library import catalog
from flopcast.schedules import SCHEDULES
from flopcast.spec.orders import order_of, stage_layers, uneven
from flopcast.spec.plan import Plan, batch_plans
from flopcast.spec.plan_fields import NUMERIC
from flopcast.spec.rows import equal_rows, of_equal_program, of_equal_split, of_rows, rows_of, runs
from flopcast.strict_model import FrozenMapping, cached_results, is_numeric

LAWS = settings(max_examples=60)
columns = st.integers(1, 30).flatmap(
    lambda rows: st.lists(
        st.lists(st.integers(1, 4), min_size=rows, max_size=rows).map(np.array), min_size=1, max_size=3
    )
)
plans = st.lists(
    st.builds(
        lambda tp, pp, mbs, times: Plan(tp=tp, pp=pp, mbs=mbs, gbs=mbs * times),
        st.sampled_from([1, 2, 4]),
        st.sampled_from([1, 2]),
        st.sampled_from([1, 2]),
        st.sampled_from([4, 8]),
    ),
    min_size=1,
    max_size=12,
)


def rows(table):
    """Rows of columns as tuples."""
    return list(zip(*(column.tolist() for column in table), strict=True))


@LAWS
@given(table=columns)
def test_rows_are_of_one_group_where_all_their_columns_are_equal(table):
    found, told = equal_rows(table), rows(table)

    for one in range(len(told)):
        for other in range(len(told)):
            assert (found.group[one] == found.group[other]) == (told[one] == told[other])
    assert found.size == len(set(told))
    assert [told[first] for first in found.first] == [
        told[found.group.tolist().index(number)] for number in range(found.size)
    ]


@LAWS
@given(table=columns)
def test_runs_are_neighbours_that_are_equal(table):
    found, told = runs(table), rows(table)

    begins = [at for at in range(len(told)) if at == 0 or told[at] != told[at - 1]]
    assert found.first.tolist() == begins
    assert found.group.tolist() == [sum(begin <= at for begin in begins) - 1 for at in range(len(told))]


@LAWS
@given(table=columns, values=st.lists(st.integers(0, 2), min_size=30, max_size=30))
def test_what_a_group_shares_is_what_all_of_its_rows_have(table, values):
    found, told = equal_rows(table), rows(table)
    values = np.array(values[: len(told)])

    same = all(len({values[at] for at in range(len(told)) if told[at] == row}) == 1 for row in set(told))

    assert found.holds(values) is (same or len(values) == 1)
    assert found.holds(np.array([7]))


@LAWS
@given(each=plans)
def test_plans_of_an_equal_split_differ_in_what_no_layer_sees_alone(each):
    batch = batch_plans(each)

    found = of_equal_split(batch)

    seen = [(plan.tensor_parallel, plan.expert_tensor_parallel, plan.micro_batch) for plan in each]
    assert found.size == len(set(seen))
    for group in range(found.size):
        assert len({seen[at] for at in np.flatnonzero(found.group == group)}) == 1


@LAWS
@given(each=plans)
def test_neighbours_that_differ_in_their_global_batch_run_equal_programs(each):
    batch = batch_plans(each)

    found = of_equal_program(batch)

    plain = [plan.model_copy(update={"global_batch": 1}) for plan in each]
    begins = [at for at in range(len(each)) if at == 0 or plain[at] != plain[at - 1]]
    assert found.first.tolist() == begins


@LAWS
@given(each=plans, chance=st.randoms(use_true_random=False))
def test_rows_of_a_batch_are_the_batch_of_those_plans(each, chance):
    batch = batch_plans(each)
    order = np.array([chance.randrange(len(each)) for _ in range(5)])

    chosen, expected = rows_of(batch, order), batch_plans([each[at] for at in order])

    for name in NUMERIC:
        assert getattr(chosen, name).tolist() == getattr(expected, name).tolist(), name


def test_one_row_that_stands_for_all_stays_alone():
    order = np.array([2, 0])

    assert of_rows(np.array([[5.0]]), order).tolist() == [[5.0]]
    assert of_rows(np.array([[5.0], [6.0], [7.0]]), order).tolist() == [[7.0], [5.0]]


@pytest.mark.parametrize("chunks", [1, 2, 4])
def test_plans_with_several_chunks_run_interleaved_unless_another_order_is_named(chunks):
    auto, folded = Plan(pp=2, vpp=chunks, gbs=4), Plan(pp=2, vpp=chunks, gbs=4, schedule="zb_v")

    assert auto.order_rule.groups_micro_batches is (chunks > 1)
    assert not folded.order_rule.groups_micro_batches
    assert (
        order_of(Plan(), chunks) == auto.pipeline_schedule == ("interleaved_1f1b" if chunks > 1 else "1f1b")
    )
    assert order_of(folded, chunks) == "zb_v"


def test_blocks_are_listed_where_a_plan_lists_them_and_nowhere_else():
    plain = batch_plans([Plan(pp=2, gbs=4), Plan(pp=4, gbs=4)])
    own = batch_plans([Plan(pp=2, gbs=4, stage_layers=(3, 5))])

    assert not uneven(plain).any()
    assert not uneven(own).any()
    assert (stage_layers(plain, 0), stage_layers(own, 0)) == ((), (3, 5))


@all_cases("name", SCHEDULES)
def test_a_schedule_splits_its_backward_where_its_order_has_weight_gradients(name):
    rule = SCHEDULES[name]
    stages, chunks = 4, 2 if rule.mirrors_half else rule.least_chunks

    order = rule.order(stages, chunks, 8)

    assert rule.splits_backward is bool((order.kind == 2).any())
    assert not rule.splits_backward or rule.blocks_because
    assert order.folded is rule.folds_chunks
    assert order.kind.shape == (stages, 8 * chunks * (3 if rule.splits_backward else 2))


mappings = st.dictionaries(st.sampled_from("abcdef"), st.floats(allow_nan=False), max_size=6)


@LAWS
@given(items=mappings, chance=st.randoms(use_true_random=False))
def test_a_frozen_mapping_is_the_mapping_whatever_its_order(items, chance):
    names = chance.sample(sorted(items), len(items))
    one, other = FrozenMapping(items), FrozenMapping({name: items[name] for name in names})

    assert dict(one) == items
    assert one == other == items
    assert hash(one) == hash(other)
    assert (len(one), list(other), repr(one)) == (len(items), names, repr(items))


@LAWS
@given(items=mappings)
def test_a_frozen_mapping_keeps_a_copy(items):
    given_ = dict(items)
    one = FrozenMapping(given_)
    given_["later"] = 1.0

    assert dict(one) == items
    assert "later" not in one
    with pytest.raises(KeyError):
        one["later"]
    with pytest.raises(TypeError):
        one["later"] = 1.0


@all_cases(
    ("annotation", "numeric"),
    [
        (int, True), (float, True), (int | None, True), (float | None, True), (Literal[0, 1, 2], True),
        (bool, False), (str, False), (int | bool, False), (Literal["a"], False), (Literal[1, "a"], False),
        (str | None, False), (tuple[int, ...], True), (dict, False),
    ],
)  # fmt: skip
def test_a_field_that_takes_numbers_and_no_truth_value_is_numeric(annotation, numeric):
    assert is_numeric(annotation) is numeric


def test_a_result_is_kept_for_equal_nouns_and_worked_out_anew_for_one_without_a_hash():
    device, calls = catalog.device("h100-sxm5-80gb"), []

    @cached_results(8)
    def peak(noun):
        calls.append(noun)
        return noun.peak("bf16")

    unchecked = device.model_copy(update={"peak_flop_per_s": {"bf16": 1e12}})
    found = [peak(one) for one in (device, device.model_copy(), unchecked, unchecked)]

    assert found == [device.peak("bf16")] * 2 + [1e12] * 2
    assert len(calls) == 3
