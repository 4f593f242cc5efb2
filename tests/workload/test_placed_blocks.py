"""Blocks with placements of their own outside the devices: how they are written, what is conserved."""

import pytest
from all_cases import all_cases

from flopcast.errors import SpecError
from flopcast.jobs import job
from flopcast.library.curves import load_book
from flopcast.operators.tier_copies import TierCopy
from flopcast.prediction import predict
from flopcast.spec.plan import Plan

BLOCKS = 32
STATE_BYTES, GRADIENT_BYTES = 12, 4  # of a parameter on the host: main weight and two moments; fp32
PLAN = "dp=8 mbs=1 gbs=16 zero=1"
WORDS = {"model": "llama-2-7b", "cluster": "dgx-a100:1", "seq": 4096, "stack": "megatron-core"}


def report(layers, plan=PLAN):
    asked = job(**WORDS, plan=f"{plan} {layers}".strip())
    return predict(asked, load_book(asked.cluster))


def host_bytes(found, name):
    (tier,) = found.memory.tiers
    return tier.by_category[name]


def copied_bytes(found):
    """Bytes that the copies of all micro-batches of one step move."""
    programs = found.priced.programs
    segments = [
        segment for leg in programs.legs or (programs,) for segment in (*leg.forward, *leg.backward)
    ]
    return sum(
        (item.work.size_bytes * segment.repeat).sum()
        for segment in segments
        for item in segment.items
        if isinstance(item.work, TierCopy)
    )


def test_placements_of_blocks_are_read_as_they_are_written():
    plan = Plan(
        dp=8, gbs=16, offload="optimizer:host", layers="0-7:offload=none,8:offload=activations@host@0.5"
    )
    as_list = [
        {"first": 0, "last": 7, "offload": {}},
        {"first": 8, "last": 8, "offload": "activations:host:0.5"},
    ]

    assert "layers=0-7:offload=none,8:offload=activations:host:0.5" in plan.short()
    assert Plan(**plan.model_dump() | {"layers": "0-7:offload=none,8:offload=activations:host:0.5"}) == plan
    assert Plan(dp=8, gbs=16, offload="optimizer:host", layers=as_list) == plan
    assert Plan(layers=[one.model_dump() for one in plan.layers]).layers == plan.layers


def test_states_of_placed_blocks_are_on_the_host_and_those_of_other_blocks_on_the_devices():
    whole = report("", f"{PLAN} offload=optimizer:host")
    model = job(**WORDS, plan=PLAN).model
    ends = 2 * model.vocabulary * model.hidden + model.hidden  # embedding, head and the last norm

    for placed in (8, BLOCKS):
        some = report(f"layers=0-{placed - 1}:offload=optimizer@host")
        of_blocks = (model.parameters() - ends) * placed / BLOCKS
        assert host_bytes(some, "optimizer_states") == pytest.approx(of_blocks * STATE_BYTES, rel=1e-6)
        assert host_bytes(some, "gradients") == pytest.approx(of_blocks * GRADIENT_BYTES, rel=1e-6)
        on_devices = 8 * some.memory.by_category["optimizer_states"]
        total = host_bytes(some, "optimizer_states") + on_devices
        assert total == pytest.approx(host_bytes(whole, "optimizer_states"), rel=1e-6)


def test_activations_and_copies_are_linear_in_the_number_of_placed_blocks():
    found = {
        blocks: report(f"layers=0-{blocks - 1}:offload=activations@host") for blocks in (8, 16, BLOCKS)
    }
    whole = report("", f"{PLAN} offload=activations:host")

    for sizes in (
        {blocks: host_bytes(one, "activations") for blocks, one in found.items()},
        {blocks: copied_bytes(one) for blocks, one in found.items()},
    ):
        assert sizes[16] == pytest.approx(2 * sizes[8])
        assert sizes[BLOCKS] == pytest.approx(4 * sizes[8])
    assert copied_bytes(found[BLOCKS]) == pytest.approx(copied_bytes(whole))
    assert found[BLOCKS].memory.device_used_bytes == pytest.approx(whole.memory.device_used_bytes)
    assert found[BLOCKS].step_time_s == pytest.approx(whole.step_time_s, rel=1e-3)


def test_offload_changes_no_flop_and_a_step_is_longer_with_every_placed_block():
    steps = [report(f"layers=0-{last}:offload=optimizer:host+activations:host") for last in (3, 7, 15)]

    assert len({one.metrics.model_flop for one in steps}) == 1
    assert steps[0].step_time_s < steps[1].step_time_s < steps[2].step_time_s


def test_placements_and_recompute_differ_by_block_in_one_plan():
    layers = "layers=0-7:offload=optimizer:host,8-15:offload=activations:host,16-31:recompute=full"

    found, plain = report(layers), report("")

    assert found.memory.by_category["activations"] < plain.memory.by_category["activations"] / 3
    assert host_bytes(found, "activations") == pytest.approx(
        host_bytes(report("layers=8-15:offload=activations@host"), "activations")
    )


@all_cases(
    "layers",
    [
        "0-3:offload=optimizer@tape",
        "0-3:offload=weights@host",
        "0-3:offload=parameters@host",  # needs ZeRO-3
        "0-3:offload=optimizer@host@1.5",
        "0-3:offload",
    ],
)
def test_a_placement_that_is_not_possible_is_an_error_with_a_fix(layers):
    with pytest.raises(SpecError) as error:
        report(f"layers={layers}")

    (problem,) = error.value.problems
    assert problem.field.startswith("plan.layers")
    assert problem.fix
