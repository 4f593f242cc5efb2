"""Limits on experts: groups that a token chooses among, rows that an expert takes."""

import pytest
from all_cases import all_cases
from layer_examples import HIDDEN, flop, messages
from test_experts import cut, grouped_flop, works

from flopcast.dtypes import constant
from flopcast.layers.experts import Experts
from flopcast.operators.exchanges import expected_copies
from flopcast.workload.backward import derive_backward, kept_tensors, total_bytes
from flopcast.workload.rewrites import REWRITES

TOKENS = 2 * 64
PICKS = 2


def layer(**fields):
    return Experts(**{"num_experts": 8, "top_k": PICKS, "expert_hidden": 96} | fields)


def sent_bytes(experts, split):
    return works(experts, split)["experts.dispatch"].message_bytes.item()


def names(experts):
    return set(works(experts, cut()))


def test_padding_to_a_capacity_multiplies_as_many_rows_whatever_the_router_chose():
    """Capacity C = factor · tokens · picks / experts of each expert (arXiv:2101.03961, section 2.2)."""
    even, uneven = (
        layer(capacity_factor=1.25, pads_to_capacity=True, load_imbalance_ratio=ratio) for ratio in (1, 2)
    )

    found = [grouped_flop(experts, cut(expert=4)) for experts in (even, uneven)]

    rows = 1.25 * TOKENS * PICKS
    assert found == [2 * rows * 3 * 96 * HIDDEN] * 2


def test_padded_rows_travel_as_tokens_do_and_none_is_spared():
    experts = layer(capacity_factor=1.0, pads_to_capacity=True)

    assert sent_bytes(experts, cut(expert=4)) == PICKS * TOKENS * HIDDEN * 2


def test_a_capacity_ends_the_load_of_the_fullest_expert():
    bounded, free = (layer(load_imbalance_ratio=2.0, **limit) for limit in ({"capacity_factor": 1.25}, {}))

    loads = [
        (rank * inside).item()
        for rank, inside in (e.loads.imbalance(cut(expert=4)) for e in (bounded, free))
    ]

    assert loads == pytest.approx([1.25, 2.0])


def test_a_capacity_above_every_load_changes_nothing():
    wide, free = layer(load_imbalance_ratio=1.5, capacity_factor=2.0), layer(load_imbalance_ratio=1.5)

    assert grouped_flop(wide, cut(expert=4)) == grouped_flop(free, cut(expert=4))
    assert sent_bytes(wide, cut(expert=4)) == sent_bytes(free, cut(expert=4))


def test_half_the_capacity_drops_half_of_all_picks():
    half, free = layer(load_imbalance_ratio=1.0, capacity_factor=0.5), layer(load_imbalance_ratio=1.0)

    assert grouped_flop(half, cut(expert=4)) == grouped_flop(free, cut(expert=4)) / 2
    assert sent_bytes(half, cut(expert=4)) == sent_bytes(free, cut(expert=4)) / 2


def test_tokens_limited_to_groups_send_less_and_compute_as_much():
    even = {"num_experts": 64, "top_k": 8, "load_imbalance_ratio": 1.0}
    limited, free = layer(expert_groups=8, top_groups=4, **even), layer(**even)

    split = cut(expert=8)

    assert grouped_flop(limited, split) == grouped_flop(free, split)
    copies = expected_copies(constant(64), constant(8), constant(8), 8, 4).item()
    assert sent_bytes(limited, split) == pytest.approx(copies * TOKENS * HIDDEN * 2)
    assert sent_bytes(limited, split) <= 4 * TOKENS * HIDDEN * 2 < sent_bytes(free, split)


@pytest.mark.parametrize(
    ("fields", "kernel"),
    [({"selection_bias": True}, "selection_bias"), ({"expert_groups": 4, "top_groups": 2}, "group_limit")],
)
def test_what_steers_a_choice_is_a_pass_over_scores_that_has_no_gradient(fields, kernel):
    forward = layer(**fields).forward(HIDDEN, cut())

    assert names(layer(**fields)) - names(layer()) == {f"experts.{kernel}"}
    assert not [item for item in derive_backward(forward, frozenset()) if kernel in item.name]
    assert flop(forward).item() == flop(layer().forward(HIDDEN, cut())).item()


def test_a_bias_of_scores_is_no_trained_weight():
    weights = [w.total for w in layer(selection_bias=True).weights(HIDDEN, cut())]

    assert weights == [w.total for w in layer().weights(HIDDEN, cut())]


def test_rows_that_were_weighed_before_are_added_at_home_and_not_kept():
    forward = layer(load_imbalance_ratio=1.0).forward(HIDDEN, cut())

    weighed = REWRITES["weighted_experts"](forward)

    spared = [total_bytes(kept_tensors(items, frozenset())).item() for items in (forward, weighed)]
    assert spared[0] - spared[1] == TOKENS * PICKS * HIDDEN * 2
    assert len(messages(weighed)) == len(messages(forward))


def test_biases_of_weighed_experts_join_the_first_product_and_are_weighed_behind_the_second():
    forward = REWRITES["weighted_experts"](layer(expert_bias=True).forward(HIDDEN, cut()))

    biases = {item.name: item.work.kind for item in forward if item.name.endswith("_bias")}
    assert biases == {"experts.up_bias": "epilogue_bias", "experts.partial_bias": "weighed_bias"}


def test_biases_that_are_added_expert_by_expert_are_joined_behind_the_first_product_too():
    forward = REWRITES["weighted_joined_experts"](layer(expert_bias=True).forward(HIDDEN, cut()))

    biases = {item.name: item.work.kind for item in forward if item.name.endswith("_bias")}
    assert biases == {"experts.up_bias": "joined_bias", "experts.partial_bias": "weighed_bias"}


def test_biases_inside_fused_products_of_experts_take_no_kernel_of_their_own():
    weighed = REWRITES["weighted_experts"](layer(expert_bias=True, gate_clamp=True).forward(HIDDEN, cut()))

    kinds = {item.work.kind for item in REWRITES["fused_experts"](weighed) if hasattr(item.work, "kind")}
    assert {"epilogue_bias", "epilogue_gate"} <= kinds
    assert not kinds & {"weighed_bias", "bias_add", "clamped_swiglu", "swiglu"}


@all_cases(
    ("fields", "told"),
    [
        ({"expert_groups": 3}, "expert_groups = 3 .*\n  allowed: a divisor of num_experts \\(8\\)"),
        (
            {"expert_groups": 2, "top_groups": 3},
            "top_groups = 3 .*\n  allowed: at most expert_groups \\(2\\)",
        ),
        ({"expert_groups": 8, "top_groups": 1}, "allowed: at most the number of experts in 1 groups"),
        ({"pads_to_capacity": True}, "a number above 0"),
    ],
)
def test_limits_that_contradict_each_other_are_refused(fields, told):
    with pytest.raises(ValueError, match=told):
        layer(**fields)
