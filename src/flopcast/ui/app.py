"""The server's application: pages, answers to their forms, and a JSON API.

Answers: what does the server return at each address?
Elsewhere: limits of requests (limits.py), the address of the server (server.py), the content of answers
(responses.py).
"""

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from typing import Any
from urllib.parse import parse_qsl

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from flopcast.errors import Problem
from flopcast.files.nearest_names import nearest
from flopcast.files.package_table import read_text
from flopcast.records import replace
from flopcast.render.error_json import INPUT
from flopcast.render.page.style import CHOSEN_SCHEME, STYLE
from flopcast.ui import page
from flopcast.ui.chosen_plan import PARTS, PLAN_FIELDS, SWITCHES, filled, requested
from flopcast.ui.desk import Desk
from flopcast.ui.error_responses import DATA, RETRY_AFTER_S, errors_as_json, last_comma
from flopcast.ui.form import plan_note
from flopcast.ui.limits import Limits, busy
from flopcast.ui.openapi import OPERATIONS, described
from flopcast.ui.pool import Answer, BusyError, Gone, Pool, never_gone
from flopcast.ui.request_values import REQUEST

MOST_WAITING = 64
HEARTBEAT_S = 2.0
FILES = {
    "/report.html": ("file.report", "report.html"),
    "/report.json": ("api.predict", "report.json"),
    "/job.yaml": ("file.job", "job.yaml"),
}


def application(host: str = "127.0.0.1", ready: Callable[[], None] = lambda: None) -> Starlette:
    """Yield the application.

    Parameters
    ----------
    host : the name at which clients reach the server, in addition to those of loopback
    ready : called when the server answers requests
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
        exception_handlers=HANDLERS,
    )


def _routes(desk: Desk) -> list[Route]:
    pages = [
        Route(path, partial(_page, desk, name))
        for name, (path, _) in page.PAGES.items()
        if name in page.FORMS
    ]
    answers = [Route(f"/answer/{name}", partial(_answer, desk, name)) for name in ("predict", "compare")]
    gifts = [Route(path, partial(_file, desk, *made)) for path, made in FILES.items()]
    data = [
        Route(f"/api/v1/{name}", partial(_data, desk, f"api.{name}"), methods=["POST"])
        for name in OPERATIONS
    ]
    return [
        *pages,
        *answers,
        *gifts,
        *data,
        Route("/answer/serve", partial(_serve, desk)),
        Route("/answer/search", partial(_search, desk)),
        Route("/answer/advice", partial(_advice, desk)),
        Route("/answer/facts", partial(_facts, desk)),
        Route("/upload", partial(_upload, desk), methods=["GET", "POST"]),
        Route("/answer/log", partial(_log, desk), methods=["POST"]),
        Route("/api/v1/openapi.json", _openapi),
        Route("/static/{name}", _static),
        Route("/health", _health),
    ]


def _words(request: Request) -> dict[str, str]:
    return {name: value for name, value in request.query_params.items() if value}


async def _page(desk: Desk, name: str, request: Request) -> Response:
    sides = page.SIDES if name == "compare" else ("",)
    words = _words(request)
    requested_fields = requested(words, sides)
    if name == "serve":
        return await _serve_page(desk, words)
    if name == "search" and "now" not in words:
        html = page.pending(requested_fields) if "go" in words else page.search_hint()
        return _html(page.page(name, requested_fields or page.START, html))
    opening = not requested_fields
    if name != "search" and opening:
        requested_fields = {f"{side}{key}": value for side in sides for key, value in page.START.items()}
        requested_fields |= {
            f"{side}{key}": value for side in sides[1:] for key, value in page.START_OTHER.items()
        }
    answer = await desk.page(f"page.{name}", requested_fields)
    made = json.loads(answer.body)
    fields = requested_fields
    if answer.status == 200 and name != "search":
        fields = filled(words, requested_fields, made["fields"], sides)
    opening = opening and name == "predict"
    return _html(page.page(name, fields, made["html"], opening=opening), answer.status)


async def _serve_page(desk: Desk, words: Mapping[str, str]) -> Response:
    """Return the serving page with its answer."""
    fields, made, status = await _served(desk, words or page.START_SERVING)
    return _html(page.page("serve", fields | made["form"], made["html"]), status)


async def _serve(desk: Desk, request: Request) -> Response:
    """Return the answer of the serving page without the page around it, for the page's script."""
    fields, made, status = await _served(desk, _words(request), request.is_disconnected)
    made |= {"notes": [], "links": page.addresses("serve", fields | made["form"])}
    return JSONResponse(made, status, _headers(status))


