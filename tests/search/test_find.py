"""A whole search: what it decides is what playing every plan would decide, and breaking it off loses
nothing that it had."""

from functools import cache

import pytest
from conftest import described_model, make_job

from flopcast.library.curves import load_book
from flopcast.prediction import predict
from flopcast.render.search_json import as_json
from flopcast.render.search_text import as_text
from flopcast.search import default_plan as choosing
from flopcast.search import find as finding
from flopcast.search import top_candidates as sifting
from flopcast.search.default_plan import UsualPlans
from flopcast.search.exact import play_each
from flopcast.search.find import find
from flopcast.search.grid import batches, plan_at
from flopcast.search.pruning import NO_INCUMBENTS
from flopcast.search.question import Question
from flopcast.search.settings import plan_key
from flopcast.search.space import Space
from flopcast.workers.process_executor import ProcessExecutor
from flopcast.workers.run import answer as answer_of
from flopcast.workers.search_tasks import search_of
from flopcast.workload.checks import check

JOB = make_job(cluster="selene:1", stack="megatron-core", plan="dp=8 gbs=64")
SPACE = Space(gbs=64, mbs="1,2", vpp=1, cp=1, zero=1, dp_shard=0, recompute="none full", refine=False)
QUESTION = Question(jobs=(JOB,), space=SPACE)


@cache
def exhaustive():
    """Reports of all plans of the space that keep the rules and fit, one by one."""
    book, reports = load_book(JOB.cluster), []
    for sized, plans in batches(JOB, SPACE):
        for row in range(plans.size):
            tried = sized.model_copy(update={"plan": plan_at(plans, row)})
            if not check(tried):
                reports.append(predict(tried, book))
    return [one for one in reports if one.memory.verdict == "fits"]


