"""Selective recompute by operator, against TorchTitan's list and the sizes of its tensors."""

import pytest
from workload_cases import HIDDEN, LENGTH, LLAMA, at, block_of, plans_of

from flopcast.layers.experts import Experts
from flopcast.library import catalog
from flopcast.operators.base import AbstractOperator
from flopcast.spec.batch import Batch
from flopcast.spec.plan import Plan, batch_plans
from flopcast.workload.lower import lower
from flopcast.workload.realise import realise

KEYS, FFN = HIDDEN // 2, 2816  # widths of the keys (8 of 16 heads) and of the gated layer
SPARSE = LLAMA.model_copy(
    update={
        "blocks": (
            LLAMA.blocks[0].model_copy(
                update={"feed_forward": Experts(num_experts=8, top_k=2, expert_hidden=FFN)}
            ),
        )
    }
)


def block_with(model, stack, **plan):
    plans = batch_plans([Plan(recompute="selective", recompute_modules=("operators",), **plan)])
    programs = realise(lower(model, plans, Batch(sequence_length=LENGTH)), catalog.stack(stack))
    return block_of(programs)


def again_flop(block):
    """FLOP of products that run again, by the name of the product."""
    items = [item for item in block.backward if item.phase == "recompute"]
    found = {
        item.name: at(item.work.work().flop * item.count)
        for item in items
        if isinstance(item.work, AbstractOperator)
    }
    return {name: flop for name, flop in found.items() if flop > LENGTH * HIDDEN**2 / 2}


def test_keys_the_output_and_one_half_of_the_gated_layer_run_again():
    for stack in ("torch-fsdp2", "torch-fsdp2-compiled"):
        found = again_flop(block_with(LLAMA, stack))

        # wq, wv, w1 and w2 are kept: the odd ones of wq, wk, wv, wo, w1, w3, w2
        per_column = 2 * LENGTH * HIDDEN
        expected = {"attention.qkv": KEYS, "attention.out": HIDDEN, "mlp.up": FFN}
        assert found == pytest.approx({name: per_column * n for name, n in expected.items()})


def test_a_block_keeps_its_input_attention_and_the_products_that_do_not_run_again():
    block = block_with(LLAMA, "torch-fsdp2-compiled")

    log_sums_bytes = 4 * LENGTH * 16  # of each token and head, in fp32
    widths = HIDDEN + HIDDEN + KEYS + HIDDEN + FFN  # x, queries, values, what attention returns, w1
    assert at(block.kept_bytes) == pytest.approx(2 * LENGTH * widths + log_sums_bytes)


def test_all_experts_run_again_and_nothing_of_them_is_kept():
    plain, again = (
        block_of(
            realise(
                lower(SPARSE, plans_of("gbs=1"), Batch(sequence_length=LENGTH)),
                catalog.stack("torch-fsdp2-compiled"),
            )
        ),
        block_with(SPARSE, "torch-fsdp2-compiled"),
    )

    found = again_flop(again)
    products = {
        i.name: at(i.work.work().flop) for i in plain.forward if i.name in ("experts.up", "experts.down")
    }
    assert {name: found[name] for name in products} == pytest.approx(products)
    widths = HIDDEN + HIDDEN + KEYS + HIDDEN
    assert at(again.kept_bytes) == pytest.approx(2 * LENGTH * widths + 4 * LENGTH * 16)


def test_linear_layers_in_nvfp4_all_run_again_and_those_in_mxfp8_do_not():
    """torchao calls `torch.nn.functional.scaled_mm` for nvfp4; the list has `_scaled_mm`."""
    wide = again_flop(block_with(LLAMA, "torch-fsdp2"))

    assert again_flop(block_with(LLAMA, "torch-fsdp2", precision="mxfp8")) == pytest.approx(wide)
    found = again_flop(block_with(LLAMA, "torch-fsdp2", precision="nvfp4"))
    per_column = 2 * LENGTH * HIDDEN  # no backward reads the output of w2
    expected = {"attention.qkv": HIDDEN + 2 * KEYS, "attention.out": HIDDEN, "mlp.up": 2 * FFN}
    assert found == pytest.approx({name: per_column * n for name, n in expected.items()})
