"""The way of a request to the engine: it lengthens the time to first token and nothing else."""

import numpy as np
import pytest

from flopcast.serving.front_end import with_front_end
from flopcast.serving.requests import Limits, independent_requests
from flopcast.serving.scheduler import run
from flopcast.serving.summary import summarise
from flopcast.spec.engine import IterationCost


def test_a_request_is_sent_before_it_arrives_in_the_engine():
    requests = independent_requests(np.arange(20.0), np.full(20, 100), np.full(20, 11))
    limits = Limits(max_sequences=8, max_tokens=512, kv_blocks=1000)
    served = run(requests, limits, lambda new, sequences, kv, pairs: 0.01 + 0.0001 * new)
    cost = IterationCost(request_s=0.02, request_tpot_ratio=3.0)
    inside, outside = (
        summarise(each, leave_out_share=0.0) for each in (served, with_front_end(served, cost, 1.0))
    )

    waited_s = 0.02 + 3.0 * inside.tpot.mean_s
    assert outside.ttft.mean_s == pytest.approx(inside.ttft.mean_s + waited_s)
    assert outside.queued.mean_s == pytest.approx(inside.queued.mean_s + waited_s)
    assert outside.tpot.mean_s == pytest.approx(inside.tpot.mean_s)
    assert outside.end_to_end.mean_s == pytest.approx(inside.end_to_end.mean_s + waited_s)
