"""A mixture of short and long outputs costs what its tokens cost, where every token costs the same."""

import json

import numpy as np
import pytest
from command_line import flopcast

from flopcast.serving.arrivals import requests_of
from flopcast.serving.output_mixture import output_mixture
from flopcast.serving.requests import Limits
from flopcast.serving.scheduler import run
from flopcast.spec.traffic import Traffic

WORDS = ["predict", "llama-3.1-8b", "--engine", "vllm", "--cluster", "dgx-h100", "--gpus", "1"]


def flat(new, sequences, kv, pairs):
    """Every pass takes one second."""
    return 1.0 + 0.0 * new


def test_where_every_token_costs_the_same_the_ratio_is_that_of_the_tokens():
    limits = Limits(max_sequences=1, max_tokens=64, kv_blocks=100)
    for load in ({"concurrency": 1}, {"rate": 5}):
        traffic = Traffic.model_validate(
            load | {"prompt": 10, "output": "100:3,400:1", "requests": 4000, "seed": 1}
        )
        requests = requests_of(traffic)

        found = output_mixture(traffic, requests, lambda given: run(given, limits, flat))

        assert found.shares == (0.75, 0.25)
        assert found.cost_ratio == pytest.approx(np.mean(requests.output_tokens) / 400, rel=0.02)


def test_outputs_of_one_length_are_no_mixture():
    for output in (300, "lognormal(300, 1)", "300:2"):
        traffic = Traffic(rate=1, prompt=10, output=output, requests=10)

        assert output_mixture(traffic, requests_of(traffic), lambda given: given) is None


def test_the_report_says_what_a_mixture_costs():
    traffic = ["--traffic", "concurrency=16 prompt=100 output=50:3,400:1 requests=2000"]

    shown, found = flopcast(*WORDS, *traffic).out, json.loads(flopcast(*WORDS, *traffic, "--json").out)

    assert "of a request with 400 output tokens" in shown
    mean = (3 * 50 + 400) / 4  # most of the time goes into outputs
    assert found["output_mixture"]["cost_ratio"] == pytest.approx(mean / 400, rel=0.1)
