"""What is kept of answers, how a server ends and begins, and headers that never end."""

import asyncio
import json
import os
import signal
import socket
import sys
import time
from contextlib import closing
from subprocess import PIPE

import pytest
from all_cases import all_cases
from children import below, child, runs
from server_at_hand import LIMIT_S, asked
from starlette.applications import Starlette

from flopcast.cli.main import main
from flopcast.ui import app, server, worker
from flopcast.ui import desk as desks
from flopcast.ui.desk import MOST_KEPT_BYTES, Desk
from flopcast.ui.pool import Answer, BrokenError, BusyError, TooLongError


class Counting:
    """A pool that counts what it is asked, and answers or fails as it is told."""

    def __init__(self, *outcomes):
        self.calls, self.outcomes = [], list(outcomes)

    async def ask(self, task, words, cpu_limit_s, limit_s, *, long=False, on_progress, gone):
        self.calls.append((task, dict(words), cpu_limit_s, limit_s, long))
        outcome = self.outcomes[min(len(self.calls), len(self.outcomes)) - 1]
        if isinstance(outcome, Exception):
            raise outcome
        on_progress("half of it")
        return outcome


def answer(status=200, body="{}"):
    return Answer(status=status, media="application/json", body=body)


def every(desk, *asks):
    """The answers to several questions, one after the other."""

    async def all_of_them():
        return [await desk.ask(task, words) for task, words in asks]

    return asyncio.run(all_of_them())


@pytest.mark.parametrize("status", [200, 400, 422])
def test_the_same_words_are_asked_once(status):
    pool = Counting(answer(status, "first"), answer(status, "second"))

    told = every(Desk(pool), ("api.memory", {"a": "1", "b": "2"}), ("api.memory", {"b": "2", "a": "1"}))

    assert [each.body for each in told] == ["first", "first"]
    assert len(pool.calls) == 1


@all_cases(
    ("one", "other"),
    [
        (("api.memory", {"a": "1"}), ("api.memory", {"a": "2"})),
        (("api.memory", {"a": "1"}), ("api.predict", {"a": "1"})),
        (("api.memory", {"a": "1"}), ("api.memory", {"a": 1})),
        (("api.memory", {"a": "1"}), ("api.memory", {"a": "1", "b": ""})),
    ],
)
def test_other_words_and_other_tasks_are_asked_anew(one, other):
    pool = Counting(answer())

    every(Desk(pool), one, other)

    assert len(pool.calls) == 2


def test_failures_of_the_server_are_not_kept():
    pool = Counting(BrokenError(), TooLongError(), answer(500), answer(200, "at last"))

    told = every(Desk(pool), *[("api.memory", {"a": "1"})] * 5)

    assert [each.status for each in told] == [500, 503, 500, 200, 200]
    assert len(pool.calls) == 4


@pytest.mark.parametrize(("task", "html"), [("page.predict", True), ("api.predict", False)])
def test_a_failure_has_the_form_of_what_was_asked(task, html):
    ((told),) = every(Desk(Counting(BrokenError())), (task, {}))

    assert told.status == 500
    assert ("html" in json.loads(told.body)) is html
    assert ("faults" in json.loads(told.body)) is not html


def test_that_too_many_wait_is_for_the_caller_to_say():
    with pytest.raises(BusyError):
        every(Desk(Counting(BusyError())), ("api.memory", {}))


def test_what_is_kept_is_bounded_and_the_oldest_goes():
    large = answer(body="x" * (MOST_KEPT_BYTES // 9))
    pool = Counting(large)
    asks = [("api.memory", {"a": str(number)}) for number in range(12)]

    desk = Desk(pool)
    every(desk, *asks, asks[-1], asks[0])

    assert len(pool.calls) == 13  # the last was kept, the first was not
    assert desk.kept_bytes <= MOST_KEPT_BYTES


def test_one_answer_may_not_push_out_all_others():
    pool = Counting(answer(body="x" * MOST_KEPT_BYTES))

    every(Desk(pool), *[("api.memory", {})] * 2)

    assert len(pool.calls) == 2


@pytest.mark.parametrize(
    ("task", "long"), [("page.search", True), ("api.search", True), ("page.predict", False)]
)
def test_searches_may_take_longer_and_leave_a_process_to_others(task, long):
    pool = Counting(answer())

    every(Desk(pool), (task, {}))

    ((_, _, cpu_limit_s, limit_s, was_long),) = pool.calls
    assert was_long is long
    assert cpu_limit_s == (desks.LONG_LIMIT_S if long else desks.LIMIT_S)
    assert limit_s == desks.WAIT_RATIO * cpu_limit_s


class Client:
    """One GET of the application in this process: its status, its headers, its text."""

    def __init__(self, desk, path):
        async def receive():
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message):
            self.parts.append(message)

        self.parts = []
        where, _, query = path.partition("?")
        scope = {
            "type": "http", "method": "GET", "path": where, "query_string": query.encode(), "headers": [],
            "http_version": "1.1", "scheme": "http", "server": ("127.0.0.1", 80),
            "client": ("127.0.0.1", 1), "root_path": "",
        }  # fmt: skip
        asyncio.run(
            Starlette(routes=app._routes(desk), exception_handlers=app.HANDLERS)(scope, receive, send)
        )
        self.status = self.parts[0]["status"]
        self.headers = dict(self.parts[0]["headers"])
        self.text = b"".join(part.get("body", b"") for part in self.parts[1:]).decode()


@pytest.mark.parametrize("failure", [TooLongError(), BusyError()])
def test_a_busy_machine_is_503_and_says_when_to_come_back(failure):
    """The request is right, and the same one is answered once there is time: so it is not 422."""
    for path in ("/", "/compare", "/answer/predict?model=llama-3-8b", "/report.html", "/report.json"):
        told = Client(Desk(Counting(failure)), path)

        assert (told.status, told.headers.get(b"retry-after")) == (503, b"1"), path
    page = Client(Desk(Counting(failure)), "/?model=llama-3-8b&tp=4").text
    assert 'role="alert"' in page
    assert 'value="4"' in page


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="the system has no timer of processor time")
def test_processor_time_is_limited_and_time_on_the_clock_is_not(monkeypatch):
    def spinning(words, _):
        end_s = time.process_time() + words["cpu_s"]
        time.sleep(words["sleep_s"])
        while time.process_time() < end_s:
            pass
        return "text/plain", "done"

    monkeypatch.setattr(worker, "TASKS", {"api.spin": spinning})

    def asked_for(**words):
        request = {"task": "api.spin", "words": words, "cpu_limit_s": 0.1}
        return worker._timed_answer(request, lambda _: None)

    assert asked_for(cpu_s=0.0, sleep_s=0.3).status == 200
    refused = asked_for(cpu_s=30.0, sleep_s=0.0)
    assert refused.status == 422
    assert json.loads(refused.body)["faults"][0]["kind"] == "limit"


def test_a_header_that_never_ends_is_cut_off(monkeypatch):
    monkeypatch.setattr(server, "HEADER_LIMIT_S", 0.2)

    async def slow():
        loop = asyncio.get_running_loop()
        config = server.uvicorn.Config(_never, lifespan="off", log_level="critical")
        config.load()
        state = server.uvicorn.server.ServerState()
        listening = await loop.create_server(
            lambda: server.TimedProtocol(config=config, server_state=state, app_state={}), "127.0.0.1", 0
        )
        reader, writer = await asyncio.open_connection(*listening.sockets[0].getsockname())
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nX-Slow: ")
        try:
            return await asyncio.wait_for(reader.read(), LIMIT_S)
        finally:
            writer.close()
            listening.close()

    assert asyncio.run(slow()) == b""


async def _never(scope, receive, send):
    """An application that is not reached."""
    raise AssertionError(scope["path"])


def test_an_address_that_is_taken_is_told(monkeypatch, capsys):
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = str(taken.getsockname()[1])
        monkeypatch.setattr(sys, "argv", ["flopcast", "ui", "--port", port])
        with pytest.raises(SystemExit) as ended:
            main()

    assert ended.value.code == 1
    assert f"127.0.0.1:{port}" in capsys.readouterr().err


def test_an_installation_without_the_server_says_what_to_install(monkeypatch, capsys):
    monkeypatch.delitem(sys.modules, "flopcast.ui.server", raising=False)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.setattr(sys, "argv", ["flopcast", "ui", "--port", "0"])

    with pytest.raises(SystemExit) as ended:
        main()

    assert ended.value.code == 1
    assert 'pip install "flopcast[ui]"' in capsys.readouterr().err


@pytest.mark.skipif(not os.path.exists(f"/proc/{os.getpid()}/task"), reason="only Linux lists children")
def test_ctrl_c_ends_the_server_and_its_processes():
    command = [sys.executable, "-m", "flopcast", "ui", "--port", "0"]
    with child(command, stderr=PIPE, text=True) as process:
        line = process.stderr.readline()
        port = int(line.rsplit(":", 1)[1])
        assert asked(("127.0.0.1", port), "/")[0] == 200
        children = below(process.pid)

        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=LIMIT_S)[1]

        left = [each for each in children if runs(each)]

    assert children
    assert left == []
    assert "Traceback" not in said
