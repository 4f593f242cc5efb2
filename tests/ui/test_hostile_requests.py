"""Requests that mean harm are refused with 4xx, and the next one is answered as if they had not been."""

import asyncio
import json
import socket

import pytest
from server_at_hand import asked, data
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from flopcast.ui import limits, pool
from flopcast.ui.limits import MOST_BODY_BYTES, MOST_HEADER_BYTES, Limits

JOB = {"model": "llama-3-8b", "cluster": "dgx-h100", "gpus": 16, "tp": 8, "gbs": 64, "mbs": 1}


def raw(server, sent):
    """The first line of the answer to bytes; nothing where the connection is only closed."""
    with socket.create_connection(server, timeout=30) as connection:
        connection.sendall(sent)
        answer = b""
        while b"\r\n" not in answer:
            more = connection.recv(4096)
            if not more:
                break
            answer += more
        return answer.split(b"\r\n")[0].decode()


@pytest.mark.parametrize(
    ("path", "headers", "statuses"),
    [
        ("/static/..%2f..%2fpyproject.toml", {}, {404}),
        ("/static/../app.py", {}, {404}),
        ("/static/%2e%2e/app.py", {}, {404}),
        ("/static//etc/passwd", {}, {404}),
        ("/etc/passwd", {}, {404}),
        ("/", {"Host": "attacker.example"}, {400}),
        ("/", {"Host": "127.0.0.1.attacker.example"}, {400}),
        ("/", {"Host": ""}, {400}),
        ("/?job=" + "A" * 2000, {}, {400}),
        ("/?gpus=" + "9" * 5000, {}, {400}),
        ("/?model=%00", {}, {400}),
        ("/?model=%ff%fe", {}, {400}),
        ("/answer/predict?changes=" + "a.b=1%20" * 500, {}, {400}),
        ("/answer/predict?plan=" + "%5B" * 2000, {}, {400}),
    ],
)
def test_hostile_addresses_are_refused(server, path, headers, statuses):
    status, _, text = asked(server, path, headers=headers)

    assert status in statuses
    assert "Traceback" not in text
    assert asked(server, "/health")[0] == 200


@pytest.mark.parametrize(
    "body",
    [
        "[" * 100_000,
        '{"a":' * 40_000,
        '{"job": ' + '{"model":' * 20_000 + "1" + "}" * 20_001,
        '{"gpus": NaN}',
        '{"gpus": Infinity}',
        '{"seq": 1e400}',
        '{"gpus": ' + "9" * 5000 + "}",
        "[]",
        "",
        "\x00",
        '{"model": "\\ud800"}',
    ],
)
def test_hostile_bodies_are_refused(server, body):
    status, _, text = asked(server, "/api/v1/predict", "POST", body.encode())

    assert status == 400
    assert {"format_version", "faults"} == set(json.loads(text))
    assert data(server, "predict", JOB)[0] == 200


@pytest.mark.parametrize("path", ["/api/v1/predict", "/upload", "/answer/log"])
def test_a_larger_body_than_allowed_is_refused_unread(server, path):
    length = {"Content-Length": str(MOST_BODY_BYTES + 1)}
    lines = "".join(f"{name}: {value}\r\n" for name, value in (length | {"Host": "127.0.0.1"}).items())

    assert raw(server, f"POST {path} HTTP/1.1\r\n{lines}\r\n".encode()).split()[1] == "413"


def test_a_body_that_does_not_say_its_length_is_counted(server):
    chunk = b"10000\r\n" + b"a" * 0x10000 + b"\r\n"
    head = b"POST /upload HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n"

    assert raw(server, head + chunk * 5 + b"0\r\n\r\n").split()[1] == "413"


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"a" * (MOST_HEADER_BYTES + 5000) + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n" + b"X: 1\r\n" * 20_000 + b"\r\n",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: -5\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 200 + b"\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
    ],
)
def test_what_is_no_request_is_refused(server, sent):
    answered = raw(server, sent)

    assert answered == "" or answered.split()[1][0] == "4"
    assert asked(server, "/health")[0] == 200


@pytest.mark.parametrize("method", ["DELETE", "PUT", "PATCH", "TRACE"])
def test_other_methods_are_refused(server, method):
    assert asked(server, "/", method)[0] == 405


def answered(receive, calls=1):
    """Statuses of requests to a small application inside the limits."""

    async def ok(request):
        return PlainTextResponse(str(len(await request.body())))

    app = Limits(Starlette(routes=[Route("/", ok, methods=["POST"])]))
    scope = {
        "type": "http", "method": "POST", "path": "/", "query_string": b"", "headers": [(b"host", b"x")],
        "http_version": "1.1", "scheme": "http", "server": ("x", 80), "client": ("y", 1), "root_path": "",
    }  # fmt: skip
    told = []

    async def send(message):
        if message["type"] == "http.response.start":
            told.append((message["status"], dict(message["headers"])))

    async def every():
        await asyncio.gather(*(app(dict(scope), receive, send) for _ in range(calls)))

    asyncio.run(every())
    return told


def test_a_body_that_never_ends_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(limits, "BODY_LIMIT_S", 0.05)

    async def receive():
        await asyncio.sleep(0.02)
        return {"type": "http.request", "body": b"a", "more_body": True}

    ((status, headers),) = answered(receive)

    assert status == 408
    assert headers[b"connection"] == b"close"


def test_a_process_that_takes_too_long_is_replaced():
    async def two():
        own = pool.Pool(2, most_waiting=4)
        try:
            with pytest.raises(pool.TooLongError):
                await own.ask("api.search", JOB | {"tp": "1,2,4,8", "mbs": "1,2,4"}, 0.3, 0.3, long=True)
            return await own.ask("api.memory", JOB, 60, 60)
        finally:
            await own.end()

    answer = asyncio.run(two())

    assert answer.status == 200
    assert json.loads(answer.body)["memory"]["fits"] in (True, False)


def test_no_more_wait_than_may():
    async def many():
        own = pool.Pool(2, most_waiting=1)
        asking = [asyncio.create_task(own.ask("api.memory", JOB, 60, 60)) for _ in range(8)]
        try:
            return await asyncio.gather(*asking, return_exceptions=True)
        finally:
            await own.end()

    answers = asyncio.run(many())

    assert sum(isinstance(each, pool.BusyError) for each in answers) >= 4
    assert sum(getattr(each, "status", 0) == 200 for each in answers) >= 2


def test_a_request_whose_client_is_gone_takes_no_time_of_a_process():
    async def left():
        return True

    async def asked_for_nobody():
        own = pool.Pool(2, most_waiting=4)
        try:
            for _ in range(3):  # more often than there are processes
                with pytest.raises(pool.GoneError):
                    await own.ask("api.memory", JOB, 60, 60, gone=left)
            return [each.process for each in own._all]
        finally:
            await own.end()

    assert asyncio.run(asked_for_nobody()) == [None, None]


def test_a_process_that_ends_is_told_and_replaced(monkeypatch):
    whole = pool.sys.executable

    async def broken():
        own = pool.Pool(2, most_waiting=4)
        monkeypatch.setattr(pool.sys, "executable", "/bin/false")
        try:
            with pytest.raises(pool.BrokenError):
                await own.ask("api.memory", JOB, 60, 60)
            monkeypatch.setattr(pool.sys, "executable", whole)
            return [await own.ask("api.memory", JOB, 60, 60) for _ in range(2)]
        finally:
            await own.end()

    assert [answer.status for answer in asyncio.run(broken())] == [200, 200]
