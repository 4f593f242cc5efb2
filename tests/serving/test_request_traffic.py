"""Traffic and objectives: what the words mean, which errors are reported together, what is drawn."""

import json
import math

import numpy as np
import pytest
from all_cases import all_cases
from hypothesis import given, settings
from hypothesis import strategies as st

from flopcast.errors import InternalError, SpecError
from flopcast.files.validate import build
from flopcast.files.yaml_text import Document
from flopcast.library.traffic_text import slo_of, traffic_words
from flopcast.serving.arrivals import draw, requests_of
from flopcast.serving.requests import Requests, share_of
from flopcast.spec.lengths import Lengths, lengths
from flopcast.spec.traffic import Slo, Traffic

LENGTHS = "prompt=2000 output=300"


def traffic_of(text):
    """The traffic that a text means."""
    words = traffic_words(text)
    return build(Traffic, Document("--traffic", words, {}), words, ("traffic",))


def problems(text):
    with pytest.raises(SpecError) as caught:
        traffic_of(text)
    return {problem.field.removeprefix("traffic."): problem for problem in caught.value.problems}


@all_cases(
    ("text", "rate"), [("4/s", 4.0), ("240/min", 4.0), ("7200/h", 2.0), ("0.5", 0.5), ("1e-1/s", 0.1)]
)
def test_a_rate_has_a_unit_of_time_or_is_per_second(text, rate):
    assert traffic_of(f"rate={text} {LENGTHS}").rate_per_s == pytest.approx(rate)


TEXTS = [
    f"rate=4/s {LENGTHS}",
    f"concurrency=16 {LENGTHS} requests=500 seed=3",
    "rate=0.25/s arrivals=gamma burstiness=0.5 prompt=lognormal(2000,0.5) output=uniform(10,300)",
    "rate=4/s arrivals=constant prompt=128:3,1024:1 output=300",
    f"rate=4/s {LENGTHS} shared_prefix=500 shared_prefix_share=0.5 turns=4 pause_s=10s",
    f"rate=4/s {LENGTHS} prefix_cache=0.3",
    f"concurrency=4 {LENGTHS} repeated=80",
    "trace=requests.csv requests=1000",
    "trace=requests.csv rate=4/s arrivals=constant",
]


@all_cases("text", TEXTS)
def test_the_text_of_a_traffic_means_the_traffic(text):
    traffic = traffic_of(text)

    assert traffic.text() == text
    assert Traffic.model_validate(json.loads(traffic.model_dump_json())) == traffic


@settings(max_examples=60, deadline=None)
@given(
    traffic=st.builds(
        Traffic,
        rate_per_s=st.floats(1e-3, 1e6),
        prompt_tokens=st.sampled_from([1, "uniform(1, 7)", [[3, 1], [5, 0.25]]]),
        output_tokens=st.integers(1, 10**6),
        turns=st.integers(1, 9),
        requests=st.none() | st.integers(1, 100),
        seed=st.integers(0, 2**40),
    )
)
def test_any_traffic_is_read_back_from_its_text(traffic):
    again = traffic_of(traffic.text())

    assert again.rate_per_s == pytest.approx(traffic.rate_per_s, rel=1e-11)
    assert again.model_copy(update={"rate_per_s": traffic.rate_per_s}) == traffic


def test_all_errors_are_reported_together():
    found = problems("rate=4/s concurrency=3 prompt=-5 output=lognormal(2,x) turns=0 zig=4 burstiness=3")

    assert set(found) == {
        "concurrency", "prompt_tokens", "output_tokens", "turns", "zig", "burstiness"
    }  # fmt: skip
    assert all(p.allowed and p.because and p.fix and p.where == "--traffic" for p in found.values())


