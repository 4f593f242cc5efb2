"""The server's application: pages, their answers, an API of JSON.

Answers: which address gives what?
Elsewhere: limits of requests (limits.py), where it listens (server.py), what is answered (answers.py).
"""

import asyncio
import contextlib
import json
import os
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from importlib.resources import files
from urllib.parse import parse_qsl, urlencode

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from flopcast.report.faults import BUG, INPUT, LIMIT
from flopcast.report.page.style import STYLE
from flopcast.ui import page
from flopcast.ui.limits import Limits, busy
from flopcast.ui.openapi import described
from flopcast.ui.pool import Answer, BrokenError, BusyError, Pool, TooLongError
from flopcast.ui.refusals import DATA, errors_as_json, refusal
from flopcast.ui.words import OF_PLAN

LIMIT_S, LONG_LIMIT_S = 20.0, 120.0
MOST_WAITING = 64
MOST_KEPT_BYTES = 32 << 20
HEARTBEAT_S = 2.0
FILES = {
    "/report.html": ("file.report", "report.html"),
    "/report.json": ("api.predict", "report.json"),
    "/job.yaml": ("file.job", "job.yaml"),
}
LONG = ("page.search", "api.search")


class Desk:
    """Asks processes, and keeps the last answers: the same words have the same answer."""

    def __init__(self, pool: Pool) -> None:
        """Nothing was asked yet."""
        self.pool = pool
        self._kept: OrderedDict[str, Answer] = OrderedDict()
        self.kept_bytes = 0

    async def ask(
        self, task: str, words: Mapping[str, object], told: Callable[[str], None] = lambda _: None
    ) -> Answer:
        """The answer to words; failures of the server are answers too.

        Raises
        ------
        BusyError
            Too many wait.
        """
        key = json.dumps([task, words], sort_keys=True)
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        long = task in LONG
        limit_s = LONG_LIMIT_S if long else LIMIT_S
        try:
            answer = await self.pool.ask(task, words, limit_s, long=long, told=told)
        except TooLongError:
            message = f"This takes longer than {limit_s:.0f} s: ask for less at once."
            return refusal(task, 422, LIMIT, message)
        except BrokenError:
            return refusal(task, 500, BUG, "The process that worked on this request ended.")
        if answer.status in (200, 400, 422):
            self._keep(key, answer)
        return answer

    def _keep(self, key: str, answer: Answer) -> None:
        """Keep an answer; the oldest go where they take too much room."""
        size = len(key) + len(answer.body)
        if size > MOST_KEPT_BYTES // 8 or key in self._kept:
            return
        self._kept[key] = answer
        self.kept_bytes += size
        while self.kept_bytes > MOST_KEPT_BYTES:
            old, dropped = self._kept.popitem(last=False)
            self.kept_bytes -= len(old) + len(dropped.body)


def application(host: str = "127.0.0.1", ready: Callable[[], None] = lambda: None) -> Starlette:
    """The application.

    Parameters
    ----------
    host : the name by which it is reached, besides those of loopback
    ready : called once it answers
    """
    desk = Desk(Pool(os.cpu_count() or 2, MOST_WAITING))

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        ready()
        warming = asyncio.create_task(desk.ask("page.predict", page.START))
        try:
            yield
        finally:
            warming.cancel()
            await desk.pool.end()

    hosts = ["127.0.0.1", "localhost", "[::1]", f"[{host}]" if ":" in host else host]
    return Starlette(
        routes=_routes(desk),
        middleware=[Middleware(Limits), Middleware(TrustedHostMiddleware, allowed_hosts=hosts)],
        lifespan=lifespan,
        exception_handlers={404: _lost},
    )


def _routes(desk: Desk) -> list[Route]:
    """Every address."""
    pages = [Route(path, _page(desk, name)) for name, (path, _) in page.PAGES.items()]
    answers = [Route(f"/answer/{name}", _answer(desk, f"page.{name}")) for name in ("predict", "compare")]
    gifts = [Route(path, _file(desk, *made)) for path, made in FILES.items()]
    data = [
        Route(f"/api/v1/{name}", _data(desk, f"api.{name}"), methods=["POST"])
        for name in ("predict", "memory", "compare", "search")
    ]
    return [
        *pages,
        *answers,
        *gifts,
        *data,
        Route("/answer/search", _search(desk)),
        Route("/upload", _upload(desk), methods=["GET", "POST"]),
        Route("/answer/log", _log(desk), methods=["POST"]),
        Route("/api/v1/openapi.json", _openapi),
        Route("/static/{name}", _static),
        Route("/health", _health),
    ]


Endpoint = Callable[[Request], Awaitable[Response]]


def _words(request: Request) -> dict[str, str]:
    """The words of an address; empty ones say nothing."""
    return {name: value for name, value in request.query_params.items() if value}


def _asked(request: Request) -> dict[str, str]:
    """The words of an address that tell a job."""
    return {name: value for name, value in _words(request).items() if name not in page.SWITCHES}


def _page(desk: Desk, name: str) -> Endpoint:
    """A page with its answer."""

    async def endpoint(request: Request) -> Response:
        words = _words(request)
        asked = {key: value for key, value in words.items() if key not in page.SWITCHES}
        if name == "predict" and not asked:
            asked = dict(page.START)
        if name == "search" and "now" not in words:
            return _html(page.page(name, asked, page.pending(asked) if "go" in words else ""))
        if name == "compare" and not asked:
            asked = {f"{side}.{key}": value for side in ("a", "b") for key, value in page.START.items()}
        if "choose" in words:
            asked = {k: v for k, v in asked.items() if k not in (*OF_PLAN, "plan") or k in page.KEPT}
        try:
            answer = await desk.ask(f"page.{name}", asked)
        except BusyError:
            return busy()
        made = json.loads(answer.body)
        fields = asked | (made["fields"] if name != "search" else {})
        return _html(page.page(name, fields, made["html"]), answer.status)

    return endpoint


