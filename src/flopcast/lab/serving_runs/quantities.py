"""Predictions of measured serving quantities: which number of a report belongs to a latency, a rate or a
request?

Elsewhere: the numbers of a report (serving/serving_report.py), the tables with these quantities (one file
per table).

Each function returns a reader for `Measured.read` (rows.py).
"""

import math
from collections.abc import Callable
from typing import Literal

import numpy as np

from flopcast.dtypes import Counts, Floats
from flopcast.serving.serving_report import Estimate, ServingReport
from flopcast.units import Number

Reader = Callable[[ServingReport], Estimate]
Event = Literal["first_token", "last_token"]
PER_UNIT = {"s": 1.0, "ms": 1e3, "us": 1e6}
UNKNOWN = Estimate(value=math.nan, low=math.nan, high=math.nan)


def latency(metric: str, unit: str, name: str = "mean") -> Reader:
    """Return a function that reads a latency from a report: its mean, or "p50", "p90" or "p99"."""
    return lambda report: report.latencies[metric][name].times(PER_UNIT[unit])


def output_tokens_per_s(report: ServingReport) -> Estimate:
    """Return the output tokens per second of all replicas."""
    return report.output_tokens_per_s


def output_tokens_per_s_per_device(report: ServingReport) -> Estimate:
    """Return the output tokens per second and device."""
    return report.output_tokens_per_s.times(1 / report.job.devices)


def requests_per_s(report: ServingReport) -> Estimate:
    """Return the requests per second that all replicas complete."""
    return report.requests_per_s


def power_w(report: ServingReport) -> Estimate:
    """Return the mean watts of all devices; NaN if a data sheet states no board power."""
    return (report.device_power_w or UNKNOWN).times(report.job.devices)


def joules_per_token(report: ServingReport) -> Estimate:
    """Return the joules of all devices per output token; NaN if a data sheet states no board power."""
    return report.joules_per_token or UNKNOWN


def sum_of_latencies_s(report: ServingReport) -> Estimate:
    """Return the sum over all requests of the seconds from arrival to the last token."""
    return report.latencies["end_to_end"]["mean"].times(report.served.requests.size)


def time_of_request(event: Event, place: int) -> Reader:
    """Return the reader for the time of an event of one request, in seconds since the first arrival.

    Parameters
    ----------
    event : "first_token" or "last_token"
    place : int
        Number of the request in the trace.

    Notes
    -----
    The interval is that of the mean latency, applied to the time since the request's own arrival.
    """

    def read(report: ServingReport) -> Estimate:
        served = report.served
        ends_s = served.first_token_s if event == "first_token" else served.last_token_s
        arrival_s = float(served.arrival_s[place])
        waited_s = float(ends_s[place]) - arrival_s
        mean = report.latencies["ttft" if event == "first_token" else "end_to_end"]["mean"]
        return Estimate(
            value=arrival_s + waited_s,
            low=arrival_s + waited_s * mean.low / mean.value,
            high=arrival_s + waited_s * mean.high / mean.value,
        )

    return read


def order_of_first_tokens(measured_s: Floats) -> Reader:
    """Return the reader for the rank correlation between predicted and measured times to first token.

    Parameters
    ----------
    measured_s : seconds from arrival to first token of each request, (requests,)
    """

    def read(report: ServingReport) -> Estimate:
        found = rank_correlation(report.served.first_token_s - report.served.arrival_s, measured_s)
        return Estimate(value=found, low=found, high=found)

    return read


def rank_correlation(first: Counts, second: Counts) -> Number:
    """Return Spearman's rank correlation of two arrays of one shape.

    >>> rank_correlation(np.array([1.0, 2.0, 3.0]), np.array([10.0, 20.0, 15.0]))
    0.5
    """
    ranks = np.array([np.argsort(np.argsort(values, kind="stable")) for values in (first, second)])
    apart = ranks - ranks.mean(axis=1, keepdims=True)
    together, *own = (float((one * other).sum()) for one, other in (apart, apart[[0, 0]], apart[[1, 1]]))
    return round(together / float(np.sqrt(own[0] * own[1])), 12)
