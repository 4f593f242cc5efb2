"""Sequences that several ranks share: work, bytes and memory against counting, and against one rank."""

import numpy as np
import pytest
from all_cases import all_cases
from workload_cases import (
    LENGTH,
    LLAMA,
    at,
    block_of,
    flop_of,
    messages,
    plan_of,
    plans_of,
    realised,
    stack_with,
)

from flopcast.layers.latent_attention import LatentAttention
from flopcast.layers.mlp import Mlp
from flopcast.library import catalog
from flopcast.operators.flash_attention import FlashAttention
from flopcast.spec.batch import Batch
from flopcast.spec.plan import Plan, batch_plans, structure_of
from flopcast.workload.backward import exchanged_at_work
from flopcast.workload.lower import lower
from flopcast.workload.realise import realise

CORE = catalog.stack("megatron-core")
EXCHANGES = ("ring", "all_gather", "all_to_all")
LATENT_MIXER = LatentAttention(
    heads=16, kv_lora_rank=256, qk_nope_head_size=64, qk_rope_head_size=32, value_head_size=64
)
LATENT = LLAMA.model_copy(update={"blocks": (LLAMA.blocks[0].model_copy(update={"mixer": LATENT_MIXER}),)})
HEADS, KV_HEADS, HEAD_SIZE, BF16 = 16, 8, 64, 2  # of LLAMA


def shared(*degrees, model=LLAMA, exchange="ring", order="zigzag", stack=CORE, **plan):
    """A model whose sequences are shared by so many ranks, realised; one plan a degree."""
    plans = [
        Plan(cp=cp, context_exchange=exchange, context_order=order, gbs=1, mbs=1, **plan) for cp in degrees
    ]
    return realise(lower(model, batch_plans(plans), Batch(sequence_length=LENGTH)), stack)


def counted(items, quantity):
    """Sum of a quantity over items, each as often as it runs."""
    return sum(at(quantity(item)) * at(item.count) for item in items)


def core_flop(items):
    """FLOP of attention's kernels, all executions."""
    kernels = [item for item in items if isinstance(item.work, FlashAttention)]
    return counted(kernels, lambda item: item.work.work().flop)


def over_context(items):
    """Bytes that one rank sends or gathers among those that share its sequences."""
    sent = [item for item in messages(items) if item.work.axis == "cp"]
    return counted(sent, lambda item: item.work.message_bytes)


def pairs_of_ranks(ranks, order, length=64):
    """Pairs of query and key that each rank computes: whole blocks between parts, triangles inside a part.

    Counted part by part: a part's queries meet all keys of earlier parts and half of its own.
    """
    parts = 2 * ranks if order == "zigzag" else ranks
    size = length / parts
    held = {
        "zigzag": [(rank, parts - 1 - rank) for rank in range(ranks)],
        "contiguous": [(rank,) for rank in range(ranks)],
    }[order]
    return [sum(part * size**2 + size**2 / 2 for part in mine) for mine in held]


@all_cases("model", [LLAMA, LATENT])
@all_cases("exchange", EXCHANGES)
@all_cases("ranks", [2, 4, 8])
def test_ranks_that_share_a_sequence_do_together_what_one_rank_does(model, exchange, ranks):
    alone, together = (
        block_of(shared(1, model=model)),
        block_of(shared(ranks, model=model, exchange=exchange)),
    )

    for whole, part in ((alone.forward, together.forward), (alone.backward, together.backward)):
        assert ranks * core_flop(part) == pytest.approx(core_flop(whole), rel=1e-12)
        others = flop_of(part) - flop_of([i for i in part if isinstance(i.work, FlashAttention)])
        whole_others = flop_of(whole) - flop_of([i for i in whole if isinstance(i.work, FlashAttention)])
        assert ranks * others == pytest.approx(whole_others, rel=1e-12)


@all_cases("order", ["zigzag", "contiguous"])
@all_cases("ranks", [2, 4, 8])
def test_a_ring_takes_as_long_as_the_rank_with_most_pairs(order, ranks):
    pairs = pairs_of_ranks(ranks, order)

    found = core_flop(block_of(shared(ranks, order=order)).forward)

    fair = core_flop(block_of(shared(1)).forward) / ranks
    assert found / fair == pytest.approx(max(pairs) / np.mean(pairs), rel=1e-12)


def test_zigzag_gives_all_ranks_the_same_and_contiguous_order_does_not():
    assert len(set(pairs_of_ranks(4, "zigzag"))) == 1
    assert len(set(pairs_of_ranks(4, "contiguous"))) == 4


@pytest.mark.parametrize("ranks", [2, 4])
def test_without_a_mask_the_order_makes_no_difference(ranks):
    mixer = LLAMA.blocks[0].mixer.model_copy(update={"causal": False})
    encoder = LLAMA.model_copy(update={"blocks": (LLAMA.blocks[0].model_copy(update={"mixer": mixer}),)})

    by_order = [
        core_flop(block_of(shared(ranks, model=encoder, order=order)).forward)
        for order in ("zigzag", "contiguous")
    ]

    full = 2 * 2 * LENGTH**2 * HEAD_SIZE * HEADS / ranks
    assert by_order == pytest.approx([full, full], rel=1e-12)


