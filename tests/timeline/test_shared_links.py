"""timeline/shared_links.py: messages of several axes on one link, worked by hand and against conservation.

Of equal blocks, each computes for w seconds, exchanges keys and values for c with the ranks that share its
sequence, and gathers the next block's parameters for d meanwhile. Ends of the model cost nothing here.
"""

from itertools import pairwise

import numpy as np
import pytest
from all_cases import all_cases
from conftest import make_job
from hypothesis import given, settings
from hypothesis import strategies as st
from workbench import priced_job, priced_plans, repriced, with_latency, without_latency

from flopcast.spec.plan import Plan
from flopcast.timeline.layer import layer_links
from flopcast.timeline.program import simulate
from flopcast.timeline.program_items import lay_out
from flopcast.timeline.step import run_step
from flopcast.workload.program import LAST, MIDDLE

SECONDS = st.integers(0, 80).map(lambda tenths: tenths / 10)
IN_A_NODE = {"cluster": "dgx-a100:1", "plan": "dp=4 cp=2 zero=3 gbs=8 context_exchange=all_to_all"}

STACK = {
    "base": "megatron-core",
    "contention": {"kernel_share": 0.0},
    "gradients": {"overlap": True, "copies": []},
}


def model_of(blocks):
    block = {"count": blocks, "mixer": {"heads": 8}, "feed_forward": {"ffn_hidden": 1024}}
    return {"hidden": 256, "vocabulary": 512, "blocks": [block]}


def blocks_of(blocks, compute_s, exchange_s, gather_s, where):
    """Programs of a model whose blocks compute, exchange and gather so long; nothing else takes time."""
    job = make_job(model=model_of(blocks), stack=STACK, **where)
    priced = without_latency(priced_job(job))
    exchanges = [i for i in priced.programs.forward[1].items if i.stream == "cp"] or [
        i for s in priced.programs.forward for i in s.items if i.stream == "cp"
    ]
    number = len({item.name for item in exchanges})

    def seconds_of(item):
        if item.name == "parameters.gather":
            of_block = item.work.message_bytes.item() * item.count.item() >= 12 * 256**2
            return gather_s * of_block / max(item.count.item(), 1e-9)
        if item.stream == "cp" and item.phase == "forward":
            return exchange_s / number / item.count.item()
        return compute_s if item.name == "mlp.up" else 0.0

    return repriced(priced, seconds_of)


def forward_s(priced, position=MIDDLE):
    return float(simulate(priced.programs.forward, priced, attribute=False).duration_s[position, 0, 0])


def period_s(w, c, d, where):
    """Seconds of one block among many."""
    longer, shorter = (forward_s(blocks_of(count, w, c, d, where)) for count in (40, 24))
    return (longer - shorter) / 16


@pytest.mark.parametrize(("w", "c", "d"), [(6.0, 2.0, 4.0), (1.0, 1.0, 1.0), (5.0, 1.0, 0.0)])
def test_a_message_gets_half_a_link_as_often_as_its_queue_is_busy(w, c, d):
    alone_s = w + c

    assert period_s(w, c, d, IN_A_NODE) == pytest.approx(max(w + c * (1 + d / alone_s), d + c))


@pytest.mark.parametrize(("w", "c", "d"), [(1.0, 2.0, 9.0), (0.0, 2.0, 2.0), (2.0, 1.0, 4.0)])
def test_layers_bound_by_their_link_take_the_sum_of_their_messages(w, c, d):
    assert period_s(w, c, d, IN_A_NODE) == pytest.approx(c + d)


@all_cases("latency_fraction", [0.0, 0.1, 0.5])
@all_cases(("w", "c", "d"), [(1.0, 4.0, 12.0), (0.5, 3.0, 30.0)])
def test_a_message_holds_up_a_queue_for_its_seconds_less_its_latency(w, c, d, latency_fraction):
    def with_part(priced):
        return with_latency(priced, lambda item: latency_fraction if item.stream == "cp" else 0.0)

    longer, shorter = (forward_s(with_part(blocks_of(n, w, c, d, IN_A_NODE))) for n in (40, 24))

    assert (longer - shorter) / 16 == pytest.approx(d + c * (1 - latency_fraction))


@pytest.mark.parametrize(
    ("cluster", "stack", "model", "plan"),
    [
        ("dgx-b200:2", "megatron-bridge", "llama-2-7b", "dp=2 tp=2 cp=2 pp=2 mbs=2 gbs=8 zero=1"),
        ("dgx-h100:2", "megatron-bridge", "llama-2-7b", "dp=4 tp=4 gbs=32 zero=1 sp"),
        ("dgx-a100:2", "torch-fsdp2", "llama-2-7b", "dp=8 cp=2 gbs=16 zero=3"),
    ],
)
def test_a_link_with_more_latency_makes_no_step_shorter(cluster, stack, model, plan):
    """Fabrics with measured curves and without: a curve's launch replaces the latency of the tier."""
    parts = {"cluster": cluster, "stack": stack, "model": model, "batch": {"sequence_length": 1024}}
    job = make_job(**parts, plan=f"{plan} precision=bf16")

    steps_s = []
    for latency_us in (1, 5, 10, 20, 50):
        tiers = [tier.model_copy(update={"latency_s": latency_us * 1e-6}) for tier in job.cluster.tiers]
        slower = job.cluster.model_copy(update={"tiers": tuple(tiers)})
        steps_s.append(run_step(priced_job(job.model_copy(update={"cluster": slower}))).step_time_s)

    assert all(less <= more for less, more in pairwise(steps_s)), steps_s


