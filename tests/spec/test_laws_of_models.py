"""Laws that FLOP and parameters keep in every model of the catalogue, whatever its layers are."""

from functools import cache

import pytest
from all_cases import all_cases
from single_calls import mtp_parameters

from flopcast.layers.embedding import Embedding
from flopcast.library import catalog

NAMES = catalog.names("models")
EACH = all_cases("name", NAMES)
LENGTH = 2048
MIXED = [
    name for name in NAMES if catalog.model(name).active_parameters() != catalog.model(name).parameters()
]


@cache
def flop(name, length=LENGTH, causal=False, windows=True):
    return catalog.model(name).forward_flop(length, causal=causal, windows=windows)


def tables(model):
    """Rows of tables that are looked up and never multiplied: tokens, and positions that are learned."""
    (embedding,) = [layer for layer, _ in model.sequence() if isinstance(layer, Embedding)]
    tokens = 0 if model.tied_embeddings else model.vocabulary
    return (tokens + embedding.learned_positions) * model.hidden


@EACH
def test_products_with_weights_are_two_flop_for_each_active_weight_and_token(name):
    """Vectors (norms, biases, sinks) multiply nothing: they are less than a hundredth of any model."""
    model = catalog.model(name).model_copy(update={"mtp": 0})

    products = model.forward_flop(LENGTH, windows=False) - model.attention_flop(LENGTH, windows=False)

    weights = model.active_parameters() - tables(model)
    assert products / LENGTH / 2 == pytest.approx(weights, rel=0.01)


@all_cases("name", [name for name in NAMES if catalog.model(name).mtp])
def test_a_module_of_multi_token_prediction_multiplies_its_weights_and_the_head_again(name):
    model = catalog.model(name)
    bare = model.model_copy(update={"mtp": 0})

    more = model.forward_flop(LENGTH, windows=False) - bare.forward_flop(LENGTH, windows=False)

    assert bare.head_flop(LENGTH) < more < 2 * LENGTH * mtp_parameters(model) + bare.head_flop(LENGTH)


@EACH
def test_a_causal_mask_takes_half_of_attention_and_nothing_else(name):
    """An encoder has no mask, and neither has cross-attention."""
    whole, masked = (flop(name, causal=causal, windows=False) for causal in (False, True))

    model = catalog.model(name)
    further = model.blocks[-1].model_copy(update={"count": model.mtp})
    attention = sum(
        block.count * block.mixer.pair_flop(model.hidden) * LENGTH**2
        for block in (*model.blocks, further)
        if getattr(block.mixer, "causal", True)
    )
    assert whole - masked == pytest.approx(attention / 2)


@EACH
def test_twice_the_sequence_is_four_times_the_attention_and_twice_all_else(name):
    model = catalog.model(name)
    short, long = (model.attention_flop(length, windows=False) for length in (LENGTH, 2 * LENGTH))

    rest = [flop(name, n * LENGTH, windows=False) - each for n, each in ((1, short), (2, long))]

    assert long == pytest.approx(4 * short)
    assert rest[1] == pytest.approx(2 * rest[0])


@EACH
@all_cases("length", [512, 8192, 65536])
def test_windows_never_cost_more_and_nothing_where_sequences_are_short(name, length):
    near, far = (flop(name, length, causal=True, windows=windows) for windows in (True, False))

    windows = [getattr(block.mixer, "window", 0) or 0 for block in catalog.model(name).blocks]
    assert near <= far * (1 + 1e-12)
    if all(width == 0 or width >= length for width in windows):
        assert near == pytest.approx(far)
    if any(0 < width < length for width in windows):
        assert near < far


@EACH
def test_the_head_is_two_flop_for_each_row_width_and_token(name):
    model = catalog.model(name).model_copy(update={"mtp": 0})

    assert model.head_flop(LENGTH) == pytest.approx(2 * model.vocabulary * model.hidden * LENGTH)


@EACH
def test_all_weights_are_trained_and_at_most_all_are_active(name):
    model = catalog.model(name)

    assert model.trained_parameters() == model.parameters()
    assert 0 < model.active_parameters() <= model.parameters()
    assert model.frozen_flop(LENGTH) == 0.0


@all_cases("name", MIXED)
def test_a_mixture_multiplies_less_than_all_of_its_weights(name):
    model = catalog.model(name)

    assert flop(name) - model.attention_flop(LENGTH) < 2 * LENGTH * model.parameters()


@EACH
def test_runs_name_every_layer_of_the_model_once(name):
    model = catalog.model(name)

    counted = dict.fromkeys(range(len(model.sequence())), 0)
    for place, count in model.runs():
        counted[place] += count

    assert list(counted.values()) == [count for _, count in model.sequence()]
    assert sum(counted[place + model.first_block] for place in range(len(model.blocks))) == model.num_blocks
