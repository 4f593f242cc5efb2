"""Peers of different speeds and checkpoints of peers, against jobs of one peer and closed forms."""

import json

import numpy as np
import pytest
from unmarked import unmarked

import flopcast
from flopcast import predict
from flopcast.api import predict_checkpoint
from flopcast.errors import InfeasibleError, SpecError
from flopcast.placement import best_group_division
from flopcast.plans_that_fit import plan_that_fits
from flopcast.render.report_json import as_json
from flopcast.render.report_page import as_html
from flopcast.render.report_text import marked_text

as_text = unmarked(marked_text)
MODEL, RATE = "gpt3-1.3b", 2e6
NVLINK = {"name": "nvlink", "devices": 8, "bytes_per_s": "300 GB/s", "latency_s": "5 us"}
A100 = {"device": "a100-sxm4-80gb", "devices": 8, "host": "epyc-7763"}
H100 = {"device": "h100-sxm5-80gb", "devices": 8, "host": "xeon-platinum-8480"}
EQUAL_CLOCKS = "site.clock_spread_fraction=0"
ROUND = "inner_steps=20 outer=bits:8"


def job(words, *groups, up=RATE, links=None, **parts):
    """Return a job whose peers are nodes of these groups, pairs of a node and a number of nodes."""
    internet = {"name": "internet", "devices": 0, "bytes_per_s": f"{up} B/s", "latency_s": "0 s"}
    internet |= {"attained_fraction": 1} if links is None else {"links": links}
    groups = [{"node": node, "count": count} for node, count in groups or ((A100, 4),)]
    cluster = {"name": "sites", "groups": groups, "tiers": [NVLINK, internet]}
    plan = f"dp=8 mbs=2 gbs=64 zero=1 {words}"
    return flopcast.job(
        MODEL, cluster=cluster, stack="megatron-core", seq=2048, plan=plan, changes=[EQUAL_CLOCKS],
        **parts,
    )  # fmt: skip


def report(words, *groups, **parts):
    return predict(job(words, *groups, **parts))


def test_a_round_waits_for_the_slowest_kind_of_node_as_that_node_trains_alone():
    mixed = report(f"peers=4 {ROUND}", (A100, 1), (H100, 3))
    slow, fast = (report("", (node, 1)).step_time_s for node in (A100, H100))

    outer, (first, second) = mixed.outer, mixed.peers
    assert outer.inner_step_s == pytest.approx(slow, rel=1e-9)
    assert (first.peers, second.peers) == ((0,), (1, 2, 3))
    assert (first.inner_step_s, first.waits_s) == (pytest.approx(slow), pytest.approx(0, abs=1e-9))
    assert second.inner_step_s == pytest.approx(fast)
    assert second.waits_s == pytest.approx(20 * (slow - fast))
    assert (first.device, second.device) == ("a100-sxm4-80gb", "h100-sxm5-80gb")
    equal = report(f"peers=4 {ROUND}", (A100, 4))
    assert mixed.step_time_s == pytest.approx(equal.step_time_s, rel=1e-9)
    assert equal.peers == ()
    assert mixed.metrics.tokens_per_s == pytest.approx(equal.metrics.tokens_per_s, rel=1e-9)


def test_a_slow_peer_is_as_slow_as_a_job_whose_parts_are_all_slow():
    equal = report(f"peers=4 {ROUND}")
    everything = ",".join([*(f"device={rank}:0.5" for rank in range(8)), "host=0:0.5"])
    alone = report("", (A100, 1), slow=everything)

    found = report(f"peers=4 {ROUND}", slow="peer=2:0.5")

    assert found.outer.inner_step_s == pytest.approx(alone.step_time_s, rel=1e-9)
    assert [each.peers for each in found.peers] == [(2,), (0, 1, 3)]
    lost_s = alone.step_time_s - report("", (A100, 1)).step_time_s
    assert found.stragglers.lost_s == pytest.approx(lost_s, rel=1e-6)
    assert found.step_time_s - equal.step_time_s == pytest.approx(lost_s, rel=1e-6)


def test_an_exchange_takes_as_long_as_the_slowest_link():
    equal = report(f"peers=4 {ROUND}").outer
    for slow, factor in (
        ("peer_link=3:0.25", 4),
        ("link=25:0.25", 4),
        ("internet=25:0.5,peer_link=3:0.8", 2),
        ("device=3:0.5", 1),
    ):
        found = report(f"peers=4 {ROUND}", slow=slow)
        assert found.outer.exchange_s == pytest.approx(factor * equal.exchange_s), slow
    slowest = report(f"peers=4 {ROUND}", slow="peer_link=3:0.25")
    added_s = 3 * equal.exchange_s / 20
    assert slowest.stragglers.lost_s == pytest.approx(added_s)
    assert slowest.outer.inner_step_s == pytest.approx(equal.inner_step_s)


def test_a_ring_of_peers_is_as_fast_as_its_slowest_measured_pair():
    random = np.random.default_rng(5).uniform(8, 16, (4, 4)).round(3)  # MB/s of a node
    found = report(f"peers=4 {ROUND}", links={"rows": random.tolist(), "devices": 8})

    slowest = min(random[peer, (peer + 1) % 4] for peer in range(4)) * 1e6
    assert found.outer.exchange_s == pytest.approx(found.outer.sent_bytes / slowest, rel=1e-9)


