"""Random requests of a traffic.

Answers: when do requests arrive, how long are they, and which prefixes do their prompts share?
Elsewhere: what a user states (spec/traffic.py, spec/lengths.py), files of requests
(interop/request_traces/).

Times, prompts, outputs and shared beginnings have separate random numbers, so that lengths do not depend on
the rate.
"""

import numpy as np

from flopcast.dtypes import Floats, Integers
from flopcast.errors import InternalError, spec_error
from flopcast.records import replace
from flopcast.serving.requests import Requests, independent_requests
from flopcast.spec.lengths import Lengths
from flopcast.spec.traffic import Traffic

SHARED_PREFIX = 0  # the segment of the shared prefix; conversation number c has segment c + 1


def requests_of(traffic: Traffic, trace: Requests | None = None, image_tokens: int = 0) -> Requests:
    """Return the requests of a traffic; the same traffic has the same requests.

    Parameters
    ----------
    traffic : Traffic
    trace : Requests or None
        The requests of `traffic.trace`, if it names one.
    image_tokens : int
        Tokens that images add to each prompt if there is no trace. Each turn of a conversation has images.

    Raises
    ------
    SpecError
        The trace has no times, and the traffic has neither a rate nor a concurrency.
    InternalError
        The traffic names a trace, but no trace was read.

    Examples
    --------
    >>> drawn = requests_of(Traffic(rate=2, arrivals="constant", prompt=100, output=10, requests=3))
    >>> drawn.arrival_s.tolist(), drawn.prompt_tokens.tolist()
    ([0.5, 1.0, 1.5], [100, 100, 100])
    """
    if traffic.trace is not None:
        if trace is None:
            raise InternalError(f"the trace {traffic.trace} was not read")
        requests = _of_trace(traffic, trace.first(traffic.num_requests))
    else:
        requests = _drawn(traffic, image_tokens)
    if traffic.prefix_hit_share is not None:
        requests = _with_hits(requests, traffic.prefix_hit_share)
    if traffic.repeated_requests:
        requests = _with_repeated(requests, traffic.repeated_requests)
    return _with_adapters(requests, traffic) if traffic.adapters else requests


def in_steady_state(requests: Requests, seed: int) -> Requests:
    """Return the requests of a closed loop whose first requests have generated a part of their output.

    The clients of a benchmark start together. Without this step, requests of equal lengths would always end
    together. In a real loop, small delays of clients and networks soon make the clients independent, so
    each client is at a random point of its request. Requests with arrival times are returned unchanged.
    """
    first = np.flatnonzero(requests.after < 0)[: requests.concurrency]
    if not len(first):
        return requests
    output = requests.output_tokens.copy()
    output[first] = np.random.default_rng([seed, 5]).integers(1, output[first], endpoint=True)
    return replace(requests, output_tokens=output)