@all_cases("ranks", [2, 4])
@all_cases("tensor", [1, 2])
def test_a_rank_gets_the_keys_and_values_of_all_others_once_forward_and_twice_backward(ranks, tensor):
    """Backward they come again, as only a rank's own are kept, and gradients go home."""
    layer = block_of(shared(ranks, tp=tensor))

    others_bytes = 2 * LENGTH * KV_HEADS / tensor * HEAD_SIZE * BF16 * (ranks - 1) / ranks
    assert over_context(layer.forward) == pytest.approx(others_bytes)
    assert over_context(layer.backward) == pytest.approx(2 * others_bytes)


def test_gathered_keys_and_values_are_gathered_again_and_their_gradients_scattered():
    layer = block_of(shared(4, exchange="all_gather"))

    kinds = [item.work.collective for item in messages(layer.backward) if item.work.axis == "cp"]
    whole_bytes = 2 * LENGTH * KV_HEADS * HEAD_SIZE * BF16
    assert over_context(layer.forward) == pytest.approx(whole_bytes)
    assert sorted(kinds) == ["all_gather", "all_gather", "reduce_scatter", "reduce_scatter"]
    assert over_context(layer.backward) == pytest.approx(2 * whole_bytes)


def test_an_all_to_all_sends_queries_keys_values_and_results_once_each_way():
    layer = block_of(shared(4, exchange="all_to_all"))

    sent_bytes = LENGTH / 4 * (2 * HEADS + 2 * KV_HEADS) * HEAD_SIZE * BF16
    assert over_context(layer.forward) == pytest.approx(sent_bytes)
    assert over_context(layer.backward) == pytest.approx(sent_bytes)


def test_an_all_to_all_leaves_each_rank_whole_sequences_of_some_heads():
    (kernel,) = [
        item.work
        for item in block_of(shared(4, exchange="all_to_all")).forward
        if isinstance(item.work, FlashAttention)
    ]

    assert (at(kernel.queries), at(kernel.batch), at(kernel.kv_batch)) == (LENGTH, HEADS / 4, KV_HEADS / 4)


@all_cases("model", [LLAMA, LATENT])
@all_cases("exchange", EXCHANGES)
@all_cases("recompute", ["none", "selective", "full"])
def test_activations_of_a_sequence_are_dealt_out_evenly(model, exchange, recompute):
    alone = block_of(shared(1, model=model, recompute=recompute))

    part = block_of(shared(4, model=model, exchange=exchange, recompute=recompute))

    result_bytes = LENGTH * HEADS * HEAD_SIZE * BF16  # kept as heads see it and as tokens do
    twice_bytes = result_bytes if exchange == "all_to_all" and recompute != "full" else 0

    assert 4 * at(part.kept_bytes) == pytest.approx(at(alone.kept_bytes) + twice_bytes, rel=1e-12)


@pytest.mark.parametrize("exchange", ["all_gather", "all_to_all"])
def test_a_window_is_as_wide_as_on_one_rank(exchange):
    mixer = LLAMA.blocks[0].mixer.model_copy(update={"window": 256})
    local = LLAMA.model_copy(update={"blocks": (LLAMA.blocks[0].model_copy(update={"mixer": mixer}),)})

    alone, part = (block_of(shared(cp, model=local, exchange=exchange)).forward for cp in (1, 4))

    assert 4 * core_flop(part) == pytest.approx(core_flop(alone))


def test_a_ring_has_buffers_for_two_blocks_and_their_gradients():
    """While one block of keys and values is worked with, the next arrives; so for their gradients."""
    by_exchange = {
        exchange: at(exchanged_at_work(block_of(shared(4, exchange=exchange)).forward))
        for exchange in ("ring", "all_to_all")
    }

    block_bytes = 2 * LENGTH / 4 * KV_HEADS * HEAD_SIZE * BF16
    assert by_exchange["ring"] - by_exchange["all_to_all"] == pytest.approx(4 * block_bytes)


def test_gathered_keys_and_values_and_their_gradients_are_there_while_attention_works():
    """Both are of whole sequences; an all-to-all works on a rank's share of the heads instead."""
    thin = LLAMA.blocks[0].model_copy(update={"feed_forward": Mlp(ffn_hidden=64)})
    model = LLAMA.model_copy(update={"blocks": (thin,)})
    adds = stack_with(CORE, memory={"writes_weight_gradients": False})

    gathered, exchanged = (
        at(block_of(shared(8, model=model, exchange=exchange, stack=adds)).working_bytes)
        for exchange in ("all_gather", "all_to_all")
    )

    whole_bytes = 2 * LENGTH * KV_HEADS * HEAD_SIZE * BF16
    assert gathered - exchanged > 1.5 * whole_bytes


