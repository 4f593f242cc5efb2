"""The backward pass that is derived from a forward: what it computes, what it sends, in which order."""

from dataclasses import replace

import numpy as np
import pytest
from all_cases import all_cases
from hypothesis import given, settings
from hypothesis import strategies as st
from workload_cases import (
    BARE,
    GPT,
    HIDDEN,
    LENGTH,
    MEGATRON,
    MODELS,
    at,
    block_of,
    flop_of,
    logical_block,
    messages,
    named,
    operators,
    realised,
    stack_with,
)

from flopcast.dtypes import constant
from flopcast.operators.item import Item, blocking, host_work, kernel
from flopcast.operators.matmul import Matmul
from flopcast.operators.memory_bound import MemoryBound
from flopcast.operators.messages import MESSAGES
from flopcast.workload.backward import derive_backward, kept_tensors, total_bytes

NOTHING_AGAIN = frozenset()
DUALS = {  # a linear map's gradient is its transpose: a gather's is a reduce-scatter, a copy's is a sum
    "all_reduce": None,
    "replicate": "all_reduce",
    "all_gather": "reduce_scatter",
    "reduce_scatter": "all_gather",
    "broadcast": "reduce",
    "reduce": "broadcast",
    "send_receive": "send_receive",
    "ring_pass": "ring_pass",
    "all_to_all": "all_to_all",
    "dispatch": "combine",  # every copy of a token has a gradient: they come home and are summed
    "combine": "dispatch",
}


def linear(name, source, output, m=8, n=16, k=32):
    work = Matmul(m=constant(m), n=constant(n), k=constant(k), dtype="bf16")
    return kernel(name, work, (source,), output, component="mlp")


@all_cases("model", MODELS)
def test_without_flash_attention_the_backward_costs_exactly_twice_the_forward(model):
    forward = logical_block(MODELS[model], "tp=2 mbs=2 gbs=2")

    backward = derive_backward(forward, NOTHING_AGAIN)

    # each product has two factors, each of whose gradients is a product of the same three lengths
    assert flop_of(backward) == pytest.approx(2 * flop_of(forward), rel=1e-12)


def test_flash_attention_computes_its_scores_a_second_time_in_the_backward():
    flash = stack_with(BARE, attention_kernel="flash")

    block = block_of(realised(GPT, flash, "mbs=2 gbs=2"))

    forward, backward = named(block.forward, "flash"), named(block.backward, "flash.dgrad")
    # arXiv:2307.08691, section 3: five products backward for two forward
    assert flop_of([backward]) == pytest.approx(2.5 * flop_of([forward]), rel=1e-12)


@settings(max_examples=20, deadline=None)
@given(kinds=st.lists(st.sampled_from(["linear", "gelu", "residual_add"]), min_size=1, max_size=8))
def test_gradients_come_in_the_reverse_order_of_what_they_belong_to(kinds):
    items = []
    for number, kind in enumerate(kinds):
        name = f"layer{number}"
        if kind == "linear":
            items.append(linear(name, "x", "y"))
        else:
            work = MemoryBound(kind=kind, elements=constant(64), dtype="bf16")
            items.append(kernel(name, work, ("x",), "y", component="mlp"))

    backward = derive_backward(tuple(items), NOTHING_AGAIN)

    owners = [int(item.name.split(".")[0].removeprefix("layer")) for item in backward]
    assert owners == sorted(owners, reverse=True)
    assert set(owners) == set(range(len(kinds)))


def test_a_linear_gives_its_input_gradient_before_its_weight_gradient():
    backward = derive_backward((linear("up", "x", "y", m=8, n=16, k=32),), NOTHING_AGAIN)

    shapes = [tuple(at(axis) for axis in (i.work.m, i.work.n, i.work.k)) for i in backward]
    assert [item.name for item in backward] == ["up.dgrad", "up.wgrad"]
    assert shapes == [(8, 32, 16), (16, 32, 8)]  # dx[m, k] and dw[n, k], as rows, columns, sum


@all_cases("collective", MESSAGES)
def test_every_message_comes_back_as_its_dual_over_the_same_axis(collective):
    message = MESSAGES[collective](axis="tp", message_bytes=constant(1e6))

    backward = derive_backward((blocking("m", message, "x", "y"),), NOTHING_AGAIN)

    assert [item.work.collective for item in backward] == [c for c in [DUALS[collective]] if c]
    assert all(item.work.axis == "tp" and at(item.work.message_bytes) == 1e6 for item in backward)
    assert all(item.stream == "tp" and item.phase == "backward" for item in backward)


def test_host_work_has_no_gradient():
    assert derive_backward((host_work("synchronise", "forward"),), NOTHING_AGAIN) == ()


@all_cases("model", MODELS)
def test_everything_derived_belongs_to_the_backward_phase(model):
    block = block_of(realised(MODELS[model], MEGATRON, "tp=2 mbs=2 gbs=2"))

    assert {item.phase for item in block.forward} == {"forward"}
    assert {item.phase for item in block.backward} == {"backward"}
    assert len({item.name for item in block.backward}) == len(block.backward)


