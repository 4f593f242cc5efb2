"""workload/resharding.py: what ranks read of another plan's checkpoint, against lists of all elements."""

from collections import Counter
from math import ceil

import numpy as np
import pytest
from all_cases import all_cases

from flopcast.layers.attention import Attention
from flopcast.layers.block import Block
from flopcast.layers.experts import Experts
from flopcast.layers.mlp import Mlp
from flopcast.library import catalog
from flopcast.spec.batch import Batch
from flopcast.spec.checkpoints import Checkpoint
from flopcast.spec.model import Model
from flopcast.spec.plan import Plan, one_plan
from flopcast.workload.lower import lower
from flopcast.workload.realise import realise
from flopcast.workload.resharding import Intervals, overlaps, reads
from flopcast.workload.saved_states import saved_states

BLOCKS, HIDDEN, KV_HEADS = 4, 16, 2
STACK = catalog.stack("megatron-core")


def model(tied=False, experts=False):
    """A model small enough to write down each of its elements."""
    feed_forward = (
        Experts(num_experts=4, top_k=2, expert_hidden=8) if experts else Mlp(ffn_hidden=32, bias=True)
    )
    mixer = Attention(heads=4, kv_heads=KV_HEADS)
    blocks = (Block(count=BLOCKS, mixer=mixer, feed_forward=feed_forward),)
    return Model(hidden=HIDDEN, vocabulary=128, blocks=blocks, tied_embeddings=tied)


def programs_of(plan, of=None):
    return realise(lower(of or model(), one_plan(plan), Batch(sequence_length=64)), STACK)


