"""Drafted tokens: plain decoding where nothing is drafted, and closed forms where all are right."""

import json

import numpy as np
import pytest
from all_cases import all_cases
from command_line import flopcast
from serving.test_passes import items_of, total

from flopcast.cost.kernels.curve_book import CurveBook
from flopcast.library import catalog
from flopcast.library.acceptance_lengths import measured_acceptance
from flopcast.library.curves import load_serving_book
from flopcast.serving.drafts import draft_of
from flopcast.serving.engine_pass import EnginePass, decoded_pairs
from flopcast.serving.instances import price_of, times_of
from flopcast.serving.memory import serving_memory
from flopcast.serving.pass_prices import ratios_of
from flopcast.serving.serve import serve
from flopcast.spec.deployment import Deployment
from flopcast.spec.drafting import Drafting, expected_tokens
from flopcast.spec.serving_job import ServingJob
from flopcast.spec.traffic import Traffic

DENSE, EXPERTS = "llama-3.1-70b", "deepseek-v3"
WORDS = ["predict", DENSE, "--engine", "vllm", "--cluster", "dgx-h200:1", "--json"]
TRAFFIC = ["--traffic", "concurrency=8 prompt=512 output=65 requests=32"]


def job_of(drafting=None, name=DENSE, **traffic):
    lengths = {"concurrency": 1, "prompt": 512, "output": 65, "requests": 8}
    return ServingJob(
        model=catalog.model(name),
        cluster=catalog.cluster("dgx-h200", 1),
        engine=catalog.engine("vllm"),
        plan=Deployment(tp=8, replicas=1, weights="fp8", drafting=drafting),
        traffic=Traffic.model_validate(lengths | traffic),
    )


def book() -> CurveBook:
    return load_serving_book(catalog.cluster("dgx-h200", 1))


def verifying(sequences, drafted, context=1500.0):
    many, each = np.array([[float(sequences)]]), drafted + 1
    cached = many * context
    return EnginePass(
        new_tokens=each * many,
        sequences=many,
        cached_tokens=cached,
        pairs=decoded_pairs(cached, many, each),
        computed_tokens=each,
    )


def test_the_expected_tokens_of_a_pass_are_the_closed_form_and_what_is_drawn():
    random = np.random.default_rng(0)
    for share, drafted in ((0.3, 1), (0.7, 3), (0.9, 5)):
        right = random.random((100_000, drafted)) < share
        drawn = 1 + np.cumprod(right, axis=1).sum(axis=1).mean()

        assert expected_tokens(share, drafted) == pytest.approx((1 - share ** (drafted + 1)) / (1 - share))
        assert expected_tokens(share, drafted) == pytest.approx(drawn, rel=0.01)


@all_cases("drafter", ("eagle", "ngram"))
def test_nothing_drafted_is_plain_decoding(drafter):
    plain = serve(job_of(concurrency=8, requests=32), book())
    none = Drafting(drafter=drafter, drafted=0, accepted=1.0)
    drafted = serve(job_of(none, concurrency=8, requests=32), book())

    for metric in ("ttft", "tpot", "end_to_end"):
        assert drafted.latencies[metric]["mean"].value == plain.latencies[metric]["mean"].value


@all_cases("drafted", (1, 3, 7))
def test_where_all_drafts_are_right_a_pass_yields_them_and_one_more(drafted):
    drafting = Drafting(drafter="ngram", drafted=drafted, accepted=drafted + 1)

    table = serve(job_of(drafting), book()).served.iterations

    decoding = table.decoding > 0
    assert table.passes[decoding].sum() == 8 * 64 / (drafted + 1)  # the first of 65 tokens is the prompt's
    assert table.output_tokens.sum() == 8 * 65


def test_the_time_per_token_is_that_of_a_pass_over_the_tokens_that_it_yields():
    drafting = Drafting(drafter="eagle", drafted=3, accepted=2.5)
    job = job_of(drafting, output=1025)
    times = times_of(job, book(), 2048)

    report = serve(job, book())

    context = 512 + 1025 / 2
    pass_s = float(times(4.0, 1.0, context, float(decoded_pairs(np.array(context), np.array(1.0), 4))))
    assert report.latencies["tpot"]["mean"].value == pytest.approx(pass_s / 2.5, rel=0.01)


