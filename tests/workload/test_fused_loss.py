"""The loss in one kernel: it takes the chain's place where nothing cuts the logits, and there alone."""

import pytest
from workload_cases import BARE, GPT, LENGTH, VOCABULARY, at, realised, stack_with

FUSED = stack_with(BARE, fused_loss="uncut")
CHAIN, ONE = ("head.cast", "head.loss"), "head.loss.fused"


def counts(*texts, stack=FUSED):
    items = {item.name: item for item in realised(GPT, stack, *texts).layers[-1].forward}
    return {name: [at(items[name].count, plan) for plan in range(len(texts))] for name in (*CHAIN, ONE)}


def test_uncut_logits_have_one_kernel_and_cut_ones_the_chain():
    found = counts("gbs=1", "tp=4 gbs=1")

    assert [found[name] for name in CHAIN] == [[0.0, 1.0]] * 2
    assert found[ONE] == [1.0, 0.0]


def test_a_kernel_for_all_logits_leaves_no_chain():
    found = counts("gbs=1", "tp=4 gbs=1", stack=stack_with(BARE, fused_loss="all"))

    assert [found[name] for name in CHAIN] == [[0.0, 0.0]] * 2
    assert found[ONE] == [1.0, 1.0]


@pytest.mark.parametrize("degree", [1, 4])
def test_only_what_runs_forward_has_a_gradient(degree):
    head = realised(GPT, FUSED, f"tp={degree} gbs=1").layers[-1]

    forward = {item.name for item in head.forward if at(item.count) > 0}
    backward = {item.name.rpartition(".")[0] for item in head.backward if at(item.count) > 0}
    for name in (*CHAIN, ONE):
        assert (name in forward) == (name in backward)


def test_the_kernel_reads_16_bit_logits_and_writes_as_many_probabilities():
    items = {item.name: item for item in realised(GPT, FUSED, "gbs=1").layers[-1].forward}

    assert items[ONE].inputs == ("logits",)
    assert at(items[ONE].work.work().moved_bytes) == 2 * 2 * LENGTH * VOCABULARY


def test_a_chain_stays_whole_without_the_switch():
    names = {item.name for item in realised(GPT, BARE, "gbs=1").layers[-1].forward}

    assert names >= set(CHAIN)
    assert ONE not in names
