"""Embedding and head: padding, cuts over ranks, what each reads and writes."""

import numpy as np
import pytest
from all_cases import all_cases
from hypothesis import given, settings
from hypothesis import strategies as st
from layer_examples import HIDDEN, messages, operators, split

from flopcast.layers.embedding import Embedding, padded_rows
from flopcast.layers.head import FinalNorm, Head
from flopcast.workload.backward import derive_backward

vocabularies = st.integers(1, 10**6)
multiples = st.sampled_from([1, 2, 8, 64, 100, 128])
degrees = st.sampled_from([1, 2, 3, 4, 6, 8, 16, 64])


def rows(vocabulary, multiple, tensor):
    return padded_rows(vocabulary, multiple, np.array([[float(tensor)]])).item()


@given(vocabulary=vocabularies, multiple=multiples, tensor=degrees)
@settings(max_examples=60, deadline=None)
def test_padding_adds_as_few_rows_as_it_can(vocabulary, multiple, tensor):
    padded = vocabulary
    while padded % (multiple * tensor):
        padded += 1 if padded % multiple else multiple

    assert rows(vocabulary, multiple, tensor) * tensor == padded


@all_cases(
    ("tensor", "whole"),
    [
        (1, 50304),  # Megatron-LM's log: " > padded vocab (size: 50257) with 47 dummy tokens"
        (2, 50432),  # "with 175 dummy tokens"
        (4, 50688),
        (8, 51200),  # "with 943 dummy tokens": the V of arXiv:2104.04473 and arXiv:2205.05198
    ],
)
def test_gpt_2s_vocabulary_is_padded_as_megatron_pads_it(tensor, whole):
    assert tensor * rows(50257, 128, tensor) == whole


@pytest.mark.parametrize("tensor", [1, 2, 8])
def test_embedding_and_head_hold_tables_of_one_shape(tensor):
    (table,) = Embedding(vocabulary=50257).weights(HIDDEN, split(tensor=tensor))
    (head,) = Head(vocabulary=50257).weights(HIDDEN, split(tensor=tensor))

    assert table.elements.item() == head.elements.item()
    assert table.total == head.total == 50257 * HIDDEN


def test_a_tied_head_still_multiplies_by_its_table_but_owns_no_parameter():
    tied, untied = (Head(vocabulary=1024, tied=tied) for tied in (True, False))
    (shared,), (own,) = (head.weights(HIDDEN, split()) for head in (tied, untied))

    assert (shared.tied, shared.total) == (True, 0)
    assert (own.tied, own.total) == (False, 1024 * HIDDEN)
    assert shared.elements.item() == own.elements.item()
    names = ([item.name for item in head.forward(HIDDEN, split())] for head in (tied, untied))
    assert next(names) == next(names)


@pytest.mark.parametrize("tensor", [1, 4])
def test_every_rank_looks_up_every_token_in_its_own_rows(tensor):
    items = Embedding(vocabulary=1024).forward(HIDDEN, split(2, 32, tensor, sequence_parallel=True))
    lookup = items[0].work

    assert (lookup.tokens.item(), lookup.hidden.item()) == (2 * 32, HIDDEN)
    assert lookup.vocabulary.item() == 1024 / tensor


@all_cases(
    ("fields", "kinds"),
    [
        ({}, []),
        ({"learned_positions": 64}, ["position_add"]),
        ({"dropout": 0.1}, ["dropout"]),
        ({"learned_positions": 64, "dropout": 0.1}, ["position_add", "dropout"]),
    ],
)
def test_positions_and_dropout_follow_the_look_up_only_where_asked_for(fields, kinds):
    items = operators(Embedding(vocabulary=1024, **fields).forward(HIDDEN, split(2, 32)))

    assert [item.work.kind for item in items[1:]] == kinds
    assert all(item.work.elements.item() == 2 * 32 * HIDDEN for item in items[1:])


