"""Constants fitted on runs, and runs judged by constants that never saw them.

Runs are flopcast's own predictions under known levels, so a fit must find what made them, and a source that
is left out must not be able to move what it is judged by.
"""

from functools import cache

import pytest
from conftest import make_job

from flopcast.cost.constant_transfer import FittedLevel
from flopcast.cost.factors import SHARED_DERATE
from flopcast.lab.published.predictions import Predictions
from flopcast.lab.validation.leave_one_out import first_pass, fit_runs, leave_out, leave_out_each_way
from flopcast.lab.validation.published import compare_each
from flopcast.lab.validation.run import Observed, Run
from flopcast.spec.stack import Derate

LEVELS = (1.1, 1.25)
PREDICTIONS = Predictions()  # what a job runs does not depend on the levels
BATCHES = tuple(range(8, 72, 8))
LARGE = {  # matrix products are most of its step
    "hidden": 8192,
    "vocabulary": 50257,
    "blocks": [{"count": 8, "mixer": {"heads": 64}, "feed_forward": {"ffn_hidden": 32768}}],
}


def derate_of(job):
    """The name of the job's derate."""
    return f"{SHARED_DERATE}[{job.stack.label}]"


@cache
def jobs():
    """Jobs of two stacks, by the source that ran them: three batches each."""
    first, second = (make_job(model=LARGE) for _ in range(2))
    stacks = [
        base.stack.model_copy(update={"name": name, "derate": Derate(ratio=1.0, log_sigma_factor=0.2)})
        for name, base in (("first", first), ("second", second))
    ]
    return {
        stack.name: [
            first.model_copy(
                update={"stack": stack, "plan": first.plan.model_copy(update={"global_batch": size})}
            )
            for size in BATCHES
        ]
        for stack in stacks
    }


@cache
def measured_s(source, number):
    """What a run took: its prediction under the level of its source's stack."""
    job = jobs()[source][number]
    level = FittedLevel(ratio=dict(zip(jobs(), LEVELS, strict=True))[source], log_sigma_factor=0.1)
    return PREDICTIONS.of(job, {derate_of(job): level}).step_time_s


def runs_of(spoilt=None, sources=()):
    """Reader of runs; all of the spoilt source took three times as long as they did."""
    kept = sources or tuple(jobs())
    named = {f"{source}-{n}": (source, n) for source in kept for n in range(len(BATCHES))}
    runs = [
        Run(
            id=name,
            source=source,
            where=name,
            observed=Observed(step_time_s=measured_s(source, n) * (3.0 if source == spoilt else 1.0)),
        )
        for name, (source, n) in named.items()
    ]

    def predict_runs(levels, ids):
        wanted = [run for run in runs if not ids or run.id in ids]
        return compare_each(
            [wanted],
            lambda run: jobs()[named[run.id][0]][named[run.id][1]],
            lambda job: (PREDICTIONS.of(job, levels),),
            1,
        )[0]

    return predict_runs


def leave_each_out(reader, known=None, way="others"):
    """Every run with constants fitted to the others, in one of the ways."""
    first = known or first_pass(reader)
    return leave_out_each_way(lambda each, ids: (reader(each[0], ids),), first, (way,))[0]


def test_a_fit_finds_how_stacks_differ():
    levels = fit_runs(runs_of()).levels()
    first, second = (levels[derate_of(jobs()[source][0])].ratio for source in jobs())

    assert second / first == pytest.approx(LEVELS[1] / LEVELS[0], rel=0.03)


def test_fitted_levels_predict_the_runs_better_than_none():
    reader = runs_of()
    levels = fit_runs(reader).levels()
    before, after = (
        max(abs(row.relative_error) for row in reader(known, frozenset()).rows) for known in ({}, levels)
    )

    assert after < before / 3


@pytest.mark.parametrize("source", ["first", "second"])
def test_what_a_left_out_source_measured_changes_nothing_that_it_is_judged_by(source):
    honest, spoilt = (leave_out(runs_of(spoilt=who), (source,)) for who in (None, source))

    assert [row.run.source for row in honest.rows] == [source] * len(BATCHES)
    assert [row.predicted_step_time_s for row in spoilt.rows] == pytest.approx(
        [row.predicted_step_time_s for row in honest.rows], rel=1e-12
    )


def test_leaving_each_out_judges_every_run_once_as_leaving_out_its_source_does():
    reader = runs_of()
    known = first_pass(reader)
    left = leave_each_out(reader, known)

    assert sorted(row.run.id for row in left.rows) == sorted(row.run.id for row in known.published.rows)
    assert [row.predicted_step_time_s for row in left.rows if row.run.source == "first"] == [
        row.predicted_step_time_s for row in leave_out(reader, ("first",), known).rows
    ]


def test_several_ways_of_leaving_out_at_once_judge_every_run_as_each_way_alone():
    reader = runs_of()
    known, ways = first_pass(reader), ("others", "generations", "models")

    together = leave_out_each_way(lambda levels, ids: [reader(each, ids) for each in levels], known, ways)

    assert list(together) == [leave_each_out(reader, known, way) for way in ways]
    assert len({row.predicted_step_time_s for each in together for row in each.rows}) > len(BATCHES)


def test_a_stack_without_runs_gets_what_others_share():
    known = first_pass(runs_of())
    levels = known.without(known.ids(lambda row: row.run.source)["first"]).levels()

    assert derate_of(jobs()["first"][0]) not in levels
    assert 1.0 < levels[SHARED_DERATE].ratio < LEVELS[1]


def test_a_table_of_one_source_says_that_nothing_is_left_to_fit_on():
    alone = leave_each_out(runs_of(sources=("first",)))
    whole = leave_each_out(runs_of())

    assert "as with --no-constants" in alone.constants_sentence
    assert "--no-constants" not in whole.constants_sentence


@pytest.mark.parametrize(
    ("constants", "told"), [("generations", "one generation"), ("models", "of one model")]
)
def test_a_generation_of_devices_or_a_model_is_left_out_as_a_whole(constants, told):
    """All runs are of one model on A100, so that no constant is left."""
    found = leave_each_out(runs_of(), way=constants)
    bare = runs_of()({}, frozenset())

    assert told in found.constants_sentence
    assert [row.predicted_step_time_s for row in found.rows] == [
        row.predicted_step_time_s for row in bare.rows
    ]
