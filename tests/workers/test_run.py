"""Runs: tasks come back in any order, of several searches at once, and the answers are the same."""

import json
import math
import random

import pytest
from small_search import digest, question, quiet, search

from flopcast.library.curves import load_book
from flopcast.search.chunks import CHUNK_PLANS, chunks
from flopcast.search.default_plan import UsualPlans
from flopcast.search.find import find
from flopcast.search.grid import num_plans
from flopcast.search.pruning import NO_INCUMBENTS
from flopcast.workers import tasks
from flopcast.workers.executor import AbstractExecutor, SerialExecutor
from flopcast.workers.ledger import open_ledger
from flopcast.workers.run import answer, run
from flopcast.workers.search_tasks import Search, search_of
from flopcast.workers.tasks import done


class Shuffled(AbstractExecutor):
    """Workers that finish in no order, and count what they were given."""

    def __init__(self, size, seed=0, interrupted_at=None):
        self._size, self._dice, self._tasks = size, random.Random(seed), []
        self._interrupted_at = interrupted_at
        self.given, self.most = [], 0

    @property
    def size(self):
        return self._size

    def submit(self, task):
        self._tasks.append(task)
        self.given.append(task.name)
        self.most = max(self.most, len(self._tasks))

    def next_done(self):
        if len(self.given) - len(self._tasks) == self._interrupted_at:
            raise KeyboardInterrupt
        task = self._tasks.pop(self._dice.randrange(len(self._tasks)))
        return task.name, done(task)

    def forget(self):
        self._tasks.clear()

    def close(self):
        """Nobody to send home."""


@pytest.fixture(scope="module")
def expected():
    return digest(find(question(), load_book))


@pytest.mark.parametrize("seed", [1, 2])
def test_results_in_any_order_give_the_same_answer(seed, expected):
    executor = Shuffled(5, seed)

    found = answer(search(9), executor, None, quiet)

    assert digest(found) == expected
    assert len(executor.given) == len(set(executor.given)) > len(search(9).parts)


def test_no_more_is_handed_out_than_keeps_every_worker_busy():
    executor = Shuffled(3)

    answer(search(5), executor, None, quiet)

    assert executor.most == 2 * executor.size


def test_several_searches_share_the_workers_and_each_has_its_own_answer(expected):
    asked, executor = question(), Shuffled(4)
    searches = [Search(asked, name, chunks(asked, number)) for name, number in (("0", 4), ("1", 40))]

    found = dict(run(searches, executor, None, quiet))

    assert {place: digest(one) for place, one in found.items()} == {0: expected, 1: expected}
    assert {name.split("/")[0] for name in executor.given[: 2 * executor.size]} == {"0"}
    assert {name.split("/")[0] for name in executor.given} == {"0", "1"}


def test_a_part_of_the_ledger_spares_a_part_of_the_work(tmp_path, expected):
    path = tmp_path / "ledger.sqlite"
    with open_ledger(path, "question", "program") as ledger:
        for task in search(9).tasks[::2]:
            ledger.keep(task.name, done(task))

    heard, executor = [], Shuffled(2)
    with open_ledger(path, "question", "program") as ledger:
        found = answer(search(9), executor, ledger, heard.append)

    screened = [name for name in executor.given if "/screen/" in name]
    assert digest(found) == expected
    assert sorted(screened) == sorted(task.name for task in search(9).tasks[1::2])
    assert max(one.kept for one in heard) == sum(part.number for part in search(9).parts[::2])


def test_progress_counts_every_plan_once_and_ends_at_all_of_them():
    heard = []

    answer(search(9), Shuffled(2), None, heard.append)

    for doing in ("screening", "simulating"):
        done_by_then = [one.done for one in heard if one.doing == doing and one.done]  # 0: usual plans
        assert done_by_then == sorted(set(done_by_then))
        totals = [one.total for one in heard if one.doing == doing]
        assert done_by_then[-1] == totals[-1] == max(totals)  # variants join the plans to play
    assert heard[0].total == num_plans(question().jobs[0], question().space)


@pytest.fixture
def without_usual_plans(monkeypatch):
    """Nothing is known before the first chunk is done."""
    nothing = UsualPlans(incumbents=NO_INCUMBENTS, best=None, jobs=())
    monkeypatch.setattr(
        "flopcast.workers.run.all_usual_plans",
        lambda question, book_of, kept, told: (nothing,) * len(question.jobs),
    )


def test_progress_shows_the_best_plan_of_the_chunks_that_are_done(without_usual_plans):
    heard = []

    answer(search(9), Shuffled(2), None, heard.append)

    best = [one.best for one in heard if one.doing == "screening"]
    first = find(question(), load_book, quiet).plans[0]
    shown = [float(text.split(" ")[0]) for text in best if text]
    assert shown == sorted(shown, reverse=True)
    assert len(set(best)) > 1
    assert first.played.plan.short() in best[-1]


def test_chunks_that_are_handed_out_later_know_what_others_found(without_usual_plans):
    told = []

    class Listening(Shuffled):
        def submit(self, task):
            told.append(json.loads(task.part)[1]["best_loss"] if task.kind == "screen" else None)
            super().submit(task)

    answer(search(9), Listening(2), None, quiet)

    known = [loss for loss in told if loss is not None]
    assert known[0] == math.inf
    assert known == sorted(known, reverse=True)
    assert known[-1] < math.inf


def test_several_searches_are_broken_off_at_once():
    asked = question()
    searches = [Search(asked, name, chunks(asked, 40)) for name in "01"]

    with pytest.raises(KeyboardInterrupt):
        list(run(searches, Shuffled(2, interrupted_at=1), None, quiet))


def test_breaking_off_while_plans_are_played_ranks_those_that_were_played():
    number = len(search(40).parts)

    found = answer(search(40), Shuffled(2, interrupted_at=number + 1), None, quiet)

    assert found.partial
    assert found.candidates == search(40).num_plans
    assert len(found.plans) >= 1


def test_one_process_without_a_ledger_makes_no_tasks(monkeypatch, expected):
    monkeypatch.setattr(tasks, "done", None)

    assert digest(answer(search(), SerialExecutor(), None, quiet)) == expected


def test_a_search_is_cut_as_its_question_says():
    cut = search_of(question(), "7")

    assert cut.parts == chunks(question(), CHUNK_PLANS)
    assert cut.names == tuple(f"7/screen/{place}" for place in range(len(cut.parts)))
    assert cut.num_plans == sum(part.number for part in cut.parts)
    assert cut.asked == search_of(question()).asked
