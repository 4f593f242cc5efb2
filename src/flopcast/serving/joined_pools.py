"""Two pools of engines with a transfer between them: one pool for prompts, and one for decoding
("disaggregation").

Answers: when are the tokens of each request complete if one engine computes the prompt and another engine
decodes?
Elsewhere: one engine (scheduler.py), the time of a transfer (kv_transfer.py), the outcome (served.py).

Every engine is the loop of scheduler.py. A request goes to the engine of a pool that has the fewest
requests. This engine computes the prompt and the first token. The keys and values then cross the link of
the engine, one request after the other, and the request joins a decoding engine. The client gets the first
token when the decoding engine admits the request, as in vLLM, SGLang and TensorRT-LLM.

The simulation always advances the engine with the earliest clock, so no engine receives a request before
its own current time. A decoding engine stops at the next iteration of an engine that may send a request.
"""

import math
from collections.abc import Callable, Sequence
from heapq import heappop, heappush, nsmallest
from operator import attrgetter

import numpy as np

from flopcast.dtypes import Counts, Floats, concatenated
from flopcast.errors import SpecError
from flopcast.records import Record, replace
from flopcast.serving.decode_times import DecodeTimes, PassSeconds
from flopcast.serving.requests import Limits, Requests, limit_problems
from flopcast.serving.scheduler import EngineLoop
from flopcast.serving.served import Iterations, Served
from flopcast.serving.source import Source


class EnginePool(Record, eq=False):
    """Equal engines: their number, the limits of one engine, and the seconds of its passes.

    Equal engines share one table of decode times, because the seconds of a pass depend only on its content.
    """

    engines: int
    limits: Limits
    pass_seconds: PassSeconds


class _Inbox:
    """The requests that are on their way to an engine."""

    def __init__(self, on_end: Callable[[int, float], None]) -> None:
        self.until_s = math.inf  # before this time, no request arrives that is not known yet
        self.on_end = on_end
        self.due: list[tuple[float, int]] = []

    def put(self, request: int, at_s: float) -> None:
        """Let a request arrive at a time."""
        heappush(self.due, (at_s, request))

    def first_s(self) -> float:
        """Return the arrival time of the next known request."""
        return self.due[0][0] if self.due else math.inf

    def next_s(self) -> float:
        """Return when the next request may arrive."""
        return min(self.first_s(), self.until_s)

    def arrived(self, now_s: float) -> list[int]:
        """Return the requests that have arrived, the earliest first."""
        found = []
        while self.due and self.due[0][0] <= now_s:
            found.append(heappop(self.due)[1])
        return found

    def ended(self, request: int, now_s: float) -> None:
        """Record that a request has left the engine."""
        self.on_end(request, now_s)


class _Engine:
    """An engine with its inbox and its link."""

    def __init__(
        self,
        requests: Requests,
        limits: Limits,
        times: DecodeTimes,
        inbox: _Inbox,
        computed_elsewhere: bool,
    ) -> None:
        self.inbox = inbox
        self.loop = EngineLoop(requests, limits, times, inbox, computed_elsewhere)
        self.link_free_s = 0.0
        self.next_s = math.inf  # when its next iteration begins, as far as is known
        self.ends_s = math.inf  # when its next iterations end at the earliest

    def put(self, request: int, at_s: float) -> None:
        """Let a request arrive at a time."""
        self.inbox.put(request, at_s)
        self._look_ahead()

    def iterate(self, until_s: float) -> None:
        """Simulate its next iterations, up to the time at which an unknown request may arrive."""
        self.inbox.until_s = until_s
        self.loop.iterate()
        self.inbox.until_s = math.inf
        self._look_ahead()

    def _look_ahead(self) -> None:
        self.next_s = self.loop.next_s
        self.ends_s = min(self.loop.ends_s, max(self.inbox.next_s(), self.next_s))

    @property
    def load(self) -> int:
        """Return the requests that it has or will have."""
        return self.loop.load + len(self.inbox.due)


def run_joined(requests: Requests, prefill: EnginePool, decode: EnginePool, transfer_s: Floats) -> Served:
    """Serve requests on two pools until all have ended.

    Parameters
    ----------
    requests : Requests
    prefill, decode : EnginePool
    transfer_s : array of shape (requests,)
        Seconds in which the keys and values of a prompt move from one engine to another.

    Returns
    -------
    Served
        `limits` and `iterations` belong to the decoding engines, and `prefill` to the engines for prompts.

    Raises
    ------
    SpecError
        A request that can never run, or limits that contradict each other; all of them.

    Examples
    --------
    >>> from flopcast.serving.requests import independent_requests
    >>> one = independent_requests(np.zeros(1), np.array([100]), np.array([11]))
    >>> pool = EnginePool(
    ...     engines=1, limits=Limits(max_sequences=8, max_tokens=512, kv_blocks=100),
    ...     pass_seconds=lambda new, sequences, kv, pairs: 0.01 + 0.001 * new)
    >>> served = run_joined(one, pool, pool, np.array([0.5]))
    >>> served.first_token_s.round(3).tolist(), served.last_token_s.round(3).tolist()
    ([0.61], [0.72])
    """
    prompts = replace(requests, output_tokens=np.ones_like(requests.output_tokens))
    problems = [*limit_problems(prefill.limits, prompts), *limit_problems(decode.limits, requests)]
    if problems:
        raise SpecError(problems)
    joined = _Joined(requests, prompts, prefill, decode, transfer_s)
    while joined.left:
        joined.step()
    return joined.served(decode.limits)