@all_cases(
    ("text", "field", "word"),
    [
        (LENGTHS, "concurrency", "exactly one of rate, concurrency and trace"),
        ("rate=4/s output=1", "prompt_tokens", "prompt=2000"),
        ("rate=4/s prompt=1", "output_tokens", "output=300"),
        (f"rate=0 {LENGTHS}", "rate_per_s", "above 0"),
        (f"rate=many {LENGTHS}", "rate_per_s", "rate=4/s"),
        (f"rate=-1/s {LENGTHS}", "rate_per_s", "above 0"),
        (f"concurrency=0 {LENGTHS}", "concurrency", "from 1"),
        ("trace=a.csv rate=4/s concurrency=4", "concurrency", "remove rate or concurrency"),
        (f"trace=a.csv {LENGTHS}", "prompt_tokens", "remove prompt"),
        ("trace=a.csv turns=3", "turns", "remove turns"),
        ("trace=a.csv arrivals=constant", "arrivals", "remove arrivals"),
        (f"rate=4/s {LENGTHS} arrivals=often", "arrivals", "poisson"),
        (f"rate=4/s {LENGTHS} burstiness=0.5", "burstiness", "arrivals=gamma"),
        (f"concurrency=4 {LENGTHS} arrivals=gamma", "arrivals", "remove arrivals"),
        (f"rate=4/s {LENGTHS} shared_prefix_share=0.5", "shared_prefix_share", "shared_prefix_tokens"),
        (f"rate=4/s {LENGTHS} pause_s=5s", "pause_s", "turns"),
        (f"rate=4/s {LENGTHS} turns=2 pause_s=5", "pause_s", "pause_s=5s in --traffic"),
        (f"rate=4/s {LENGTHS} prefix_cache=1", "prefix_hit_share", "below 1"),
        (f"rate=4/s {LENGTHS} prefix_cache=0.5 repeated=3", "repeated_requests", "prefix_hit_share"),
        ("rate=4/s prompt=0 output=1", "prompt_tokens", "from 1"),
        ("rate=4/s prompt=2.5 output=1", "prompt_tokens", "whole"),
        ("rate=4/s prompt=short output=1", "prompt_tokens", "lognormal(MEAN, SIGMA)"),
        ("rate=4/s prompt=uniform(9,3) output=1", "prompt_tokens", "uniform(3, 9)"),
        ("rate=4/s prompt=uniform(-9,3) output=1", "prompt_tokens", "from 1"),
        ("rate=4/s prompt=unif(3,9) output=1", "prompt_tokens", "write uniform(3, 9)"),
        ("rate=4/s prompt=lognorm(1500,0.6) output=1", "prompt_tokens", "write lognormal(1500, 0.6)"),
        ("rate=4/s prompt=LogNormal(1500,0.6) output=1", "prompt_tokens", "write lognormal(1500, 0.6)"),
        ("rate=4/s prompt=lognormal(1500,300) output=1", "prompt_tokens", "write lognormal(1500, 0.2)"),
        ("rate=4/s prompt=lognormal(9,-1) output=1", "prompt_tokens", "SIGMA from 0"),
        ("rate=4/s prompt=lognormal(900,1,500) output=1", "prompt_tokens", "MEAN below LONGEST"),
        ("rate=4/s prompt=3:0,4:0 output=1", "prompt_tokens", "of which at least one is above 0"),
        ("rate=4/s prompt=3: output=1", "prompt_tokens", "no number"),
        ("rate=4/s prompt=nan:1 output=1", "prompt_tokens", "no number"),
        ("rate=4/s rate=5/s prompt=1 output=1", "rate_per_s", "remove all but one rate"),
        ("rate= prompt=1 output=1", "rate_per_s", "rate=VALUE, once"),
    ],
)
def test_an_error_of_traffic_says_what_is_allowed(text, field, word):
    problem = problems(text)[field]

    assert word in f"{problem.allowed} {problem.fix} {problem.because}"


@all_cases("given", [[], [[3]], [3, 4], {}, {"mean_tokens": 3}, True, [[0, 1]], [[5, "x"]], "", math.nan])
def test_what_is_no_length_is_refused(given):
    with pytest.raises((ValueError, SpecError)):
        Traffic(rate=1.0, prompt=given, output=1)


def test_objectives_have_a_metric_a_percentile_and_a_time():
    slo = slo_of("ttft_p99=2s tpot_p95.5=50ms e2e=1min")

    assert slo == Slo(ttft_s=2.0, tpot_s=0.05, tpot_percentile=95.5, end_to_end_s=60.0)
    assert slo.text() == "ttft_p99=2s tpot_p95.5=50ms end_to_end_p99=60s"
    assert slo_of(slo.text()) == slo