@pytest.fixture(scope="module")
def searched():
    """The answer, the progress that was told, and the key of every plan that was simulated."""
    heard, simulated = [], []

    def recorded(jobs, book_of, kept, **how):
        simulated.extend(plan_key(job) for job in jobs)
        return play_each(jobs, book_of, kept, **how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(finding, "play_each", recorded)
        patch.setattr(choosing, "play_each", recorded)
        return find(QUESTION, load_book, heard.append), heard, simulated


@pytest.fixture(scope="module")
def found(searched):
    return searched[0]


def test_the_best_plan_is_the_best_of_all_played_one_by_one(found):
    reports = exhaustive()

    best = min(found.plans, key=lambda one: one.losses[0].value)

    assert best.losses[0].value == pytest.approx(min(r.step_time_s for r in reports), rel=1e-12)
    assert best.ratio == 1.0
    assert found.feasible == len(reports)
    simulated = {one.played.plan for one in found.plans}
    reports.sort(key=lambda report: report.step_time_s)
    assert {report.job.plan for report in reports[: sifting.PLAYED // 2]} <= simulated
    assert simulated <= {report.job.plan for report in reports}


def test_the_front_is_that_of_all_plans_played_one_by_one(found):
    points = {(r.step_time_s, r.memory.device_used_bytes): r.job.plan for r in exhaustive()}
    undominated = {
        plan
        for (s, b), plan in points.items()
        if not any(t <= s and c <= b and (t, c) != (s, b) for t, c in points)
    }

    assert undominated <= {one.played.plan for one in found.on_front}
    assert len(found.on_front) < len(found.plans)


def test_the_first_plan_is_among_the_best_for_all_that_is_known(found):
    first = found.plans[0]

    assert first.equal
    assert first.ratio_low <= 1 <= first.ratio_high


def test_plans_that_lack_room_are_better_than_the_best_and_need_more_and_more():
    tight = make_job(
        model=described_model(hidden=6144, count=40, heads=48),
        cluster="selene:2",
        stack="megatron-core",
        batch={"seq": 8192},
        plan="dp=16 gbs=64",
    )
    answer = find(Question(jobs=(tight,), space=SPACE), load_book)

    needs = [one.played.device_used_bytes for one in answer.nearest]
    steps_s = [one.losses[0].value for one in answer.nearest]
    assert needs
    assert all(one.ratio < 1 for one in answer.nearest)
    assert all(one.played.verdict != "fits" for one in answer.nearest)
    assert needs == sorted(needs)
    assert steps_s == sorted(steps_s, reverse=True)


def test_no_plan_is_simulated_twice(searched):
    answer, _, simulated = searched

    assert len(set(simulated)) == len(simulated)
    assert {plan_key(one.played.job) for one in answer.plans} <= set(simulated)


def without_usual_plans(question, book_of, kept, told):
    return [UsualPlans(incumbents=NO_INCUMBENTS, best=None, jobs=()) for _ in question.sized()]


def test_a_search_that_is_broken_off_plays_what_it_has_seen(monkeypatch):
    screen, calls = sifting.screen, []

    def interrupted(job, plans, book, kept, wanted, worth):
        calls.append(plans.size)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return screen(job, plans, book, kept, wanted, worth)

    monkeypatch.setattr(sifting, "screen", interrupted)
    monkeypatch.setattr(finding, "all_usual_plans", without_usual_plans)

    answer = find(QUESTION, load_book)

    assert answer.partial
    assert answer.candidates == sum(calls[:2])
    assert answer.plans


def test_a_search_that_is_broken_off_at_once_answers_with_the_best_plan_that_it_has_told():
    """In one process, and on workers, which have not begun yet."""
    for searched in (
        lambda told: find(QUESTION, load_book, told),
        lambda told: answer_of(search_of(QUESTION), ProcessExecutor(2), None, told),
    ):
        heard = []

        def told(progress, heard=heard):
            heard.append(progress.best)
            if progress.best:
                raise KeyboardInterrupt

        answer = searched(told)

        assert answer.partial
        assert max(heard).partition(": ")[2] == answer.plans[0].played.plan.short()
        assert (answer.candidates, answer.refined) == (0, 0)


def test_a_play_that_is_broken_off_ranks_what_was_played(monkeypatch):
    play = finding.play_each

    def interrupted(jobs, book_of, kept):
        for number, each in enumerate(play(jobs, book_of, kept)):
            if number == 5:
                raise KeyboardInterrupt
            yield each

    monkeypatch.setattr(finding, "play_each", interrupted)
    monkeypatch.setattr(finding, "all_usual_plans", without_usual_plans)

    answer = find(QUESTION, load_book)

    assert answer.partial
    assert answer.played == len(answer.plans) == 5
    assert answer.plans[0].equal


def test_breaking_off_before_anything_was_played_ends_the_search(monkeypatch):
    def interrupted(jobs, book_of, kept):
        raise KeyboardInterrupt

    monkeypatch.setattr(finding, "play_each", interrupted)
    monkeypatch.setattr(finding, "all_usual_plans", without_usual_plans)

    with pytest.raises(KeyboardInterrupt):
        find(QUESTION, load_book)


def test_progress_ends_with_everything_done(searched):
    answer, heard, _ = searched

    screening = [one for one in heard if one.doing == "screening"]
    playing = [one for one in heard if one.doing == "simulating"]
    assert [one.doing for one in heard] == ["screening"] * len(screening) + ["simulating"] * len(playing)
    assert screening[-1].done == screening[-1].total == answer.candidates
    assert playing[-1].done == playing[-1].total == answer.played
    assert [one.done for one in screening] == sorted(one.done for one in screening)


def test_two_clusters_are_ranked_together_and_said_not_to_be_where_they_are_not():
    """The same devices under two names: their difference is no more than what each name leaves open."""
    other = make_job(cluster="dgx-a100:1", stack="megatron-core", plan="dp=8 gbs=64")
    space = SPACE.model_copy(update={"tensor_parallel": (1,)})

    answer = find(Question(jobs=(JOB, other), space=space), load_book)

    clusters = {one.played.job.cluster.name for one in answer.plans}

    assert clusters == {"selene", "dgx-a100"}
    assert {one.played.job.cluster.name for one in answer.plans if one.equal} == clusters


def test_a_plan_of_ones_own_is_set_beside_the_best():
    own = JOB.model_copy(update={"plan": JOB.plan.model_copy(update={"recompute": "full", "zero": 1})})

    space = SPACE.model_copy(update={"tensor_parallel": (1,)})

    answer = find(Question(jobs=(JOB,), space=space, given=(own,)), load_book)

    (beside,) = answer.given
    best = min(answer.plans, key=lambda one: one.losses[0].value)
    assert beside.played.plan == own.plan
    assert beside.ratio == pytest.approx(beside.played.step_time_s / best.played.step_time_s)
    assert beside.ratio > 1.2  # a forward again
    assert "as given" in as_text(answer)
    assert as_json(answer, 5, 1.0, 1.0)["given"][0]["ratio_to_best"] == pytest.approx(beside.ratio)


def test_a_plan_of_ones_own_that_lacks_room_says_so(found):
    fullest = max((one.played for one in found.plans), key=lambda played: played.device_used_bytes)
    least = min(one.played.device_used_bytes for one in found.plans)
    room = (least + fullest.device_used_bytes) / 2 / JOB.cluster.node.device.memory_bytes
    narrow = SPACE.model_copy(update={"headroom_fraction": room})

    answer = find(Question(jobs=(JOB,), space=narrow, given=(fullest.job,)), load_book)

    assert answer.plans
    assert "it needs " in as_json(answer, 5, 1.0, 1.0)["given"][0]["why"]