def _answer(desk: Desk, task: str) -> Endpoint:
    """The answer of a page alone, for its script."""

    async def endpoint(request: Request) -> Response:
        try:
            answer = await desk.ask(task, _asked(request))
        except BusyError:
            return busy()
        return Response(answer.body, answer.status, media_type=answer.media)

    return endpoint


def _file(desk: Desk, task: str, name: str) -> Endpoint:
    """A file to keep."""

    async def endpoint(request: Request) -> Response:
        try:
            answer = await desk.ask(task, _asked(request) or page.START)
        except BusyError:
            return busy()
        if answer.status != 200 and not task.startswith(DATA):
            return _html(page.refused_page(json.loads(answer.body)["html"]), answer.status)
        headers = {"content-disposition": f'attachment; filename="{name}"'} if answer.status == 200 else {}
        return Response(answer.body, answer.status, headers, media_type=answer.media)

    return endpoint


def _data(desk: Desk, task: str) -> Endpoint:
    """An answer of the API."""

    async def endpoint(request: Request) -> Response:
        try:
            words = json.loads(await request.body(), parse_constant=_no_number)
            if not isinstance(words, dict):
                raise ValueError("a request is one object")
            json.dumps(words, ensure_ascii=False).encode()  # half a character is no text
        except (ValueError, RecursionError) as error:
            message = f"The body is not a JSON object: {str(error)[:200]}"
            return Response(errors_as_json(INPUT, message), 400, media_type="application/json")
        try:
            answer = await desk.ask(task, words)
        except BusyError:
            return busy()
        return Response(answer.body, answer.status, media_type=answer.media)

    return endpoint


def _no_number(word: str) -> object:
    """NaN and infinities are no JSON.

    Raises
    ------
    ValueError
        Always.
    """
    raise ValueError(f"{word} is no number of JSON")


def _search(desk: Desk) -> Endpoint:
    """A search as a stream of events: how far it is, then its answer. Who leaves ends it."""

    async def endpoint(request: Request) -> Response:
        return StreamingResponse(_events(desk, _asked(request)), media_type="text/event-stream")

    return endpoint


async def _events(desk: Desk, words: Mapping[str, object]) -> AsyncIterator[str]:
    """Server-sent events of a search."""
    told: asyncio.Queue[str] = asyncio.Queue()
    asked = asyncio.create_task(desk.ask("page.search", words, told.put_nowait))
    try:
        while not asked.done():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(HEARTBEAT_S):
                    hearing = asyncio.create_task(told.get())
                    done, _ = await asyncio.wait({hearing, asked}, return_when=asyncio.FIRST_COMPLETED)
                    if hearing in done:
                        yield f"event: told\ndata: {hearing.result()}\n\n"
                        continue
            hearing.cancel()
            yield ": still at it\n\n"
        try:
            body = asked.result().body
        except BusyError:
            body = json.dumps(
                {"html": "<p>Too many requests wait: try again in a moment.</p>", "fields": {}}
            )
        yield f"event: answer\ndata: {body}\n\n"
    finally:
        asked.cancel()


def _upload(desk: Desk) -> Endpoint:
    """A file becomes a word of the address of the first page."""

    async def endpoint(request: Request) -> Response:
        if request.method == "GET":
            return _html(page.upload_page())
        given = parse_qsl((await request.body()).decode("utf-8", "replace"), keep_blank_values=True)
        try:
            answer = await desk.ask("page.upload", dict(given))
        except BusyError:
            return busy()
        made = json.loads(answer.body)
        if answer.status != 200:
            return _html(page.upload_page(made["html"]), answer.status)
        if len(made["fields"]["job"]) > page.MOST_PACKED:
            return _html(page.upload_page("<p>The file is too large for an address.</p>"), 413)
        return RedirectResponse(f"/?{urlencode(made['fields'])}", 303)

    return endpoint


def _log(desk: Desk) -> Endpoint:
    """A log beside the prediction of an address."""

    async def endpoint(request: Request) -> Response:
        text = (await request.body()).decode("utf-8", "replace")
        try:
            answer = await desk.ask("page.log", {**_asked(request), "log": text})
        except BusyError:
            return busy()
        return Response(answer.body, answer.status, media_type=answer.media)

    return endpoint


async def _openapi(_: Request) -> Response:
    """The description of the API."""
    return JSONResponse(described())


STATIC = {"style.css": "text/css", "app.js": "text/javascript"}


async def _static(request: Request) -> Response:
    """The style and the script: there are no others."""
    name = request.path_params["name"]
    if name not in STATIC:
        return Response("not found", 404, media_type="text/plain")
    text = (files("flopcast") / "ui" / "static" / name).read_text(encoding="utf-8")
    if name == "style.css":
        text = STYLE + text
    return Response(text, media_type=STATIC[name], headers={"cache-control": "no-cache"})


async def _lost(request: Request, _: Exception) -> Response:
    """An address that leads nowhere: a page for who looks, a word for a program."""
    if "text/html" in request.headers.get("accept", ""):
        return _html(page.lost_page(), 404)
    return Response("not found", 404, media_type="text/plain")


async def _health(_: Request) -> Response:
    """That it answers."""
    return JSONResponse({"status": "ok"})


def _html(text: str, status: int = 200) -> Response:
    """A page."""
    return Response(text, status, media_type="text/html")
