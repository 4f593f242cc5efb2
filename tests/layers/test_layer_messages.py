"""Which messages layers send: arXiv:1909.08053, section 3, and arXiv:2205.05198, section 4.2.2."""

from collections import Counter

import pytest
from all_cases import all_cases
from layer_examples import BLOCKS, HIDDEN, LAYERS, gpt, messages, operators, split

from flopcast.layers.base import enter_tensor_parallel, leave_tensor_parallel
from flopcast.layers.embedding import Embedding
from flopcast.layers.head import Head
from flopcast.workload.backward import derive_backward

TENSOR, TOKENS = 4, 2 * 32
FULL_BYTES = TOKENS * HIDDEN * 2
INPUTS = {"x", "ids", "pixels"}  # of a whole layer
VIEWS = {  # of the tensors that "attention.split_heads" and "cross.kv" cut
    *(f"attention.{view}" for view in ("k", "v", "gates")), "cross.k", "cross.v"
}  # fmt: skip
BY_ITSELF = {  # a block's
    "attention": {"attention.in.full"},
    "gated_attention": {"attention.in.full"},
    "gated_delta": {"attention.in.full"},
    "gated_linear_attention": {"attention.in.full"},
    "kimi_delta": {"attention.in.full"},
    "selective_scan": {"attention.in.full"},
    **{f"time_mix_{version}": {"attention.in.full"} for version in (5, 6, 7)},
    "channel_mix": {"mlp.in.full"},
    "latent_attention": {"attention.in"},
    "cross_attention": {"cross.in.full", "source"},
    "t5_decoder": {"source"},  # the result of the encoder
    "mlp": {"mlp.in.full"},
    "experts": {"mlp.in"},
    "mtp": {f"mtp{module}.{view}" for module in (1, 2) for view in VIEWS},
    "further_head": {"mtp1.x", "mtp2.x"},  # of the modules
}


def cut(sequence_parallel=False):
    return split(2, 32, TENSOR, sequence_parallel)


def collectives(items):
    return Counter(item.work.collective for item in messages(items))


def backward(layer, sequence_parallel=False):
    return derive_backward(layer.forward(HIDDEN, cut(sequence_parallel)), frozenset())


def test_a_block_sums_twice_in_each_pass():
    """Two all-reduces forward and two backward: arXiv:1909.08053, figure 4."""
    block = gpt(8, HIDDEN)

    assert collectives(block.forward(HIDDEN, cut())) == {"all_reduce": 2}
    assert collectives(backward(block)) == {"all_reduce": 2}


def test_sequence_parallelism_splits_each_sum_in_two_and_gathers_inputs_again():
    block = gpt(8, HIDDEN)

    assert collectives(block.forward(HIDDEN, cut(True))) == {"all_gather": 2, "reduce_scatter": 2}
    assert collectives(backward(block, True)) == {"reduce_scatter": 2, "all_gather": 2 + 2}


@pytest.mark.parametrize(("residual", "sums_backward"), [("parallel", 2), ("parallel_shared_norm", 1)])
def test_a_parallel_block_sums_once_forward_and_once_per_norm_backward(residual, sums_backward):
    block = gpt(8, HIDDEN, residual=residual)

    assert collectives(block.forward(HIDDEN, cut())) == {"all_reduce": 1}
    assert collectives(backward(block)) == {"all_reduce": sums_backward}


@all_cases("sequence_parallel", [False, True])
@all_cases("name", BLOCKS)
def test_every_message_of_a_block_carries_the_whole_activation(name, sequence_parallel):
    items = (
        *BLOCKS[name].forward(HIDDEN, cut(sequence_parallel)),
        *backward(BLOCKS[name], sequence_parallel),
    )
    activations = [item for item in messages(items) if "qk_norm" not in item.name]

    assert {item.work.message_bytes.item() for item in activations} == {FULL_BYTES}
    assert {item.work.axis for item in messages(items)} == {"tp"}


def test_an_embedding_sums_its_rows_forward_and_nothing_backward():
    layer = Embedding(vocabulary=1000)

    assert collectives(layer.forward(HIDDEN, cut())) == {"all_reduce": 1}
    assert collectives(backward(layer)) == {}


def test_an_embedding_with_sequence_parallelism_scatters_forward_and_gathers_backward():
    layer = Embedding(vocabulary=1000)

    assert collectives(layer.forward(HIDDEN, cut(True))) == {"reduce_scatter": 1}
    assert collectives(backward(layer, True)) == {"all_gather": 1}