@all_cases("name", (DENSE, EXPERTS))
def test_a_pass_that_verifies_multiplies_each_token_and_reads_the_cache_once(name):
    plan = Deployment(tp=8)
    one, four = (items_of(name, verifying(16, drafted), plan) for drafted in (0, 3))

    def cache_bytes(items):
        core = [pair for pair in items if pair[0].name == "attention.decode"]
        return total(core, lambda work: work.moved_bytes)

    def products(items):
        names = ("attention.decode", "experts.fused")
        return total([pair for pair in items if pair[0].name not in names], lambda work: work.flop)

    assert products(four) == pytest.approx(4 * products(one), rel=0.01)
    assert cache_bytes(one) <= cache_bytes(four) <= 1.4 * cache_bytes(one)  # queries and results are more


@all_cases("drafter", ("eagle", "mtp"))
def test_a_draft_is_priced_as_the_passes_that_it_runs(drafter):
    name = EXPERTS if drafter == "mtp" else DENSE
    drafting = Drafting(drafter=drafter, drafted=3, accepted=2.0)
    job = job_of(drafting, name, concurrency=64)
    run = verifying(32, 3)
    host = job.iteration
    priced = price_of(job, book(), run)
    ratios = ratios_of(host, run, priced)
    exact_s = sum(float((ratios(name) * part)[0]) for name, part in priced.by_component().items())

    times = times_of(job, book(), 4096)

    numbers = (run.new_tokens, run.sequences, run.cached_tokens, run.pairs)
    found_s = float(times.verify(*(each.item() for each in numbers)))
    expected_s = exact_s + host.host_s + host.sequence_s * 32
    assert found_s == pytest.approx(expected_s, rel=0.02)
    assert found_s < float(times(*(each.item() for each in numbers))) < 1.3 * found_s


def test_a_head_that_drafts_has_the_parameters_of_a_block_and_of_its_join():
    plain, drafted = (
        serving_memory(job_of(each)) for each in (None, Drafting(drafter="eagle", drafted=3, accepted=2))
    )
    model = catalog.model(DENSE)
    (block,) = model.blocks
    elements = block.mixer.linear_elements(model.hidden) + block.feed_forward.linear_elements(model.hidden)

    more_bytes = 8 * (drafted.weight_bytes - plain.weight_bytes)

    assert more_bytes == pytest.approx(elements + 3 * model.hidden**2, rel=0.02)  # of 8 bits
    assert drafted.token_bytes == pytest.approx(plain.token_bytes * 81 / 80)


def test_a_smaller_model_drafts_with_its_own_cache_and_weights():
    small = catalog.model("llama-3.2-1b")
    drafting = Drafting(drafter="model", model=small, drafted=4, accepted=3.0)
    plain, drafted = (serving_memory(job_of(each)) for each in (None, drafting))

    assert draft_of(job_of(drafting)).model == small
    assert 8 * (drafted.weight_bytes - plain.weight_bytes) > 1e9
    assert drafted.cache_tokens < plain.cache_tokens


def test_the_command_takes_drafts_and_fills_in_what_was_measured():
    stated = json.loads(flopcast(*WORDS, "--plan", "tp=8 draft=eagle drafted=2", *TRAFFIC).out)
    asked = flopcast(*WORDS, "--plan", "tp=8 draft=ngram drafted=3 acceptance=0.5", *TRAFFIC)

    assert stated["serving_job"]["plan"]["drafting"]["accepted"] == measured_acceptance("eagle", 2)
    assert "draft" in stated["time_shares"]
    assert json.loads(asked.out)["serving_job"]["plan"]["drafting"]["accepted"] == 1.875


FAULTS = {
    "draft=ngram drafted=3": ("plan.accepted", "is missing"),
    "draft=eagle drafted=3 accepted=5": ("plan.accepted", "at most"),
    "draft=eagle drafted=-1": ("plan.drafted", "whole number"),
    "draft=eagle acceptance=1.5": ("plan.acceptance", "from 0 to 1"),
    "draft=eagle acceptance=0.5 accepted=2": ("one of accepted and acceptance",),
    "draft=medusa": ("plan.draft", "eagle"),
    "drafted=3": ("plan.drafted", "unless draft is given"),
    "draft=mtp": ("without multi-token prediction modules",),
    "draft=gpt2 accepted=2": ("plan.draft",),
    "tp=4 pp=2 draft=eagle": ("plan.pipeline_parallel",),
}


def test_drafts_that_cannot_be_are_errors_with_their_fix():
    for plan, words in FAULTS.items():
        ranks = "" if "tp=" in plan else "tp=8 "
        found = flopcast(*WORDS, "--plan", f"{ranks}{plan}", *TRAFFIC)

        assert found.code == 1, (plan, found.out)
        for word in (*words, "fix"):
            assert word in found.out + found.err, (plan, found.out)