async def _served(
    desk: Desk, words: Mapping[str, str], gone: Gone = never_gone
) -> tuple[dict[str, str], dict[str, Any], int]:
    """Return the fields of a serving form, its answer, and the status.

    With `choose`, the answer is the best deployment, and `form` holds its fields.
    """
    fields = {name: value for name, value in words.items() if name not in SWITCHES}
    answer = await desk.page("page.deployments" if "choose" in words else "page.serve", fields, gone=gone)
    made = json.loads(answer.body)
    made["form"] = made["fields"] if answer.status == 200 else {}
    return fields, made, answer.status


async def _answer(desk: Desk, name: str, request: Request) -> Response:
    """Return a page's answer without the page around it, for the page's script.

    `form` holds the fields that the script changes: all of them if a new plan was chosen. `notes` states
    for each side who chose its plan. `links` holds the addresses of the other pages and of files, by
    path. With `parts`, folded sections outside `parts` have only their headings.
    """
    sides = page.SIDES if name == "compare" else ("",)
    words = _words(request)
    fields = requested(words, sides)
    dropped = {side + each for side in sides for each in PLAN_FIELDS} & words.keys() - fields.keys()
    parts = {PARTS: words[PARTS]} if PARTS in words and name == "predict" else {}
    answer = await desk.ask(f"page.{name}", fields | parts, gone=request.is_disconnected)
    form = dict.fromkeys(dropped, "")
    chosen = (
        dropped
        or "choose" in words
        or not any(side + each in fields for side in sides for each in PLAN_FIELDS)
    )
    if answer.status == 200 and chosen and "hold" not in words:
        form |= filled(words, fields, json.loads(answer.body)["fields"], sides)
    shown = {each: value for each, value in (words | form).items() if each not in SWITCHES}
    notes = [plan_note(words | form, side) for side in sides]
    more = json.dumps({"form": form, "notes": notes, "links": page.addresses(name, shown)})
    return _passed_on(replace(answer, body=f"{more[:-1]}, {answer.body[1:]}"))  # both are objects


async def _advice(desk: Desk, request: Request) -> Response:
    """Return the change that would speed up a job most; the address describes the job."""
    fields = requested(_words(request)) or page.START
    return _passed_on(await desk.ask("page.advice", fields, gone=request.is_disconnected))


async def _facts(desk: Desk, _: Request) -> Response:
    """Return a short description of each model and cluster in the lists."""
    return _passed_on(await desk.ask("page.facts", {}))


async def _file(desk: Desk, task: str, name: str, request: Request) -> Response:
    words: dict[str, object] = {**(requested(_words(request)) or page.START)}
    if task.startswith(DATA):
        words["proposals"] = True
    answer = await desk.ask(task, words)
    if answer.status != 200 and not task.startswith(DATA):
        return _html(page.refused_page(json.loads(answer.body)["html"]), answer.status)
    headers = _headers(answer.status)
    if answer.status == 200:
        headers["content-disposition"] = f'attachment; filename="{name}"'
    return Response(answer.body, answer.status, headers, media_type=answer.media)


async def _data(desk: Desk, task: str, request: Request) -> Response:
    try:
        words = json.loads(await request.body(), parse_constant=_no_number)
        if not isinstance(words, dict):
            raise ValueError(f"a request is one object, not {type(words).__name__}")
        json.dumps(words, ensure_ascii=False).encode()  # half a character is no text
    except (ValueError, RecursionError) as error:
        allowed = 'one JSON object, such as {"model": "llama-3-8b", "gpus": 16}'
        because, fix = last_comma(error) or (str(error)[:200], "send the request as one JSON object")
        problem = Problem("body", None, allowed, because, fix, REQUEST, "is not a JSON object")
        return Response(errors_as_json(INPUT, "", [problem]), 400, media_type="application/json")
    return _passed_on(await desk.ask(task, words))