@all_cases("exchange", ["all_gather", "all_to_all"])
def test_an_exchange_of_keys_is_no_end_of_the_model_whose_gradients_are_there_from_the_start(exchange):
    """While an MLP of a rank's share of tokens works, it needs what it needs without other ranks."""
    wide = LLAMA.blocks[0].model_copy(update={"feed_forward": Mlp(ffn_hidden=16 * HEADS * HEAD_SIZE)})
    model = LLAMA.model_copy(update={"blocks": (wide,)})

    alone, part = (block_of(lowered_for(ranks, LENGTH * ranks // 8, model, exchange)) for ranks in (1, 8))

    peaks = [at(layer.working_bytes) + at(layer.kept_bytes) for layer in (alone, part)]
    twice_bytes = LENGTH / 8 * HEADS * HEAD_SIZE * BF16 if exchange == "all_to_all" else 0
    assert peaks[1] - peaks[0] == pytest.approx(twice_bytes, rel=1e-12)


def lowered_for(ranks, length, model, exchange):
    """A model whose sequences of this length are shared by so many ranks, realised."""
    plans = batch_plans([Plan(cp=ranks, context_exchange=exchange, gbs=1, mbs=1)])
    return realise(lower(model, plans, Batch(sequence_length=length)), CORE)


def test_stages_hand_on_their_rank_s_part_of_a_sequence():
    alone, part = (shared(cp, pp=2) for cp in (1, 4))

    sent = [at(programs.hop_across.forward[0].work.message_bytes) for programs in (alone, part)]

    assert sent[1] == sent[0] / 4


@pytest.mark.parametrize("zero", [0, 1])
def test_gradients_and_states_treat_ranks_that_share_sequences_as_replicas(zero):
    """Both kinds of ranks hold all parameters and have seen other tokens (Megatron-LM's DP × CP group)."""
    replicas = realised(LLAMA, CORE, f"dp=8 gbs=8 zero={zero}")
    mixed = realised(LLAMA, CORE, f"dp=2 cp=4 gbs=2 zero={zero}")

    for name in ("reduce", "update"):
        one, other = getattr(replicas, name), getattr(mixed, name)
        assert [item.name for item in one] == [item.name for item in other]
        assert moved(one) == moved(other)
        assert counted(messages(one), sizes) == counted(messages(other), sizes)
    assert at(plans_of("dp=2 cp=4 zero=1").state_shards) == 8


def moved(items):
    return [at(item.work.work().moved_bytes) for item in items if hasattr(item.work, "work")]


def sizes(item):
    return item.work.message_bytes


def test_a_step_of_shared_sequences_has_as_many_micro_batches_as_replicas_of_data_allow():
    assert plan_of("dp=2 cp=4 mbs=1 gbs=8").num_micro_batches == 4


@all_cases("exchange", EXCHANGES)
def test_a_plan_among_others_that_share_sequences_is_what_it_is_alone(exchange):
    degrees = (1, 2, 4) if exchange == "ring" else (2, 4, 8)
    together = block_of(shared(*degrees, exchange=exchange))

    for plan, ranks in enumerate(degrees):
        alone = block_of(shared(ranks, exchange=exchange))
        for whole, one in ((together.forward, alone.forward), (together.backward, alone.backward)):
            flop = sum(
                at(item.work.work().flop, plan) * at(item.count, plan)
                for item in whole
                if hasattr(item.work, "work")
            )
            assert flop == pytest.approx(
                counted([i for i in one if hasattr(i.work, "work")], lambda i: i.work.work().flop),
                rel=1e-12,
            )
        assert at(together.kept_bytes, plan) == pytest.approx(at(alone.kept_bytes), rel=1e-12)


def test_plans_that_share_sequences_by_an_all_to_all_are_no_batch_with_one_that_shares_none():
    """Its core lies behind exchanges, so that its kernels are others."""
    alone, shares = (Plan(cp=cp, context_exchange="all_to_all") for cp in (1, 2))

    assert structure_of(alone) == structure_of(Plan()) != structure_of(shares)


def test_without_shared_sequences_nothing_is_exchanged():
    names = [item.name for item in block_of(shared(1)).forward]

    assert not [name for name in names if "pass_on" in name or "block" in name or "merge" in name]


def test_a_ring_is_run_again_where_its_core_is_and_its_hops_with_it():
    layer = block_of(shared(4, recompute="selective", stack=stack_with(CORE)))

    again = [item for item in layer.backward if item.phase == "recompute"]
    assert core_flop(again) == pytest.approx(core_flop(layer.forward))
    assert over_context(again) == pytest.approx(over_context(layer.forward))


def test_plans_with_and_without_a_ring_need_as_much_memory_together_as_alone():
    """The items of the ring run in the second plan alone."""
    together = shared(1, 4)
    for row, alone in enumerate((shared(1), shared(4))):
        for batched, one in zip(together.layers, alone.layers, strict=True):
            for size in ("kept_bytes", "working_bytes"):
                of_plan = np.broadcast_to(getattr(batched, size), (2, 1))[row].item()
                assert of_plan == at(getattr(one, size)), (batched.kind, size)
