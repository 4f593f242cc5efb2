"""Experts: what is conserved however they are spread, what one of them is, and how uneven loads enter.

Elsewhere: groups of ranks (tests/cost/test_placement.py), gradients and states of experts
(tests/workload/test_expert_parallelism.py), published sizes (tests/library/test_catalogue_models.py).
"""

import numpy as np
import pytest
from all_cases import all_cases
from hypothesis import given, settings
from hypothesis import strategies as st
from layer_examples import HIDDEN, MIXTURES, experts, flop, messages, operators, split
from pydantic import ValidationError

from flopcast.dtypes import constant
from flopcast.layers.attention import Attention
from flopcast.layers.base import Split
from flopcast.layers.block import Block
from flopcast.layers.experts import Experts
from flopcast.layers.mlp import Mlp
from flopcast.workload.backward import derive_backward, kept_tensors

ONE_EXPERT = Experts(num_experts=1, top_k=1, expert_hidden=160, auxiliary_loss=False)
EVEN = {"load_imbalance_ratio": 1.0}


def cut(tensor=1, expert=1, expert_tensor=1, length=64, dtype="bf16"):
    """Two sequences of one plan, cut along the sequence wherever there are tensor-parallel ranks."""
    return Split(
        sequences=constant(2),
        length=constant(length),
        tensor=constant(tensor),
        sequence_parallel=tensor > 1,
        dtype=dtype,
        expert=constant(expert),
        expert_tensor=constant(expert_tensor),
    )


def works(layer, split):
    return {item.name: item.work for item in layer.forward(HIDDEN, split)}


def grouped_flop(layer, split):
    """FLOP of one rank in the products of experts that are routed to."""
    found = works(layer, split)
    return sum(found[name].work().flop.item() for name in ("experts.up", "experts.down"))


FOLDS = st.sampled_from([(1, 1), (2, 1), (2, 2), (4, 1), (4, 4)])  # tensor ranks, of one expert


@given(
    fold=FOLDS,
    spread=st.sampled_from([1, 2, 4, 8]),
    top_k=st.integers(1, 8),
    width=st.integers(1, 40),
    activation=st.sampled_from(["gelu", "swiglu"]),
)
@settings(max_examples=60, deadline=None)
def test_products_of_all_ranks_are_two_flop_a_weight_and_routed_token(
    fold, spread, top_k, width, activation
):
    """Each of spread · etp / tp groups of tensor-parallel ranks brings tokens of its own."""
    tensor, share = fold
    layer = Experts(num_experts=8, top_k=top_k, expert_hidden=4 * width, activation=activation, **EVEN)
    matrices = 3 if activation == "swiglu" else 2

    on_all_ranks = spread * share * grouped_flop(layer, cut(tensor, spread, share))

    tokens = 2 * 64 * spread * share / tensor
    assert on_all_ranks == pytest.approx(2 * tokens * top_k * matrices * 4 * width * HIDDEN, rel=1e-12)


@given(fold=FOLDS, spread=st.sampled_from([1, 2, 4, 8]), width=st.integers(1, 40))
@settings(max_examples=40, deadline=None)
def test_ranks_that_share_experts_hold_every_expert_once(fold, spread, width):
    tensor, share = fold
    layer = Experts(num_experts=8, top_k=2, expert_hidden=4 * width)

    held = [w for w in layer.weights(HIDDEN, cut(tensor, spread, share)) if w.expert]

    assert sum(spread * share * w.elements.item() for w in held) == pytest.approx(
        8 * 3 * 4 * width * HIDDEN
    )
    assert sum(w.total for w in held) == 8 * 3 * 4 * width * HIDDEN
    assert sum(w.active for w in held) == 2 * 3 * 4 * width * HIDDEN


def test_one_expert_has_the_weights_and_flop_of_a_dense_mlp_and_of_a_router_to_it():
    """With a single expert the router has one column: one more weight, product of one column, a row."""
    dense = Mlp(ffn_hidden=160, activation="swiglu")
    tokens = 2 * 64

    expert_flop, dense_flop = (flop(layer.forward(HIDDEN, cut())).item() for layer in (ONE_EXPERT, dense))

    assert expert_flop == dense_flop + 2 * tokens * HIDDEN
    sizes = [sum(w.total for w in layer.weights(HIDDEN, cut())) for layer in (ONE_EXPERT, dense)]
    assert sizes[0] == sizes[1] + HIDDEN


def test_one_expert_runs_its_backward_with_twice_the_flop_of_its_forward():
    forward = ONE_EXPERT.forward(HIDDEN, cut())

    backward = derive_backward(forward, frozenset())

    assert flop(backward).item() == 2 * flop(forward).item()


