"""Sums of weight gradients and full groups of rows, where experts are multiplied one by one."""

import pytest
from workload_cases import LENGTH, LLAMA, block_of, realised, stack_with

from flopcast.layers.experts import Experts
from flopcast.operators.matmul import GroupedMatmul
from flopcast.operators.quantise import Quantise

PICKS, EXPERTS, RANKS = 4, 32, 8
GROUPS = EXPERTS // RANKS
COPIES = ("experts.pad", "experts.unpad")


def mixture(imbalance=None, **fields):
    experts = Experts(
        num_experts=EXPERTS, top_k=PICKS, expert_hidden=512, load_imbalance_ratio=imbalance, **fields
    )
    blocks = tuple(block.model_copy(update={"feed_forward": experts}) for block in LLAMA.blocks)
    return LLAMA.model_copy(update={"blocks": blocks})


def block(model=None, precision="mxfp8", dispatcher="all_to_all", rewrites=("separate_experts",), **fields):
    stack = stack_with(experts={"dispatcher": dispatcher}, rewrites=rewrites, **fields)
    plan = f"dp={RANKS} ep={RANKS} mbs=1 gbs={RANKS} precision={precision}"
    return block_of(realised(model or mixture(), stack, plan))


def copied_rows(items):
    return [item.work.elements.item() / LLAMA.hidden for item in items if item.name in COPIES]


def test_uneven_groups_of_narrow_rows_are_copied_before_the_first_product_and_after_the_last():
    found = block()
    names = [item.name for item in found.forward]
    rows = next(item.work for item in found.forward if item.name == "experts.up").rows.item()

    assert copied_rows(found.forward) == pytest.approx([rows, rows])
    assert rows >= LENGTH * PICKS  # of the fullest rank
    assert names.index("experts.sort") < names.index("experts.pad") < names.index("experts.up")
    assert names.index("experts.down") < names.index("experts.unpad") < names.index("experts.unsort")
    back = [item.work.work().moved_bytes.item() for item in found.backward if item.name[:-6] in COPIES]
    assert back == pytest.approx([rows * LLAMA.hidden * 2 * 2] * 2)


def test_no_row_is_copied_where_groups_are_full_or_another_kernel_fills_them_up():
    for other in (
        block(mixture(imbalance=1.0)),
        block(mixture(capacity_factor=1.0, pads_to_capacity=True)),
        block(dispatcher="hybridep"),
        block(rewrites=()),
        block(precision="bf16"),
    ):
        assert sum(copied_rows(other.forward)) == 0


@pytest.mark.parametrize(("dtype", "size_bytes"), [("bf16", 2), ("fp32", 4)])
def test_a_weight_gradient_reads_and_writes_the_sum_that_it_is_added_to(dtype, size_bytes):
    weights = GROUPS * LLAMA.hidden * (2 * 512 + 512)

    def after_bytes(passes):
        items = block(gradients={"dtype": dtype, "accumulate_passes": passes}).backward
        experts = [item.work for item in items if isinstance(item.work, GroupedMatmul)]
        return sum(work.work().after_bytes.item() for work in experts)

    assert after_bytes(0) == pytest.approx(2 * size_bytes * weights)
    assert after_bytes(1) == 0  # a pass of its own adds them


@pytest.mark.parametrize(("rewrites", "kernels"), [(("separate_experts",), GROUPS), ((), 1)])
def test_the_rows_of_each_expert_are_cast_by_a_kernel_of_their_own(rewrites, kernels):
    found = block(rewrites=rewrites)
    casts = [
        item.work.kernels().item()
        for item in (*found.forward, *found.backward)
        if isinstance(item.work, Quantise) and "experts." in item.name and "weight" not in item.name
    ]

    assert len(casts) >= 4
    assert set(casts) == {kernels}
