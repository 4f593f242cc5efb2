"""Statistics of published runs against the textbook's: numpy on the same numbers."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from all_cases import all_cases
from conftest import described_model, make_job
from hypothesis import given, settings
from hypothesis import strategies as st
from made_up_runs import JOB, judged, run

from flopcast.errors import Problem, SpecError
from flopcast.lab.validation.left_out import UNREADABLE, LeftOut
from flopcast.lab.validation.published import with_baseline
from flopcast.lab.validation.published_statistics import (
    UNSTATED,
    WORST,
    by_source,
    grouped,
    of_rows,
    reasons,
    worst,
)
from flopcast.lab.validation.repeats import by_configuration, clustered_errors, configuration, noise_floor
from flopcast.lab.validation.statistics import errors
from flopcast.render.published_tables import runs_as_json, tables

(BASE,) = judged([run("base")]).rows
OTHER = make_job(plan="dp=4 tp=2 mbs=2 gbs=16 precision=fp16")
LARGE = make_job(
    model=described_model(hidden=8192, vocabulary=51200, heads=64), plan="dp=8 mbs=4 gbs=64 precision=fp16"
)  # on devices that cannot hold it
MIXTURE = make_job(model=described_model(num_experts=8, top_k=2, expert_hidden=1024))
RATIOS = st.lists(st.floats(0.2, 5.0), min_size=1, max_size=12)
LAWS = settings(max_examples=30)


def row(name, ratio=1.0, measured_s=1.0, job=JOB, **changes):
    """A made-up comparison: `ratio` is predicted over measured."""
    named = BASE.run.model_copy(update={"id": name} | changes)
    return replace(
        BASE,
        run=named,
        job=job,
        measured_step_time_s=measured_s,
        predicted_step_time_s=ratio * measured_s,
        low_s=0.8 * ratio * measured_s,
        high_s=1.25 * ratio * measured_s,
        ideal_s=0.4 * measured_s,
    )


def rows_of(ratios, **fields):
    return [row(f"r{number}", ratio, **fields) for number, ratio in enumerate(ratios)]


@LAWS
@given(RATIOS)
def test_errors_are_numpys_of_predicted_over_measured_less_one(ratios):
    found = of_rows(rows_of(ratios))

    off = np.array(ratios) - 1.0
    assert found["rows"] == len(ratios)
    assert found["mape"] == pytest.approx(np.abs(off).mean(), rel=1e-6, abs=1e-9)
    assert found["bias"] == pytest.approx(off.mean(), rel=1e-6, abs=1e-9)
    assert found["median"] == pytest.approx(np.median(np.abs(off)), rel=1e-6, abs=1e-9)
    assert found["worst"] == pytest.approx(np.abs(off).max(), rel=1e-6, abs=1e-9)
    assert found["median"] <= found["p90"] <= found["worst"]


@all_cases(("count", "place"), [(1, 1), (5, 5), (9, 9), (10, 10), (20, 19), (100, 91)])
def test_nine_in_ten_rows_are_no_further_off_than_p90(count, place):
    found = errors([number / 100 for number in range(1, count + 1)])

    assert found["p90"] == pytest.approx(place / 100)


@LAWS
@given(RATIOS)
def test_the_coverage_is_the_part_of_rows_whose_measured_time_lies_in_its_interval(ratios):
    inside = [0.8 * ratio <= 1.0 <= 1.25 * ratio for ratio in ratios]

    assert of_rows(rows_of(ratios))["coverage"] == pytest.approx(np.mean(inside), abs=1e-8)


@LAWS
@given(st.lists(st.floats(0.1, 10.0), min_size=2, max_size=8))
def test_the_baseline_gives_each_run_the_efficiency_of_the_others_like_it(times):
    """All on one device, in one precision: the geometric mean of the others' ideal over measured."""
    rows = [replace(row(f"r{n}"), measured_step_time_s=each, ideal_s=0.3) for n, each in enumerate(times)]

    found = of_rows(with_baseline(rows))

    own = 0.3 / np.array(times)
    others = np.exp((np.log(own).sum() - np.log(own)) / (len(own) - 1))
    assert found["trivial_efficiency"] == pytest.approx(np.exp(np.log(own).mean()), rel=1e-6)
    assert found["trivial_mape"] == pytest.approx(np.abs(own / others - 1).mean(), rel=1e-6, abs=1e-8)


def test_a_run_without_companions_has_no_baseline():
    assert "trivial_mape" not in of_rows(with_baseline([row("a", 3.0)]))


def test_rows_that_print_memory_are_counted_and_judged_apart():
    printed = [replace(each, measured_memory_bytes=10e9, predicted_memory_bytes=size) for each, size in zip(
        rows_of([1, 1, 1]), (9e9, 12e9, 10e9), strict=True)]  # fmt: skip

    found = of_rows([*printed, row("silent")])

    assert found["memory_rows"] == 3
    assert found["memory_mape"] == pytest.approx((0.1 + 0.2 + 0.0) / 3)
    assert found["memory_median"] == pytest.approx(0.1)
    assert "memory_mape" not in of_rows([row("silent")])


