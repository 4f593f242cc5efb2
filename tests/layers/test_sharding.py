"""Conservation under sharding: what ranks do and hold together is what one rank does and holds alone."""

import numpy as np
import pytest
from all_cases import all_cases
from hypothesis import given, settings
from hypothesis import strategies as st
from layer_examples import BLOCKS, HIDDEN, LAYERS, flop, messages, operators, split

from flopcast.cost.collectives.formulas import FORMULAS
from flopcast.layers.attention import Attention
from flopcast.layers.base import activation_bytes
from flopcast.layers.block import Block
from flopcast.layers.mlp import Mlp
from flopcast.workload.backward import derive_backward

REPEATED = ("norm", "out_bias", "down_bias", "positions")  # held whole by every rank
SEQUENTIAL = [name for name, block in BLOCKS.items() if block.residual == "sequential"]


def both_passes(layer, cut):
    forward = layer.forward(HIDDEN, cut)
    return (*forward, *derive_backward(forward, frozenset()))


def sent_bytes(items, ranks):
    """Bytes that cross one rank's link, by the collectives' shares."""
    return sum(
        (FORMULAS[item.work.collective].share(ranks) * item.work.message_bytes for item in messages(items)),
        np.zeros_like(ranks),
    )


def moved_bytes(items):
    return sum(item.work.work().moved_bytes.item() for item in operators(items))


@given(
    per_rank=st.integers(1, 4),
    kv_per_rank=st.sampled_from([1, None]),
    ffn=st.integers(1, 64),
    tensor=st.sampled_from([2, 3, 4, 8]),
    activation=st.sampled_from(["gelu", "swiglu"]),
)
@settings(max_examples=60, deadline=None)
def test_flop_and_matrices_of_all_ranks_add_up_to_those_of_one(
    per_rank, kv_per_rank, ffn, tensor, activation
):
    heads = per_rank * tensor
    mixer = Attention(heads=heads, kv_heads=kv_per_rank and tensor, head_size=16, qkv_bias=True)
    block = Block(mixer=mixer, feed_forward=Mlp(ffn_hidden=ffn * tensor, activation=activation, bias=True))
    alone, shared = split(2, 32), split(2, 32, tensor)

    whole_flop, part_flop = (flop(block.forward(HIDDEN, cut)).item() for cut in (alone, shared))

    assert tensor * part_flop == pytest.approx(whole_flop, rel=1e-12)
    for one, part in zip(block.weights(HIDDEN, alone), block.weights(HIDDEN, shared), strict=True):
        ranks = 1 if any(word in part.name for word in REPEATED) else tensor
        assert ranks * part.elements.item() == pytest.approx(one.total, rel=1e-12), part.name


@all_cases("name", [name for name, layer in LAYERS.items() if name != "tied_head"])
def test_one_rank_holds_every_element_of_the_model_and_no_more_but_padding(name):
    for weight in LAYERS[name].weights(HIDDEN, split()):
        padded = weight.name.endswith(("table", "head.bias")) and name != "embedding_alone"
        held = weight.elements.item()
        assert held > weight.total if padded else held == weight.total, weight.name