def test_a_shared_expert_is_a_dense_mlp_beside_the_others():
    alone = Experts(num_experts=8, top_k=2, expert_hidden=96)
    beside = alone.model_copy(update={"shared_experts": 2, "shared_hidden": 48})
    dense = Mlp(ffn_hidden=2 * 48, activation="swiglu")

    more = {key: flop(beside.forward(HIDDEN, cut(t, 2, t))) - flop(alone.forward(HIDDEN, cut(t, 2, t)))
            for key, t in (("one", 1), ("four", 4))}  # fmt: skip

    assert more["one"].item() == flop(dense.forward(HIDDEN, cut())).item()
    assert more["four"].item() == more["one"].item() / 4


@all_cases("name", MIXTURES)
def test_a_block_of_experts_reads_only_what_was_written_before(name):
    written = {"x", "attention.k", "attention.v"}  # views of what "attention.split_heads" cuts
    for item in MIXTURES[name].forward(HIDDEN, cut(2, 4, 2)):
        assert set(item.inputs) <= written, item.name
        written.add(item.output)

    assert "y" in written


def test_tokens_leave_for_their_experts_and_the_block_gathers_nothing_for_them():
    items = MIXTURES["mixtral"].forward(HIDDEN, cut(4, 4, 4))

    sent = [(item.name, item.work.axis, item.stream) for item in messages(items) if "mlp" not in item.name]

    assert [entry for entry in sent if entry[0].startswith("experts")] == [
        ("experts.dispatch", "ep", "ep"),
        ("experts.gather", "etp", "tp"),
        ("experts.scatter", "etp", "tp"),
        ("experts.combine", "ep", "ep"),
    ]
    assert not any(name in ("mlp.enter", "mlp.leave") for name, _, _ in sent)


def test_a_rank_s_tokens_go_to_both_of_their_experts_where_each_rank_holds_one():
    """Two different experts of eight on eight ranks are two ranks: two copies of 64 · 2 tokens."""
    layer = Experts(num_experts=8, top_k=2, expert_hidden=96, **EVEN)

    sent = works(layer, cut(expert=8))["experts.dispatch"].message_bytes.item()

    assert sent == pytest.approx(2 * (2 * 64) * HIDDEN * 2)


def test_backward_sends_the_gradients_of_a_combine_out_and_those_of_a_dispatch_home():
    backward = derive_backward(MIXTURES["mixtral"].forward(HIDDEN, cut(expert=4)), frozenset())

    kinds = [item.work.collective for item in messages(backward) if item.work.axis == "ep"]

    assert kinds == ["dispatch", "combine"]


def test_what_experts_keep_is_their_rows_and_grows_with_the_picks_of_a_token():
    """Per pick: the row, both halves of the gated product, the inner width, and the row at home."""
    few, many = (
        Experts(num_experts=8, top_k=k, expert_hidden=96, auxiliary_loss=False, **EVEN) for k in (2, 3)
    )

    kept = [sum(kept_tensors(layer.forward(HIDDEN, cut()), frozenset()).values()) for layer in (few, many)]

    assert (kept[1] - kept[0]).item() == 2 * 64 * (HIDDEN + 2 * 96 + 96 + HIDDEN) * 2


@pytest.mark.parametrize(("router_dtype", "expected"), [("model", "bf16"), ("fp32", "fp32")])
def test_a_router_computes_in_the_dtype_that_it_is_given_and_its_scores_in_fp32(router_dtype, expected):
    layer = Experts(num_experts=8, top_k=2, expert_hidden=96, router_dtype=router_dtype)

    found = works(layer, cut())

    assert found["experts.router"].dtype == expected
    assert {found[f"experts.{name}"].dtype for name in ("scores", "pick", "loss")} == {"fp32"}


def test_the_auxiliary_loss_is_a_pass_that_only_a_router_with_one_has():
    without = Experts(num_experts=8, top_k=2, expert_hidden=96, auxiliary_loss=False)

    assert "experts.loss" not in works(without, cut())
    assert "experts.loss" in works(Experts(num_experts=8, top_k=2, expert_hidden=96), cut())


def test_drawn_loads_are_as_uneven_as_the_estimate_of_chance_says():
    """4096 tokens of each of 8 ranks pick 8 of 128 experts by lot, 200 times; means over the draws."""
    rng = np.random.default_rng(7)
    tokens = 8 * 4096
    loads = rng.multinomial(tokens * 8, np.full(128, 1 / 128), size=200)  # picks nearly independent
    mean = tokens * 8 / 128
    of_expert = (loads.max(axis=1) / mean).mean()
    of_rank = (loads.reshape(200, 8, 16).sum(axis=2).max(axis=1) / (16 * mean)).mean()
    layer = Experts(num_experts=128, top_k=8, expert_hidden=96)

    rank, inside = layer.loads.imbalance(cut(expert=8, length=2048))

    assert (rank * inside).item() - 1 == pytest.approx(of_expert - 1, rel=0.25)
    assert rank.item() - 1 == pytest.approx(of_rank - 1, abs=0.01)


