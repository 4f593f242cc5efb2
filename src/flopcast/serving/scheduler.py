"""The loop of a serving engine over its iterations: continuous or static batching of requests.

Answers: when does each request begin, and when are its first and its last token complete, given the times
of passes?
Elsewhere: the seconds of a pass (a function that the caller gives), where requests come from (arrivals.py,
source.py), the state of sequences in the engine (batch.py), percentiles (percentiles.py).

An iteration first makes room for the next tokens of decoding sequences: while KV blocks are too few, the
request that was admitted last is preempted. It then admits waiting requests in order of arrival, unless one
was preempted, and runs one pass. Iterations that differ only by their growing caches are simulated together
(decode_times.py): nothing changes until a sequence ends, blocks run out, or a request arrives that can be
admitted. The loop uses no random numbers.
"""

import math
from array import array
from collections import deque
from itertools import islice

import numpy as np

from flopcast.errors import InternalError, SpecError
from flopcast.serving.batch import EngineBatch
from flopcast.serving.decode_times import DecodeTimes, PassSeconds
from flopcast.serving.requests import Limits, Requests, limit_problems
from flopcast.serving.served import (
    ADAPTERS,
    ARRIVALS,
    BATCH,
    BUDGET,
    KV,
    MAX_SEQUENCES,
    Iterations,
    Served,
    iterations,
)
from flopcast.serving.source import Arrivals, Source

FEWEST_EQUAL = 3  # iterations that are priced in one call


def run(requests: Requests, limits: Limits, pass_seconds: PassSeconds) -> Served:
    """Serve requests until all have ended.

    Parameters
    ----------
    requests : Requests
    limits : Limits
    pass_seconds : PassSeconds
        As in decode_times.py. Its arguments are arrays for decoding, and floats for passes with prompts.

    Returns
    -------
    Served
        Times in seconds on the clock of the arrivals.

    Raises
    ------
    SpecError
        A request that can never run, or limits that contradict each other; all of them.

    Examples
    --------
    >>> from flopcast.serving.requests import independent_requests
    >>> one = independent_requests(np.zeros(1), np.array([100]), np.array([11]))
    >>> limits = Limits(max_sequences=8, max_tokens=512, kv_blocks=100)
    >>> served = run(one, limits, lambda new, sequences, kv, pairs: 0.01 + 0.001 * new)
    >>> served.first_token_s.round(3).tolist(), served.last_token_s.round(3).tolist()
    ([0.11], [0.22])
    """
    problems = limit_problems(limits, requests)
    if problems:
        raise SpecError(problems)
    longest = int((requests.prompt_tokens + requests.output_tokens).max())
    decode_times = DecodeTimes(pass_seconds, limits.computed_tokens, longest)
    source = Source(requests)
    loop = EngineLoop(requests, limits, decode_times, source)
    while loop.left:
        loop.iterate()
    return Served(
        requests=requests,
        limits=limits,
        arrival_s=np.array(source.arrival_s),
        queued_s=np.array(loop.batch.begun_s) - np.array(source.arrival_s),
        first_token_s=np.array(loop.batch.first_token_s),
        last_token_s=np.array(loop.batch.last_token_s),
        preemptions=np.array(loop.batch.preemptions, dtype=np.float64),
        hit_tokens=np.array(loop.batch.hit_tokens, dtype=np.float64),
        iterations=loop.table(),
        adapter_loads=0 if loop.batch.adapters is None else loop.batch.adapters.loads,
    )