def _drawn(traffic: Traffic, image_tokens: int) -> Requests:
    """Return the requests of a traffic with a rate or a concurrency, conversation by conversation."""
    size, turns = traffic.num_requests, traffic.turns
    conversations = -(-size // turns)
    times, prompts, outputs, prefixes = (np.random.default_rng([traffic.seed, part]) for part in range(4))
    begin_s = _begins(traffic, traffic.turns, conversations, times)
    if traffic.prompt_tokens is None or traffic.output_tokens is None:
        raise InternalError("without a trace, the traffic needs the lengths of prompts and outputs")
    own = draw(traffic.prompt_tokens, conversations * turns, prompts).reshape(conversations, turns)
    own = own + image_tokens
    output = draw(traffic.output_tokens, conversations * turns, outputs).reshape(conversations, turns)
    prefix = np.minimum(own[:, 0], traffic.shared_prefix_tokens)
    prefix = np.where(prefixes.random(conversations) < traffic.shared_prefix_share, prefix, 0)
    concurrency = traffic.concurrency or 0
    if turns == 1 and not prefix.any():
        return independent_requests(begin_s, own[:, 0], output[:, 0], concurrency)
    before = np.cumsum(own + output, axis=1) - own - output
    turn = np.arange(turns)
    number = np.arange(conversations * turns).reshape(conversations, turns)
    # a turn finds the shared prefix, and then what the turns before left: their last token was not computed
    left = np.where(turn > 0, np.maximum(before - 1 - prefix[:, None], 0), 0)
    segments = np.stack([np.broadcast_to(prefix[:, None], left.shape), left], axis=2)
    owners = np.broadcast_to(np.arange(1, conversations + 1)[:, None], left.shape)
    ids = np.stack([np.full(left.shape, SHARED_PREFIX), owners], axis=2)
    there = segments > 0
    kept = np.where(turn < turns - 1, owners, -1)
    everything = Requests(
        arrival_s=np.where(turn > 0, traffic.pause_s, begin_s[:, None]).ravel(),
        prompt_tokens=(before + own).ravel(),
        output_tokens=output.ravel(),
        after=np.where(turn > 0, number - 1, -1).ravel(),
        cached_tokens=np.zeros(number.size, dtype=np.intp),
        keep_ids=kept.ravel(),
        segment_starts=np.concatenate([[0], np.cumsum(there.sum(axis=2).ravel())]),
        segment_ids=ids[there],
        segment_tokens=segments[there],
        concurrency=concurrency,
    )
    return everything.first(size)


def _of_trace(traffic: Traffic, trace: Requests) -> Requests:
    """Return the requests of a trace at its own times, at a rate, or in a closed loop."""
    begins = trace.after < 0
    if traffic.rate_per_s is None and traffic.concurrency is None:
        if np.isnan(trace.arrival_s[begins]).any():
            because, fix = ("the trace does not contain arrival times", "add rate=4/s or concurrency=16")
            raise spec_error("traffic.trace", traffic.trace, "a trace with arrival times", because, fix)
        return trace
    conversations = int(begins.sum())
    arrival_s = trace.arrival_s.copy()
    generator = np.random.default_rng([traffic.seed, 0])
    arrival_s[begins] = _begins(traffic, trace.size / conversations, conversations, generator)
    return replace(trace, arrival_s=arrival_s, concurrency=traffic.concurrency or 0)


def _begins(
    traffic: Traffic, mean_turns: int | float, conversations: int, generator: np.random.Generator
) -> Floats:
    """Return when conversations begin, shape (conversations,); zeros in a closed loop.

    Random gaps are scaled so that their mean is that of the rate: the rate of a few hundred requests would
    otherwise be some percent off, and with it their cost.
    """
    if traffic.rate_per_s is None:
        return np.zeros(conversations)
    mean_s = mean_turns / traffic.rate_per_s
    if traffic.arrivals == "constant":
        return mean_s * np.arange(1, conversations + 1, dtype=np.float64)
    shape = traffic.burstiness  # 1 for "poisson": gaps are then exponential
    gaps_s: Floats = generator.gamma(shape, mean_s / shape, conversations)
    return np.cumsum(gaps_s * (mean_s / gaps_s.mean()))


def draw(lengths: Lengths, size: int, generator: np.random.Generator) -> Integers:
    """Return lengths drawn from a distribution: whole numbers of at least 1, shape (size,).

    Parameters
    ----------
    lengths : Lengths
        What the traffic states: one length, a uniform range, a histogram with weights, or a log-normal
        distribution, whose mean is `mean_tokens` after lengths above `most_tokens` were cut to it.
    size : int
        Number of requests.
    generator : numpy.random.Generator
        Source of the random numbers. A fixed length uses none of them.
    """
    if lengths.distribution == "uniform":
        return generator.integers(lengths.least_tokens, lengths.most_tokens, size, endpoint=True)
    if lengths.distribution == "histogram":
        weights = np.array(lengths.weights)
        return generator.choice(np.array(lengths.tokens), size, p=weights / weights.sum())
    if lengths.distribution == "lognormal":
        drawn = lengths.median_tokens * np.exp(lengths.log_sigma_factor * generator.standard_normal(size))
        return np.clip(np.rint(drawn), 1, lengths.most_tokens).astype(np.intp)
    return np.full(size, int(lengths.mean_tokens), dtype=np.intp)


def _with_adapters(requests: Requests, traffic: Traffic) -> Requests:
    """Return requests with an adapter each, the same for all turns of a conversation."""
    shares = np.arange(1, traffic.adapters + 1, dtype=np.float64) ** -traffic.adapter_skew
    generator = np.random.default_rng([traffic.seed, 4])
    drawn = generator.choice(traffic.adapters, requests.size, p=shares / shares.sum())
    for request in np.flatnonzero(requests.after >= 0).tolist():
        drawn[request] = drawn[requests.after[request]]
    return replace(requests, adapter_ids=drawn)


def _with_hits(requests: Requests, share_fraction: float) -> Requests:
    """Return requests of which a share of every prompt is in the cache, beside shared beginnings."""
    size, none = requests.size, np.zeros(0, dtype=np.intp)
    return replace(
        requests,
        cached_tokens=np.floor(share_fraction * requests.prompt_tokens).astype(np.intp),
        keep_ids=np.broadcast_to(np.intp(-1), (size,)),
        segment_starts=np.broadcast_to(np.intp(0), (size + 1,)),
        segment_ids=none,
        segment_tokens=none,
    )


def _with_repeated(requests: Requests, number: int) -> Requests:
    """Return requests whose first `number` prompts are in the cache, except for the last token of each."""
    cached = requests.cached_tokens.copy()
    cached[:number] = requests.prompt_tokens[:number] - 1
    return replace(requests, cached_tokens=cached)
