"""Peers with inner steps and an outer round: closed forms, conservation laws, memory and reports."""

import json
import math

import pytest
from unmarked import unmarked

import flopcast
from flopcast import Space, predict, search_plans
from flopcast.errors import SpecError
from flopcast.interop.exports.kinds import exported
from flopcast.library.curves import load_book
from flopcast.operators.messages import AllReduce
from flopcast.prediction import programs_of
from flopcast.render.report_json import as_json
from flopcast.render.report_page import as_html
from flopcast.render.report_text import marked_text
from flopcast.report.explain.registry import explain
from flopcast.report.outer_round import LINK_LOG_SIGMA
from flopcast.search.exact import play_each
from flopcast.search.screen import screen
from flopcast.shared_network import share_network
from flopcast.spec.outer import Outer
from flopcast.spec.plan import Plan, one_plan
from flopcast.spec.site import Site

as_text = unmarked(marked_text)
MODEL = "gpt3-1.3b"
DEVICES, UP, DOWN = 8, 2e6, 8e6  # of a peer; bytes per second of each of its devices
ONE_DEVICE = {"device": "a100-sxm4-80gb", "devices": 1, "host": "epyc-7763"}
INNER = "dp=8 mbs=2 gbs=64 zero=1"


def job(words, *, peers=4, nodes=None, up=UP, down=DOWN, latency="0 s", **parts):
    """Return a job whose peers are nodes of eight A100 on the internet."""
    internet = {"name": "internet", "devices": 0, "bytes_per_s": f"{up} B/s", "latency_s": latency}
    internet |= {"attained_fraction": 1} | ({"receive_bytes_per_s": f"{down} B/s"} if peers > 1 else {})
    nvlink = {"name": "nvlink", "devices": 8, "bytes_per_s": "300 GB/s", "latency_s": "5 us"}
    cluster = {"base": "dgx-a100", "nodes": nodes or peers, "tiers": [nvlink, internet]}
    plan = f"{INNER} {f'peers={peers}' if peers > 1 else ''} {words}"
    return flopcast.job(MODEL, cluster=cluster, stack="megatron-core", seq=2048, plan=plan, **parts)


def report(words, **parts):
    return predict(job(words, **parts))


def test_the_bytes_of_a_peer_are_those_of_the_closed_forms():
    parameters = job("").model.parameters()
    topk = 64 / 4096 * (2 + 12) / 8 * parameters
    for words, peers, sent, received in (
        ("inner_steps=10", 4, 2 * 3 / 4 * 4 * parameters, 2 * 3 / 4 * 4 * parameters),
        ("inner_steps=10 outer=bits:8", 5, 2 * 4 / 5 * parameters, 2 * 4 / 5 * parameters),
        ("inner_steps=10 outer=bits:4,fragments:5", 2, 0.5 * parameters, 0.5 * parameters),
        ("inner_steps=10 outer=topk:64,bits:2", 4, 3 * topk, 3 * topk),
        ("inner_steps=10 outer=topk:64/4096,bits:2,store", 4, topk, 3 * topk),
        ("inner_steps=10 outer=topk:64,bits:2,index_bits:0", 2, topk / 7, topk / 7),
    ):
        found = report(words, peers=peers).outer

        assert (found.sent_bytes, found.received_bytes) == pytest.approx((sent, received), rel=1e-12), words
        up_s, down_s = sent / (DEVICES * UP), received / (DEVICES * DOWN)
        whole_s = up_s + down_s if "store" in words else max(up_s, down_s)
        assert found.exchange_s == pytest.approx(whole_s, rel=1e-12), words


