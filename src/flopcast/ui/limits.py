"""Limits of every request: its size, its duration, and its origin.

Answers: which requests are refused before they are read, and which headers limit what a page may do in a
browser?
Elsewhere: the accepted host names (Starlette's TrustedHostMiddleware), how many requests may wait for a
process (pool.py), headers that never end (server.py).
"""

import asyncio
from collections.abc import Mapping

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from flopcast.render.error_json import LIMIT
from flopcast.ui.error_responses import JSON, RETRY_AFTER_S, errors_as_json

MOST_BODY_BYTES = 256 << 10
MOST_HEADER_BYTES = 64 << 10  # an address carries a packed document
BODY_LIMIT_S = 10.0
WAITING = "Too many requests are waiting. Try again in a moment."
MOST_AT_ONCE = 128
RIGHTS = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self';"
    " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS: Mapping[str, str] = {
    "content-security-policy": RIGHTS,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
SENT = tuple((name.encode(), value.encode()) for name, value in HEADERS.items())


class Limits:
    """An ASGI application around another one, which limits requests and sets the headers of pages."""

    def __init__(self, app: ASGIApp) -> None:
        """Start without requests."""
        self._app = app
        self._at_once = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on after it was read completely and if it is within its limits."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def headed(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = {name for name, _ in message["headers"]}
                message["headers"] += [header for header in SENT if header[0] not in own]
            await send(message)

        if len(scope["query_string"]) + sum(map(_size, scope["headers"])) > MOST_HEADER_BYTES:
            await _refused(431, f"a header has at most {MOST_HEADER_BYTES} bytes")(scope, receive, headed)
            return
        if self._at_once >= MOST_AT_ONCE:
            await busy()(scope, receive, headed)
            return
        self._at_once += 1
        try:
            body = await self._body(scope, receive, headed)
            if body is not None:
                await self._app(scope, _replayed(body, receive), headed)
        finally:
            self._at_once -= 1

    async def _body(self, scope: Scope, receive: Receive, send: Send) -> bytes | None:
        """Return the body of a request; None if the request was refused or the client disconnected."""
        length = Headers(scope=scope).get("content-length", "0")
        if not length.isdecimal() or int(length[:12]) > MOST_BODY_BYTES:
            await _refused(413, f"a body has at most {MOST_BODY_BYTES} bytes")(scope, receive, send)
            return None
        body = bytearray()
        try:
            async with asyncio.timeout(BODY_LIMIT_S):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return None
                    body += message.get("body", b"")
                    if len(body) > MOST_BODY_BYTES:
                        refusal = _refused(413, f"a body has at most {MOST_BODY_BYTES} bytes")
                        await refusal(scope, receive, send)
                        return None
                    if not message.get("more_body", False):
                        return bytes(body)
        except TimeoutError:
            refusal = _refused(408, f"a body arrives within {BODY_LIMIT_S:.0f} s")
            await refusal(scope, receive, send)
            return None


def _size(header: tuple[bytes, bytes]) -> int:
    """Return the number of bytes of a header line."""
    return sum(map(len, header)) + 4


def busy() -> Response:
    """Return the answer that too many requests are waiting and that the client may try again."""
    return _json(503, WAITING, {"retry-after": f"{RETRY_AFTER_S}"})


def _refused(status: int, message: str) -> Response:
    """Return the answer to a request that is not read completely; it closes the connection."""
    return _json(status, message, {"connection": "close"})


def _json(status: int, message: str, headers: Mapping[str, str]) -> Response:
    return Response(errors_as_json(LIMIT, message), status, headers, media_type=JSON)


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Return the application's receiver: first the whole body, then further messages of the client."""
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay
