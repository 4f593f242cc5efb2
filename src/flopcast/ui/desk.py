"""The desk: sends requests to processes and keeps their last answers.

Answers: how long may a request take, which answers are kept, and what does the client receive if a process
fails?
Elsewhere: the processes (pool.py), the content of answers (responses.py), addresses (app.py).
"""

import json
from collections import OrderedDict
from collections.abc import Callable, Mapping

from flopcast.render.error_json import BUG, LIMIT
from flopcast.ui.error_responses import refusal
from flopcast.ui.limits import WAITING
from flopcast.ui.pool import Answer, BrokenError, BusyError, Gone, GoneError, Pool, TooLongError, never_gone

LIMIT_S, LONG_LIMIT_S = 20.0, 120.0  # of processor time that a request may use
TOO_BUSY = "The machine is too busy to answer now. Try again in a moment."
WAIT_RATIO = 6.0  # limit of wall-clock time over that of processor time, as the machine may be busy
MOST_KEPT_BYTES = 32 << 20
LONG = ("page.search", "page.deployments", "api.search")


class Desk:
    """Sends requests to processes and keeps the last answers, because equal requests have equal answers."""

    def __init__(self, pool: Pool) -> None:
        """Start with an empty cache."""
        self.pool = pool
        self._kept: OrderedDict[str, Answer] = OrderedDict()
        self.kept_bytes: int = 0

    async def ask(
        self,
        task: str,
        words: Mapping[str, object],
        on_progress: Callable[[str], None] = lambda _: None,
        gone: Gone = never_gone,
    ) -> Answer:
        """Return the answer to a request; failures of the server are also returned as answers.

        `gone` is as for `Pool.ask`.

        Raises
        ------
        BusyError
            Too many requests are waiting.
        """
        key = json.dumps([task, words], sort_keys=True)
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        long = task in LONG
        limit_s = LONG_LIMIT_S if long else LIMIT_S
        try:
            wait_s = WAIT_RATIO * limit_s
            answer = await self.pool.ask(
                task, words, limit_s, wait_s, long=long, on_progress=on_progress, gone=gone
            )
        except TooLongError:
            return refusal(task, 503, LIMIT, TOO_BUSY)
        except GoneError:  # nobody reads this answer
            return refusal(task, 503, LIMIT, WAITING)
        except BrokenError:
            return refusal(task, 500, BUG, "The process that worked on this request ended.")
        if answer.status in (200, 400, 422):
            self._keep(key, answer)
        return answer

    async def page(
        self,
        task: str,
        words: Mapping[str, object],
        on_progress: Callable[[str], None] = lambda _: None,
        gone: Gone = never_gone,
    ) -> Answer:
        """Return the answer to a page's request. If too many requests are waiting, the page says so."""
        try:
            return await self.ask(task, words, on_progress, gone)
        except BusyError:
            return refusal(task, 503, LIMIT, WAITING)

    def _keep(self, key: str, answer: Answer) -> None:
        """Keep an answer, and remove the oldest answers if they take too much memory."""
        size = len(key) + len(answer.body)
        if size > MOST_KEPT_BYTES // 8 or key in self._kept:
            return
        self._kept[key] = answer
        self.kept_bytes += size
        while self.kept_bytes > MOST_KEPT_BYTES:
            old, dropped = self._kept.popitem(last=False)
            self.kept_bytes -= len(old) + len(dropped.body)
