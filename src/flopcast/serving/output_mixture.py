"""Short and long outputs in one traffic, such as thinking budgets that depend on the question.

Answers: what does a request of the mixture cost, compared with a request with the longest output?
Elsewhere: how lengths are stated (spec/lengths.py), the largest stable rate (summary.py).

The cost of a request is the time of the devices divided by the number of requests that they serve in this
time. Both kinds of traffic are simulated with all requests in the queue from the beginning. Only the time
until the last request begins counts, because engines are full until then. Requests are counted by their
tokens, because short ones end first.
"""

from collections.abc import Callable

import numpy as np

from flopcast.records import Record, replace
from flopcast.serving.requests import Requests
from flopcast.serving.served import Served
from flopcast.spec.traffic import Traffic
from flopcast.units import Number


class OutputMixture(Record):
    """Lengths of outputs with their fractions, and the mean cost of a request, divided by the cost of the
    longest request.
    """

    tokens: tuple[int, ...]
    shares: tuple[Number, ...]
    cost_ratio: Number


def output_mixture(
    traffic: Traffic, requests: Requests, play: Callable[[Requests], Served]
) -> OutputMixture | None:
    """Return the mixture of a traffic whose outputs are a histogram of several lengths; otherwise None.

    Parameters
    ----------
    traffic : Traffic
    requests : Requests
        Requests drawn from this traffic.
    play : function
        Plays requests on the engines of the job. It is called twice: with the requests, and with requests
        that all have the longest output.

    Returns
    -------
    OutputMixture or None
        `cost_ratio` is the rate of the long requests, divided by the rate of the mixture. It is below 1.
    """
    lengths = traffic.output_tokens
    if lengths is None or len(set(lengths.tokens)) < 2:
        return None
    longest = np.full_like(requests.output_tokens, max(lengths.tokens))
    mixed, uniform = (
        _served_per_s(given, play) for given in (requests, replace(requests, output_tokens=longest))
    )
    whole = sum(lengths.weights)
    return OutputMixture(
        tokens=lengths.tokens,
        shares=tuple(weight / whole for weight in lengths.weights),
        cost_ratio=uniform / mixed,
    )


def _served_per_s(requests: Requests, play: Callable[[Requests], Served]) -> float:
    """Return the requests that full engines serve in a second."""
    at_once = np.where(requests.after < 0, 0.0, requests.arrival_s)
    served = play(replace(requests, arrival_s=at_once, concurrency=0))
    last_s = float((served.arrival_s + served.queued_s).max())
    full_s = last_s if last_s > 0 else served.end_s
    tokens = 0.0
    for table in served.tables:
        part = np.clip((full_s - table.start_s) / np.maximum(table.elapsed_s, 1e-300), 0.0, 1.0)
        tokens += float((part * table.output_tokens).sum())
    return tokens / full_s / float(requests.output_tokens.mean())
