"""Messages as linear maps over what ranks hold, and their bytes against rings that are played out."""

from itertools import combinations

import numpy as np
import pytest
from all_cases import all_cases

from flopcast.cost.collectives.formulas import FORMULAS
from flopcast.dtypes import constant
from flopcast.operators.exchanges import expected_copies
from flopcast.operators.messages import MESSAGES

RANKS = 4
TOKENS = [  # token t of rank r, two elements, goes to two ranks: who gets which
    [(r, t) for r in range(RANKS) for t in range(RANKS) if rank in ((r + t) % RANKS, (r + t + 1) % RANKS)]
    for rank in range(RANKS)
]


def dispatched(tokens):
    """Copies of the tokens of all ranks, at the ranks that they go to."""
    rows = [held.reshape(RANKS, 2) for held in tokens]
    return [np.concatenate([rows[r][t] for r, t in TOKENS[rank]]) for rank in range(RANKS)]


def combined(copies):
    """Each token's copies summed where it came from."""
    rows = np.zeros((RANKS, RANKS, 2))
    for rank, held in enumerate(copies):
        for (r, t), copy in zip(TOKENS[rank], held.reshape(-1, 2), strict=True):
            rows[r, t] += copy
    return [home.ravel() for home in rows]


MAPS = {  # from the list of arrays before to the list after; an array that all share stands once
    "all_reduce": lambda parts: [np.sum(parts, axis=0)],
    "replicate": lambda shared: shared * RANKS,
    "all_gather": lambda shards: [np.concatenate(shards)] * RANKS,
    "reduce_scatter": lambda parts: np.split(np.sum(parts, axis=0), RANKS),
    "broadcast": lambda sent: sent * RANKS,
    "reduce": lambda parts: [np.sum(parts, axis=0)],
    "send_receive": lambda sent: sent,
    "ring_pass": lambda sent: sent,  # where it arrives, an array is what it was
    "all_to_all": lambda parts: [
        np.concatenate(column) for column in zip(*(np.split(p, RANKS) for p in parts), strict=True)
    ],
    "dispatch": dispatched,
    "combine": combined,
}
HELD_BEFORE = {"all_reduce": (RANKS, 8), "replicate": (1, 8), "all_gather": (RANKS, 2)}
HELD_BEFORE |= {"reduce_scatter": (RANKS, 8), "send_receive": (1, 8)}
HELD_BEFORE |= {"broadcast": (1, 8), "reduce": (RANKS, 8)}
HELD_BEFORE |= {"ring_pass": (1, 8), "all_to_all": (RANKS, 8)}
HELD_BEFORE |= {"dispatch": (RANKS, 8), "combine": (RANKS, 16)}
NAME_OF = {kind: name for name, kind in MESSAGES.items()}


def message(name, message_bytes=64.0, axis="tp"):
    return MESSAGES[name](axis=axis, message_bytes=constant(message_bytes))


def drawn(rng, arrays):
    return [rng.normal(size=array.shape) for array in arrays]


def inner(left, right):
    return sum(float(a @ b) for a, b in zip(left, right, strict=True))


@all_cases("name", MESSAGES)
def test_the_dual_is_the_adjoint_of_the_message(name):
    """<A x, y> = <x, Aᵀ y>: the definition of what carries a gradient back."""
    rng = np.random.default_rng(7)
    count, length = HELD_BEFORE[name]
    x = [rng.normal(size=length) for _ in range(count)]
    after = MAPS[name](x)
    y = drawn(rng, after)

    back = MAPS[NAME_OF[type(message(name).dual())]](y)

    assert inner(after, y) == pytest.approx(inner(x, back))


@all_cases("name", MESSAGES)
def test_the_dual_of_the_dual_is_the_message(name):
    sent = message(name, message_bytes=96.0, axis="dp")

    again = sent.dual().dual()

    assert type(again) is type(sent)
    assert (again.axis, again.message_bytes.item()) == ("dp", 96.0)


@all_cases("name", MESSAGES)
def test_the_dual_runs_over_the_same_ranks_with_as_many_bytes(name):
    sent = message(name, message_bytes=96.0, axis="model")

    dual = sent.dual()

    assert (dual.axis, dual.message_bytes.item()) == ("model", 96.0)


