"""Which runs are plans of one sweep, and what their tables say: made-up runs of a small GPT."""

import json
import statistics
from dataclasses import replace

import pytest
from accuracy_pages import suite_of
from all_cases import all_cases
from conftest import make_job
from made_up_runs import judged, run

from flopcast.lab.validation.decision_statistics import by_source, gained, of_sweeps, wrong
from flopcast.lab.validation.sweeps import DECISIONS, sweeps_of_runs, sweeps_of_suite
from flopcast.render import decisions

PLAN = "dp=8 mbs=1 gbs=16 precision=fp16"
CUT = "dp=4 tp=2 mbs=2 gbs=16 precision=fp16"
STAGES = "dp=4 pp=2 mbs=2 gbs=16 precision=fp16"


def found(*runs):
    """Sweeps by what is free, each as the names of its choices."""
    sweeps = sweeps_of_runs(judged(list(runs)).rows)
    return {sweep.free: {choice.name for choice in sweep.choices} for sweep in sweeps}


def planned(name, plan=CUT, measured_s=0.1, **others):
    parts = {part: others.pop(part) for part in ("model", "cluster", "batch") if part in others}
    return run(name, job=make_job(plan=plan, **parts), step_time_s=measured_s, **others)


def test_plans_of_one_batch_on_the_same_machine_are_a_sweep():
    assert found(planned("a", PLAN), planned("b"), planned("c", STAGES)) == {"plan": {"a", "b", "c"}}


def test_a_run_that_nobody_did_otherwise_is_no_sweep():
    assert found(planned("a")) == {}
    assert found(planned("a"), planned("again", measured_s=0.12)) == {}


@all_cases(
    "other",
    [
        {"source": "another"},
        {"version": "2.0"},
        {"batch": {"sequence_length": 512}},
        {"cluster": "dgx-h100:1"},
        {"model": {"base": "gpt3-175b", "num_layers": 2}},
    ],
)
def test_runs_of_other_sources_releases_lengths_machines_and_models_are_no_choices(other):
    given = planned("a", PLAN), planned("b", CUT, **other)

    assert found(*given) == {}


@pytest.mark.parametrize(
    ("free", "other"),
    [
        ("batch", {"plan": CUT.replace("gbs=16", "gbs=32")}),
        ("precision", {"plan": CUT.replace("fp16", "bf16")}),
        ("devices", {"plan": CUT.replace("dp=4", "dp=8"), "cluster": "dgx-a100:2"}),
    ],
)
def test_what_is_decided_beside_the_plan_makes_a_sweep_of_its_own(free, other):
    assert found(planned("a"), planned("b", **other)) == {free: {"a", "b"}}


def test_every_kind_of_decision_has_its_question():
    assert set(decisions.FREE) == set(DECISIONS)


def test_repeats_are_one_choice_by_the_geometric_mean_of_their_times():
    repeated = planned("a", measured_s=0.1), planned("twice", measured_s=0.4)

    (sweep,) = sweeps_of_runs(judged([*repeated, planned("b", PLAN)]).rows)

    one, _ = sweep.choices
    assert len(sweep.choices) == 2
    assert one.measured_s == pytest.approx(0.2 * 8 / (16 * 1024))


def test_plans_that_measurements_do_not_tell_apart_have_no_order_to_be_ranked_in():
    """Repeats of one run differ by 2 %: an order of plans within that is a coin toss."""
    ranked = {}
    for apart_ratio in (1.01, 1.03):
        runs = planned("a", PLAN, measured_s=0.1), planned("b", measured_s=0.1 * apart_ratio)
        (sweep,) = sweeps_of_runs(judged(list(runs)).rows)
        ranked[apart_ratio] = sweep.spearman

    assert ranked[1.01] is None
    assert abs(ranked[1.03]) == 1.0


def test_choices_are_compared_by_device_seconds_a_token():
    """Twice the batch in twice the time on as many devices is no slower."""
    larger = planned("b", CUT.replace("gbs=16", "gbs=32"), measured_s=0.2)

    (sweep,) = sweeps_of_runs(judged([planned("a"), larger]).rows)

    one, other = sweep.choices
    assert one.measured_s == pytest.approx(other.measured_s)
    assert one.predicted_s == pytest.approx(sum(one.breakdown.values()))


def test_a_sweep_tells_what_its_choices_share_and_nothing_else():
    (sweep,) = sweeps_of_runs(judged([planned("a"), planned("b", CUT.replace("fp16", "bf16"))]).rows)

    assert sweep.fixed["devices"] == "8"
    assert sweep.fixed["global_batch"] == "16"
    assert "precision" not in sweep.fixed


