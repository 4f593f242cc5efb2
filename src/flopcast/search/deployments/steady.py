"""The steady state of an engine under a load, from which latencies are estimated quickly.

Answers: how many sequences decode at the same time, and how long do requests wait?
Elsewhere: the exact simulation (serving/scheduler.py), the estimated deployments (screen.py).

If B sequences decode and outputs have O tokens, B / O requests end in each iteration, and as many prompts
of P tokens are computed. The time T of such an iteration follows from B alone, the rate of requests is B /
(O T) by Little's law, and the largest B that memory and limits allow has the largest rate. If a pass yields
several tokens of a sequence, O is the number of passes of the sequence.

A static batch of B requests computes their prompts and then as many tokens as its longest output has. If
this takes T, the rate is B / T, and a request that arrives at random waits for half of the batch before it.
"""

import numpy as np

from flopcast.dtypes import Counts, Floats, Integers
from flopcast.records import Record
from flopcast.serving.decode_times import PassSeconds
from flopcast.serving.pass_times import nodes
from flopcast.serving.requests import Requests
from flopcast.units import Number


class Load(Record):
    """The mean numbers of the requests that reach one group of ranks."""

    prompt_tokens: float  # that are computed, without those of the prefix cache
    context_tokens: float  # of a prompt, with those
    output_tokens: float
    rate_per_s: float | None  # None for a closed loop
    concurrency: Number  # of a closed loop; else 0
    yielded_tokens: Number = 1.0  # that a decoding sequence gains in an iteration: more with drafts
    computed_tokens: Number = 1.0  # that it computes


class Steady(Record):
    """Estimates of one deployment, all instances together."""

    requests_per_s: float
    tokens_per_s: float  # of output
    ttft_s: float
    tpot_s: float
    end_to_end_s: float
    load_ratio: float  # requests that arrive over requests that can be served; 1 for a closed loop


class Curve(Record, eq=False):
    """Rates and times of an engine for ascending numbers of decoding sequences; arrays of shape (points,).

    `iteration_s` is the time per output token of a sequence.
    """

    decoding: Counts  # mean over time
    iteration_s: Floats
    ttft_s: Floats  # without a queue
    rate_per_s: Floats
    join_s: Number | Floats = 0.0  # that requests which arrive at a rate wait for the batch before them
    uneven_ratio: Number | Floats = (
        1.0  # mean over requests of their time per token, over that of all tokens
    )