def test_the_backward_gathers_again_what_sequence_parallelism_did_not_keep():
    block = block_of(realised(GPT, MEGATRON, "tp=4 sp mbs=2 gbs=2"))

    again = [item for item in messages(block.backward, "all_gather") if item.name.endswith(".again")]
    assert [item.name for item in again] == ["mlp.enter.again", "attention.enter.again"]
    # the conjugates of the two reduce-scatters, and these two
    assert len(messages(block.backward, "all_gather")) == 4


def test_the_second_gather_hides_under_the_input_gradient_and_the_weight_gradient_waits_for_it():
    backward = block_of(realised(GPT, MEGATRON, "tp=4 sp mbs=2 gbs=2")).backward
    gather = backward.index(named(backward, "mlp.enter.again"))

    input_gradient, weight_gradient = backward[gather + 1 : gather + 3]

    assert (input_gradient.name, weight_gradient.name) == ("mlp.up.dgrad", "mlp.up.wgrad")
    assert "tp" not in input_gradient.waits  # dx = dout @ w.T does not need the gathered x
    assert "tp" in weight_gradient.waits  # dw = x.T @ dout does


def test_only_the_linear_that_reads_a_gathered_tensor_asks_for_it_again():
    gathered = replace(
        blocking("enter", MESSAGES["all_gather"](axis="tp", message_bytes=constant(64.0)), "x", "x.full"),
        kept_bytes=constant(16.0),
    )
    forward = (gathered, linear("up", "x.full", "y"), linear("down", "y", "z"))

    backward = derive_backward(forward, NOTHING_AGAIN)

    assert [item.name for item in backward] == [
        "down.dgrad",
        "down.wgrad",
        "enter.again",
        "up.dgrad",
        "up.wgrad",
        "enter.backward",
    ]


def test_what_is_gathered_is_kept_as_the_shard_and_counted_once():
    gathered = replace(
        blocking("enter", MESSAGES["all_gather"](axis="tp", message_bytes=constant(64.0)), "x", "x.full"),
        kept_bytes=constant(16.0),
    )
    forward = (gathered, linear("gate", "x.full", "y"), linear("up", "x.full", "z"))

    kept = kept_tensors(forward, NOTHING_AGAIN)

    assert {name: at(size_bytes) for name, size_bytes in kept.items()} == {"x": 16.0}


def test_a_tensor_that_many_operators_need_is_kept_once():
    forward = tuple(linear(f"head{number}", "x", f"y{number}", m=4, k=10) for number in range(3))

    kept = kept_tensors(forward, NOTHING_AGAIN)

    assert at(total_bytes(kept)) == 4 * 10 * 2


def test_a_block_s_backward_starts_at_its_last_residual_sum_and_ends_at_its_first_norm():
    block = block_of(realised(GPT, BARE, "gbs=1"))

    assert block.backward[0].name == "mlp.residual.dgrad"
    assert block.backward[-1].name == "attention.norm.dgrad"


def test_what_is_kept_of_nothing_is_nothing():
    assert at(total_bytes(kept_tensors((), NOTHING_AGAIN))) == 0.0


@settings(max_examples=30, deadline=None)
@given(
    tensor=st.sampled_from([1, 2, 4, 8]),
    sequences=st.integers(1, 4),
    length=st.sampled_from([128, 512, 1024]),
)
def test_the_ranks_of_a_tensor_parallel_group_share_the_flop_of_one_rank(tensor, sequences, length):
    whole = block_of(realised(GPT, MEGATRON, f"mbs={sequences} gbs={sequences}", length=length))

    shard = block_of(realised(GPT, MEGATRON, f"tp={tensor} mbs={sequences} gbs={sequences}", length=length))

    for one, all_of_it in ((shard.forward, whole.forward), (shard.backward, whole.backward)):
        assert tensor * flop_of(one) == pytest.approx(flop_of(all_of_it), rel=1e-12)


def test_a_batch_of_plans_derives_what_its_members_derive():
    texts = [f"tp={t} sp mbs={b} gbs={b}" for t, b in ((1, 1), (2, 3), (8, 2))]

    together = block_of(realised(GPT, MEGATRON, *texts)).backward

    for plan, text in enumerate(texts):
        alone = block_of(realised(GPT, MEGATRON, text)).backward
        assert [item.name for item in together] == [item.name for item in alone]
        assert flop_of(together, plan) == pytest.approx(flop_of(alone), rel=1e-12)
        sent = [
            [at(i.work.message_bytes, n) for i in messages(b)] for b, n in ((together, plan), (alone, 0))
        ]
        np.testing.assert_allclose(sent[0], sent[1], rtol=1e-12)


def test_attention_weights_are_the_only_square_tensors_of_the_backward():
    """A product of scores and of context each has two gradients: four of size tokens · tokens · head."""
    block = block_of(realised(GPT, BARE, "gbs=1"))

    square = [item for item in operators(block.backward) if item.group == "core_attention"]

    products = [item for item in square if flop_of([item]) > 0]
    assert len(products) == 4
    assert all(flop_of([i]) == 2 * LENGTH**2 * HIDDEN for i in products)  # heads · head size = hidden


def test_an_item_that_is_run_again_differs_in_its_phase_alone():
    item = linear("up", "x", "y")

    again = item.again()

    changed = {name for name in Item.__slots__ if getattr(item, name) is not getattr(again, name)}
    assert changed == {"phase"}