@all_cases(
    ("text", "number"),
    [("", 1), ("ttft=2", 1), ("ttft=2s ttft_p9=1s", 1), ("tpt=4s e2e_p100=2s tpot=-1s", 3), ("ttft", 1)],
)
def test_errors_of_objectives_are_reported_together(text, number):
    with pytest.raises(SpecError) as caught:
        slo_of(text)

    assert len(caught.value.problems) == number


@all_cases(
    ("text", "right"),
    [
        ("tpot_p50ms=50ms", "tpot_p50=50ms"),
        ("tpot_p90_ms=50", "tpot_p90=50ms"),
        ("p50_tpot=50ms", "tpot_p50=50ms"),
        ("median_itl=50ms", "tpot_p50=50ms"),
        ("ttft95=2s", "ttft_p95=2s"),
        ("e2e_latency=2s", "end_to_end_p99=2s"),
    ],
)
def test_the_fix_of_a_limit_keeps_its_metric_percentile_and_time(text, right):
    with pytest.raises(SpecError) as caught:
        slo_of(text)

    assert caught.value.problems[0].fix == f"write {right} in place of {text}"


@all_cases(
    ("words", "mean", "deviation"),
    [
        ("700", 700, 0),
        ("uniform(100, 900)", 500, 800 / 12**0.5),
        ("lognormal(2000, 0.5)", 2000, 2000 * (math.exp(0.25) - 1) ** 0.5),
        ("lognormal(2000, 0.5, 100000)", 2000, 2000 * (math.exp(0.25) - 1) ** 0.5),
        ("128:3,1024:1", 352, 896 * (3 / 16) ** 0.5),
    ],
)
def test_drawn_lengths_have_the_mean_and_the_spread_of_their_distribution(words, mean, deviation):
    distribution = lengths(words)

    drawn = draw(distribution, 100_000, np.random.default_rng(0))

    assert isinstance(distribution, Lengths)
    assert distribution.mean == pytest.approx(mean)
    assert drawn.mean() == pytest.approx(mean, rel=0.01)
    assert drawn.std() == pytest.approx(deviation, rel=0.02)
    assert drawn.min() >= 1


def test_lengths_above_the_longest_are_cut_and_the_mean_stays():
    for text in ("lognormal(9400, 0.6, 20000)", "lognormal(300, 1, 512)", "lognormal(3700, 2, 4000)"):
        stated = lengths(text)

        drawn = draw(stated, 100_000, np.random.default_rng(0))

        assert stated.text() == text
        assert drawn.max() == stated.most_tokens
        assert drawn.mean() == pytest.approx(stated.mean_tokens, rel=0.01)


@all_cases(
    ("words", "variation"),
    [
        ("", 1.0),
        ("arrivals=constant", 0.0),
        ("arrivals=gamma burstiness=0.25", 2.0),
        ("arrivals=gamma burstiness=4", 0.5),
    ],
)
def test_gaps_between_arrivals_have_the_rate_and_the_spread_that_were_asked_for(words, variation):
    requests = requests_of(traffic_of(f"rate=5/s {LENGTHS} requests=50000 {words}"))

    gaps = np.diff(requests.arrival_s)
    assert gaps.mean() == pytest.approx(0.2, rel=0.03)
    assert gaps.std() / gaps.mean() == pytest.approx(variation, abs=0.04)


def test_the_seed_gives_the_requests_and_the_rate_does_not_change_their_lengths():
    text = "prompt=lognormal(2000, 0.5) output=uniform(1, 500)"
    first, again, faster, other = (
        requests_of(traffic_of(f"{words} {text}"))
        for words in ("rate=4", "rate=4", "rate=8", "rate=4 seed=1")
    )

    assert first.size == 2_000
    assert (first.arrival_s == again.arrival_s).all()
    assert (first.prompt_tokens == faster.prompt_tokens).all()
    assert first.arrival_s == pytest.approx(2 * faster.arrival_s)
    assert (first.prompt_tokens != other.prompt_tokens).any()


