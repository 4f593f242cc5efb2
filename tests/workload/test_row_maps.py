"""Cycles of permutations that check every expert, against times on B200 and a count of loops."""

import numpy as np
import pytest

from flopcast.cost.kernels.roofline import cycle_seconds
from flopcast.library.catalog import device, model, stack
from flopcast.operators.exchanges import expected_copies
from flopcast.operators.memory_bound import KINDS, MemoryBound
from flopcast.spec.batch import Batch
from flopcast.spec.plan import Plan, one_plan
from flopcast.workload.lower import lower
from flopcast.workload.realise import realise
from flopcast.workload.row_maps import copy_cycles, sum_cycles

RANKS, TOKENS, WIDTH = 8, 8192, 512  # of the benchmark
MEASURED_US = {(32, 36): (393.6, 267.3), (32, 8): (257.2, 127.3), (16, 8): (153.8, 103.5)}  # experts, picks


def one(number):
    return np.array([float(number)])


def passes(software):
    """The copy and the sum of a layer of Qwen3 30B on 8 ranks, and the gradients of both."""
    experts = model("qwen3-30b-a3b")
    programs = realise(
        lower(experts, one_plan(Plan(dp=8, ep=8, mbs=4, gbs=32)), Batch(sequence_length=4096)), software
    )
    block = next(layer for layer in programs.layers if layer.kind == "block")
    return [
        item
        for item in (*block.forward, *block.backward)
        if isinstance(item.work, MemoryBound) and KINDS[item.work.kind].permutes
    ]


def with_dispatcher(name, **settings):
    software = stack("megatron-bridge")
    experts = software.experts.model_copy(update={"dispatcher": name, **settings})
    return software.model_copy(update={"experts": experts})


@pytest.mark.parametrize(("experts", "picks"), MEASURED_US)
def test_cycles_give_the_times_that_were_measured(experts, picks):
    tokens = TOKENS * expected_copies(one(experts * RANKS), one(picks), one(RANKS))
    rows, b200 = one(TOKENS * picks), device("b200-sxm-180gb")
    copied = copy_cycles(tokens, one(experts), rows)
    summed = sum_cycles(tokens, one(experts), rows, one(WIDTH))

    for cycles, measured_us in zip((copied, summed), MEASURED_US[experts, picks], strict=True):
        assert cycle_seconds(cycles, b200).item() == pytest.approx(measured_us / 1e6, rel=0.01)


def test_sums_look_at_all_experts_again_for_every_1024_elements():
    arguments = one(1000), one(16), one(1500)
    once, twice, seven = (sum_cycles(*arguments, one(width)) for width in (1024, 2048, 7168))

    assert (seven - once).item() == pytest.approx(6 * (twice - once).item())
    assert sum_cycles(*arguments, one(1)).item() == once.item()


def test_hybridep_permutes_by_lookups_and_nccl_does_not():
    by_hybridep, by_nccl = passes(with_dispatcher("hybridep")), passes(with_dispatcher("all_to_all"))
    moving = [item for item in by_hybridep if item.work.elements.item() > 0]
    tokens = 4 * 4096 * expected_copies(one(128), one(8), one(8))
    rows = next(item.work.elements for item in moving) / 2048
    copied = copy_cycles(tokens, one(16), rows).item()
    summed = sum_cycles(tokens, one(16), rows, one(2048)).item()

    found = {item.name: item.work.work().cycles.item() for item in moving}
    assert found == pytest.approx(
        {
            "experts.sort": copied,
            "experts.unsort": summed,
            "experts.unsort.dgrad": copied,
            "experts.sort.dgrad": summed,
        },
        rel=0.02,  # loads are drawn: the fullest rank has more tokens than the mean
    )
    assert not any(item.work.work().cycles.any() for item in by_nccl)


def test_old_kernels_of_transformer_engine_check_all_experts_of_the_layer_for_each_1024_elements():
    """The loops of TE 2.2: a program per token; for each block of its row, a number of every expert."""
    tokens, experts, blocks, cycles_per_number = 4 * 4096, 128, 2048 // 1024, 10.2
    of_loops = tokens * blocks * experts * cycles_per_number

    items = passes(with_dispatcher("all_to_all", checks_every_expert=True))
    found = {item.name: item.work.work().cycles.item() for item in items}

    checking = ["experts.permute", "experts.permute.dgrad", "experts.unpermute", "experts.unpermute.dgrad"]
    assert sorted(name for name, cycles in found.items() if cycles) == checking
    assert len({found[name] for name in checking}) == 1
    assert of_loops < found["experts.permute"] < 2 * of_loops  # the rest moves rows
    by_hybridep = (passes(with_dispatcher("hybridep", checks_every_expert=old)) for old in (False, True))
    assert len({tuple(item.work.work().cycles.item() for item in items) for items in by_hybridep}) == 1
