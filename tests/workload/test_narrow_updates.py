"""Updated parameters that ranks gather in 8 bits, against a count of weights and their bytes by hand.

Megatron-Core, core/distributed: buffers of 8-bit parameters hold bytes, those of MXFP8 hold bf16.
"""

import pytest
from all_cases import all_cases
from workload_cases import HIDDEN, LLAMA, MEGATRON, VOCABULARY, at, realised, stack_with

from flopcast.layers.experts import Experts
from flopcast.library import catalog
from flopcast.workload.program import POSITIONS, WHEN

FSDP = catalog.stack("torch-fsdp2")
KEPT = stack_with(MEGATRON, narrow={"narrow_parameters": True})
WIDTH, EXPERT_WIDTH, EXPERTS = 2816, 512, 8
ATTENTION = HIDDEN * HIDDEN * 3  # q and out; k and v of half the heads each
LINEARS = 8 * (ATTENTION + 3 * HIDDEN * WIDTH)
WIDE = 2 * VOCABULARY * HIDDEN + 17 * HIDDEN  # two tables, two norms a block and the last one
MIXTURE = LLAMA.model_copy(
    update={
        "blocks": (
            LLAMA.blocks[0].model_copy(
                update={"feed_forward": Experts(num_experts=EXPERTS, top_k=2, expert_hidden=EXPERT_WIDTH)}
            ),
        )
    }
)
NARROW = ["fp8", "fp8_current", "fp8_blockwise"]


def update_bytes(programs, name):
    """Bytes of all messages of a name, wherever in the first micro-batch or behind the update they are."""
    first = POSITIONS.index("first")
    forward = [
        at(item.work.message_bytes) * at(item.count) * WHEN[item.when][first] * segment.repeat[0, 0]
        for segment in programs.forward
        for item in segment.items
        if item.name == f"parameters.{name}"
    ]
    behind = [
        at(item.work.message_bytes) * at(item.count)
        for item in programs.update
        if item.name == f"gradients.{name}"
    ]
    return sum(forward) + sum(behind)


def gathered(stack, text, model=LLAMA):
    """Bytes of one step's updated parameters: those of experts apart, and both ways of gathering alike."""
    hidden, exposed = (
        realised(model, stack_with(stack, gradients={"overlap_gather": overlaps}), text)
        for overlaps in (True, False)
    )
    found = [update_bytes(hidden, name) for name in ("gather", "gather_experts")]
    behind = [update_bytes(exposed, name) for name in ("gather_parameters", "gather_parameters_experts")]
    assert behind == pytest.approx(found)
    return found


@all_cases("precision", NARROW)
@all_cases("zero", [1, 2])
def test_weights_of_narrow_products_travel_in_one_byte_and_all_others_in_two(precision, zero):
    found = gathered(KEPT, f"dp=8 gbs=8 zero={zero} precision={precision}")

    assert found == pytest.approx([LINEARS + 2 * WIDE, 0.0])


@pytest.mark.parametrize("precision", ["bf16", "mxfp8", "nvfp4"])
def test_what_is_wide_or_needs_a_second_layout_travels_in_two_bytes(precision):
    found = gathered(KEPT, f"dp=8 gbs=8 zero=1 precision={precision}")

    assert found == pytest.approx([2 * (LINEARS + WIDE), 0.0])


@pytest.mark.parametrize(("narrow", "low"), [(True, True), (True, False), (False, True)])
def test_zero_3_gathers_weights_in_one_byte_where_shards_are_narrow_and_the_stack_sends_them_so(
    narrow, low
):
    """fsdp_pre_all_gather of Transformer Engine's MXFP8Tensor: rows forward, columns backward."""
    stack = stack_with(
        FSDP,
        narrow={"narrow_parameters": narrow},
        sharding={"low_precision_gathers": low, "ends": "own_units", "keeps_last_unit": False},
    )
    programs = realised(LLAMA, stack, "dp=8 gbs=8 zero=3 precision=mxfp8")

    linears = LINEARS if narrow and low else 2 * LINEARS
    assert update_bytes(programs, "gather") == pytest.approx(linears + 2 * WIDE)


@all_cases("precision", NARROW)
def test_a_stack_that_keeps_wide_weights_gathers_them_wide(precision):
    found = gathered(MEGATRON, f"dp=8 gbs=8 zero=1 precision={precision}")

    assert found == pytest.approx([2 * (LINEARS + WIDE), 0.0])


def test_blocks_that_stay_in_bf16_travel_in_two_bytes():
    ends = {"narrow_parameters": True, "wide_first_blocks": 1, "wide_last_blocks": 2}

    found = gathered(stack_with(MEGATRON, narrow=ends), "dp=8 gbs=8 zero=1 precision=fp8_current")

    assert found == pytest.approx([LINEARS * 5 / 8 + 2 * (LINEARS * 3 / 8 + WIDE), 0.0])


def test_experts_travel_in_one_byte_and_their_router_in_two():
    found = gathered(KEPT, "dp=8 ep=4 gbs=8 zero=1 precision=fp8_current", MIXTURE)

    router, experts = 8 * EXPERTS * HIDDEN, 8 * EXPERTS * 3 * HIDDEN * EXPERT_WIDTH
    assert found == pytest.approx([8 * ATTENTION + 2 * (WIDE + router), experts / 4])


def test_gradients_travel_as_wide_as_ever():
    narrow, wide = (realised(LLAMA, stack, "dp=8 gbs=8 zero=1 precision=fp8") for stack in (KEPT, MEGATRON))

    reductions = [
        sum(
            at(item.work.message_bytes) * at(item.count)
            for item in programs.reduce
            if "reduce" in item.name
        )
        for programs in (narrow, wide)
    ]
    assert reductions[0] == reductions[1] > 0