def test_one_dense_inner_step_sends_the_bytes_of_data_parallelism():
    """Peers of one device that exchange fp32 values after each step are data-parallel ranks."""
    cluster = {"base": "dgx-a100", "groups": [{"count": 4, "node": {**ONE_DEVICE}}]}
    ranks = flopcast.job(MODEL, cluster=cluster, stack="megatron-core", seq=2048, plan="dp=4 mbs=1 gbs=16")
    peers = flopcast.job(
        MODEL, cluster=cluster, stack="megatron-core", seq=2048, plan="peers=4 mbs=1 gbs=4"
    )
    messages = [item for item in programs_of(ranks).reduce if isinstance(item.work, AllReduce)]

    gradients = sum(item.count.item() * item.work.message_bytes.max() for item in messages)

    assert predict(peers).outer.sent_bytes == pytest.approx(2 * 3 / 4 * gradients, rel=1e-3)
    assert ranks.step_tokens == peers.step_tokens


def test_a_peer_trains_as_a_job_of_its_own_and_rates_are_those_of_all_peers():
    """All peers wait for the slowest device, so devices have equal clocks here."""
    equal = {"changes": ["site.clock_spread_fraction=0"]}
    alone, found = report("", peers=1, **equal), report("inner_steps=10 outer=bits:8", **equal)

    outer = found.outer
    assert outer.inner_step_s == alone.step_time_s
    assert outer.round_s == pytest.approx(10 * alone.step_time_s + outer.exposed_s, rel=1e-12)
    assert found.step_time_s == outer.round_s / 10
    assert sum(found.breakdown.values()) == pytest.approx(found.step_time_s, rel=1e-12)
    assert found.metrics.model_flop == pytest.approx(4 * alone.metrics.model_flop)
    assert found.metrics.mfu_ratio == pytest.approx(alone.metrics.mfu_ratio * outer.utilisation, rel=1e-9)
    ratio = found.metrics.tokens_per_s / alone.metrics.tokens_per_s
    assert ratio == pytest.approx(4 * outer.utilisation, rel=1e-12)
    usd = 4 * alone.cost.step_usd.value / outer.utilisation
    assert found.cost.step_usd.value == pytest.approx(usd, rel=1e-9)
    assert found.cost.energy.step_j.value < 4 * alone.cost.energy.step_j.value / outer.utilisation


def test_longer_rounds_fewer_bytes_faster_links_and_more_overlap_are_never_slower():
    ladders = {
        "inner steps": [f"inner_steps={steps}" for steps in (1, 2, 10, 30, 100)],
        "bits": [f"inner_steps=10 outer=bits:{bits}" for bits in (32, 16, 8, 4, 2)],
        "topk": [f"inner_steps=10 outer=topk:{kept},bits:2" for kept in (512, 64, 32, 1)],
        "overlap": [f"inner_steps=10 outer=bits:8,overlap:{steps}" for steps in range(11)],
        "fragments": [f"inner_steps=10 outer=bits:8,overlap:1,fragments:{each}" for each in (1, 2, 5, 10)],
    }
    for name, ladder in ladders.items():
        steps = [report(words).step_time_s for words in ladder]
        assert steps == sorted(steps, reverse=True), name
    for words in ("inner_steps=10", "inner_steps=10 outer=topk:64,store,overlap:3"):
        rates = [(1e6, 1e6), (2e6, 1e6), (2e6, 8e6), (1e9, 1e9)]
        steps = [report(words, up=up, down=down).step_time_s for up, down in rates]
        assert steps == sorted(steps, reverse=True), words
        slow, fast = (report(words, latency=each).step_time_s for each in ("1 s", "1 ms"))
        assert fast < slow


def test_an_exchange_overlaps_with_at_most_the_inner_steps_that_the_plan_allows():
    """Streaming DiLoCo (arXiv:2501.18512): a fragment is hidden behind its inner steps."""
    waiting = report("inner_steps=20 outer=bits:8").outer
    for fragments, overlap in ((1, 1), (1, 20), (4, 1), (4, 5), (4, 20), (20, 1)):
        found = report(f"inner_steps=20 outer=bits:8,fragments:{fragments},overlap:{overlap}").outer

        hidden_s = min(fragments * overlap, 20) * found.inner_step_s
        exposed_s = max(0.0, waiting.exchange_s - hidden_s) + found.update_s
        assert found.exchange_s == pytest.approx(waiting.exchange_s)
        assert found.exposed_s == pytest.approx(exposed_s, abs=1e-9)
    window = report("inner_steps=20 outer=bits:8,window:20min").outer
    assert (window.compute_s, window.exposed_s) == (1200.0, waiting.exposed_s)