def _no_number(word: str) -> object:
    """Refuse NaN and infinities, which JSON does not have.

    Raises
    ------
    ValueError
        In every case.
    """
    raise ValueError(f"{word} is not a number in JSON")


async def _search(desk: Desk, request: Request) -> Response:
    """Return a search as a stream of progress and result, which stops if the client disconnects."""
    return StreamingResponse(_events(desk, requested(_words(request))), media_type="text/event-stream")


async def _events(desk: Desk, words: Mapping[str, object]) -> AsyncIterator[str]:
    messages: asyncio.Queue[str] = asyncio.Queue()
    answering = asyncio.create_task(desk.page("page.search", words, messages.put_nowait))
    try:
        while not answering.done():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(HEARTBEAT_S):
                    hearing = asyncio.create_task(messages.get())
                    done, _ = await asyncio.wait({hearing, answering}, return_when=asyncio.FIRST_COMPLETED)
                    if hearing in done:
                        yield f"event: told\ndata: {hearing.result()}\n\n"
                        continue
            hearing.cancel()
            yield ": still at it\n\n"
        yield f"event: answer\ndata: {answering.result().body}\n\n"
    finally:
        answering.cancel()


async def _upload(desk: Desk, request: Request) -> Response:
    """Return a page about an uploaded file, with a link to the prediction of its job."""
    if request.method == "GET":
        return _html(page.upload_page({}))
    given = dict(parse_qsl((await request.body()).decode("utf-8", "replace"), keep_blank_values=True))
    answer = await desk.page("page.upload", given)
    made = json.loads(answer.body)
    if answer.status != 200:
        return _html(page.upload_page(given, made["html"]), answer.status)
    if len(made["fields"].get("job", "")) > page.MOST_PACKED:
        return _html(page.upload_page(given, "<p>The file is too large for an address.</p>"), 413)
    return _html(page.upload_page(given, preview=made["html"]))


async def _log(desk: Desk, request: Request) -> Response:
    """Return a comparison of a log with the prediction that the address describes."""
    text = (await request.body()).decode("utf-8", "replace")
    return _passed_on(await desk.ask("page.log", {**requested(_words(request)), "log": text}))


async def _openapi(_: Request) -> Response:
    return JSONResponse(described())


SCRIPTS = ("app.js", "early.js", "search.js", "upload.js", "widgets.js")
STATIC = {"style.css": "text/css"} | dict.fromkeys(SCRIPTS, "text/javascript")


async def _static(request: Request) -> Response:
    """Return a style sheet or a script; there are no other static files."""
    name = request.path_params["name"]
    if name not in STATIC:
        return Response("not found", 404, media_type="text/plain")
    text = read_text("flopcast.ui", f"static/{name}")
    if name == "style.css":
        text = STYLE + CHOSEN_SCHEME + text
    return Response(text, media_type=STATIC[name], headers={"cache-control": "no-cache"})


async def _lost(request: Request, _: Exception) -> Response:
    """Return 404: a page for browsers, JSON for programs."""
    if "text/html" in request.headers.get("accept", ""):
        return _html(page.lost_page(), 404)
    paths = [f"/api/v1/{name}" for name in OPERATIONS]
    near = nearest(request.url.path, paths)
    fix = f"did you mean {near[0]}?" if near else "choose one of these paths"
    because, path = "the server has no other requests", request.url.path[:100]
    problem = Problem("path", path, ", ".join(paths), because, fix, REQUEST, f"{path} does not exist")
    return Response(errors_as_json(INPUT, "", [problem]), 404, media_type="application/json")


async def _busy(_: Request, __: Exception) -> Response:
    return busy()


HANDLERS: Mapping[Any, Callable[[Request, Exception], Awaitable[Response]]] = {404: _lost, BusyError: _busy}


async def _health(_: Request) -> Response:
    return JSONResponse({"status": "ok"})


def _passed_on(answer: Answer) -> Response:
    return Response(answer.body, answer.status, _headers(answer.status), media_type=answer.media)


def _html(text: str, status: int = 200) -> Response:
    return Response(text, status, _headers(status), media_type="text/html")


def _headers(status: int) -> dict[str, str]:
    """Return the headers for a status. With 503, a header states when the client may try again."""
    return {"retry-after": f"{RETRY_AFTER_S}"} if status == 503 else {}