@all_cases("tensor", [2, 4, 8])
@all_cases("kv_heads", [1, 2, 4, 8])
def test_key_value_heads_are_repeated_exactly_where_ranks_outnumber_them(kv_heads, tensor):
    mixer, size = Attention(heads=8, kv_heads=kv_heads), HIDDEN // 8
    copies = max(tensor // kv_heads, 1)

    qkv, _ = mixer.weights(HIDDEN, split(tensor=tensor))

    assert tensor * qkv.elements.item() == HIDDEN * (8 + 2 * kv_heads * copies) * size
    assert qkv.total == HIDDEN * (8 + 2 * kv_heads) * size


@pytest.mark.parametrize("tensor", [2, 4, 8])
def test_repeated_key_value_heads_cost_their_projection_once_more_on_every_rank(tensor):
    mixer, tokens, size = Attention(heads=8, kv_heads=1), 2 * 32, HIDDEN // 8

    alone, part = (flop(mixer.forward(HIDDEN, split(2, 32, t))).item() for t in (1, tensor))

    assert tensor * part - alone == (tensor - 1) * 2 * tokens * HIDDEN * 2 * size


@all_cases("tensor", [2, 4, 8])
@all_cases("name", SEQUENTIAL)
def test_sequence_parallelism_forward_sends_the_same_bytes_as_the_all_reduces(name, tensor):
    ranks = np.array([[float(tensor)]])
    summed, scattered = (
        BLOCKS[name].forward(HIDDEN, split(2, 64, tensor, sequence_parallel))
        for sequence_parallel in (False, True)
    )

    assert sent_bytes(scattered, ranks).item() == pytest.approx(sent_bytes(summed, ranks).item())


@all_cases("tensor", [2, 4, 8])
@all_cases("name", SEQUENTIAL)
def test_sequence_parallelism_backward_sends_two_gathers_more(name, tensor):
    """The shards that were kept are gathered again for two weight gradients: arXiv:2205.05198, 4.2.2."""
    ranks, full_bytes = np.array([[float(tensor)]]), 2 * 64 * HIDDEN * 2
    summed, scattered = (
        derive_backward(BLOCKS[name].forward(HIDDEN, split(2, 64, tensor, sequence_parallel)), frozenset())
        for sequence_parallel in (False, True)
    )

    more = sent_bytes(scattered, ranks).item() - sent_bytes(summed, ranks).item()

    assert more == pytest.approx(2 * (tensor - 1) / tensor * full_bytes)


@all_cases("sequence_parallel", [False, True])
@all_cases("name", LAYERS)
def test_a_layer_on_one_rank_sends_nothing(name, sequence_parallel):
    items = both_passes(LAYERS[name], split(2, 32, 1, sequence_parallel))

    assert sent_bytes(items, np.ones((1, 1))).item() == 0


@all_cases("name", SEQUENTIAL)
def test_sequence_parallelism_computes_the_same_products(name):
    repeated, shared = (
        flop(both_passes(BLOCKS[name], split(2, 64, 8, sequence_parallel))).item()
        for sequence_parallel in (False, True)
    )

    assert shared == repeated


@all_cases("tensor", [2, 4, 8])
@all_cases("name", SEQUENTIAL)
def test_sequence_parallel_ranks_together_move_what_one_rank_moves_in_norms_and_residuals(name, tensor):
    parts = ("norm", "residual")
    alone, part = (
        [item for item in both_passes(BLOCKS[name], cut) if item.component in parts]
        for cut in (split(2, 64), split(2, 64, tensor, sequence_parallel=True))
    )

    assert tensor * moved_bytes(part) == pytest.approx(moved_bytes(alone))


@all_cases("name", BLOCKS)
def test_without_sequence_parallelism_every_rank_repeats_norms_and_residuals(name):
    parts = ("norm", "residual")
    alone, part = (
        [item for item in both_passes(BLOCKS[name], split(2, 64, tensor)) if item.component in parts]
        for tensor in (1, 8)
    )

    assert moved_bytes(part) == moved_bytes(alone)


@pytest.mark.parametrize(("sequence_parallel", "share"), [(False, 1), (True, 8)])
def test_the_activation_between_layers_is_cut_only_by_sequence_parallelism(sequence_parallel, share):
    cut = split(2, 64, 8, sequence_parallel)

    assert activation_bytes(HIDDEN, cut).item() == 2 * 2 * 64 * HIDDEN / share


@all_cases("sequence_parallel", [False, True])
@all_cases("name", LAYERS)
def test_a_batch_of_splits_is_lowered_as_its_members_one_by_one(name, sequence_parallel):
    plans = [(1, 32, 1), (2, 64, 2), (3, 16, 4), (1, 128, 8)]
    together = both_passes(LAYERS[name], split(*map(list, zip(*plans, strict=True)), sequence_parallel))

    for plan, degrees in enumerate(plans):
        alone = both_passes(LAYERS[name], split(*degrees, sequence_parallel))
        assert [item.name for item in alone] == [item.name for item in together]
        for one, many in zip(operators(alone), operators(together), strict=True):
            for word in ("flop", "moved_bytes"):
                batch = np.broadcast_to(getattr(many.work.work(), word), (len(plans), 1))
                assert batch[plan] == pytest.approx(getattr(one.work.work(), word)[0], rel=1e-12)
        for one, many in zip(messages(alone), messages(together), strict=True):
            batch = np.broadcast_to(many.work.message_bytes, (len(plans), 1))
            assert batch[plan] == pytest.approx(one.work.message_bytes[0], rel=1e-12)


@all_cases("name", LAYERS)
def test_weights_of_a_batch_of_splits_are_those_of_its_members(name):
    degrees = [1, 2, 4, 8]
    together = LAYERS[name].weights(HIDDEN, split([1] * 4, [1] * 4, degrees))

    for plan, tensor in enumerate(degrees):
        for one, many in zip(LAYERS[name].weights(HIDDEN, split(tensor=tensor)), together, strict=True):
            assert np.broadcast_to(many.elements, (4, 1))[plan] == one.elements.item(), one.name