def test_outer_states_take_their_bytes_on_the_device_or_on_the_host():
    """fp32 outer parameters and momentum, or error feedback; a pseudo-gradient in fp32 while peers wait.

    On the host, as in `diloco.py` of github.com/PrimeIntellect-ai/prime: parameters, momentum, gradients.
    """
    alone = report("", peers=1).memory
    each = job("").model.parameters() / DEVICES  # the optimizer's states are sharded (zero=1)
    for words, buffers in (
        ("inner_steps=10", 1),
        ("inner_steps=10 outer=topk:64", 1),
        ("inner_steps=10 outer=buffers:none", 0),
        ("inner_steps=10 outer=buffers:both", 2),
    ):
        found = report(words).memory
        assert found.by_category["outer_states"] == pytest.approx(4 * (1 + buffers) * each, rel=1e-3), words
        rest = {name: size for name, size in found.by_category.items() if name != "outer_states"}
        assert rest == alone.by_category, words
    overlapped = report("inner_steps=10 outer=overlap:1,fragments:2").memory
    assert overlapped.by_category["outer_states"] == pytest.approx((8 + 2) * each, rel=1e-3)
    outside = report("inner_steps=10 offload=outer:host")
    (host,) = outside.memory.tiers
    assert outside.memory.by_category == alone.by_category
    assert host.by_category == {"outer_states": pytest.approx(12 * each * DEVICES, rel=1e-3)}
    assert outside.outer.update_s > report("inner_steps=10").outer.update_s


def test_searches_and_exact_simulations_give_the_steps_of_predictions():
    base = job("inner_steps=10 outer=bits:8,overlap:2")
    plans = [base.plan, base.plan.model_copy(update={"micro_batch": 4})]
    jobs = [base.model_copy(update={"plan": plan}) for plan in plans]
    book = load_book(base.cluster)

    exact = [each for _, each in play_each(jobs, lambda _: book)]

    for one, played in zip(jobs, exact, strict=True):
        found = predict(one)
        assert played.step_time_s == pytest.approx(found.step_time_s, rel=1e-9)
        assert played.breakdown == pytest.approx(found.breakdown, rel=1e-9)
        assert played.step_high_s == pytest.approx(found.step_time_high_s, rel=1e-6)
        estimated_s = screen(one, one_plan(one.plan), book).step_time_s[0]
        assert estimated_s == pytest.approx(found.clean_step_time_s, rel=0.1)
    space = Space(tp=1, pp=1, cp=1, mbs="2,4", gbs=64, zero="1,2", inner_steps="10,40", refine=False)
    found = [each.played.plan for each in search_plans(base, space).plans]
    assert {plan.inner_steps for plan in found} == {10, 40}
    assert found[0].inner_steps == 40
    assert all((plan.peers, plan.data_parallel) == (4, 8) for plan in found)


def test_reports_state_the_round():
    found = report("inner_steps=10 outer=topk:64/4096,bits:2,store,window:20min")

    text = as_text(found)
    assert "a round of 4 peers takes" in text
    for line in ("inner steps", "exchange", "outer update", "sent by a peer", "received by a peer"):
        assert f"\n  {line}" in text
    assert "1/146 of the fp32 values" in text
    outer = json.loads(json.dumps(as_json(found)))["outer"]
    assert outer["utilisation"] == pytest.approx(found.outer.utilisation, rel=1e-6)
    assert outer["round_s"] * 0.1 == pytest.approx(found.step_time_s, rel=1e-6)
    assert "A round of 4 peers takes" in as_html(found)
    explained = explain(found, load_book(found.job.cluster), {}, "outer_round")
    assert explained.amount == pytest.approx(found.breakdown["outer_round"])
    assert as_json(report("", peers=1))["outer"] is None


