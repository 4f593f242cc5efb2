"""Communicators of a rank, against its groups written out as sets of ranks: how many different ones."""

import numpy as np
import pytest
from all_cases import all_cases
from memory_cases import GPT, programs_of

from flopcast.layers.experts import Experts
from flopcast.memory.communicators import communicators_opened

MIXTURE = GPT.model_copy(
    update={
        "blocks": (
            GPT.blocks[0].model_copy(
                update={"feed_forward": Experts(num_experts=16, top_k=2, expert_hidden=512)}
            ),
        )
    }
)


def different(groups):
    """Groups of more than one rank, each once."""
    return len({frozenset(np.ravel(group).tolist()) for group in groups if np.size(group) > 1})


def groups_of_first_rank(tp=1, cp=1, dp=1, pp=1, shard=0, tied=False):
    """Groups that rank 0 sends in; ranks by (pp, dp, cp, tp)."""
    ranks = np.arange(pp * dp * cp * tp).reshape(pp, dp, cp, tp)
    found = [ranks[0, 0, 0], ranks[0, 0, :, 0], ranks[:, 0, 0, 0], ranks[:, 0, 0]]  # tp, cp, pp, model
    found += [ranks[0, : shard or dp, :, 0]]  # those that share a set of shards
    found += [ranks[0, :: shard or dp, 0, 0]]  # those that hold the same shard
    return found + ([ranks[[0, -1], 0, 0, 0]] if tied and pp > 1 else [])


PLANS = [
    {},
    {"dp": 4},
    {"tp": 2},
    {"pp": 2},
    {"pp": 4},
    {"cp": 2},
    {"dp": 4, "cp": 2},
    {"dp": 2, "tp": 2, "pp": 2},
    {"dp": 2, "tp": 2, "cp": 2, "pp": 4},
]


@all_cases("tied", [False, True])
@all_cases("zero", [0, 1])
@all_cases("degrees", PLANS)
def test_every_different_group_that_a_rank_sends_in_is_one_communicator(degrees, zero, tied):
    text = " ".join(f"{name}={degree}" for name, degree in degrees.items())
    words = f"{text} zero={zero} gbs=8 context_exchange=all_gather"

    model = GPT.model_copy(update={"tied_embeddings": tied})

    opened = communicators_opened(programs_of(words.strip(), model=model))

    assert opened.max() == different(groups_of_first_rank(**degrees, tied=tied))


@all_cases(("shard", "tp"), [(1, 1), (2, 1), (4, 2), (8, 2)])
def test_shards_inside_and_replicas_across_are_two_groups_unless_one_of_them_is_all(shard, tp):
    words = f"dp=8 tp={tp} zero=3 dp_shard={shard} gbs=8"

    opened = communicators_opened(programs_of(words))

    assert opened.max() == different(groups_of_first_rank(tp=tp, dp=8, shard=shard))


@pytest.mark.parametrize(("dp", "ep", "more"), [(8, 1, 0), (8, 8, 1), (8, 4, 2)])
def test_experts_add_those_that_they_are_spread_over_and_those_that_hold_the_same(dp, ep, more):
    """Spread over all replicas, none hold the same; not spread, the replicas are those of all weights."""
    words = f"dp={dp} ep={ep} mbs=1 gbs=8"

    dense, experts = (communicators_opened(programs_of(words, model=model)) for model in (GPT, MIXTURE))

    assert experts.max() - dense.max() == more


def test_plans_of_a_batch_open_what_each_opens_alone():
    texts = ("dp=8 gbs=8", "dp=4 tp=2 gbs=8", "tp=8 gbs=8")

    together = communicators_opened(programs_of(*texts))

    alone = [communicators_opened(programs_of(text)).max() for text in texts]
    assert together.max(axis=1).tolist() == alone
