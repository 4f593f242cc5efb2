"""The requests that have not arrived yet, and the event that each of them waits for.

Answers: which requests have arrived by now, and when does the next one arrive?
Elsewhere: how arrivals are drawn (arrivals.py), what happens to requests that have arrived (scheduler.py).
"""

import math
from heapq import heappop, heappush
from typing import Protocol

from flopcast.serving.requests import Requests


class Arrivals(Protocol):
    """The interface of a source of requests for an engine, which reports the end of each request to the
    source.
    """

    def next_s(self) -> float:
        """Return the time of the next possible arrival; infinity if no request arrives before another
        one ends.
        """

    def arrived(self, now_s: float) -> list[int]:
        """Return the requests that have arrived since the last call, the earliest first."""

    def ended(self, request: int, now_s: float) -> None:
        """Record the end of a request."""


class Source:
    """Arrivals at fixed times, after the end of another request, or after the end of a conversation
    (closed loop).
    """

    def __init__(self, requests: Requests) -> None:
        self._times: list[float] = requests.arrival_s.tolist()
        self._first = [request for request, before in enumerate(requests.after.tolist()) if before < 0]
        self._next = 0  # place in `_first`
        self._followers: dict[int, list[int]] = {}
        for request, before in enumerate(requests.after.tolist()):
            if before >= 0:
                self._followers.setdefault(before, []).append(request)
        self._due: list[tuple[float, int]] = []
        self._closed = requests.concurrency > 0
        self.arrival_s: list[float] = [math.nan] * requests.size
        for _ in range(min(requests.concurrency, len(self._first))):
            self._open(0.0)

    def next_s(self) -> float:
        """Return the time of the next arrival; infinity if no request arrives before another one ends."""
        due_s = self._due[0][0] if self._due else math.inf
        if self._closed or self._next == len(self._first):
            return due_s
        return min(due_s, self._times[self._first[self._next]])

    def arrived(self, now_s: float) -> list[int]:
        """Return the requests that have arrived since the last call, the earliest first.

        There are three kinds of arrivals: requests with a given time, turns of a conversation, whose time
        follows from the end of the previous turn, and first turns of a closed loop, which begin when
        another conversation ends. `arrival_s` holds the times of all requests that have arrived.
        """
        found: list[int] = []
        while (at_s := self.next_s()) <= now_s:
            if self._due and self._due[0][0] == at_s:
                request = heappop(self._due)[1]
            else:
                request = self._first[self._next]
                self._next += 1
            self.arrival_s[request] = at_s
            found.append(request)
        return found

    def ended(self, request: int, now_s: float) -> None:
        """Record the end of a request, after which the next requests can arrive."""
        followers = self._followers.get(request, ())
        for follower in followers:
            heappush(self._due, (now_s + self._times[follower], follower))
        if self._closed and not followers:
            self._open(now_s)

    def _open(self, now_s: float) -> None:
        """Begin the next conversation of a closed loop, if there is one."""
        if self._next < len(self._first):
            heappush(self._due, (now_s, self._first[self._next]))
            self._next += 1
