"""The server's application: pages, their answers, an API of JSON.

Answers: which address gives what?
Elsewhere: limits of requests (limits.py), where it listens (server.py), what is answered (responses.py).
"""

import asyncio
import contextlib
import json
import os
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from importlib.resources import files
from urllib.parse import parse_qsl, urlencode

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from flopcast.render.error_json import BUG, INPUT, LIMIT
from flopcast.render.page.style import STYLE
from flopcast.ui import page
from flopcast.ui.chosen_plan import CHOSEN, PLAN_FIELDS, Fields, chosen_word, without_stale
from flopcast.ui.error_responses import DATA, RETRY_AFTER_S, errors_as_json, refusal
from flopcast.ui.limits import WAITING, Limits, busy
from flopcast.ui.openapi import described
from flopcast.ui.pool import Answer, BrokenError, BusyError, Pool, TooLongError

LIMIT_S, LONG_LIMIT_S = 20.0, 120.0  # of processor time that a request may use
WAIT_RATIO = 6.0  # limit of wall-clock time over that of processor time, as the machine may be busy
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
        """Start with an empty cache."""
        self.pool = pool
        self._kept: OrderedDict[str, Answer] = OrderedDict()
        self.kept_bytes = 0

    async def ask(
        self, task: str, words: Mapping[str, object], told: Callable[[str], None] = lambda _: None
    ) -> Answer:
        """Return the answer to a request; failures of the server are answers too.

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
            answer = await self.pool.ask(task, words, limit_s, WAIT_RATIO * limit_s, long=long, told=told)
        except TooLongError:
            return refusal(
                task, 503, LIMIT, "The machine is too busy to answer now. Try again in a moment."
            )
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
    """Yield the application.

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
    """Return the routes of all addresses."""
    pages = [Route(path, _page(desk, name)) for name, (path, _) in page.PAGES.items()]
    answers = [Route(f"/answer/{name}", _answer(desk, name)) for name in ("predict", "compare")]
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
    """Return the parameters of a URL without empty ones."""
    return {name: value for name, value in request.query_params.items() if value}


def _asked(request: Request, sides: Sequence[str] = ("",)) -> dict[str, str]:
    """Return the parameters of a URL that describe a job, or the two jobs of a comparison by `sides`.

    A plan that was chosen for another model or machine is left out. If a new plan is to be chosen, only its
    batch and precision are kept.
    """
    words = _words(request)
    asked = {name: value for name, value in words.items() if name not in page.SWITCHES}
    for side in sides:
        asked = without_stale(asked, side)
    if "choose" not in words:
        return asked
    plan = {side + name for side in sides for name in PLAN_FIELDS if name not in page.KEPT}
    return {name: value for name, value in asked.items() if name not in plan}


def _filled(
    request: Request, asked: Fields, made: Mapping[str, str], sides: Sequence[str]
) -> dict[str, str]:
    """Return the fields of a form with complete plans, and the record of the chosen fields."""
    filled = dict(asked) | dict(made)
    for side in sides:
        own = {name.removeprefix(side): value for name, value in made.items() if name.startswith(side)}
        before = request.query_params.get(side + CHOSEN, "")
        filled[side + CHOSEN] = chosen_word(asked, own, before, side)
    return filled


def _page(desk: Desk, name: str) -> Endpoint:
    """Return the endpoint of a page with its answer."""
    sides = page.SIDES if name == "compare" else ("",)

    async def endpoint(request: Request) -> Response:
        words, asked = _words(request), _asked(request, sides)
        if name == "search" and "now" not in words:
            return _html(page.page(name, asked, page.pending(asked) if "go" in words else ""))
        if name != "search" and not asked:
            asked = {f"{side}{key}": value for side in sides for key, value in page.START.items()}
        try:
            answer = await desk.ask(f"page.{name}", asked)
        except BusyError:
            answer = refusal(f"page.{name}", 503, LIMIT, WAITING)
        made = json.loads(answer.body)
        fields = asked
        if answer.status == 200 and name != "search":
            fields = _filled(request, asked, made["fields"], sides)
        return _html(page.page(name, fields, made["html"]), answer.status)

    return endpoint


def _answer(desk: Desk, name: str) -> Endpoint:
    """Return the endpoint of a page's answer alone, for its script.

    `form` holds the fields that the script changes: all of them if a new plan was chosen.
    """
    sides = page.SIDES if name == "compare" else ("",)

    async def endpoint(request: Request) -> Response:
        asked = _asked(request, sides)
        dropped = {side + each for side in sides for each in PLAN_FIELDS} & _words(
            request
        ).keys() - asked.keys()
        try:
            answer = await desk.ask(f"page.{name}", asked)
        except BusyError:
            return busy()
        made = json.loads(answer.body)
        made["form"] = dict.fromkeys(dropped, "")
        chosen = (
            dropped
            or "choose" in request.query_params
            or not any(side + each in asked for side in sides for each in PLAN_FIELDS)
        )
        if answer.status == 200 and chosen:
            made["form"] |= _filled(request, asked, made["fields"], sides)
        return JSONResponse(made, answer.status, _headers(answer.status))

    return endpoint