def test_the_figures_of_megatron_are_sweeps_whose_best_plan_is_found():
    sweeps = sweeps_of_suite(suite_of("headlines"))

    figures = [sweep for sweep in sweeps if sweep.free == "plan" and "selene" in sweep.fixed["cluster"]]
    assert len(figures) >= 5
    assert max(sweep.regret_ratio for sweep in figures) == pytest.approx(0.0, abs=1e-12)
    assert statistics.mean(sweep.trivial_regret_ratio for sweep in figures) > 0.1


def swept():
    """A sweep whose slower plan is recommended, and one of precisions of another source, which is right."""
    precisions = (
        planned("c", source="another"),
        planned("d", PLAN.replace("fp16", "bf16"), source="another"),
    )
    rows = judged([planned("a", PLAN), planned("b"), *precisions]).rows
    fast = min(rows[:2], key=lambda row: row.predicted_step_time_s)
    times = {row.run.id: row.predicted_step_time_s for row in rows} | {"a": 0.1, "b": 0.1, fast.run.id: 0.2}
    return fast, sweeps_of_runs([replace(row, measured_step_time_s=times[row.run.id]) for row in rows])


def test_a_wrong_recommendation_is_told_with_the_components_that_made_it():
    fast, sweeps = swept()

    (sweep,) = wrong(sweeps)

    (taken,) = sweep.recommended
    parts = gained(taken, sweep.fastest)
    assert taken.name == fast.run.id
    assert sweep.regret_ratio == pytest.approx(1.0)
    assert sum(parts.values()) == pytest.approx(taken.predicted_s / sweep.fastest.predicted_s - 1.0)
    sizes = [abs(share) for share in parts.values()]
    assert sizes == sorted(sizes, reverse=True)


def test_statistics_are_of_the_sweeps_of_one_source_and_one_kind():
    _, sweeps = swept()

    groups = {key: of_sweeps(members) for key, members in by_source(sweeps).items()}

    assert {key: found["worst_regret"] for key, found in groups.items()} == {
        ("plan", "made-up"): pytest.approx(1.0),
        ("precision", "another"): pytest.approx(0.0, abs=1e-8),
    }


def test_statistics_of_sweeps_together_are_their_means_and_sums():
    _, sweeps = swept()

    told = of_sweeps(sweeps)

    assert (told["sweeps"], told["plans"], told["pairs"]) == (2, 4, 2)
    assert told["mean_regret"] == pytest.approx(statistics.mean(sweep.regret_ratio for sweep in sweeps))
    assert told["worst_regret"] == pytest.approx(max(sweep.regret_ratio for sweep in sweeps))
    assert told["mean_spearman"] == pytest.approx(statistics.mean(sweep.spearman for sweep in sweeps))
    assert told["right"] == pytest.approx(
        sum(s.pairs.right_share * s.pairs.apart for s in sweeps) / sum(s.pairs.apart for s in sweeps)
    )
    assert told["covered"] == pytest.approx(sum(s.pairs.covered for s in sweeps) / 2)


PROMISED = {  # of the JSON of decisions: keys may be added, never renamed
    "": "format_version tied_ratio ways",
    "way": "sources sweeps",
    "sources": "source free sweeps plans mean_spearman mean_regret worst_regret fastest_equal"
    " trivial_mean_spearman trivial_mean_regret trivial_worst_regret pairs apart right tied tied_equal"
    " settled settled_wrong covered",
    "sweeps": "source free fixed plans spearman regret recommended fastest fastest_equal trivial_spearman"
    " trivial_regret gained choices",
    "choices": "id plan measured_device_s_per_token predicted_device_s_per_token fits",
}


def test_every_key_of_decisions_that_was_ever_printed_is_still_there():
    data = decisions.decisions_as_json({"none": swept()[1]})["decisions"]

    way = data["ways"]["none"]
    parts = {
        "": data,
        "way": way,
        "sources": way["sources"][0],
        "sweeps": way["sweeps"][0],
        "choices": way["sweeps"][0]["choices"][0],
    }
    missing = {name: set(PROMISED[name].split()) - set(part) for name, part in parts.items()}
    assert not any(missing.values()), missing
    assert json.loads(json.dumps(data)) == data


