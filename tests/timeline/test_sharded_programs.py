"""Gathers and reductions of sharded parameters beside compute: what is exposed, worked out by hand.

Of n equal blocks, each computes for w seconds and gathers for c; behind its backward it reduces for d.
While a message runs, compute loses r of its time. Ends of the model cost nothing here.
"""

import pytest
from all_cases import all_cases
from conftest import make_job
from workbench import priced_job, repriced

from flopcast.timeline.program import simulate
from flopcast.timeline.program_items import lay_out
from flopcast.timeline.step import run_step
from flopcast.workload.program import MIDDLE

BLOCKS = 6
MODEL = {
    "hidden": 256,
    "vocabulary": 512,
    "blocks": [{"count": BLOCKS, "mixer": {"heads": 4}, "feed_forward": {"ffn_hidden": 1024}}],
}
PLAIN = {
    "base": "megatron-core",
    "gradients": {"overlap": True, "copies": []},
    "contention": {"kernel_share": 0.0},
}


def changed(**parts):
    """The stack with parts of it changed."""
    return PLAIN | {name: PLAIN.get(name, {}) | change for name, change in parts.items()}


def sharded(stack, compute_s, gather_s, reduce_s=0.0, plan="dp=8 zero=3 gbs=16 precision=bf16"):
    """Programs of the model where only its blocks, their gathers and their reductions take time."""
    priced = priced_job(make_job(model=MODEL, stack=stack, plan=plan))
    in_block = 12 * 256**2

    def seconds(item):
        if item.name in ("parameters.gather", "gradients.reduce"):
            of_block = item.work.message_bytes.item() * item.count.item() >= in_block
            each_s = gather_s if item.name == "parameters.gather" else reduce_s
            return each_s * of_block / max(item.count.item(), 1e-9)
        return compute_s if item.name in ("mlp.up", "mlp.up.dgrad") else 0.0

    return repriced(priced, seconds)


def forward_s(priced):
    return simulate(priced.programs.forward, priced, attribute=True).duration_s[MIDDLE, 0, 0]


def backward_s(priced):
    return simulate(priced.programs.backward, priced, attribute=True).duration_s[MIDDLE, 0, 0]


@all_cases(("w", "c"), [(3.0, 1.0), (1.0, 1.0), (1.0, 4.0), (2.0, 0.0)])
def test_one_gather_ahead_hides_all_but_the_first_or_all_compute_but_the_last(w, c):
    priced = sharded(PLAIN, w, c)

    assert forward_s(priced) == pytest.approx(c + (BLOCKS - 1) * max(w, c) + w)


@pytest.mark.parametrize(("w", "c"), [(3.0, 1.0), (1.0, 4.0)])
def test_without_prefetch_every_gather_is_waited_for(w, c):
    priced = sharded(changed(sharding={"prefetch_units": 0}), w, c)

    assert forward_s(priced) == pytest.approx(BLOCKS * (w + c))


@pytest.mark.parametrize(("w", "c", "d"), [(5.0, 1.0, 2.0), (4.0, 2.0, 2.0)])
def test_a_backward_that_computes_longer_shows_its_first_gather_and_its_last_reduction(w, c, d):
    priced = sharded(PLAIN, w, c, d)

    assert backward_s(priced) == pytest.approx(c + BLOCKS * w + d)


def test_a_backward_that_computes_less_lasts_as_long_as_its_messages_one_after_the_other():
    w, c, d = 1.0, 2.0, 3.0

    priced = sharded(PLAIN, w, c, d)

    assert backward_s(priced) == pytest.approx(BLOCKS * (c + d))


@pytest.mark.parametrize(("w", "c"), [(3.0, 1.0), (1.0, 1.0), (0.5, 4.0)])
def test_a_message_beside_compute_costs_it_a_part_of_its_time_unless_compute_waits_anyway(w, c):
    """max(w + r c, c), as measured on A100 (r = 0.3) under eager FSDP: docs/concepts/timeline.md."""
    priced = sharded(changed(contention={"kernel_share": 1.0}), w, c)
    r = priced.cluster.node.device.collective_slowdown_fraction

    assert r == pytest.approx(0.3)
    assert forward_s(priced) == pytest.approx(c + (BLOCKS - 1) * max(w + r * c, c) + w)


def test_a_stack_whose_messages_need_no_multiprocessors_loses_nothing():
    with_kernels, without = (
        sharded(changed(contention={"kernel_share": share}), 3.0, 1.0) for share in (1.0, 0.0)
    )

    assert forward_s(with_kernels) > forward_s(without) == pytest.approx(1.0 + BLOCKS * 3.0)


def test_what_compute_loses_is_told_as_time_of_the_messages_that_it_loses_it_to():
    priced = sharded(changed(contention={"kernel_share": 1.0}), 3.0, 1.0)
    simulated = simulate(priced.programs.forward, priced, attribute=True)

    counts = simulated.counts[MIDDLE, 0, 0]
    gathers = sum(
        counts[column] * priced.seconds(item)
        for column, item in enumerate(simulated.columns)
        if item.name == "parameters.gather"
    )

    assert gathers == pytest.approx(1.0 + (BLOCKS - 1) * 0.3)  # the first whole