class _Joined:
    """All engines of both pools, and the requests between them."""

    def __init__(
        self,
        requests: Requests,
        prompts: Requests,
        prefill: EnginePool,
        decode: EnginePool,
        transfer_s: Floats,
    ) -> None:
        self.left = requests.size
        self._requests = requests
        self._source = Source(requests)
        self._transfer_s: list[float] = transfer_s.tolist()
        self._moved_s = [math.nan] * requests.size  # when the keys and values have arrived
        self._from: list[_Engine | None] = [None] * requests.size
        self._single: list[bool] = (requests.output_tokens == 1).tolist()
        self._prefill = _engines(prompts, prefill, self._computed, computed_elsewhere=False)
        self._decode = _engines(requests, decode, self._ended, computed_elsewhere=True)

    def step(self) -> None:
        """Handle the next event: a request arrives, or the engine that ends its iterations first runs them.

        A request that ends on one engine may cause a new request on any engine, so no engine runs beyond
        this time.
        """
        arrival_s = self._source.next_s()
        first, (last, *others) = min(self._prefill, key=_next_s), nsmallest(2, self._decode, key=_ends_s)
        if arrival_s <= min(first.next_s, last.ends_s):
            for request in self._source.arrived(arrival_s):
                engine = _least_loaded(self._prefill)
                engine.put(request, arrival_s)
                self._from[request] = engine
        elif first.next_s <= last.ends_s:
            first.iterate(math.inf)
        else:
            last.iterate(min(first.next_s, arrival_s, *(other.ends_s for other in others)))

    def _computed(self, request: int, now_s: float) -> None:
        """Send the keys and values of a prompt to a decoding engine."""
        sender = self._from[request]
        if self._single[request] or sender is None:
            self._ended(request, now_s)
            return
        receiver = _least_loaded(self._decode)
        begin_s = max(now_s, sender.link_free_s, receiver.link_free_s)
        end_s = begin_s + self._transfer_s[request]
        sender.link_free_s = receiver.link_free_s = end_s
        self._moved_s[request] = end_s
        receiver.put(request, end_s)

    def _ended(self, request: int, now_s: float) -> None:
        self.left -= 1
        self._source.ended(request, now_s)

    def served(self, limits: Limits) -> Served:
        """Return the times of all requests, from the engines that served them.

        A request with a single output token ends on the engine that computes its prompt and is never
        transferred. For all others, the first token is counted when the decoding engine admits the request,
        and the wait for that engine is part of the time in queues (`queued_s`).
        """
        arrival_s, moved_s = np.array(self._source.arrival_s), np.array(self._moved_s)
        single = np.array(self._single)
        first = {
            name: _over(self._prefill, name)
            for name in ("begun_s", "first_token_s", "preemptions", "hit_tokens")
        }
        then = {name: _over(self._decode, name) for name in ("begun_s", "last_token_s", "preemptions")}
        waited_s = np.where(single, 0.0, then["begun_s"] - moved_s)
        return Served(
            requests=self._requests,
            limits=limits,
            arrival_s=arrival_s,
            queued_s=first["begun_s"] - arrival_s + waited_s,
            first_token_s=np.where(single, first["first_token_s"], then["begun_s"]),
            last_token_s=np.where(single, first["first_token_s"], then["last_token_s"]),
            preemptions=first["preemptions"] + then["preemptions"],
            hit_tokens=first["hit_tokens"],
            iterations=_table(self._decode),
            adapter_loads=sum(_loads(engine) for engine in (*self._prefill, *self._decode)),
            engines=len(self._decode),
            prefill=_table(self._prefill),
            prefill_engines=len(self._prefill),
            transferred_s=np.where(single, 0.0, moved_s - first["first_token_s"]),
        )


def _engines(
    requests: Requests, pool: EnginePool, on_end: Callable[[int, float], None], computed_elsewhere: bool
) -> list[_Engine]:
    longest = int((requests.prompt_tokens + requests.output_tokens).max())
    times = DecodeTimes(pool.pass_seconds, pool.limits.computed_tokens, longest)
    return [
        _Engine(requests, pool.limits, times, _Inbox(on_end), computed_elsewhere)
        for _ in range(pool.engines)
    ]


_next_s, _ends_s = attrgetter("next_s"), attrgetter("ends_s")


def _least_loaded(engines: Sequence[_Engine]) -> _Engine:
    return min(engines, key=lambda engine: engine.load)


def _loads(engine: _Engine) -> int:
    adapters = engine.loop.batch.adapters
    return 0 if adapters is None else adapters.loads


def _over(engines: Sequence[_Engine], name: str) -> Counts:
    """Return what the engines know of each request, (requests,); one engine knows it, or none."""
    found = np.array([getattr(engine.loop.batch, name) for engine in engines], dtype=np.float64)
    unknown = np.isnan(found).all(axis=0)
    return np.where(unknown, np.nan, np.nansum(found, axis=0))


def _table(engines: Sequence[_Engine]) -> Iterations:
    """Return the iterations of all engines, one engine after the other."""
    return concatenated([engine.loop.table() for engine in engines])