@pytest.mark.parametrize(("used", "wrong"), [(0.99, 0), (1.0, 0), (1.01, 1)])
def test_a_run_is_said_not_to_fit_where_it_needs_more_than_there_is(used, wrong):
    assert of_rows([replace(row("a"), used_fraction=used)])["do_not_fit"] == wrong


@LAWS
@given(RATIOS)
def test_configurations_that_nobody_repeats_count_as_rows_do(ratios):
    jobs = [make_batch(2 ** (4 + number)) for number in range(len(ratios))]
    rows = [row(f"r{n}", ratio, job=jobs[n]) for n, ratio in enumerate(ratios)]

    clustered = clustered_errors(by_configuration(rows))

    for name in ("rows", "mape", "median", "p90", "bias"):
        assert clustered[name] == pytest.approx(
            errors(each.relative_error for each in rows)[name], abs=1e-8
        )


def make_batch(size):
    """The job with another global batch: another configuration."""
    return JOB.model_copy(update={"plan": JOB.plan.model_copy(update={"global_batch": size})})


@LAWS
@given(RATIOS, st.integers(1, 5))
def test_repeats_that_agree_change_no_error_by_configuration(ratios, times):
    once = [row(f"r{n}", ratio, job=make_batch(2 ** (4 + n))) for n, ratio in enumerate(ratios)]

    assert clustered_errors(by_configuration(once * times)) == clustered_errors(by_configuration(once))


def test_repeats_that_disagree_count_as_their_geometric_mean():
    """Half and twice the measured time are right together."""
    assert clustered_errors(by_configuration(rows_of([0.5, 2.0])))["mape"] == pytest.approx(0.0, abs=1e-9)
    assert clustered_errors(by_configuration(rows_of([0.5, 2.0])))["rows"] == 1


def test_stack_and_version_are_no_part_of_a_configuration_but_everything_else_is():
    assert configuration(row("a", id="b")) == configuration(row("a", where="elsewhere:3"))
    assert configuration(row("a")) != configuration(row("a", job=OTHER))
    framework = BASE.run.software.model_copy(update={"framework": "another"})
    assert configuration(row("a")) != configuration(row("a", software=framework))
    version = BASE.run.software.model_copy(update={"version": "another"})
    assert configuration(row("a")) == configuration(row("a", software=version))


@LAWS
@given(st.lists(st.floats(0.5, 2.0), min_size=2, max_size=6, unique=True), st.floats(0.1, 100.0))
def test_the_noise_floor_hangs_on_ratios_of_times_and_not_on_their_unit(times, unit):
    seconds, others = (
        [row(f"r{n}", measured_s=scale * each) for n, each in enumerate(times)] for scale in (1.0, unit)
    )

    (one, _), (two, _) = noise_floor(by_configuration(seconds)), noise_floor(by_configuration(others))

    assert one.rows == two.rows
    if one.mean_ratio is not None and two.mean_ratio is not None:
        assert one.mean_ratio == pytest.approx(two.mean_ratio, rel=1e-6, abs=1e-9)


def test_the_floor_of_many_repeats_nears_the_mean_deviation_of_their_noise():
    """Of normal noise of 3 %: 0.798 · 3 % (the mean of |x| is sigma · √(2/π))."""
    noise = np.random.default_rng(7).normal(0, 0.03, (100, 20))
    rows = [
        row(f"{group}-{n}", measured_s=math.exp(each), job=make_batch(16 * (group + 1)))
        for group, repeats in enumerate(noise)
        for n, each in enumerate(repeats)
    ]

    within, _ = noise_floor(by_configuration(rows))

    assert within.mean_ratio == pytest.approx(0.03 * math.sqrt(2 / math.pi), rel=0.05)


def test_the_worst_rows_are_ten_at_most_and_too_slow_by_half_is_as_bad_as_too_fast_by_twice():
    ratios = [1.0 + number / 100 for number in range(20)] + [0.5, 1.99]

    found = [each.run.id for each in worst(rows_of(ratios))]

    assert len(found) == WORST
    assert found[:3] == ["r20", "r21", "r19"]


def test_groups_keep_the_order_of_their_first_row():
    rows = [row(name, source=source) for name, source in (("a", "y"), ("b", "x"), ("c", "y"))]

    assert {name: [each.run.id for each in found] for name, found in by_source(rows).items()} == {
        "y": ["a", "c"],
        "x": ["b"],
    }
    assert list(grouped(rows, lambda each: each.run.id)) == ["a", "b", "c"]


