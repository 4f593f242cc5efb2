"""The time of a request before the engine: HTTP, tokenisation, and passes that were launched earlier.

Answers: how much time passes between the sending of a request and its arrival in the engine?
Elsewhere: the constants (spec/iteration_cost.py), what happens in the engine (scheduler.py).

The engine continues during this time, so latencies become longer, but iterations do not.
"""

import numpy as np

from flopcast.dtypes import Flags, Floats
from flopcast.records import replace
from flopcast.serving.served import Served
from flopcast.spec.engine import Engine
from flopcast.units import Number


def with_front_end(served: Served, engine: Engine, ratio: Number, *, has_pools: bool = False) -> Served:
    """Return requests that were sent before they arrived in the engine.

    Parameters
    ----------
    ratio : ratio by which all times are longer
    has_pools : whether requests move from a pool that computes prompts to a pool that decodes
    """
    requests, cost = served.requests, engine.iteration
    gaps = max(int((requests.output_tokens - 1).sum()), 1)
    pass_s = (served.last_token_s - served.first_token_s).sum() / gaps  # of all tokens after the first ones
    waited_s = np.where(finds_others(served.arrival_s, served.last_token_s), pass_s, 0.0)
    host_s = cost.request_s + cost.prompt_token_s * requests.prompt_tokens + cost.handover_s * has_pools
    sent_s = ratio * host_s + (engine.passes_ahead + _places_in_pass(served, engine)) * waited_s
    return replace(served, arrival_s=served.arrival_s - sent_s, queued_s=served.queued_s + sent_s)


def _places_in_pass(served: Served, engine: Engine) -> Floats:
    """Return the part of a pass that requests wait for until it ends, 0 to 1.

    In a closed loop, the scheduler lets a request arrive as soon as another one ends, which is between two
    passes. A client needs some time to send it, so that it arrives at a random place in a pass. If a client
    and the engine are one process, it needs none.
    """
    size = served.requests.size
    if not served.requests.concurrency or not engine.iteration.request_s:
        return np.zeros(size)
    return np.random.default_rng(0).random(size)


def finds_others(arrival_s: Floats, last_token_s: Floats) -> Flags:
    """Return a mask of requests that find other requests in the engine when they arrive.

    >>> finds_others(np.array([0.0, 2.0, 3.0]), np.array([2.0, 4.0, 5.0])).tolist()
    [False, False, True]
    """
    arrived = np.searchsorted(np.sort(arrival_s), arrival_s, side="right")
    ended = np.searchsorted(np.sort(last_token_s), arrival_s, side="right")
    found: Flags = arrived - ended > 1
    return found
