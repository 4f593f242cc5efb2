"""How much of a ring's traffic sticks out from under its blocks, against closed forms; invented seconds."""

import numpy as np
import pytest
from conftest import make_job
from single_calls import step_seconds
from workbench import priced_job, priced_plans, repriced

from flopcast.spec.plan import Plan
from flopcast.timeline.program import simulate
from flopcast.timeline.program_items import lay_out
from flopcast.workload.program import MIDDLE

RANKS, LAYERS = 8, 8
BLOCK_S = 1.0  # one rank's keys, forward; gradients of one take 2.5
CASES = [0.0, 0.3, 1.0, 1.7, 4.0, 9.0]  # seconds of one hop


@pytest.fixture(scope="module")
def priced():
    return priced_job(make_job(stack="megatron-core", plan=f"cp={RANKS} mbs=1 gbs=16"))


def with_hops(priced, transfer_s):
    """Blocks of one second, their gradients of 2.5, hops of so many; all else takes no time."""

    def seconds_of(item):
        name = item.name.removesuffix(".dgrad")
        if name in ("attention.flash", "attention.block", "attention.last_block"):
            return 2.5 * BLOCK_S if item.phase == "backward" else BLOCK_S
        return transfer_s if item.name.startswith("attention.pass_on") else 0.0

    return repriced(priced, seconds_of)


def layer_s(segments, priced):
    """Seconds of one layer."""
    return float(simulate(segments, priced, attribute=False).duration_s[MIDDLE, 0, 0]) / LAYERS


@pytest.mark.parametrize("transfer_s", CASES)
def test_all_blocks_but_the_last_hide_hops_in_the_forward_pass(priced, transfer_s):
    """The first of n - 1 hops starts with the first block; the last block needs the last hop."""
    played = with_hops(priced, transfer_s)

    found = layer_s(played.programs.forward, played)

    assert found == pytest.approx(BLOCK_S + (RANKS - 1) * max(BLOCK_S, transfer_s))


@pytest.mark.parametrize("transfer_s", CASES)
def test_all_blocks_hide_hops_in_the_backward_pass(priced, transfer_s):
    """Keys and values pass on n - 1 times, and so do their gradients."""
    played = with_hops(priced, transfer_s)

    found = layer_s(played.programs.backward, played)

    assert found == pytest.approx(max(RANKS * 2.5 * BLOCK_S, 2 * (RANKS - 1) * transfer_s))


@pytest.mark.parametrize("transfer_s", CASES)
def test_the_pass_laid_out_item_by_item_takes_as_long(priced, transfer_s):
    played = with_hops(priced, transfer_s)

    for segments in played.programs.passes:
        laid_out = lay_out(segments, played, plan=0, chunk_class=0, position=MIDDLE)
        assert laid_out.duration_s == pytest.approx(LAYERS * layer_s(segments, played))


def test_hops_run_while_blocks_do_and_not_before_their_layer(priced):
    played = with_hops(priced, 0.5)

    run = lay_out(played.programs.forward, played, plan=0, chunk_class=0, position=MIDDLE)

    hops = np.array([item.stream == "cp" for item in run.items])
    first_blocks = np.array([item.name == "attention.flash" for item in run.items])
    assert run.start_s[hops].tolist() == run.start_s[first_blocks].tolist()


def test_more_bandwidth_between_ranks_of_a_sequence_is_never_slower():
    plan = "cp=32 mbs=1 gbs=8 context_exchange=all_gather"
    steps = []
    for factor in (1, 2, 4):
        tiers = [
            {"name": "nvswitch", "devices": 8, "bytes_per_s": "450 GB/s", "latency_s": "3 us"},
            {"name": "network", "devices": 0, "bytes_per_s": f"{factor * 25} GB/s", "latency_s": "5 us"},
        ]
        job = make_job(
            stack={"base": "megatron-core", "host": {"forward_item_s": "0 s", "backward_item_s": "0 s"}},
            cluster={"base": "dgx-a100:4", "tiers": tiers},
            plan=plan,
            batch={"seq": 8192},
        )
        played = priced_job(job)
        steps.append(layer_s(played.programs.forward, played))

    assert steps == sorted(steps, reverse=True)
    assert steps[0] > steps[-1]


@pytest.mark.parametrize("overlap", ["none", "chunks"])
def test_plans_that_share_sequences_take_as_long_in_a_batch_as_alone(overlap):
    stack = {"base": "megatron-core", "tensor_overlap": overlap}
    job = make_job(stack=stack, plan="dp=8 mbs=1 gbs=8", batch={"seq": 8192})
    plans = [Plan(cp=cp, tp=tp, dp=8 // cp // tp, gbs=8, sp=True) for cp in (1, 2, 4) for tp in (1, 2)]

    together = step_seconds(priced_plans(job, plans))

    alone = [step_seconds(priced_plans(job, [plan]))[0] for plan in plans]
    assert together.tolist() == pytest.approx(alone, rel=1e-12)
