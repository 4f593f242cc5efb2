"""The time of a request before the engine: HTTP, tokenisation, and queued passes.

Answers: how long before its arrival in the engine was a request sent?
Elsewhere: the constants (spec/engine.py), what happens in the engine (scheduler.py).

The engine continues meanwhile, so that this time lengthens latencies and no iteration.
"""

import numpy as np

from flopcast.records import replace
from flopcast.serving.served import Served
from flopcast.spec.engine import IterationCost
from flopcast.units import Number


def with_front_end(served: Served, cost: IterationCost, ratio: Number) -> Served:
    """Return requests that were sent before they arrived in the engine.

    Parameters
    ----------
    ratio : by which all times are longer
    """
    gaps = np.maximum(served.requests.output_tokens - 1, 1)
    pass_s = (served.last_token_s - served.first_token_s) / gaps
    sent_s = ratio * cost.request_s + cost.request_tpot_ratio * pass_s
    return replace(served, arrival_s=served.arrival_s - sent_s, queued_s=served.queued_s + sent_s)