def test_the_uncertainty_of_the_links_counts_as_far_as_training_waits_for_them():
    name = "outer_round[dgx-a100]"
    waiting = {each.name: each for each in report("inner_steps=10").factors}
    hidden = {each.name: each for each in report("inner_steps=1000 outer=bits:2,overlap:1000").factors}
    outer = report("inner_steps=10").outer

    assert waiting[name].share == pytest.approx(outer.exchange_s / outer.round_s)
    assert waiting[name].log_sigma_factor == LINK_LOG_SIGMA
    assert name not in hidden
    slow = Site(factors=({"name": name, "ratio": 2},))
    known = predict(job("inner_steps=10").model_copy(update={"site": slow}))
    assert known.outer.exchange_s == pytest.approx(2 * outer.exchange_s)
    assert not any(name in text for text in known.warnings)


def test_settings_are_read_and_written_in_every_form():
    text = "topk:64/4096,bits:2,exchange:store,fragments:4,overlap:2,buffers:both,window:1200s"
    plan = Plan(peers=4, inner_steps=30, outer=text)

    assert plan.outer.text() == text
    assert Plan(peers=4, inner_steps=30, outer=plan.outer.model_dump()) == plan
    assert plan.short() == f"mbs=1 gbs=1 peers=4 inner_steps=30 outer={text} precision=bf16"
    assert Plan(outer={"topk": "64/4096", "bits": 2}).outer == Outer(topk=64, chunk=4096, bits=2)
    assert Plan().short() == "mbs=1 gbs=1 precision=bf16"
    schema = Plan.model_json_schema()
    text_form, mapping = schema["properties"]["outer"]["anyOf"]
    assert (text_form["type"], mapping) == ("string", {"$ref": "#/$defs/Outer"})
    assert "$ref" not in schema["properties"]["outer"]
    assert schema["$defs"]["Outer"]["properties"]["topk"]["anyOf"][1]["type"] == "string"
    assert Outer(topk=64).sent_bits == 64 / 4096 * (32 + math.log2(4096))


def test_wrong_settings_are_refused_with_a_fix_that_works():
    for words, field, allowed, fixed in (
        ("inner_steps=10 outer=topk:64,frob:3", "plan.outer", "fragments", None),
        ("inner_steps=10 outer=topk:64,overlop:3", "plan.outer", "overlap", "write overlap:3"),
        ("inner_steps=10 outer=window:20", "plan.outer", "window:20min", "write window:20s"),
        ("inner_steps=10 outer=topk:64/32", "plan.outer", "a chunk of 32 values", "write 32/64"),
        ("inner_steps=10 outer=index_bits:12", "plan.outer", "without topk", None),
        ("inner_steps=10 outer=bits:2,bits:4", "plan.outer", "only once", None),
        ("inner_steps=10 outer=overlap:11", "plan.outer", "at most inner_steps (10)", "overlap:10"),
        ("inner_steps=10 outer=topk:8,all_reduce", "plan.outer", "all_gather", "exchange:all_gather"),
    ):
        with pytest.raises(SpecError) as raised:
            report(words)
        (problem,) = raised.value.problems
        assert problem.field == field, words
        assert allowed in f"{problem.allowed} {problem.because}", words
        assert fixed is None or fixed in problem.fix, (words, problem.fix)
    with pytest.raises(SpecError, match=r"peers = 32"):
        predict(job("inner_steps=10", peers=3, nodes=4))


def test_what_is_not_supported_with_peers_is_refused():
    found = job("inner_steps=10")
    for action in (
        lambda: exported(found, "megatron"),
        lambda: exported(found, "chakra"),
        lambda: share_network((found, found), 2.0, predict),
    ):
        with pytest.raises(SpecError, match=r"plan\.peers = 4 is not allowed") as raised:
            action()
        assert all("peers" in problem.because for problem in raised.value.problems)
    assert exported(found, "chrome").files