@pytest.mark.parametrize(("spread", "of_rank"), [(1, 1.0), (8, 1.5)])
def test_all_experts_on_one_rank_are_its_whole_load_and_one_on_each_the_expert_s_own(spread, of_rank):
    layer = Experts(num_experts=8, top_k=2, expert_hidden=96, load_imbalance_ratio=1.5)

    rank, inside = layer.loads.imbalance(cut(expert=spread))

    assert rank.item() == pytest.approx(of_rank)
    assert (rank * inside).item() == pytest.approx(1.5)


def test_the_fullest_rank_multiplies_and_receives_in_proportion_to_its_load():
    even, uneven = (
        Experts(num_experts=8, top_k=2, expert_hidden=96, load_imbalance_ratio=ratio)
        for ratio in (1.0, 1.5)
    )

    found = [works(layer, cut(expert=8)) for layer in (even, uneven)]

    for ratio in (
        grouped_flop(uneven, cut(expert=8)) / grouped_flop(even, cut(expert=8)),
        found[1]["experts.dispatch"].message_bytes.item()
        / found[0]["experts.dispatch"].message_bytes.item(),
    ):
        assert ratio == pytest.approx(1.5)


def test_a_batch_of_folds_is_lowered_as_its_members_one_by_one():
    folds = [(1, 1, 1), (1, 8, 1), (4, 2, 4), (4, 8, 1)]
    layer = MIXTURES["deepseek_moe"].feed_forward
    columns = np.array(folds, dtype=float)[:, :, None]
    together = Split(
        sequences=constant(2),
        length=constant(64),
        tensor=columns[:, 0],
        sequence_parallel=True,
        dtype="bf16",
        expert=columns[:, 1],
        expert_tensor=columns[:, 2],
    )

    batch = layer.forward(HIDDEN, together)

    for row, fold in enumerate(folds):
        single = Split(
            sequences=constant(2), length=constant(64), tensor=constant(fold[0]), sequence_parallel=True,
            dtype="bf16", expert=constant(fold[1]), expert_tensor=constant(fold[2]),
        )  # fmt: skip
        for many, one in zip(operators(batch), operators(layer.forward(HIDDEN, single)), strict=True):
            moved = many.work.work().moved_bytes
            assert moved[min(row, len(moved) - 1)].item() == one.work.work().moved_bytes.item(), many.name


def test_a_feed_forward_without_a_word_is_dense_unless_it_names_experts():
    mixer = {"heads": 8}
    dense = {"mixer": mixer, "feed_forward": {"ffn_hidden": 96}}
    sparse = {"mixer": mixer, "feed_forward": {"num_experts": 8, "top_k": 2, "expert_hidden": 96}}

    assert isinstance(Block.model_validate(dense).feed_forward, Mlp)
    assert isinstance(Block.model_validate(sparse).feed_forward, Experts)


@all_cases(
    "fields",
    [{"top_k": 9}, {"top_k": 0}, {"num_experts": 0}, {"load_imbalance_ratio": 0.9}, {"kind": "mlp"}],
)
def test_impossible_experts_are_refused(fields):
    with pytest.raises(ValidationError):
        Experts.model_validate({"num_experts": 8, "top_k": 2, "expert_hidden": 96} | fields)


@all_cases(("expert", "expert_tensor"), [(1, 1), (4, 1), (1, 2), (4, 2)])
def test_biases_of_experts_are_a_number_for_each_column_and_expert(expert, expert_tensor):
    """GPT-OSS: twice the inner width and the hidden one; the second is whole with its expert."""
    layer = Experts(num_experts=8, top_k=2, expert_hidden=96, expert_bias=True, router_bias=True)
    plain = layer.model_copy(update={"expert_bias": False, "router_bias": False})
    split = cut(tensor=2, expert=expert, expert_tensor=expert_tensor)

    own, total = (
        sum(getattr(w, name) for w in layer.weights(HIDDEN, split))
        - sum(getattr(w, name) for w in plain.weights(HIDDEN, split))
        for name in ("elements", "total")
    )

    assert total == 8 * (2 * 96 + HIDDEN) + 8
    assert own.item() == 8 / expert * (2 * 96 / expert_tensor + HIDDEN) + 8
    assert {"experts.up_bias", "experts.partial_bias"} == set(works(layer, split)) - set(
        works(plain, split)
    )


def test_experts_beside_attention_on_one_input_are_refused():
    with pytest.raises(ValueError, match="sequential"):
        Block(mixer=Attention(heads=8), feed_forward=MIXTURES["mixtral"].feed_forward, residual="parallel")


def test_shared_experts_keep_the_tensor_that_the_router_keeps_and_no_second_one():
    """On one rank nothing is gathered: router, picked experts and shared ones read one input."""
    block = experts(8, 2, shared_experts=1)

    kept = kept_tensors(block.forward(256, split(sequences=1, length=512)), frozenset())

    assert "shared.in.full" not in kept
    assert kept["mlp.in"].item() == 512 * 256 * 2