def test_reasons_are_counted_by_source_most_first_and_by_file_where_no_source_is_known():
    gone = [
        LeftOut(id="a", source="s", where="x.csv:2", reasons=("tp: no", "pp: no")),
        LeftOut(id="b", source="t", where="x.csv:3", reasons=("tp: no",)),
        LeftOut(id="c", source="t", where="x.csv:4", reasons=("tp: no",)),
        LeftOut(id="", source=UNREADABLE, where="some/folder/x.csv:5", reasons=("hidden: 3.5",)),
        LeftOut(id="d", source="u", where="x.csv:6", reasons=(f"a{UNSTATED}", f"b{UNSTATED}", "tp: no")),
    ]

    assert list(reasons(gone).items()) == [
        (("t", "tp: no"), 2),
        (("s", "tp: no; pp: no"), 1),
        (("x.csv:5", "hidden: 3.5"), 1),
        (("u", "tp: no; the row does not state a, b"), 1),
    ]


PROMISED = {  # of the JSON of published runs: keys may be added, never renamed
    "": "format_version all fully_specified formulas sources kinds families rows does_not_fit left_out"
    " twice",
    "all": "rows mape median p90 worst bias fully_specified coverage do_not_fit memory_rows trivial_mape"
    " trivial_efficiency configurations clustered_median clustered_mape clustered_p90 noise_within_rows"
    " noise_across_rows",
    "rows": "id source where fully_specified plan stack cluster measured_step_time_s predicted_step_time_s"
    " low_s high_s measured_memory_bytes predicted_memory_bytes used_fraction assumptions likely"
    " flop_audit",
    "likely": "factor share log_sigma_factor needed_ratio component component_share surprise_ratio"
    " extrapolated phrase",
    "left_out": "id source where reasons",
    "does_not_fit": "id used_fraction largest_categories",
}


def test_every_key_that_was_ever_printed_is_still_there():
    refused = SpecError([Problem(field="tp", value=3, allowed="", because="no", fix="")])
    data = runs_as_json(
        judged([run("a"), run("too large", job=LARGE, step_time_s=10.0), run("c", job=refused)])
    )

    parts = {
        "": data,
        "all": data["all"],
        "rows": data["rows"][0],
        "likely": data["rows"][0]["likely"],
        "left_out": data["left_out"][0],
        "does_not_fit": data["does_not_fit"][0],
    }
    missing = {name: set(PROMISED[name].split()) - set(part) for name, part in parts.items()}
    assert not any(missing.values()), missing
    assert json.loads(json.dumps(data)) == data


def test_json_groups_rows_by_what_their_jobs_are():
    data = runs_as_json(judged([run("a"), run("b", job=OTHER), run("c", source="another")]))

    assert {name: found["rows"] for name, found in data["sources"].items()} == {"made-up": 2, "another": 1}
    kinds = data["kinds"]
    assert set(kinds) == {"device", "generation", "family", "precision", "devices", "stack"}
    assert all(sum(group["rows"] for group in groups.values()) == 3 for groups in kinds.values())
    assert list(kinds["precision"]) == ["fp16"]
    assert list(kinds["devices"]) == ["8"]


@LAWS
@given(
    st.lists(st.tuples(st.sampled_from("xy"), st.booleans(), st.floats(0.2, 5.0)), min_size=1, max_size=9)
)
def test_families_of_a_source_add_up_to_the_source(told):
    """Rows add up; so do sums of errors, signed and not, and rows inside their intervals."""
    rows = [
        row(f"r{n}", ratio, source=source, job=MIXTURE if experts else JOB)
        for n, (source, experts, ratio) in enumerate(told)
    ]
    data = runs_as_json(replace(judged([run("a")]), rows=tuple(rows)))

    assert list(data["families"]) == list(data["sources"])
    for source, families in data["families"].items():
        whole = data["sources"][source]
        assert sum(found["rows"] for found in families.values()) == whole["rows"]
        assert max(found["worst"] for found in families.values()) == whole["worst"]
        for mean in ("mape", "bias", "coverage"):
            summed = sum(found["rows"] * found[mean] for found in families.values())
            assert summed == pytest.approx(whole["rows"] * whole[mean], abs=1e-6)


def test_a_page_has_dense_rows_of_a_source_beside_its_rows_of_experts():
    rows = [row("a", 1.1), row("b", 1.2), row("c", 0.7, job=MIXTURE), row("d", 1.05, source="another")]
    published = replace(judged([run("a")]), rows=tuple(rows))

    sources, families, *_ = tables(published)

    found = {name: dict(zip(families.headings, cells, strict=True)) for name, cells in families.lines}
    whole = {name: dict(zip(sources.headings, cells, strict=True)) for name, cells in sources.lines}
    assert found["made-up"]["dense: rows"] == "2"
    assert found["made-up"]["dense: mean"] == "15.0%"
    assert found["made-up"]["experts: bias"] == "-30.0%"
    assert found["another"]["experts: rows"] == found["another"]["experts: mean"] == "–"
    assert found["another"]["dense: mean"] == whole["another"]["mean"] == "5.0%"
    assert [found["all"][f"{family}: rows"] for family in ("dense", "experts")] == ["3", "1"]
