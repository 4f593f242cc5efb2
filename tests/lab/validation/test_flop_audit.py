"""The audit of printed FLOP: by which formula, and what is counted as trained."""

import pytest
from all_cases import all_cases
from made_up_runs import JOB, judged, run

from flopcast.lab.validation.flop_audit import ALL_TRAINED, FROZEN, UNKNOWN, flop_audit
from flopcast.lab.validation.published_statistics import formulas
from flopcast.render.published_tables import runs_as_json
from flopcast.render.published_text import runs_as_text
from flopcast.report.flop_conventions import CONVENTIONS

ADAPTERS = {"rank": 8, "targets": ["qkv", "out", "up", "down"]}


def printing(flop, job=JOB, name="one"):
    """A row of a rate of tokens and one of FLOP, of a step that has so many FLOP."""
    tokens = job.plan.global_batch * job.batch.sequence_length
    return run(name, job=job, device_tokens_per_s=2e4, device_flop_per_s=flop / tokens * 2e4)


@all_cases("name", ["megatron-core", "megatron-core-causal", "megatron-2021", "6n"])
def test_a_row_that_counts_by_a_formula_is_told_so(name):
    flop = CONVENTIONS[name].flop(JOB)

    found = flop_audit(*printing(flop))

    assert CONVENTIONS[found.formula].flop(JOB) == pytest.approx(flop, rel=0.005)
    assert abs(found.mismatch_ratio) < 0.005


def test_a_step_stands_in_for_a_rate_of_tokens():
    flop = CONVENTIONS["megatron-core"].flop(JOB)

    found = flop_audit(*run(step_time_s=0.2, device_flop_per_s=flop / 0.2 / 8))

    assert abs(found.mismatch_ratio) < 0.005


def test_a_row_of_one_rate_says_nothing():
    assert flop_audit(*run(device_flop_per_s=1e14)) is None
    assert flop_audit(*run(device_tokens_per_s=1e4)) is None


def test_a_row_of_no_formula_is_told_with_the_nearest():
    """Three times what any formula counts."""
    found = flop_audit(*printing(3 * CONVENTIONS["megatron-core"].flop(JOB)))

    assert found.formula == UNKNOWN
    assert found.nearest in CONVENTIONS
    assert found.mismatch_ratio < -0.5


def test_two_passes_in_place_of_three_are_weights_that_stand_still():
    """A forward and the gradient of the input, and the attention's three: by hand."""
    tokens, hidden, layers, vocabulary = 16 * 1024, 1024, 8, 50257
    linear = 2 * 12 * hidden**2 * layers + 2 * hidden * vocabulary
    scores = 4 * 1024 * hidden * layers

    found = flop_audit(*printing(tokens * (2 * linear + 3 * scores)))

    assert found.formula == FROZEN


def test_a_row_of_adapters_that_counts_all_weights_is_told_so():
    model = type(JOB.model).model_validate(JOB.model.model_dump() | {"adapters": ADAPTERS})
    job = JOB.model_copy(update={"model": model})

    found = flop_audit(*printing(CONVENTIONS["megatron-core"].flop(JOB), job=job))

    assert found.formula == ALL_TRAINED


def test_the_audit_is_an_assumption_of_its_row_and_a_count_of_all():
    published = judged(
        [printing(CONVENTIONS["megatron-core"].flop(JOB), name="a"), printing(1e20, name="b"), run("c")]
    )

    assert any(told.startswith("printed FLOP: ") for told in published.rows[0].assumptions)
    assert list(formulas(published.rows).values()) == [1, 1]
    assert list(formulas(published.rows))[-1] == UNKNOWN
    assert runs_as_json(published)["rows"][2]["flop_audit"] is None
    assert "printed FLOP of 2 rows, by formula" in runs_as_text(published)