def test_micro_batches_divided_by_speed_shorten_the_round():
    mixed = job(f"peers=2 {ROUND}", (A100, 1), (H100, 1))
    found = best_group_division(mixed)

    assert found.what == "micro_batches"
    assert sum(found.parts) == 2 * mixed.plan.num_micro_batches
    assert found.parts[0] < found.parts[1]
    divided = predict(found.job)
    assert divided.outer.inner_step_s < predict(mixed).outer.inner_step_s
    assert divided.metrics.model_flop == pytest.approx(predict(mixed).metrics.model_flop)


def test_outer_states_on_hosts_must_fit_on_the_smallest_host():
    memory = {"capacity_bytes": "2 TB", "bytes_per_s": "300 GB/s"}
    small = {**H100, "memory": {**memory, "capacity_bytes": "10 GB"}}
    words = f"peers=2 {ROUND} offload=outer:host"

    (host,) = report(words, ({**A100, "memory": memory}, 1), (small, 1)).memory.tiers

    assert host.capacity_bytes == 10e9
    with pytest.raises(SpecError, match=r"groups\[1\]\.node\.memory"):
        report(words, ({**A100, "memory": memory}, 1), (H100, 1))


def test_reports_show_the_peers_of_each_speed():
    found = report(f"peers=4 {ROUND}", (A100, 1), (H100, 3), slow="peer_link=3:0.5")

    text = as_text(found)
    assert "inner steps of unequal peers\n  peer 0 " in text
    assert "peers 1, 2" in text
    assert "links at 50% of the usual speed" in text
    assert "link of peer 3 at 0.5 of its speed" in text
    rows = json.loads(json.dumps(as_json(found)))["outer"]["unequal_peers"]
    assert [each["peers"] for each in rows] == [[0], [1, 2], [3]]
    assert rows[1]["waits_s"] == pytest.approx(found.peers[1].waits_s)
    assert "Inner steps of unequal peers" in as_html(found)


def test_kinds_of_peers_need_peers():
    for words, slow, problem in (
        ("", "peer=0:0.5", "the plan has only one peer"),
        (f"peers=4 {ROUND}", "peer=4:0.5", "from 0 to 3"),
    ):
        groups = ((A100, 4),) if words else ((A100, 1),)
        with pytest.raises(SpecError, match=problem):
            report(words, *groups, slow=slow)


def test_every_peer_saves_its_inner_and_outer_states():
    """AdamW in mixed precision saves 14 bytes per parameter; outer parameters and buffers are in fp32."""
    parameters = job("").model.parameters()
    for words, outer in (
        (ROUND, 8),
        (f"{ROUND},buffers:none", 4),
        ("inner_steps=20 outer=topk:64,buffers:both", 12),
    ):
        saving = job(f"peers=4 {words}", checkpoint="lazy host every=20")
        saved = predict_checkpoint(saving).cost.saved
        assert saved.total_bytes == pytest.approx(4 * (14 + outer) * parameters, rel=1e-3), words
        assert saved.read_bytes.shape == (32,)
        assert predict(saving).checkpoint.saved.total_bytes == saved.total_bytes
    memory = {"capacity_bytes": "2 TB", "bytes_per_s": "300 GB/s"}
    outside = job(
        f"peers=4 {ROUND} offload=outer:host", ({**A100, "memory": memory}, 4), checkpoint="lazy host"
    )
    saved = predict_checkpoint(outside).cost.saved
    assert saved.copied_bytes.sum() == pytest.approx(14 / 22 * saved.written_bytes.sum(), rel=1e-3)


def test_a_checkpoint_of_peers_is_loaded_by_other_numbers_of_peers():
    parameters, four = job("").model.parameters(), f"peers=4 {ROUND}"
    for old, new, each in (
        ((four, (A100, 4)), (f"peers=2 {ROUND}", (A100, 2)), 2 * 8),
        ((four, (A100, 4)), ("", (A100, 1)), 0),
        (("", (A100, 1)), (four, (A100, 4)), 0),
    ):
        saving, loading = (job(words, group, checkpoint="lazy host") for words, group in (old, new))
        read = predict_checkpoint(saving, loading).resharded.reads.rank_bytes
        peers = loading.plan.peers
        weights = 8 * 2 * peers  # each of eight data-parallel ranks reads all weights in 16 bits
        assert read.sum() == pytest.approx((weights + 12 * peers + each) * parameters, rel=1e-6)


def test_a_partial_plan_that_does_not_fit_gets_advice_with_slow_parts_too():
    """Advice was a refusal of slow parts, because it looked for plans of the job with its slow parts."""
    with pytest.raises(InfeasibleError, match="The job fits with"):
        flopcast.job("llama-3-8b", gpus=1, seq=2048, slow="device=0:0.5")


def test_plans_that_fit_are_named_for_jobs_with_slow_parts_and_not_for_unequal_groups():
    too_large = {"micro_batch": 512, "global_batch": 4096}
    slow, mixed = (
        each.model_copy(update={"plan": each.plan.model_copy(update=too_large)})
        for each in (
            job(f"peers=2 {ROUND}", (A100, 2), slow="peer=1:0.5"),
            job(f"peers=2 {ROUND}", (A100, 1), (H100, 1)),
        )
    )

    assert plan_that_fits(slow).plan.micro_batch < 512
    assert plan_that_fits(mixed) is None
