"""The outcome of served requests: the times of each request, and a table of iterations.

Answers: when was each request admitted, when were its first and last token complete, and what did the
engine run?
Elsewhere: percentiles and rates (percentiles.py), the loop that produces the times (scheduler.py).
"""

from dataclasses import fields

import numpy as np

from flopcast.dtypes import Counts, Floats
from flopcast.records import Record, field, replace
from flopcast.serving.requests import Limits, Requests

LIMITED_BY = ("arrivals", "max_sequences", "kv", "budget", "batch", "adapters")
"""The reason why an iteration contains no further requests, by the code in `Iterations.limited_by`.

"arrivals": no request waits. "kv": there are too few free KV blocks for the next request. "budget": the
iteration already has the largest number of tokens. "batch": a static batch must end first. "adapters": all
slots contain adapters of running requests.
"""
CONCURRENCY = "concurrency"  # instead of "arrivals" in a report, if requests arrive when others end
ARRIVALS, MAX_SEQUENCES, KV, BUDGET, BATCH, ADAPTERS = range(len(LIMITED_BY))


class Iterations(Record, eq=False):
    """Iterations in order of time; arrays of shape (rows,). Consecutive equal iterations form one row.

    The iterations of one row differ only by the tokens in their KV caches, which grow with each of them.
    """

    start_s: Floats
    elapsed_s: Floats  # of all iterations of the row
    passes: Counts  # number of iterations of the row
    new_tokens: Counts  # of one iteration: of prompts and of decoding sequences
    sequences: Counts  # of one iteration
    kv_tokens: Counts  # keys and values that one iteration reads, mean over the row
    decoding: Counts  # sequences of one iteration that decode
    output_tokens: Counts  # that all iterations of the row yield
    waiting: Counts  # requests that have arrived and wait, at the start
    running: Counts  # requests in the engine, at the start
    kv_blocks: Counts  # in use at the end, before those that have ended leave
    limited_by: Counts  # index into LIMITED_BY


class Served(Record, eq=False):
    """The times of all requests, arrays of shape (requests,), and the iterations of the engine.

    If prompts have separate engines, `limits`, `iterations` and `engines` describe the engines that decode,
    and `prefill` and `prefill_engines` describe the engines for prompts.
    """

    requests: Requests
    limits: Limits
    arrival_s: Floats
    queued_s: Floats  # from arrival to the start of the first iteration that computes the request
    first_token_s: Floats  # a time of the clock that arrival_s has, not a duration
    last_token_s: Floats
    preemptions: Counts
    hit_tokens: Counts  # of the prompt, found in the prefix cache on the first admission
    iterations: Iterations
    adapter_loads: int = 0
    engines: int = 1  # whose iterations these are
    prefill: Iterations | None = None
    prefill_engines: int = 0
    # from the end of a prompt until its keys and values have moved; empty without pools
    transferred_s: Floats = field(default_factory=lambda: np.zeros(0))

    @property
    def tables(self) -> tuple[Iterations, ...]:
        """Return the iterations of each kind of engine."""
        return (self.iterations,) if self.prefill is None else (self.prefill, self.iterations)

    @property
    def end_s(self) -> float:
        """Return when the last request ended."""
        return float(self.last_token_s.max())

    def stretched(self, ratio: float) -> "Served":
        """Return the outcome of one kind of engine with all times multiplied by a ratio."""
        rows = self.iterations
        return replace(
            self,
            arrival_s=ratio * self.arrival_s,
            queued_s=ratio * self.queued_s,
            first_token_s=ratio * self.first_token_s,
            last_token_s=ratio * self.last_token_s,
            iterations=replace(rows, start_s=ratio * rows.start_s, elapsed_s=ratio * rows.elapsed_s),
        )


def iterations(columns: Counts) -> Iterations:
    """Return a table of shape (rows, 12) as columns in the order of `Iterations`."""
    return Iterations(**{each.name: columns[:, place] for place, each in enumerate(fields(Iterations))})


def limit_share(table: Iterations, code: int) -> float:
    """Return the share of the busy time, from 0 to 1, in iterations whose limit is `code`."""
    busy_s = table.elapsed_s.sum()
    return float(table.elapsed_s[table.limited_by == code].sum() / busy_s) if busy_s > 0 else 0.0