def test_item_by_item_a_program_with_contention_ends_when_the_matrices_say():
    priced = sharded(changed(contention={"kernel_share": 1.0}), 2.0, 1.0, 3.0)

    laid_out = lay_out(priced.programs.backward, priced, 0, 0, MIDDLE)

    assert laid_out.duration_s == pytest.approx(backward_s(priced))


@pytest.mark.parametrize(
    ("gathers", "forwards", "backwards"),
    [("every_pass", 2, 2), ("every_micro_batch", 2, 0), ("every_step", 1, 0)],
)
def test_a_policy_decides_in_how_many_passes_of_two_micro_batches_a_gather_is_waited_for(
    gathers, forwards, backwards
):
    w, c = 2.0, 1.0
    priced = sharded(changed(sharding={"gathers": gathers}), w, c)

    passes_s = run_step(priced).end_s.max()

    shown = forwards + backwards  # one gather sticks out of each pass that gathers
    assert passes_s == pytest.approx(4 * BLOCKS * w + shown * c)


def test_updated_parameters_arrive_under_the_next_forward_across_the_step_s_boundary():
    """Every step begins where the last one ended: one gather is waited for, the others are hidden."""
    w, c, plan = 2.0, 1.0, "dp=8 zero=1 gbs=16 precision=bf16"
    under = sharded(changed(gradients={"overlap_gather": True}), w, c, plan=plan)

    timeline = run_step(under)

    assert timeline.update_s.max() == 0.0
    assert timeline.step_time_s == pytest.approx(4 * BLOCKS * w + c)


INTERLEAVED = "dp=4 pp=2 vpp=3 zero=1 gbs=16 precision=bf16"  # a block a chunk, four micro-batches


def interleaved_step(w, c, share=0.0, reduce_s=0.0):
    """A step of interleaved chunks whose updated parameters arrive from its start on."""
    stack = changed(gradients={"overlap_gather": True}, contention={"kernel_share": share})
    return run_step(sharded(stack, w, c, reduce_s, plan=INTERLEAVED))


def test_gathers_of_interleaved_chunks_begin_with_the_step_on_all_stages_and_hide():
    w = 2.0

    turns = (4 + 1 / 3) * 3 * 2 * w  # arXiv:2104.04473, section 2.2.2

    assert interleaved_step(w, c=1.0).step_time_s == pytest.approx(turns)


def test_gathers_that_last_longer_than_anything_are_shown_once_and_not_once_a_stage():
    w = 0.01
    slow, slower = (interleaved_step(w, c).step_time_s for c in (100.0, 200.0))

    assert slower - slow == pytest.approx(3 * 100.0)  # three blocks a stage
    assert slow - 3 * 100.0 < (4 + 1 / 3) * 3 * 2 * w


def test_shares_of_a_step_that_waits_for_gathers_sum_to_it():
    timeline = interleaved_step(1.0, c=5.0)
    gathers = [s.path_s for s in timeline.shares if s.item and s.item.name == "parameters.gather"]

    assert sum(share.path_s for share in timeline.shares) == pytest.approx(timeline.step_time_s)
    assert sum(gathers) == pytest.approx(3 * 5.0)


def test_what_a_stage_loses_beside_messages_counts_once_and_not_for_every_chunk_that_follows():
    w, c, d = 2.0, 0.5, 0.5
    alone, beside = (interleaved_step(w, c, share, d) for share in (0.0, 1.0))

    of_three_blocks_s = 0.3 * (3 * (c + d) - d)  # the last reduction runs beside nothing

    assert beside.step_time_s - alone.step_time_s == pytest.approx(of_three_blocks_s)


def test_stages_that_keep_parameters_show_one_gather_in_a_step_and_no_reduction_but_the_last():
    w, c, d = 2.0, 1.0, 1.0
    plan = "dp=4 pp=2 zero=3 gbs=32 precision=bf16"
    priced = sharded(PLAIN, w, c, d, plan=plan)

    step_s = run_step(priced).step_time_s

    micro_batches, of_stage = 8, BLOCKS // 2
    turns = (micro_batches + 1) * of_stage * 2 * w  # 1F1B of two equal stages
    assert step_s == pytest.approx(turns + c + d, abs=c)  # the second stage's first gather is hidden or not


LISTED = {  # what may depend on where a run of equal blocks ends
    "units gathered on the link of tensor parallelism": {
        "stack": "torch-fsdp2",
        "plan": "dp=4 tp=2 zero=3 gbs=8 precision=bf16",
    },
    "updated parameters under the forward": {
        "stack": "megatron-bridge",
        "plan": "dp=4 tp=2 sp zero=1 gbs=8 precision=bf16",
    },
    "scales that ranks agree on": {"stack": "megatron-core", "plan": "dp=4 tp=2 gbs=8 precision=fp8"},
}


def test_equal_blocks_listed_in_two_entries_take_as_long_as_in_one():
    block = {"mixer": {"heads": 16}, "feed_forward": {"ffn_hidden": 4096}}
    for name, parts in LISTED.items():
        whole_s, parted_s = (
            run_step(priced_job(make_job(model=model, cluster="dgx-h100:1", **parts))).step_time_s
            for counts in ((8,), (3, 5))
            for model in [
                {
                    "hidden": 2048,
                    "vocabulary": 32000,
                    "blocks": [block | {"count": count} for count in counts],
                }
            ]
        )

        assert parted_s == pytest.approx(whole_s, rel=1e-9), name
