"""A running search: what the page shows about the plans that were already simulated.

Answers: how far is a search, which plan is best so far, and where are the plans in the drawing?
Elsewhere: the search (search/find.py), the drawing of the finished front (render/search_drawing.py), the
script that draws this (static/search.js).
"""

import json
import time
from collections.abc import Callable

from flopcast.render.search_table import objective_name
from flopcast.search.find import Progress
from flopcast.search.question import Question
from flopcast.search.rank import losses_of, over_ratio
from flopcast.search.time_left import SearchTime, left_text
from flopcast.spec.job import Job
from flopcast.units import Number

EACH_S = 0.2  # between two messages
DONE = {"screening": "screened", "refining": "refined", "simulating": "simulated"}
Point = tuple[Number, Number, str, str, str, str]  # two values, both as text, the plan, and its address


class LiveSearch:
    """Receives the progress of a search, and sends it as JSON a few times a second.

    A message has the feasible plans that were simulated since the last message. `screened_s` is the time
    of the last progress report of the screening.
    """

    def __init__(
        self, question: Question, say: Callable[[str], None], address: Callable[[Job], str]
    ) -> None:
        """Start without plans; `address` gives the page that predicts a job."""
        self.screened_s: float = time.perf_counter()
        self._said_s = self._start_s = self.screened_s
        self._start_processor_s = time.process_time()
        self._time = SearchTime(settings=len(question.jobs))
        self._question, self._say, self._address = question, say, address
        self._points: list[Point] = []

    def hear(self, progress: Progress) -> None:
        """Record the progress, and send it if the last message is old enough.

        A message has the completed work, the remaining seconds, and the feasible plans that were
        simulated since the last message, each with both objectives and the address of its prediction.
        """
        now_s = time.perf_counter()
        if progress.doing == "screening":
            self.screened_s = now_s
        processor_s = time.process_time() - self._start_processor_s
        left_s = self._time.left_s(progress, now_s - self._start_s, processor_s)
        played = progress.latest
        if played is not None and over_ratio(self._question, played) <= 1.0:
            losses = losses_of(self._question, played)
            first, second = (
                (value := objective.shown(loss.value), objective.show(value))
                for objective, loss in zip(self._question.asked[:2], losses[:2], strict=True)
            )
            plan, address = played.plan.short(), self._address(played.job)
            self._points.append((first[0], second[0], first[1], second[1], plan, address))
        if now_s - self._said_s > EACH_S:
            self._said_s = now_s
            self._say(json.dumps(self._message(progress, left_s)))
            self._points = []

    def _message(self, progress: Progress, left_s: float | None) -> dict[str, object]:
        doing = DONE.get(progress.doing, progress.doing)
        text = f"{progress.done:,} of {progress.total:,} plans {doing}"
        if left_s is None and not progress.done:
            text += "; typical plans are tried first"
        if progress.doing == "screening" and progress.done == progress.total:
            text += "; the best are simulated next"
        text += "" if left_s is None else left_text(left_s)
        axes = [objective_name(objective) for objective in self._question.asked[:2]]
        return {"text": text, "best": progress.best, "axes": axes, "points": self._points}
