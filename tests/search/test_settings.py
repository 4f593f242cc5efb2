"""Every cluster, size and stack of a search has its best plan in the answer, or the reason it has none."""

import csv
import re

import pytest
from conftest import described_model, make_job

from flopcast.files.tables import write_csv
from flopcast.library.curves import load_book
from flopcast.render.search_json import as_json, as_rows
from flopcast.render.search_text import as_text
from flopcast.search.exact import play_each
from flopcast.search.find import decided, find, to_play
from flopcast.search.grid import batches_on
from flopcast.search.question import Question
from flopcast.search.settings import CandidatesBySetting, same_setting
from flopcast.search.space import Space
from flopcast.search.top_candidates import TopCandidates
from flopcast.units import show_seconds

JOB = make_job(cluster="selene:1", stack="megatron-core", plan="dp=8 gbs=64")
SPACE = Space(gbs=64, mbs=2, pp=1, vpp=1, cp=1, zero=1, dp_shard=0, recompute="none", refine=False)


def sifted(question, most):
    """What is left where no more than so many plans are kept of each stream."""
    return CandidatesBySetting(
        each=tuple(
            TopCandidates(most=most).after_all(question, batches_on(job, question.space), load_book)
            for job in question.sized()
        )
    )


def test_a_setting_that_no_kept_plan_is_on_still_has_its_best_plan():
    """A sieve that keeps one plan keeps none of the slower sizes: their best plans are played too."""
    space = SPACE.model_copy(update={"num_devices": (2, 4, 8)})
    question = Question(
        jobs=(JOB,), space=space, objectives=("tokens_per_s", "time_to_train"), total_tokens=1e9
    )
    candidates_by_setting = sifted(question, 1)
    jobs = to_play(question, candidates_by_setting, load_book)
    played = dict(play_each(jobs, load_book))

    answer = decided(
        question, candidates_by_setting, [played[place] for place in range(len(jobs))], partial=False
    )

    assert {one.job.cluster.num_devices for one in candidates_by_setting.whole.to_play()} == {8}
    assert [one.job.cluster.num_devices for one in answer.settings] == [2, 4, 8]
    for setting in answer.settings:
        alone = find(Question(jobs=(setting.job,), space=SPACE, objectives=("tokens_per_s",)), load_book)
        assert setting.best.losses[0].value == pytest.approx(alone.plans[0].losses[0].value, rel=1e-12)
        assert f"the run takes {show_seconds(setting.run.wall_s.value)}" in repr(setting)
        assert setting.candidates == alone.candidates
        assert setting.feasible == alone.feasible


@pytest.fixture(scope="module")
def mixed():
    """One size that fits, one that memory rules out, and a stack that cannot run any plan of the space."""
    large = described_model(hidden=4096, count=32, heads=32)  # needs more than 80 GB
    jobs = (
        make_job(model=large, cluster="selene:1", stack=stack, plan="dp=8 gbs=64")
        for stack in ("megatron-core", "pytorch-ddp")
    )
    space = SPACE.model_copy(update={"num_devices": (1, 8), "tensor_parallel": (1, 2), "zero": (2,)})
    return find(Question(jobs=tuple(jobs), space=space, objectives=("tokens_per_s",)), load_book)


def test_a_setting_without_a_plan_says_why(mixed):
    best = [(one.job.stack.name, one.job.cluster.num_devices, one.best is None) for one in mixed.settings]
    small, _, alone, unable = as_json(mixed, 1, 1.0, 1.0)["settings"]

    assert best == [
        ("megatron-core", 1, True),
        ("megatron-core", 8, False),
        ("pytorch-ddp", 1, True),
        ("pytorch-ddp", 8, True),
    ]
    assert "GiB more" in small["why"]
    assert "GiB more" in alone["why"]
    assert "plan.zero = 2" in unable["why"]
    assert [one["best"] is None for one in (small, alone, unable)] == [True] * 3


def test_text_and_table_name_every_setting_once(mixed, tmp_path):
    path = tmp_path / "plans.csv"
    write_csv(path, as_rows(mixed))
    rows = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
    text = as_text(mixed, 1).partition("the best on each cluster, size and stack\n")[2]
    lines = text.partition("\n\n")[0].splitlines()

    for setting in mixed.settings:
        cluster = setting.job.cluster
        stack, devices = setting.job.stack.label, cluster.num_devices
        name = rf"{cluster.name}, {stack} +{devices} |{cluster.name}, {devices} devices, {stack} "
        (line,) = [line for line in lines if re.match(f"  (?:{name})", line)]
        here = [
            row
            for row in rows
            if (row["devices"], row["stack"]) == (str(cluster.num_devices), setting.job.stack.label)
        ]
        if setting.best is None:
            assert [(row["rank"], bool(row["why"])) for row in here] == [("", True)]
            assert here[0]["why"] in line
        else:
            assert lines[lines.index(line) + 1] == f'      --plan "{setting.best.played.plan.short()}"'
            assert all(row["rank"] for row in here)
    assert len(rows) == len(mixed.plans) + 3


def test_a_limit_that_rules_a_size_out_is_named_for_this_size():
    """Four devices need twice the days of eight: a deadline between them leaves only the larger size."""
    space = SPACE.model_copy(update={"num_devices": (4, 8)})
    asked = {"jobs": (JOB,), "space": space, "objectives": ("tokens_per_s",), "total_tokens": 1e9}
    free = find(Question(**asked), load_book)
    days_s = [1e9 * setting.best.losses[0].value for setting in free.settings]

    answer = find(Question(**asked, deadline_s=sum(days_s) / 2), load_book)
    small, large = as_json(answer, 1, 1.0, 1.0)["settings"]

    assert days_s[0] > 1.5 * days_s[1]
    assert small["best"] is None
    assert "more than the deadline" in small["why"]
    assert large["best"]["devices"] == 8
    assert all(same_setting(one.played, answer.settings[1].job) for one in answer.plans)