def tensors_by_stage(programs, plan):
    """The tensors of each stage in order: number in the model, elements, and elements of a rank."""
    embedding, *_ = programs.layers
    counts = [BLOCKS if layer.kind == "block" else 1 for layer in programs.layers]
    chunks = plan.pipeline_parallel * plan.virtual_stages
    found = [[] for _ in range(plan.pipeline_parallel)]
    number = block = 0
    for layer, count in zip(programs.layers, counts, strict=True):
        for _ in range(count):
            if layer.kind == "block":
                stage = (block // (BLOCKS // chunks)) % plan.pipeline_parallel
                block += 1
            else:
                stage = 0 if layer is embedding else plan.pipeline_parallel - 1
            for weight in layer.weights:
                if weight.tied:
                    if stage != 0:
                        found[stage].append((0, embedding.weights[0].total, int(weight.elements.item())))
                    continue
                found[stage].append((number, weight.total, int(weight.elements.item())))
                number += 1
    return found


def elements_of_ranks(programs, plan, sharded):
    """The elements that each (stage, tensor rank, replica) holds, one by one."""
    ranks, replicas = plan.tensor_parallel, plan.data_parallel
    held = {}
    for stage, tensors in enumerate(tensors_by_stage(programs, plan)):
        for rank in range(ranks):
            mine = []
            for tensor, total, share in tensors:
                copies = max(1, share * ranks // total)
                low = rank // copies * share
                mine += [(tensor, each) for each in range(low, min(low + share, total))]
            size = ceil(len(mine) / replicas)
            for replica in range(replicas):
                part = mine[replica * size : (replica + 1) * size] if sharded else mine
                held[stage, rank, replica] = part
    return held


def counted(new, new_plan, old, old_plan):
    """Bytes and parts that every rank of the new plan reads, counted element by element."""
    found = {}
    of_weights = 0 if 3 in (new_plan.zero, old_plan.zero) else 2  # FSDP keeps weights in fp32 alone
    for kind_bytes, stage in ((of_weights, 3), (12, 1)):
        if not kind_bytes:
            continue
        writer = {}
        for place, elements in elements_of_ranks(old, old_plan, old_plan.zero >= stage).items():
            if old_plan.zero < stage and place[2] > 0:
                continue
            for element in elements:
                writer[element] = min(writer.get(element, place), place)
        for place, elements in elements_of_ranks(new, new_plan, new_plan.zero >= stage).items():
            parts = Counter(writer[element] for element in elements)
            size, number = found.get(place, (0, 0))
            found[place] = (size + kind_bytes * sum(parts.values()), number + len(parts))
    return found


def by_place(values, plan):
    """Values of ranks in the order tp, dp, pp, by place."""
    shape = (plan.pipeline_parallel, plan.data_parallel, plan.tensor_parallel)
    return {(s, t, d): value for (s, d, t), value in np.ndenumerate(values.reshape(shape))}


PLANS = [
    Plan(tp=2, pp=2, dp=4, gbs=8, zero=1),
    Plan(tp=2, pp=2, dp=2, gbs=8, zero=1),
    Plan(tp=1, pp=1, dp=3, gbs=9, zero=3),
    Plan(tp=4, pp=1, dp=1, gbs=8),
    Plan(tp=1, pp=2, vpp=2, dp=2, gbs=8, zero=2),
    Plan(tp=2, pp=4, dp=2, gbs=8, zero=0),
]


@all_cases("old_plan", PLANS)
@all_cases("tied", [False, True])
def test_ranks_read_what_a_count_of_all_elements_finds(old_plan, tied):
    old = programs_of(old_plan, model(tied))
    for new_plan in PLANS:
        new = programs_of(new_plan, model(tied))

        found = reads(new, old)

        expected = counted(new, new_plan, old, old_plan)
        sizes, parts = by_place(found.rank_bytes, new_plan), by_place(found.rank_parts, new_plan)
        assert {place: (sizes[place], parts[place]) for place in sizes} == expected


@all_cases("experts", [False, True])
def test_what_ranks_read_is_what_they_hold(experts):
    """Two ways to the same bytes: intervals of another plan's files, and parameters of a rank.

    If the files contain no 16-bit weights, ranks read fewer bytes than they hold.
    """
    of = model(experts=experts)
    spread = {"ep": 2, "etp": 1} if experts else {}
    plans = [
        Plan(tp=2, pp=2, dp=4, gbs=8, zero=1, **spread),
        Plan(tp=1, pp=1, dp=4, gbs=8, zero=3, **({"ep": 4, "etp": 1} if experts else {})),
        Plan(tp=1, pp=4, dp=2, gbs=8, **spread),
    ]
    for old in plans:
        for new in plans:
            programs = programs_of(new, of)

            found = reads(programs, programs_of(old, of))

            whole = saved_states(programs, Checkpoint(), 8).read_bytes
            if old.zero != 3 or new.zero == 3:
                assert found.rank_bytes == pytest.approx(whole)
            else:
                assert (found.rank_bytes < whole).all()


def test_overlaps_of_random_divisions_are_those_of_a_count():
    draw = np.random.default_rng(5)
    for _ in range(20):
        sides = []
        for owners in (3, 5):
            cuts = np.concatenate([[0], np.sort(draw.choice(np.arange(1, 200), 9, replace=False)), [200]])
            owner = draw.integers(0, owners, 10)
            sides.append(
                Intervals(start=cuts[:-1] * 1.0, end=cuts[1:] * 1.0, owner=owner, num_owners=owners)
            )
        new, old = (np.repeat(s.owner, np.diff(np.append(s.start, 200)).astype(int)) for s in sides)

        expected = np.zeros((3, 5))
        np.add.at(expected, (new, old), 1)
        readers, writers, shared = overlaps(*sides)
        assert shared.tolist() == expected[expected > 0].tolist()
        assert list(zip(readers, writers, strict=True)) == list(zip(*np.nonzero(expected), strict=True))


def test_universal_checkpointing_of_half_the_replicas():
    """TP2 PP24 DP8 to DP4 (arXiv:2406.18820): each rank reads two shards of states, and its weights."""
    gpt = catalog.model("gpt3-175b")
    old, new = (programs_of(Plan(tp=2, pp=24, dp=dp, gbs=64, zero=1), gpt) for dp in (8, 4))

    found, whole = reads(new, old), saved_states(new, Checkpoint(), 8)

    assert found.rank_bytes == pytest.approx(whole.read_bytes, rel=1e-6)
    inner = found.rank_parts[2 * 4 : 23 * 2 * 4 : 2]  # first tensor ranks, stages without a tied embedding
    assert set(inner.tolist()) == {3.0}