def test_a_loss_over_cut_logits_sums_three_numbers_a_token():
    """Maximum, target logit, sum of exponentials, in fp32: not the logits (arXiv:1909.08053, section 3)."""
    items = messages(Head(vocabulary=1000).forward(HIDDEN, cut()))

    assert [item.work.collective for item in items] == ["all_reduce"] * 3
    assert [item.work.message_bytes.item() for item in items] == [4 * TOKENS] * 3


def test_a_head_sums_one_input_gradient_backward_and_nothing_of_its_loss():
    (message,) = messages(backward(Head(vocabulary=1000)))

    assert (message.work.collective, message.work.message_bytes.item()) == ("all_reduce", FULL_BYTES)


@pytest.mark.parametrize("kept_bytes", [FULL_BYTES / TENSOR])
def test_a_gathered_input_is_kept_as_a_share(kept_bytes):
    item = enter_tensor_parallel("mlp.in", "mlp.enter", HIDDEN, cut(True))

    assert (item.inputs, item.output) == (("mlp.in",), "mlp.in.full")
    assert item.kept_bytes.item() == kept_bytes


def test_an_input_that_every_rank_has_is_not_sent_but_its_gradient_is_summed():
    item = enter_tensor_parallel("mlp.in", "mlp.enter", HIDDEN, cut())

    assert item.work.collective == ""
    assert item.kept_bytes is None
    assert item.work.dual().collective == "all_reduce"


@pytest.mark.parametrize(
    ("sequence_parallel", "there", "back"),
    [(False, "all_reduce", ""), (True, "reduce_scatter", "all_gather")],
)
def test_leaving_adds_partial_sums_and_its_gradient_needs_no_sum(sequence_parallel, there, back):
    item = leave_tensor_parallel("partial", "sum", "leave", HIDDEN, cut(sequence_parallel))

    assert (item.work.collective, item.work.dual().collective) == (there, back)
    assert (item.inputs, item.output) == (("partial",), "sum")


@all_cases("sequence_parallel", [False, True])
@all_cases("name", LAYERS)
def test_every_item_reads_what_an_earlier_one_wrote(name, sequence_parallel):
    written = INPUTS | VIEWS | BY_ITSELF.get(name, set())

    for item in LAYERS[name].forward(HIDDEN, cut(sequence_parallel)):
        assert set(item.inputs) <= written, item.name
        written.add(item.output)


@all_cases("name", BLOCKS)
def test_a_block_ends_with_the_tensor_that_the_next_one_starts_with(name):
    items = BLOCKS[name].forward(HIDDEN, cut())

    assert items[0].inputs == ("x",)
    assert items[-1].output == "y"


@all_cases("name", LAYERS)
def test_items_of_a_layer_have_names_that_tell_them_apart(name):
    names = [item.name for item in LAYERS[name].forward(HIDDEN, cut())]

    assert len(set(names)) == len(names)


@all_cases("name", [name for name in LAYERS if name not in ("no_feed_forward", "no_end")])
def test_forward_items_belong_to_the_forward_pass_of_every_micro_batch(name):
    items = LAYERS[name].forward(HIDDEN, cut())

    assert {(item.phase, item.when, item.count.item()) for item in items} == {("forward", "every", 1)}
    assert all(item.component for item in items)


@all_cases("name", BLOCKS)
def test_what_selective_recompute_runs_again_lies_between_scores_and_context(name):
    items = BLOCKS[name].forward(HIDDEN, cut())
    inside = [place for place, item in enumerate(items) if item.group == "core_attention"]

    assert inside == list(range(inside[0], inside[-1] + 1))
    assert items[inside[0]].name == "attention.scores"
    assert items[inside[-1]].name == "attention.context"


@all_cases("name", [name for name, block in BLOCKS.items() if block.residual != "sequential"])
@all_cases("sequence_parallel", [False, True])
def test_partial_sums_are_whole_on_every_rank_until_they_leave(name, sequence_parallel):
    """A parallel block joins its halves before the sum over ranks, so every rank joins all tokens."""
    items = BLOCKS[name].forward(HIDDEN, cut(sequence_parallel))
    leave = next(item for item in items if item.name == "leave")
    before = [item for item in operators(items[: items.index(leave)]) if item.component == "residual"]

    written_bytes = {item.name: 2 * item.work.elements.item() for item in before}

    assert written_bytes == dict.fromkeys(written_bytes, leave.work.message_bytes.item())