def test_the_prompt_of_a_turn_holds_the_turns_before():
    text = "rate=4/s prompt=100 output=50 turns=3 pause_s=7s shared_prefix=40 requests=8"

    requests = requests_of(traffic_of(text))

    assert requests.prompt_tokens.tolist() == [100, 250, 400] * 2 + [100, 250]
    assert requests.after.tolist() == [-1, 0, 1, -1, 3, 4, -1, 6]
    assert requests.arrival_s[[1, 2, 4]].tolist() == [7.0] * 3
    starts = requests.segment_starts
    third = slice(starts[2], starts[3])
    assert requests.segment_ids[third].tolist() == [0, 1]
    assert requests.segment_tokens[third].tolist() == [40, 250 + 50 - 1 - 40]
    assert requests.keep_ids.tolist() == [1, 1, -1, 2, 2, -1, 3, 3]


def test_a_rate_counts_the_turns_of_conversations():
    requests = requests_of(traffic_of(f"rate=8/s arrivals=constant {LENGTHS} turns=4 requests=400"))

    begins = requests.arrival_s[requests.after < 0]
    assert np.diff(begins) == pytest.approx(0.5)


def test_a_share_of_conversations_begins_with_the_shared_prefix():
    text = f"rate=4/s {LENGTHS} shared_prefix=500 shared_prefix_share=0.3"

    requests = requests_of(traffic_of(text))

    assert len(requests.segment_ids) / requests.size == pytest.approx(0.3, abs=0.02)
    assert set(requests.segment_tokens) == {500}


def test_a_given_share_of_hits_replaces_what_prompts_share():
    requests = requests_of(traffic_of(f"rate=4/s {LENGTHS} turns=2 prefix_cache=0.25 requests=4"))

    assert requests.cached_tokens.tolist() == [500, 1075, 500, 1075]
    assert len(requests.segment_ids) == 0


def test_the_prompts_of_repeated_requests_are_cached_apart_from_the_last_token():
    requests = requests_of(traffic_of("concurrency=2 prompt=100 output=10 requests=4 repeated=3"))

    assert requests.cached_tokens.tolist() == [99, 99, 99, 0]


def test_the_requests_of_a_trace_are_taken_as_they_are():
    trace = requests_of(traffic_of(f"rate=4/s {LENGTHS} requests=50"))

    taken = requests_of(Traffic(trace="x.csv", requests=20), trace)

    assert (taken.arrival_s == trace.arrival_s[:20]).all()
    assert requests_of(Traffic(trace="x.csv"), trace).size == 50
    with pytest.raises(InternalError):
        requests_of(Traffic(trace="x.csv"))


def test_the_schema_has_a_text_for_every_field_and_the_forms_of_lengths():
    schema = Traffic.model_json_schema()["properties"]

    assert all(field["description"] for field in schema.values())
    forms = [form.get("type") for form in schema["prompt"]["anyOf"]]
    assert forms == ["integer", "string", "array", "null"]
    assert all(field["description"] for field in Slo.model_json_schema()["properties"].values())


def test_a_share_of_requests_has_whole_conversations_with_their_segments():
    traffic = Traffic(rate=5, prompt=100, output=10, turns=3, shared_prefix=40, adapters=7, requests=300)
    requests = requests_of(traffic)

    third = share_of(requests, 3)
    whole = share_of(requests, 1)

    for name in Requests.__slots__:
        assert np.array_equal(getattr(whole, name), getattr(requests, name)), name
    kept = np.arange(300) // 3 % 3 == 0
    assert third.prompt_tokens.tolist() == requests.prompt_tokens[kept].tolist()
    assert third.adapter_ids.tolist() == requests.adapter_ids[kept].tolist()
    assert (third.after[third.after >= 0] == np.flatnonzero(third.after >= 0) - 1).all()
    assert third.segment_starts[-1] == len(third.segment_ids) == len(third.segment_tokens)
    own = [
        third.segment_ids[third.segment_starts[i] : third.segment_starts[i + 1]].tolist() for i in range(6)
    ]
    every = requests.segment_ids, requests.segment_starts
    kept_places = np.flatnonzero(kept)[:6]
    assert own == [every[0][every[1][i] : every[1][i + 1]].tolist() for i in kept_places]
