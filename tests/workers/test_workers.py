"""Who works at a search, and what kills them, changes nothing of its answer."""

import pytest
from scripts import scripted
from small_search import SCRIPT, digest, question, quiet, search

from flopcast.errors import InternalError, SpecError
from flopcast.library.curves import load_book
from flopcast.search.find import find
from flopcast.workers import process_executor
from flopcast.workers.executor import SerialExecutor
from flopcast.workers.ledger import open_ledger
from flopcast.workers.process_executor import ProcessExecutor
from flopcast.workers.run import answer
from flopcast.workers.search_tasks import spread
from flopcast.workers.tasks import PLAY, Task, done_elsewhere


@pytest.fixture(scope="module")
def expected():
    """The digest of the search in one process, without chunks."""
    return digest(find(question(), load_book))


def test_ten_kills_of_workers_and_drivers_change_no_byte_and_lose_no_finished_chunk(tmp_path, expected):
    told = scripted(SCRIPT, "killed", tmp_path)

    assert told["kills"] == 10
    assert told["digest"] == expected
    assert told["missed"] <= 0
    assert told["found"] >= 20
    assert told["left"] == 0


@pytest.mark.parametrize("number", [7, 1000])
def test_chunks_of_any_size_give_the_same(tmp_path, number, expected):
    with open_ledger(tmp_path / "ledger.sqlite", "question", "program") as ledger:
        found = answer(search(number), SerialExecutor(), ledger, quiet)

    assert digest(found) == expected


def test_what_is_kept_is_not_done_again(tmp_path, expected):
    path, heard = tmp_path / "ledger.sqlite", []
    with open_ledger(path, "question", "program") as ledger:
        answer(search(7), SerialExecutor(), ledger, quiet)

    with open_ledger(path, "question", "program") as ledger:
        found = answer(search(7), SerialExecutor(), ledger, heard.append)

    assert digest(found) == expected
    assert all(progress.kept == progress.done for progress in heard)
    assert heard[-1].done == heard[-1].total


def test_a_search_that_is_broken_off_plays_what_it_has_screened_and_keeps_no_part_of_that(tmp_path):
    class Interrupted(SerialExecutor):
        def next_done(self):
            calls.append(1)
            if len(calls) == 4:  # the first choice and two chunks are done
                raise KeyboardInterrupt
            return super().next_done()

    calls = []
    with open_ledger(tmp_path / "ledger.sqlite", "question", "program") as ledger:
        found = answer(search(20), Interrupted(), ledger, quiet)
        kept = ledger.kept()

    assert found.partial
    first = spread(len(search(20).parts))[:2]
    assert found.candidates == sum(search(20).parts[place].number for place in first)
    assert found.plans
    assert set(kept) == {"0/choose/0", *(f"0/screen/{place}" for place in first)}


@pytest.mark.parametrize("played", [0, 1])
def test_a_search_that_is_broken_off_while_it_plays_ranks_what_it_has(tmp_path, played):
    class Interrupted(SerialExecutor):
        def next_done(self):
            if calls.count(PLAY) == played and self._tasks[0].kind == PLAY:
                calls.append("interrupted")
                raise KeyboardInterrupt
            calls.append(self._tasks[0].kind)
            return super().next_done()

    calls = []
    with open_ledger(tmp_path / "ledger.sqlite", "question", "program") as ledger:
        found = answer(search(1000), Interrupted(), ledger, quiet)

    assert calls.count("interrupted") == 1
    assert found.partial
    assert found.candidates == search(1000).num_plans
    assert len(found.plans) >= 1
    assert found.refined == 0


def test_a_task_that_kills_every_worker_is_told(monkeypatch):
    executor = ProcessExecutor(1)
    monkeypatch.setattr(process_executor._Worker, "ask", lambda worker, task: worker.process.kill() or "")

    executor.submit(search(1000).tasks[0])
    with pytest.raises(SpecError, match="3 workers were killed during the task 0/screen/0"):
        executor.next_done()
    executor.close()


def test_a_task_that_fails_by_itself_is_a_bug_of_ours(capfd):
    executor = ProcessExecutor(1)

    executor.submit(Task(name="0/screen/0", kind="screen", question="nonsense", part="{}"))
    with pytest.raises(InternalError, match="0/screen/0"):
        executor.next_done()
    executor.close()
    assert "ValidationError" in capfd.readouterr().err


def test_a_worker_of_another_version_refuses():
    with pytest.raises(SpecError, match="results of another version would differ"):
        done_elsewhere({}, "digest of another program")