def _file(desk: Desk, task: str, name: str) -> Endpoint:
    """Return a file for download."""

    async def endpoint(request: Request) -> Response:
        try:
            answer = await desk.ask(task, _asked(request) or page.START)
        except BusyError:
            return busy()
        if answer.status != 200 and not task.startswith(DATA):
            return _html(page.refused_page(json.loads(answer.body)["html"]), answer.status)
        headers = _headers(answer.status)
        if answer.status == 200:
            headers["content-disposition"] = f'attachment; filename="{name}"'
        return Response(answer.body, answer.status, headers, media_type=answer.media)

    return endpoint


def _data(desk: Desk, task: str) -> Endpoint:
    """Return an answer of the API."""

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
        return Response(answer.body, answer.status, _headers(answer.status), media_type=answer.media)

    return endpoint


def _no_number(word: str) -> object:
    """Refuse NaN and infinities, which JSON does not have.

    Raises
    ------
    ValueError
        Always.
    """
    raise ValueError(f"{word} is not a number in JSON")


def _search(desk: Desk) -> Endpoint:
    """Return a search as a stream of events: progress, then the result. Disconnecting ends it."""

    async def endpoint(request: Request) -> Response:
        return StreamingResponse(_events(desk, _asked(request)), media_type="text/event-stream")

    return endpoint


async def _events(desk: Desk, words: Mapping[str, object]) -> AsyncIterator[str]:
    """Yield server-sent events of a search."""
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
            body = refusal("page.search", 503, LIMIT, WAITING).body
        yield f"event: answer\ndata: {body}\n\n"
    finally:
        asked.cancel()


def _upload(desk: Desk) -> Endpoint:
    """Turn an uploaded file into a field of the first page's address."""

    async def endpoint(request: Request) -> Response:
        if request.method == "GET":
            return _html(page.upload_page({}))
        given = dict(parse_qsl((await request.body()).decode("utf-8", "replace"), keep_blank_values=True))
        try:
            answer = await desk.ask("page.upload", given)
        except BusyError:
            answer = refusal("page.upload", 503, LIMIT, WAITING)
        made = json.loads(answer.body)
        if answer.status != 200:
            return _html(page.upload_page(given, made["html"]), answer.status)
        if len(made["fields"]["job"]) > page.MOST_PACKED:
            return _html(page.upload_page(given, "<p>The file is too large for an address.</p>"), 413)
        return RedirectResponse(f"/?{urlencode(made['fields'])}", 303)

    return endpoint


def _log(desk: Desk) -> Endpoint:
    """Return a comparison of a log with the prediction of an address."""

    async def endpoint(request: Request) -> Response:
        text = (await request.body()).decode("utf-8", "replace")
        try:
            answer = await desk.ask("page.log", {**_asked(request), "log": text})
        except BusyError:
            return busy()
        return Response(answer.body, answer.status, _headers(answer.status), media_type=answer.media)

    return endpoint


async def _openapi(_: Request) -> Response:
    """Return the description of the API."""
    return JSONResponse(described())


STATIC = {"style.css": "text/css", "app.js": "text/javascript"}


async def _static(request: Request) -> Response:
    """Return the style or the script; there are no other static files."""
    name = request.path_params["name"]
    if name not in STATIC:
        return Response("not found", 404, media_type="text/plain")
    text = (files("flopcast") / "ui" / "static" / name).read_text(encoding="utf-8")
    if name == "style.css":
        text = STYLE + text
    return Response(text, media_type=STATIC[name], headers={"cache-control": "no-cache"})


async def _lost(request: Request, _: Exception) -> Response:
    """Return 404: a page for browsers, JSON for programs."""
    if "text/html" in request.headers.get("accept", ""):
        return _html(page.lost_page(), 404)
    return Response("not found", 404, media_type="text/plain")


async def _health(_: Request) -> Response:
    """Return 200."""
    return JSONResponse({"status": "ok"})


def _html(text: str, status: int = 200) -> Response:
    """Return a page."""
    return Response(text, status, _headers(status), media_type="text/html")


def _headers(status: int) -> dict[str, str]:
    """Return the headers for a status: 503 says when to try again."""
    return {"retry-after": f"{RETRY_AFTER_S}"} if status == 503 else {}
