"""Multi-token prediction, against DeepSeek-V3's module as its paper and its repository describe it.

arXiv:2412.19437, section 2.2: norms of both inputs, a projection of 2h to h, one block, the model's own
embedding and head. Elsewhere: where it stands in a pipeline (tests/workload/test_multi_token_stages.py).
"""

import pytest
from layer_examples import HIDDEN, LATENT, flop, llama, messages, split
from single_calls import mtp_parameters

from flopcast.layers.head import Head
from flopcast.layers.multi_token import MultiTokenPrediction
from flopcast.spec.model import Model
from flopcast.workload.backward import kept_tensors

TOKENS = 2 * 32
BLOCK = llama(8, 8, 160)


def modules(number=1, block=BLOCK, **fields):
    return MultiTokenPrediction(modules=number, block=block, vocabulary=1000, **fields)


def model(**fields):
    return Model(hidden=HIDDEN, vocabulary=1000, blocks=(BLOCK.model_copy(update={"count": 2}),), **fields)


def test_a_module_multiplies_a_projection_and_a_block_and_no_logits():
    cut = split(2, 32)

    found = flop(modules().forward(HIDDEN, cut)).item()

    assert found == 2 * TOKENS * 2 * HIDDEN * HIDDEN + flop(BLOCK.forward(HIDDEN, cut)).item()


def test_a_module_holds_three_norms_a_projection_and_a_block():
    weights = modules().weights(HIDDEN, split())

    own = sum(weight.total for weight in weights)

    assert own == 3 * HIDDEN + 2 * HIDDEN**2 + sum(w.total for w in BLOCK.weights(HIDDEN, split()))


@pytest.mark.parametrize("number", [1, 2, 3])
def test_modules_share_one_copy_of_the_embeddings_table(number):
    tables = [weight for weight in modules(number).weights(HIDDEN, split()) if weight.tied]

    assert [(table.name, table.total) for table in tables] == [("mtp.table", 0)]
    assert tables[0].elements.item() == 1024 * HIDDEN  # padded as the embedding's


def test_a_head_that_reuses_the_embeddings_table_needs_no_second_copy_of_it():
    assert not [weight for weight in modules(tied=True).weights(HIDDEN, split()) if weight.tied]


def test_every_prediction_has_logits_and_a_loss_of_its_own():
    cut, one = split(2, 32, 4), Head(vocabulary=1000)

    further = Head(vocabulary=1000, predictions=3)

    assert flop(further.forward(HIDDEN, cut)).item() == 3 * flop(one.forward(HIDDEN, cut)).item()
    assert len(messages(further.forward(HIDDEN, cut))) == 3 * len(messages(one.forward(HIDDEN, cut)))
    names = [weight.name for weight in further.weights(HIDDEN, cut)]
    assert names == [weight.name for weight in one.weights(HIDDEN, cut)]


def test_sequence_parallelism_gathers_both_inputs_and_the_output_of_the_projection():
    items = modules().forward(HIDDEN, split(2, 32, 4, sequence_parallel=True))
    sent = {item.name: item.work.message_bytes.item() for item in messages(items)}

    assert sent["mtp1.enter"] == 2 * TOKENS * 2 * HIDDEN
    assert sent["mtp1.leave"] == 2 * TOKENS * HIDDEN


@pytest.mark.parametrize("tensor", [2, 4, 8])
def test_the_projection_is_cut_over_ranks_and_norms_are_not(tensor):
    held = {weight.name: weight for weight in modules().weights(HIDDEN, split(tensor=tensor))}

    assert held["mtp1.projection"].elements.item() * tensor == 2 * HIDDEN**2
    assert all(held[f"mtp1.{which}_norm.scale"].elements.item() == HIDDEN for which in ("hidden", "token"))


def test_a_later_module_reads_what_the_one_before_gave():
    items = modules(2).forward(HIDDEN, split(2, 32))

    readers = {item.name: item.inputs[0] for item in items if item.name.endswith("hidden_norm")}

    assert readers == {"mtp1.hidden_norm": "x", "mtp2.hidden_norm": "mtp1.y"}


def test_a_module_keeps_what_its_block_keeps_its_inputs_and_both_normed_side_by_side():
    """By hand, in elements of a token: x, embedding, the pair (2 h), the final norm's input."""
    cut = split(2, 32)
    block = sum(size.item() for size in kept_tensors(BLOCK.forward(HIDDEN, cut), frozenset()).values())

    found = kept_tensors(modules().forward(HIDDEN, cut), frozenset())

    ids_bytes = found.pop("mtp1.embedding.lookup.ids").item()
    assert ids_bytes == 8 * TOKENS
    assert sum(size.item() for size in found.values()) == block + 2 * TOKENS * 5 * HIDDEN


def test_a_model_counts_its_modules_flop_with_a_head_each():
    length = 64
    one, two = model(mtp=1), model(mtp=2)
    plain = model()

    more = [later.forward_flop(length) - plain.forward_flop(length) for later in (one, two)]

    block = flop(BLOCK.forward(HIDDEN, split(1, length))).item()
    each = block + 2 * length * (2 * HIDDEN**2 + HIDDEN * 1000)
    assert more == [each, 2 * each]


def test_modules_are_no_parameters_of_the_model_and_counted_apart():
    held = sum(weight.total for weight in modules(2).weights(HIDDEN, split()))

    assert model(mtp=2).parameters() == model().parameters()
    assert model(mtp=2).active_parameters() == model().active_parameters()
    assert (mtp_parameters(model()), mtp_parameters(model(mtp=2))) == (0, held)


def test_shared_modules_hold_the_weights_of_one_and_compute_as_much():
    weights = [
        {weight.name: weight.total for weight in modules(*number).weights(HIDDEN, split())}
        for number in ((1,), (2,))
    ]
    shared = {weight.name: weight.total for weight in modules(2, shared=True).weights(HIDDEN, split())}

    assert shared == weights[0] != weights[1]
    apart, together = (model(mtp=2, mtp_shared=held) for held in (False, True))
    assert together.forward_flop(64) == apart.forward_flop(64)
    assert mtp_parameters(together) == mtp_parameters(model(mtp=1))


def test_a_modules_block_is_one_of_the_last_run():
    """DeepSeek-V3: the first blocks are dense, the module's has experts."""
    dense, last = BLOCK, LATENT["latent"].model_copy(update={"count": 3})
    mixed = Model(hidden=HIDDEN, vocabulary=1000, mtp=1, blocks=(dense, last))

    layer = next(layer for layer, _ in mixed.sequence() if layer.kind == "mtp")

    assert layer.block == last.model_copy(update={"count": 1})