def curve_of(times: PassSeconds, load: Load, most_sequences: Number, max_tokens: int, apart: bool) -> Curve:
    """Return the curve for up to `most_sequences`, the number that memory or a limit allows.

    Parameters
    ----------
    apart : whether prompts run in separate passes
    """
    prompt, output = load.prompt_tokens, load.output_tokens / load.yielded_tokens
    computed = load.computed_tokens
    top = max(min(most_sequences, max_tokens / (computed + (0.0 if apart else prompt / output))), 1.0)
    decoding = np.minimum(nodes(top, (1.0, 1.5)), top)
    cached = decoding * (load.context_tokens + load.output_tokens / 2.0)
    pairs = prompt * (load.context_tokens - prompt / 2.0)  # of one prompt
    begun = decoding / output  # prompts of an iteration

    def many(new: Counts, sequences: Counts, kept: Counts, read: Counts) -> Floats:
        return np.asarray(times(new, sequences, kept, read))

    if apart:
        together = max(max_tokens // max(prompt, 1.0), 1.0)
        prompt_s = float(
            times(together * prompt, together, 0.0, together * pairs) / together
        )  # of one of several
        iteration_s = many(computed * decoding, decoding, cached, cached) + begun * prompt_s
        first_s = np.full_like(decoding, float(times(prompt, 1.0, 0.0, pairs)))
    else:
        new = computed * decoding + begun * prompt
        iteration_s = many(new, decoding + begun, cached, cached + begun * pairs)
        room = np.maximum(max_tokens - computed * decoding, 1.0)
        passes = np.maximum(prompt / room, 1.0)
        new = computed * decoding + prompt / passes
        first_s = passes * many(new, decoding + 1.0, cached, cached + pairs / passes)
    rate = decoding / (output * iteration_s)
    return Curve(
        decoding=decoding,
        iteration_s=iteration_s / load.yielded_tokens,
        ttft_s=first_s + iteration_s / 2.0,
        rate_per_s=np.maximum.accumulate(rate),
    )


def static_curve_of(
    times: PassSeconds, requests: Requests, most_sequences: Number, max_tokens: int, *, padding: bool
) -> Curve:
    """Return the curve of static batches of up to `most_sequences` requests, whose answers return together.

    Parameters
    ----------
    requests : requests from which batches are drawn at random
    padding : whether prompts are as long as the longest of their batch
    """
    top = max(most_sequences, 1.0)
    batch = np.minimum(nodes(top, (1.0, 1.5)), top)
    outputs = _mean_longest(requests.output_tokens, batch)
    mean = float(requests.prompt_tokens.mean())
    prompt = _mean_longest(requests.prompt_tokens, batch) if padding else np.full_like(batch, mean)
    passes = np.maximum(batch * prompt / max_tokens, 1.0)
    begun = batch / passes
    prompts_s = passes * np.asarray(times(begun * prompt, begun, 0.0 * begun, begun * prompt**2 / 2.0))
    cached = batch * (prompt + outputs / 2.0)
    tokens_s = np.maximum(outputs - 1.0, 0.0) * np.asarray(times(batch, batch, cached, cached))
    whole_s = prompts_s + tokens_s
    mean_output = float(requests.output_tokens.mean())
    return Curve(
        decoding=batch * tokens_s / whole_s,
        iteration_s=tokens_s / mean_output,
        ttft_s=prompts_s,
        rate_per_s=np.maximum.accumulate(batch / whole_s),
        join_s=whole_s / 2.0,
        uneven_ratio=_mean_wait(requests.output_tokens, batch) * mean_output / outputs,
    )


def _mean_longest(lengths: Integers, batch: Counts) -> Counts:
    """Return the mean of the longest of so many lengths that are drawn from the given ones, (batches,).

    >>> _mean_longest(np.array([1, 2]), np.array([1.0, 2.0]))
    array([1.5 , 1.75])
    """
    return np.asarray(_chances_of_longest(lengths.size, batch) @ np.sort(lengths))


def _chances_of_longest(size: int, batch: Counts) -> Counts:
    """Return the chances that the longest of a batch is each of so many lengths in order, (batches, size).

    >>> _chances_of_longest(2, np.array([2.0]))
    array([[0.25, 0.75]])
    """
    return np.asarray(np.diff((np.arange(size + 1) / size) ** batch[:, None], axis=1))


def _mean_wait(lengths: Integers, batch: Counts) -> Counts:
    """Return the mean ratio of the longest length of a batch to that of each of its requests, (batches,).

    >>> _mean_wait(np.array([1, 2]), np.array([1.0, 2.0]))
    array([1.  , 1.25])
    """
    ordered = np.sort(lengths)
    others = _chances_of_longest(lengths.size, batch - 1.0)  # of the longest of the others
    shorter = (np.arange(1, ordered.size + 1) / ordered.size) ** (batch[:, None] - 1.0)
    longer = (others * ordered)[:, ::-1].cumsum(axis=1)[:, ::-1] - others * ordered
    return np.asarray((shorter + longer / ordered).mean(axis=1))


def steady_state(curve: Curve, load: Load, engines: int) -> Steady:
    """Return the estimates of several equal engines that each have this load.

    Parameters
    ----------
    curve : Curve
        Rate, time of an iteration and time to the first token by the number of decoding sequences.
    load : Load
    engines : int

    Returns
    -------
    Steady
        In an open loop the number of decoding sequences follows from the rate by interpolation. The wait in
        the queue grows as x² / (1 - x) with the load ratio x, as in a queue with random arrivals and one
        server; x is limited to 0.99, so that an overloaded deployment has a finite estimate. In a closed
        loop, the number of conversations determines the number of decoding sequences. Conversations for
        which the engine has no room wait.
    """
    largest = float(curve.rate_per_s[-1])
    output = load.output_tokens
    if load.rate_per_s is None:
        opened = curve.decoding * (1.0 + curve.ttft_s / (output * curve.iteration_s))
        decoding = float(np.interp(load.concurrency, opened, curve.decoding))
        rate = float(np.interp(decoding, curve.decoding, curve.rate_per_s))
        wait_s = max(load.concurrency - float(opened[-1]), 0.0) / largest
        ratio = 1.0
    else:
        rate, ratio = min(load.rate_per_s, largest), load.rate_per_s / largest
        decoding = float(np.interp(rate, curve.rate_per_s, curve.decoding))
        full = min(ratio, 0.99)
        wait_s = full**2 / (1.0 - full) * float(np.interp(decoding, curve.decoding, curve.ttft_s)) / 2.0
        joins_s = curve.join_s * np.minimum(rate / curve.rate_per_s, 1.0)  # half of a batch, if one runs
        wait_s += float(np.interp(rate, curve.rate_per_s, joins_s))
    tpot_s = float(np.interp(decoding, curve.decoding, curve.iteration_s))
    ttft_s = wait_s + float(np.interp(decoding, curve.decoding, curve.ttft_s))
    uneven = np.broadcast_to(curve.uneven_ratio, curve.decoding.shape)
    return Steady(
        requests_per_s=rate * engines,
        tokens_per_s=rate * engines * output,
        ttft_s=ttft_s,
        tpot_s=tpot_s * float(np.interp(decoding, curve.decoding, uneven)),
        end_to_end_s=ttft_s + tpot_s * max(output - 1.0, 0.0),
        load_ratio=ratio,
    )


def steady_pools(
    prompts: PassSeconds,
    decoding: Curve,
    load: Load,
    engines: tuple[int, int],
    max_tokens: int,
    transfer_s: Number,
) -> Steady:
    """Return the estimates of pools for prompts and for decoding, of `engines` groups of ranks each.

    Parameters
    ----------
    prompts : times of passes of one group of the pool for prompts
    decoding : the curve of one group of the pool that decodes, without prompts
    load : load of all groups together
    transfer_s : seconds to send the keys and values of a prompt
    """
    of_prompts, of_decoding = engines
    prompt, pairs = (
        load.prompt_tokens,
        load.prompt_tokens * (load.context_tokens - load.prompt_tokens / 2.0),
    )
    together = max(max_tokens // max(prompt, 1.0), 1.0)
    alone_s = float(prompts(prompt, 1.0, 0.0, pairs)) * max(prompt / max_tokens, 1.0)
    largest = of_prompts * together / float(prompts(together * prompt, together, 0.0, together * pairs))
    largest = min(largest, of_decoding * float(decoding.rate_per_s[-1]))
    output = load.output_tokens
    if load.rate_per_s is None:
        opened = (
            of_decoding
            * decoding.decoding
            * (1.0 + (alone_s + transfer_s) / (output * decoding.iteration_s))
        )
        busy = float(np.interp(load.concurrency, opened, decoding.decoding))
        rate = min(of_decoding * float(np.interp(busy, decoding.decoding, decoding.rate_per_s)), largest)
        ratio = 1.0
    else:
        rate, ratio = min(load.rate_per_s, largest), load.rate_per_s / largest
    each = rate / of_decoding
    tpot_s = float(np.interp(each, decoding.rate_per_s, decoding.iteration_s))
    full = min(rate * alone_s / (of_prompts * together), 0.99)
    ttft_s = alone_s * (1.0 + full / (1.0 - full) / 2.0) + transfer_s
    return Steady(
        requests_per_s=rate,
        tokens_per_s=rate * output,
        ttft_s=ttft_s,
        tpot_s=tpot_s,
        end_to_end_s=ttft_s + tpot_s * max(output - 1.0, 0.0),
        load_ratio=ratio,
    )
