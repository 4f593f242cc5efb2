"""What surrounds every request, asked in this process: bodies, headers, and what is passed on."""

import asyncio

import pytest
from all_cases import all_cases
from hypothesis import given, settings
from hypothesis import strategies as st

from flopcast.errors import SpecError
from flopcast.ui import limits
from flopcast.ui.limits import HEADERS, MOST_AT_ONCE, MOST_BODY_BYTES, MOST_HEADER_BYTES, Limits
from flopcast.ui.packed_documents import MOST_DOCUMENT_BYTES, packed, unpacked


class Inner:
    """An application that keeps what reaches it and answers 200."""

    def __init__(self, waits=None):
        self.bodies, self.after, self.waits = [], [], waits

    async def __call__(self, scope, receive, send):
        message = await receive()
        self.bodies.append(message["body"])
        if self.waits is not None:
            await self.waits.wait()
        self.after.append((await receive())["type"])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"done"})


def scope_of(headers=(), query=b""):
    return {"type": "http", "method": "POST", "path": "/", "query_string": query, "headers": list(headers)}


async def ask(app, parts=(b"",), headers=(), query=b"", leaves=False):
    """Status and headers of one request, whose body comes in parts; None where nothing is answered."""
    last = len(parts) - 1
    waiting = [
        {"type": "http.request", "body": part, "more_body": leaves or at < last}
        for at, part in enumerate(parts)
    ]
    sent = []

    async def receive():
        return waiting.pop(0) if waiting else {"type": "http.disconnect"}

    async def send(message):
        sent.append(message)

    await app(scope_of(headers, query), receive, send)
    if not sent:
        return None, {}
    told = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], told


@settings(max_examples=25)
@given(parts=st.lists(st.binary(max_size=200), min_size=1, max_size=6))
def test_a_body_in_parts_reaches_the_application_whole_and_once(parts):
    inner = Inner()

    status, _ = asyncio.run(ask(Limits(inner), parts))

    assert (status, inner.bodies, inner.after) == (200, [b"".join(parts)], ["http.disconnect"])


@all_cases(("extra", "status"), [(-1, 200), (0, 200), (1, 413)])
@all_cases("pieces", [1, 3])
def test_a_body_may_have_as_many_bytes_as_are_allowed_and_not_one_more(extra, status, pieces):
    body = b"x" * (MOST_BODY_BYTES + extra)
    step = -(-len(body) // pieces)
    inner = Inner()

    found, _ = asyncio.run(ask(Limits(inner), [body[at : at + step] for at in range(0, len(body), step)]))

    assert found == status
    assert inner.bodies == ([body] if status == 200 else [])


@all_cases(
    ("length", "status"),
    [("0", 200), (f"{MOST_BODY_BYTES}", 200), (f"{MOST_BODY_BYTES + 1}", 413), ("9" * 40, 413), ("-1", 413),
     ("ten", 413), ("1e3", 413)],
)  # fmt: skip
def test_a_length_that_is_told_is_judged_before_the_body(length, status):
    inner = Inner()

    found, _ = asyncio.run(ask(Limits(inner), headers=[(b"content-length", length.encode())]))

    assert (found, len(inner.bodies)) == (status, int(status == 200))


@all_cases(
    ("query", "value", "status"),
    [(0, 0, 200), (MOST_HEADER_BYTES, 0, 200), (MOST_HEADER_BYTES + 1, 0, 431), (0, MOST_HEADER_BYTES, 431),
     (MOST_HEADER_BYTES // 2, MOST_HEADER_BYTES // 2, 431), (8, MOST_HEADER_BYTES - 100, 200)],
)  # fmt: skip
def test_address_and_headers_together_are_bounded(query, value, status):
    headers = [(b"cookie", b"x" * value)] if value else []
    inner = Inner()

    found, _ = asyncio.run(ask(Limits(inner), headers=headers, query=b"q" * query))

    assert (found, len(inner.bodies)) == (status, int(status == 200))


@pytest.mark.parametrize("body", [b"", b"x" * (MOST_BODY_BYTES + 1)])
def test_answers_and_refusals_tell_browsers_the_rights_of_a_page(body):
    _, told = asyncio.run(ask(Limits(Inner()), [body]))

    assert {name: told[name] for name in HEADERS} == dict(HEADERS)
    assert "default-src 'none'" in told["content-security-policy"]
    assert "unsafe" not in told["content-security-policy"]


def test_a_refused_request_closes_its_connection():
    _, told = asyncio.run(ask(Limits(Inner()), [b"x" * (MOST_BODY_BYTES + 1)]))

    assert told["connection"] == "close"


def test_a_header_that_the_application_sets_itself_stays():
    async def own(scope, receive, send):
        headers = [(b"referrer-policy", b"same-origin")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})

    _, told = asyncio.run(ask(Limits(own)))

    assert told["referrer-policy"] == "same-origin"


def test_who_leaves_while_sending_is_not_answered_and_frees_its_place():
    inner = Inner()
    app = Limits(inner)

    async def leave_often():
        for _ in range(MOST_AT_ONCE + 5):
            assert await ask(app, [b"half"], leaves=True) == (None, {})
        return await ask(app, [b"whole"])

    assert asyncio.run(leave_often())[0] == 200
    assert inner.bodies == [b"whole"]


def test_only_so_many_are_under_way_and_the_next_is_told_to_come_back():
    async def crowd():
        door = asyncio.Event()
        inner = Inner(waits=door)
        app = Limits(inner)
        tasks = [asyncio.create_task(ask(app)) for _ in range(MOST_AT_ONCE)]
        while len(inner.bodies) < MOST_AT_ONCE:
            await asyncio.sleep(0)
        refused = await ask(app)
        door.set()
        answered = [status for status, _ in await asyncio.gather(*tasks)]
        return refused, answered, await ask(app)

    (status, told), answered, after = asyncio.run(crowd())

    assert (status, int(told["retry-after"])) == (503, limits.RETRY_AFTER_S)
    assert answered == [200] * MOST_AT_ONCE
    assert after[0] == 200


@pytest.mark.parametrize("kind", ["lifespan", "websocket"])
def test_what_is_no_request_is_passed_on_untouched(kind):
    seen = []

    async def inner(scope, receive, send):
        seen.append((scope, receive, send))

    given_ = ({"type": kind}, object(), object())
    asyncio.run(Limits(inner)(*given_))

    assert seen == [given_]


@settings(max_examples=60)
@given(text=st.text(max_size=300))
def test_a_document_comes_back_from_its_address_as_it_was(text):
    word = packed(text)

    assert unpacked(word) == text
    assert all(char.isalnum() or char in "-_" for char in word)


@pytest.mark.parametrize(("size", "right"), [(MOST_DOCUMENT_BYTES, True), (MOST_DOCUMENT_BYTES + 1, False)])
def test_a_document_has_at_most_so_many_bytes_once_it_is_unpacked(size, right):
    word = packed("x" * size)

    if right:
        assert len(unpacked(word)) == size
        return
    with pytest.raises(SpecError, match="at most 256 KiB"):
        unpacked(word)


@settings(max_examples=60)
@given(word=st.text(max_size=60), cut=st.integers(1, 8))
def test_no_word_that_is_no_document_gets_past(word, cut):
    for wrong in (word, packed(word)[:-cut]):
        with pytest.raises(SpecError) as error:
            unpacked(wrong)
        assert [problem.field for problem in error.value.problems] == ["job"]