def test_the_page_holds_a_line_a_source_for_each_kind_of_decision_and_every_wrong_recommendation():
    fast, sweeps = swept()

    page = decisions.decisions_as_markdown({"none": sweeps})

    lines = page.splitlines()
    assert "## Never fitted" in lines
    assert [
        line.split("|")[2].strip() for line in lines if line.startswith(("| made-up |", "| another |"))
    ] == ["1", "1"]
    assert any(line.startswith(f"| {fast.run.id}, not ") and "100.0%" in line for line in lines)
    widths = {
        line.count("|") for line in lines if line.startswith(("| source", "| made-up |", "| another |"))
    }
    assert widths == {len(decisions.HEADINGS) + 2}


def test_every_sweep_of_plans_has_a_line_of_its_own_with_its_regret_and_its_ratios():
    runs = [planned("a", PLAN), planned("b", "dp=4 tp=2 mbs=1 gbs=16 precision=fp16")]
    sweeps = sweeps_of_runs(judged(runs).rows)

    page = decisions.decisions_as_markdown({"none": sweeps})

    (line,) = [line for line in page.splitlines() if line.startswith("| made-up, ")]
    cells = [cell.strip() for cell in line.split("|")]
    assert "8 devices" in line
    assert cells[2] == "2"
    assert f"{sweeps[0].regret_ratio:.1%}" in cells
    assert cells[-2].endswith("%")


def test_the_text_says_the_same_as_the_page():
    _, sweeps = swept()

    text = decisions.decisions_as_text({"none": sweeps})

    cells = [
        cell for table in decisions.tables("none", sweeps) for _, found in table.lines for cell in found
    ]
    assert all(cell in text for cell in cells)
    assert "Sweeps that vary the plan and the precision:" in text
    assert "Sweeps that vary the plan and the global batch" not in text


def test_ways_of_judging_are_told_one_after_the_other():
    _, sweeps = swept()

    text = decisions.decisions_as_text({"catalogue": sweeps, "none": ()})

    assert text.index("Fitted: ") < text.index("Never fitted: ")


def test_runs_with_a_best_step_are_compared_by_it():
    """Mean steps hold jitter, which the suite takes from the neighbours of each run."""
    compared = suite_of("paper")
    best_s = {row.id: row.measured_step_time_s for row in compared.rows if row.reference == "best"}

    choices = {choice.name: choice for sweep in sweeps_of_suite(compared) for choice in sweep.choices}

    jobs = {row.id: row.job for row in compared.suite.rows}
    assert len(choices) >= 4
    for name, choice in choices.items():
        device_s = jobs[name].cluster.num_devices * best_s[name]
        assert choice.measured_s == pytest.approx(device_s / jobs[name].step_tokens)


def test_the_cut_of_gpt_20b_that_proved_faster_is_recommended_on_both_systems():
    """arXiv:2509.22832: tensor parallelism of 4 and data parallelism of 8, not the other way round."""
    sweeps = [sweep for sweep in sweeps_of_suite(suite_of("paper")) if sweep.free == "plan"]

    assert len(sweeps) == 2
    assert [sweep.regret_ratio for sweep in sweeps] == [0.0, 0.0]
    assert [sweep.pairs.settled_wrong for sweep in sweeps] == [0, 0]


@all_cases("free", sorted(DECISIONS))
def test_a_kind_of_decision_is_a_sweep_only_where_what_it_decides_differs(free):
    changed = {
        "plan": CUT.replace("mbs=2", "mbs=1"),
        "batch": CUT.replace("gbs=16", "gbs=64"),
        "precision": CUT.replace("fp16", "bf16"),
        "devices": CUT.replace("dp=4", "dp=8").replace("gbs=16", "gbs=32"),
    }[free]
    machine = {"cluster": "dgx-a100:2"} if free == "devices" else {}

    kinds = found(planned("a"), planned("b", changed, **machine))

    assert kinds == {free: {"a", "b"}}


def test_columns_of_the_text_stand_under_their_headings():
    _, sweeps = swept()

    lines = decisions.decisions_as_text({"none": sweeps}).splitlines()

    (first, *_) = (number for number, line in enumerate(lines) if line.startswith("source"))
    headings, values = lines[first], lines[first + 1]
    starts = [headings.index(heading) for heading in ("sweeps", "plans", "correlation")]
    assert [values[start - 1] for start in starts] == [" "] * 3
    assert values[starts[0]] == "1"
    assert values[starts[1]] == "2"


def test_what_does_not_fit_is_told_of_each_choice():
    rows = judged([planned("a", PLAN), planned("b")]).rows
    full = [replace(row, used_fraction=1.2 if row.run.id == "a" else 0.5) for row in rows]

    (sweep,) = sweeps_of_runs(full)

    assert {choice.name: choice.fits for choice in sweep.choices} == {"a": False, "b": True}
    assert [choice.name for choice in sweep.recommended] == ["b"]