@settings(max_examples=12)
@given(SECONDS, SECONDS, SECONDS)
def test_a_shared_link_takes_the_sum_of_its_messages_and_no_longer_than_one_after_the_other(w, c, d):
    """Of 40 blocks, but for the first or last one, beside which a message of the others does not run."""
    found_s = forward_s(blocks_of(40, w, c, d, IN_A_NODE))

    assert 39 * max(w + c, c + d) - 1e-9 <= found_s <= 40 * (w + c + d) + 1e-9


@pytest.mark.parametrize(("w", "c", "d"), [(6.0, 2.0, 4.0), (1.0, 2.0, 9.0)])
def test_messages_on_different_tiers_take_nothing_from_each_other(w, c, d):
    across = {"cluster": "dgx-a100:4", "plan": "dp=16 tp=2 sp zero=3 gbs=32"}
    priced = without_latency(priced_job(make_job(model=model_of(8), stack=STACK, **across)))
    seconds = {"parameters.gather": d, "mlp.up": w}

    def seconds_of(item):
        if item.stream == "tp" and item.phase == "forward":
            return c
        return seconds.get(item.name, 0.0) / max(item.count.item(), 1e-9)

    played = repriced(priced, seconds_of)

    links = [link for segment in played.programs.forward for link in layer_links(segment.items, played)]

    assert not any(links)


def test_a_reduction_shares_its_link_in_the_micro_batch_that_reduces_alone():
    stack = {"base": "megatron-2022", "contention": {"kernel_share": 0.0}, "gradients": {"overlap": True}}
    job = make_job(stack=stack, plan="dp=4 tp=2 gbs=16 precision=fp16")
    priced = priced_job(job)
    backward = simulate(priced.programs.backward, priced, attribute=False).duration_s[:, 0, 0]
    in_block = next(s.items for s in priced.programs.backward if s.repeat[0, 0] == 8)
    tensor_s = 8 * sum(priced.seconds(item) for item in in_block if item.stream == "tp")

    assert 0 < backward[LAST] - backward[MIDDLE] < tensor_s


def test_what_is_lost_to_a_shared_link_is_told_as_time_of_the_messages_that_lose_it():
    priced = blocks_of(8, 6.0, 2.0, 4.0, IN_A_NODE)
    simulated = simulate(priced.programs.forward, priced, attribute=True)
    counts = simulated.counts[MIDDLE, 0, 0]
    each_s = [priced.of(item).alone_s[0, 0] for item in simulated.columns]

    counts = counts[: len(each_s)]  # without launches, and what the derivative has beyond these shares

    assert counts @ each_s == pytest.approx(simulated.duration_s[MIDDLE, 0, 0])
    lost_s = forward_s(priced) - forward_s(blocks_of(8, 6.0, 2.0, 0.0, IN_A_NODE)) - 4.0
    exchanged = sum(
        count * each
        for item, count, each in zip(simulated.columns, counts, each_s, strict=True)
        if item.stream == "cp"
    )
    assert exchanged == pytest.approx(8 * 2.0 + lost_s)


@pytest.mark.parametrize(("w", "c", "d"), [(6.0, 2.0, 4.0), (1.0, 2.0, 9.0)])
def test_item_by_item_a_program_with_shared_links_ends_when_the_matrices_say(w, c, d):
    priced = blocks_of(6, w, c, d, IN_A_NODE)

    laid_out = lay_out(priced.programs.forward, priced, 0, 0, MIDDLE)

    assert laid_out.duration_s == pytest.approx(forward_s(priced))


def test_plans_of_a_batch_share_links_each_as_it_would_alone():
    job = make_job(
        stack={
            "base": "megatron-2022",
            "contention": {"kernel_share": 0.0},
            "gradients": {"overlap": True},
        },
        cluster="dgx-a100:1",
    )
    plans = [Plan(dp=dp, tp=8 // dp, gbs=16, precision="fp16") for dp in (8, 4, 2, 1)]

    together = [run_step(priced_plans(job, plans), number).step_time_s for number in range(4)]
    alone = [run_step(priced_plans(job, [plan])).step_time_s for plan in plans]

    assert np.array_equal(together, alone)


SHARED_EXPERT = {
    "hidden": 1024,
    "vocabulary": 51200,
    "blocks": [
        {
            "count": 8,
            "mixer": {"heads": 16},
            "feed_forward": {"num_experts": 8, "top_k": 2, "expert_hidden": 512, "shared_experts": 1},
        }
    ],
}


@pytest.mark.parametrize("exchange_s", [2.0, 6.0])
def test_an_exchange_of_tokens_is_held_up_by_messages_of_shared_experts_beside_it(exchange_s):
    """One NVLink carries both; the shared linear takes 1 s, its tensor-parallel gather 2 s."""
    stack = {"base": "megatron-core", "rewrites": ["fused_layernorm", "shared_expert_overlap"]}
    plan = "dp=4 tp=2 sp ep=4 mbs=1 gbs=16"
    job = make_job(model=SHARED_EXPERT, stack=stack, plan=plan)
    priced = without_latency(priced_job(job))
    block = next(s.items for s in priced.programs.forward if s.repeat[0, 0] == 8)
    gather = next(i for i in block if i.beside == "ep" and i.stream == "tp")
    seconds = {"experts.dispatch": exchange_s, "shared.up": 1.0, gather.name: 2.0}

    played = repriced(priced, lambda item: seconds.get(item.name, 0.0) * (item.phase == "forward"))

    assert forward_s(played) / 8 == pytest.approx(max(1.0 + 2.0, exchange_s + 2.0))