class EngineLoop:
    """One engine: its clock, its queue, and the rows of its iterations.

    Parameters
    ----------
    requests : Requests
        All requests, of which the engine serves those that arrive.
    limits : Limits
    decode_times : DecodeTimes
        The seconds of passes; equal engines may share one object.
    source : Arrivals
    computed_elsewhere : bool
        Whether requests arrive with the keys and values of their prompts and with their first token.
    """

    def __init__(
        self,
        requests: Requests,
        limits: Limits,
        decode_times: DecodeTimes,
        source: Arrivals,
        computed_elsewhere: bool = False,
    ) -> None:
        self.limits: Limits = limits
        self.source: Arrivals = source
        self.batch: EngineBatch = EngineBatch(requests, limits, computed_elsewhere)
        self.left: int = requests.size
        self._now_s = 0.0
        self._waiting: deque[int] = deque()
        self._pass_seconds = decode_times.pass_seconds
        self._decode_times = decode_times
        self._rows = array("d")
        # whether passes with prompts hold no decoding sequences
        self._apart = limits.prefill_first or limits.static_batch
        self._unseen = limits.receive_interval  # decoding passes since the last look for requests
        self._waited = 0  # passes for which prompts have waited for others
        self._waits = False  # whether prompts wait for others in this iteration

    @property
    def next_s(self) -> float:
        """Return the time at which the next iteration begins; infinity if there is no more work."""
        busy = self.batch.running or self._waiting
        return self._now_s if busy else max(self.source.next_s(), self._now_s)

    @property
    def ends_s(self) -> float:
        """Return the earliest time at which the next iterations end, if no further request arrives.

        The loop over two pools (joined_pools.py) uses it as a lower bound: an engine whose iterations end
        later than the clock of all others cannot affect them before. If there are prompts or waiting
        requests, the bound is the beginning of the next iteration.
        """
        batch, limits = self.batch, self.limits
        if not batch.running or batch.prefilling or self._waiting:
            return self.next_s
        sequences, growth = batch.padded, batch.padded * limits.yielded_tokens
        kv = batch.kv_tokens + sequences * limits.computed_tokens
        passes = batch.passes_until_change()
        return self._now_s + self._decode_times.run(sequences, kv, growth, passes, math.inf)[1]

    @property
    def load(self) -> int:
        """Return the requests that are in the engine or wait for it."""
        return self.batch.running + len(self._waiting)

    def table(self) -> Iterations:
        """Return the iterations that were simulated so far."""
        return iterations(np.array(self._rows).reshape(-1, len(Iterations.__slots__)))

    def iterate(self) -> None:
        """Simulate the next iteration, or several that differ only in their caches, or wait for an arrival.

        The steps are those of the module: put arrivals into the queue, make room for the next tokens of
        decoding sequences, admit waiting requests unless one was preempted, and run a pass. A pass with
        prompts is simulated alone, or together with equal chunks of one long prompt. Passes that only
        decode are simulated until another event is possible.

        Raises
        ------
        InternalError
            Requests are left, but none of them will ever arrive.
        """
        batch = self.batch
        if self._unseen >= self.limits.receive_interval or not batch.running:
            self._waiting.extend(self.source.arrived(self._now_s))
            self._unseen = 0
        if not batch.running and not self._waiting:
            self._now_s = max(self.source.next_s(), self._now_s)
            if self._now_s == math.inf:
                raise InternalError(f"{self.left} requests never arrive")
            return
        waiting, running = len(self._waiting), batch.running
        self._waits = False
        preempted, swap_s = self._make_room()
        limited_by = KV
        if not preempted:
            limited_by, swapped_s = self._admit()
            swap_s += swapped_s
        counts = waiting, running, limited_by
        if batch.prefilling:
            self._pass_with_prompts(swap_s, *counts)
        else:
            self._decode(swap_s, preempted, *counts)

    def _make_room(self) -> tuple[bool, float]:
        """Preempt until decoding sequences have blocks for a pass: whether any was, seconds of swaps."""
        swap_s, preempted = 0.0, False
        while not self.batch.fits_next_pass():
            victim, moved = self.batch.preempt_last()
            self._waiting.appendleft(victim)
            preempted = True
            swap_s += moved * self.limits.swap_s
        return preempted, swap_s

    def _admit(self) -> tuple[int, float]:
        """Admit waiting requests: what keeps the next one waiting, and the seconds of loads."""
        limits, batch = self.limits, self.batch
        if limits.static_batch and batch.running:
            return (BATCH if self._waiting else ARRIVALS), 0.0
        if self._waits_for_others():
            return ARRIVALS, 0.0
        if limits.padding:
            batch.pad(islice(self._waiting, limits.max_sequences))
        decoding = 0 if self._apart else batch.decoding * limits.computed_tokens
        budget = limits.max_tokens - decoding - batch.prompt_tokens_left()
        passed: list[int] = []  # without a slot for their adapters
        limited_by, load_s = self._admit_within(budget, passed)
        self._waiting.extendleft(reversed(passed))
        return (ADAPTERS if passed and limited_by == ARRIVALS else limited_by), load_s

    def _waits_for_others(self) -> bool:
        """Decide whether prompts wait until others arrive that fill the pass."""
        limits, batch = self.limits, self.batch
        room = limits.max_sequences - batch.running
        if not (limits.wait_passes and self._waiting and room and batch.decoding) or batch.prefilling:
            return False
        wanted = (batch.wanted(request).new_tokens for request in islice(self._waiting, room))
        tokens = batch.decoding * limits.computed_tokens + sum(wanted)
        self._waits = tokens < limits.wait_tokens and self._waited < limits.wait_passes
        return self._waits

    def _admit_within(self, budget: int, passed: list[int]) -> tuple[int, float]:
        """Admit waiting requests while a budget of new tokens lasts: what ends it, and seconds of loads.

        Requests without a slot for their adapters are taken out of the queue, and those behind them go on.
        """
        limits, batch, swap_s = self.limits, self.batch, 0.0
        while self._waiting:
            if batch.running >= limits.max_sequences:
                return MAX_SEQUENCES, swap_s
            request = self._waiting[0]
            if not batch.has_slot(request):
                passed.append(self._waiting.popleft())
                continue
            wanted = batch.wanted(request)
            if not limits.static_batch:
                least = 1 if limits.chunked_prefill else wanted.new_tokens
                if budget < max(least, 1):
                    return BUDGET, swap_s
            if not batch.has_room(wanted):
                return KV, swap_s
            self._waiting.popleft()
            swap_s += batch.admit(request, wanted, self._now_s)
            budget -= wanted.new_tokens
            self._waited = 0
        return (BUDGET if budget < 0 else ARRIVALS), swap_s

    def _pass_with_prompts(self, swap_s: float, waiting: int, running: int, limited_by: int) -> None:
        """Play one iteration that computes tokens of prompts."""
        batch, each = self.batch, self.limits.computed_tokens
        self._unseen = self.limits.receive_interval
        decoding = 0 if self._apart else batch.decoding
        budget = self.limits.max_tokens - decoding * each
        passes, done = batch.equal_chunks(budget, decoding > 0)
        if passes >= FEWEST_EQUAL:
            self._long_prompt(passes, done, budget, decoding, swap_s, waiting, running, limited_by)
            return
        chunk = batch.chunk(budget)
        kv = chunk.contexts + decoding * each
        pairs = chunk.pairs + decoding * each * (each + 1) / 2
        if decoding:
            kv += batch.kv_tokens
            pairs += each * batch.kv_tokens
        new, sequences = chunk.tokens + decoding * each, chunk.sequences + decoding
        seconds = float(self._pass_seconds(float(new), float(sequences), float(kv), float(pairs))) + swap_s
        start_s = self._now_s
        self._now_s += seconds
        yielded, ended = batch.advance(1, self._now_s) if decoding else (0, [])
        used = batch.blocks.used
        more, also = batch.finish_prompts(chunk.finished, self._now_s)
        row = (start_s, seconds, 1, new, sequences, kv, decoding, yielded + more)
        self._rows.extend((*row, waiting, running, used, limited_by))
        self._ended(ended + also)

    def _long_prompt(
        self,
        passes: int,
        done: int,
        budget: int,
        decoding: int,
        swap_s: float,
        waiting: int,
        running: int,
        limited_by: int,
    ) -> None:
        """Play iterations that a single prompt fills beside sequences that decode."""
        batch, each = self.batch, self.limits.computed_tokens
        place = np.arange(passes, dtype=np.float64)
        cached = (batch.kv_tokens if decoding else 0.0) + decoding * self.limits.yielded_tokens * place
        begun = done + budget * place
        kv = begun + budget + cached + decoding * each
        pairs = budget * (begun + (budget + 1) / 2) + each * (cached + decoding * (each + 1) / 2)
        new = np.full(passes, float(self.limits.max_tokens))
        sequences = np.full(passes, decoding + 1.0)
        seconds = float(np.sum(self._pass_seconds(new, sequences, kv, pairs))) + swap_s
        start_s = self._now_s
        self._now_s += seconds
        batch.chunk_equally(passes * budget)
        yielded, ended = batch.advance(passes, self._now_s) if decoding else (0, [])
        row = (start_s, seconds, passes, new[0], decoding + 1, kv.mean(), decoding, yielded)
        self._rows.extend((*row, waiting, running, batch.blocks.used, limited_by))
        self._ended(ended)

    def _decode(self, swap_s: float, preempted: bool, waiting: int, running: int, limited_by: int) -> None:
        """Play iterations in which all sequences decode, until something else can happen."""
        batch, limits = self.batch, self.limits
        passes = 1 if preempted else batch.passes_until_change()
        until_s = math.inf
        room = batch.running < limits.max_sequences and not limits.static_batch
        if limits.receive_interval > 1:
            passes = min(passes, limits.receive_interval - self._unseen)
        elif limited_by in (ARRIVALS, ADAPTERS) and room:
            until_s = self.source.next_s() - self._now_s - swap_s
        if self._waits:
            passes = min(passes, limits.wait_passes - self._waited)
        sequences, before = batch.padded, batch.kv_tokens
        new = sequences * limits.computed_tokens
        growth = sequences * limits.yielded_tokens
        passes, seconds = self._decode_times.run(sequences, before + new, growth, passes, until_s)
        start_s = self._now_s
        self._unseen += passes
        self._waited += passes * self._waits
        self._now_s += seconds + swap_s
        yielded, ended = batch.advance(passes, self._now_s)
        kv = before + new + growth * (passes - 1) / 2
        row = (start_s, seconds + swap_s, passes, new, sequences, kv, sequences, yielded)
        self._rows.extend((*row, waiting, running, batch.blocks.used, limited_by))
        self._ended(ended)

    def _ended(self, requests: list[int]) -> None:
        """Count requests that have ended, free their blocks, and let those arrive that wait for them."""
        if not requests:
            return
        self.left -= len(requests)
        for request in self.batch.free(requests, self._now_s):
            self.source.ended(request, self._now_s)