@all_cases("name", MESSAGES)
def test_every_message_that_sends_anything_can_be_priced(name):
    collective = message(name).collective

    assert collective in FORMULAS or (name, collective) == ("replicate", "")


@all_cases("name", MESSAGES)
def test_a_message_is_listed_under_the_name_that_it_is_priced_by(name):
    assert message(name).collective in (name, "")


def test_a_broadcast_goes_from_rank_to_rank_and_every_rank_gets_it_whole():
    formula = FORMULAS["broadcast"]

    assert [formula.hops(constant(n)).item() for n in (2, 8, 1024)] == [1, 7, 1023]
    assert [formula.share(constant(n)).item() for n in (2, 8, 1024)] == [1, 1, 1]


def counted_copies(experts, top_k, ranks):
    """Every set of experts in turn, and on how many ranks it lies: the mean."""
    each = experts // ranks
    sets = list(combinations(range(experts), top_k))
    return sum(len({expert // each for expert in chosen}) for chosen in sets) / len(sets)


@all_cases(
    ("experts", "top_k", "ranks"), [(8, 2, 4), (8, 2, 8), (12, 3, 4), (8, 8, 4), (16, 4, 2), (8, 5, 1)]
)
def test_copies_of_a_token_are_those_counted_over_every_set_of_experts(experts, top_k, ranks):
    found = expected_copies(constant(experts), constant(top_k), constant(ranks)).item()

    assert found == pytest.approx(counted_copies(experts, top_k, ranks), rel=1e-12)


def counted_in_groups(experts, top_k, ranks, groups, top_groups):
    """Mean number of ranks over every choice of groups and of experts inside."""
    inside, on_rank, copies = experts // groups, experts // ranks, []
    for chosen in combinations(range(groups), top_groups):
        candidates = [group * inside + place for group in chosen for place in range(inside)]
        copies += [len({e // on_rank for e in picked}) for picked in combinations(candidates, top_k)]
    return sum(copies) / len(copies)


@all_cases("ranks", [1, 2, 4, 8])
@all_cases(("groups", "top_groups"), [(1, 1), (2, 1), (4, 1), (4, 2), (4, 3), (4, 4)])
def test_copies_of_tokens_that_are_limited_to_groups_are_those_of_all_their_choices(
    groups, top_groups, ranks
):
    found = expected_copies(constant(8), constant(2), constant(ranks), groups, top_groups).item()

    assert found == pytest.approx(counted_in_groups(8, 2, ranks, groups, top_groups), rel=1e-12)


def test_a_token_of_deepseek_v2_goes_to_at_most_three_of_eight_ranks():
    """arXiv:2405.04434, section 2.2.2: six of 160 experts, on at most three devices."""
    limited = expected_copies(constant(160), constant(6), constant(8), 8, 3).item()

    assert 2.5 < limited < 3
    assert limited < expected_copies(constant(160), constant(6), constant(8)).item()


def test_copies_of_many_plans_are_those_of_each():
    experts, top_k, ranks = (
        np.array([[float(v)] for v in values]) for values in ((8, 256), (2, 8), (4, 8))
    )

    together = expected_copies(experts, top_k, ranks)

    alone = [
        expected_copies(constant(e), constant(k), constant(n)).item()
        for e, k, n in ((8, 2, 4), (256, 8, 8))
    ]
    assert together.ravel().tolist() == alone


def test_a_dispatch_sends_what_drawn_routes_send():
    """20 000 tokens of one of eight ranks choose 8 of 256 experts each, drawn without replacement."""
    rng = np.random.default_rng(5)
    chosen = rng.random((20_000, 256)).argpartition(8, axis=1)[:, :8] // 32
    sent = sum(len(np.unique(row[row != 3])) for row in chosen)  # by rank 3: its own copy stays

    copies = expected_copies(constant(256), constant(8), constant(8)).item()

    share = FORMULAS["dispatch"].share(constant(8)).item()
    assert 20_000 * copies * share == pytest.approx(sent, rel=0.005)


def test_no_more_ranks_than_experts_are_chosen_hold_a_token():
    one = np.ones(1)

    assert expected_copies(64 * one, one, np.array([1.0, 2.0, 64.0])).tolist() == pytest.approx([1, 1, 1])
