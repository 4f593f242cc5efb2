"""Flows that share a path of a network with several equal paths (ECMP), while other paths are idle.

Answers: how much longer does a message take because a hash assigned its flow to a busy path?
Elsewhere: the fabric's description (spec/tier.py), the time of a message (collective_time.py).

A hash distributes n flows over m uplinks of a switch, like balls over bins of equal probability. A
synchronous collective ends with its slowest flow, which is on the fullest uplink. If L flows, each with 1 /
f of a device's bandwidth, share an uplink of u times that bandwidth, each flow takes max(1, L / (f u))
times as long as without other flows. The expected value is exact and follows from

    P(fullest bin holds at most k) = n! / m^n · [x^n] (sum of x^j / j! for j = 0 … k)^m
"""

from functools import lru_cache
from math import ceil

import numpy as np

from flopcast.dtypes import Counts
from flopcast.spec.tier import HashedPaths
from flopcast.units import Number

ROUNDING = 1e-15


@lru_cache(maxsize=256)
def collision_ratio(paths: HashedPaths) -> float:
    """Return the time of the slowest flow, divided by the time of a flow on a path of its own; at least 1.

    Two flows meet on one of two uplinks in half of all cases, and then take twice as long:

    >>> round(collision_ratio(HashedPaths(devices=2, uplinks=2)), 9)
    1.5
    >>> collision_ratio(HashedPaths(devices=2, uplinks=2, planned=True))
    1.0
    """
    flows = paths.devices * paths.flows_per_device
    room = paths.flows_per_device * paths.uplink_ratio  # flows that one uplink carries at full speed
    if paths.planned:
        return max(1.0, ceil(flows / paths.uplinks) / room)
    chances = fullest_bin(flows, paths.uplinks)
    return float(chances @ np.maximum(np.arange(len(chances)) / room, 1.0))


def fullest_bin(balls: int, bins: int) -> Counts:
    """Return the probability that the fullest of some bins holds k balls, for k = 0 … balls.

    >>> fullest_bin(2, 2).round(12).tolist()
    [0.0, 0.5, 0.5]
    """
    at_most, most = np.ones(balls + 1), ceil(balls / bins)
    at_most[:most] = 0.0
    while most < balls and at_most[most - 1] < 1.0 - ROUNDING:
        at_most[most] = min(_all_hold_at_most(most, balls, bins), 1.0)
        most += 1
    chances: Counts = np.diff(at_most, prepend=0.0)
    return chances


def _all_hold_at_most(most: int, balls: int, bins: int) -> float:
    """Return the probability that no bin holds more than `most` balls.

    Independent bins with a Poisson number of balls of mean balls / bins, given that they sum to `balls`,
    hold as many as bins into which the balls are thrown. The probabilities of sums are the coefficients of
    a power of a polynomial, so that no factorial overflows.
    """
    one, whole = _poisson(balls / bins, most), np.ones(1)
    for bit in f"{bins:b}":
        whole = np.convolve(whole, whole)[: balls + 1]
        whole = np.convolve(whole, one)[: balls + 1] if bit == "1" else whole
    return float(whole[balls] / _poisson(balls, balls)[balls]) if len(whole) > balls else 0.0


def _poisson(mean: Number, most: int) -> Counts:
    """Return the probabilities of 0 … most events."""
    k = np.arange(most + 1)
    log_factorial = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, most + 1)))])
    found: Counts = np.exp(k * np.log(mean) - mean - log_factorial)
    return found