def test_positions_are_added_after_the_sum_over_ranks():
    layer = Embedding(vocabulary=1024, learned_positions=64)

    names = [item.name for item in layer.forward(HIDDEN, split(2, 32, 4))]

    assert names.index("embedding.leave") < names.index("embedding.positions")


def test_the_gradient_of_a_cut_table_is_as_large_as_the_cut_table():
    whole, part = (
        sum(
            item.work.work().moved_bytes.item()
            for item in derive_backward(
                Embedding(vocabulary=1024).forward(HIDDEN, split(2, 32, tensor)), frozenset()
            )
        )
        for tensor in (1, 4)
    )

    assert whole - part == 2 * HIDDEN * (1024 - 1024 / 4)


@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_every_rank_computes_its_columns_of_the_logits_of_all_tokens(sequence_parallel):
    forward = Head(vocabulary=1024).forward(HIDDEN, split(2, 32, 4, sequence_parallel))
    items = {item.name: item.work for item in forward}
    logits = items["head.logits"]

    assert (logits.m.item(), logits.n.item(), logits.k.item()) == (2 * 32, 1024 / 4, HIDDEN)
    assert items["head.cast"].elements.item() == items["head.loss"].elements.item() == 2 * 32 * 1024 / 4


ENDS = {  # name → what is read, what is written, the line of the breakdown
    Embedding(vocabulary=1024, learned_positions=64, dropout=0.1): {
        "embedding.lookup": (("ids",), "partial", "embedding"),
        "embedding.leave": (("partial",), "y", "tp_communication"),
        "embedding.positions": (("y",), "y", "embedding"),
        "embedding.drop": (("y",), "y", "embedding"),
    },
    FinalNorm(): {"final_norm": (("x",), "y", "norm")},
    Head(vocabulary=1024): {
        "head.enter": (("x",), "x.full", "tp_communication"),
        "head.logits": (("x.full",), "logits", "head"),
        "head.cast": (("logits",), "logits.fp32", "head"),
        "head.maximum": (("logits",), "logits", "tp_communication"),
        "head.target_logit": (("logits",), "logits", "tp_communication"),
        "head.sum_of_exponentials": (("logits",), "logits", "tp_communication"),
        "head.loss": (("logits.fp32",), "loss", "head"),
    },
}


@all_cases("layer", ENDS)
@all_cases("sequence_parallel", [False, True])
def test_the_ends_of_a_model_run_these_items_in_this_order(layer, sequence_parallel):
    items = layer.forward(HIDDEN, split(2, 32, 4, sequence_parallel))

    found = {item.name: (item.inputs, item.output, item.component) for item in items}

    assert list(found.items()) == list(ENDS[layer].items())


@all_cases("layer", ENDS)
def test_weights_of_the_ends_are_named_after_their_layer(layer):
    names = {weight.name.partition(".")[0] for weight in layer.weights(HIDDEN, split())}

    assert names == {layer.kind}


@all_cases("layer", ENDS)
def test_messages_of_the_ends_stay_inside_the_tensor_parallel_group(layer):
    assert {item.work.axis for item in messages(layer.forward(HIDDEN, split(2, 32, 4)))} <= {"tp"}


@pytest.mark.parametrize(("kind", "vectors"), [("layernorm", 2), ("rmsnorm", 1)])
def test_the_final_norm_has_a_scale_and_a_layer_norm_a_bias(kind, vectors):
    weights = FinalNorm(norm=kind).weights(HIDDEN, split(tensor=4))

    assert [weight.elements.item() for weight in weights] == [HIDDEN] * vectors


def test_the_final_norm_works_on_a_share_of_the_tokens_with_sequence_parallelism():
    whole, part = (
        FinalNorm().forward(HIDDEN, split(2, 32, 4, sequence_parallel))[0].work
        for sequence_parallel in (False, True)
    )

    assert part.elements.item() == whole.elements.item() / 4
    assert part.width.item() == whole.width.item() == HIDDEN
