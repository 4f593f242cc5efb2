"""Statistics of a suite's rows and components: against NumPy, on rows made up by hand."""

import numpy as np
import pytest
from all_cases import all_cases
from hypothesis import given, settings
from hypothesis import strategies as st

from flopcast.lab.validation.compare import ComparedComponent, ComparedRow
from flopcast.lab.validation.statistics import by_component, by_source

LAWS = settings(max_examples=30)
rows = st.lists(
    st.tuples(
        st.sampled_from(["a", "b"]),
        st.sampled_from(["best", "mean"]),
        st.floats(0.1, 10.0),
        st.floats(0.5, 2.0),
    ),
    min_size=1,
    max_size=20,
)


def row(system="a", reference="mean", measured_s=1.0, ratio=1.0, reach=1.2):
    """A run that was predicted so many times as long as it took, with such an interval."""
    predicted_s = measured_s * ratio
    return ComparedRow(
        id="run",
        source="made up",
        system=system,
        reference=reference,
        measured_step_time_s=measured_s,
        predicted_step_time_s=predicted_s,
        low_s=predicted_s / reach,
        high_s=predicted_s * reach,
        measured_memory_bytes=None,
        predicted_memory_bytes=1e9,
        measured_resident_bytes=None,
        predicted_resident_bytes=1e9,
        assumptions=(),
        factors=(),
        breakdown={},
    )


def component(name, measured_s, ratio):
    predicted_s = None if ratio is None else measured_s * ratio
    return ComparedComponent(
        id="run", component=name, stage="first", measured_s=measured_s, predicted_s=predicted_s
    )


@pytest.mark.parametrize(("measured_s", "ratio"), [(2.0, 1.1), (0.5, 0.9), (1.0, 1.0)])
def test_an_error_is_predicted_over_measured_less_one(measured_s, ratio):
    assert row(measured_s=measured_s, ratio=ratio).relative_error == pytest.approx(ratio - 1)


@all_cases(
    ("ratio", "inside"), [(1.0, True), (1.19, True), (1.21, False), (1 / 1.19, True), (1 / 1.21, False)]
)
def test_a_row_is_covered_where_its_interval_holds_the_measurement(ratio, inside):
    assert row(ratio=ratio, reach=1.2).covered is inside


@LAWS
@given(given_=rows)
def test_systems_and_references_are_never_pooled(given_):
    found = by_source([row(*each) for each in given_])

    groups = {(entry["system"], entry["reference"]): entry for entry in found}
    assert list(groups) == list(dict.fromkeys(each[:2] for each in given_))
    for key, entry in groups.items():
        members = [row(*each) for each in given_ if each[:2] == key]
        assert entry["rows"] == len(members)
        assert entry["coverage"] == pytest.approx(np.mean([one.covered for one in members]))
        assert entry["mape"] == pytest.approx(
            np.mean([abs(one.relative_error) for one in members]), abs=1e-9
        )


def test_components_are_pooled_by_name_and_those_that_nobody_predicted_are_left_out():
    components = [
        component("mlp", 1.0, 1.1),
        component("mlp", 3.0, 0.9),
        component("attention", 2.0, 1.5),
        component("optimizer", 2.0, None),
    ]

    found = by_component(components)

    assert list(found) == ["mlp", "attention"]
    assert found["mlp"] == pytest.approx(
        {"rows": 2, "mape": 0.1, "median": 0.1, "p90": 0.1, "worst": 0.1, "bias": 0.0}, abs=1e-9
    )
    assert found["attention"]["bias"] == pytest.approx(0.5)
