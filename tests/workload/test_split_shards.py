"""Zero-bubble schedules with ZeRO-2, ZeRO-3 and recomputed linears: nothing is lost or repeated."""

import pytest
from all_cases import all_cases
from workload_cases import LLAMA, at, realised, stack_with

from flopcast.library import catalog
from flopcast.operators.base import AbstractOperator

FSDP = catalog.stack("torch-fsdp2")
CASES = [
    (FSDP, "zero=3"),
    (stack_with(FSDP, sharding={"holds_in_pipeline": False}), "zero=3"),
    (catalog.stack("deepspeed-zero"), "zero=2"),
    (catalog.stack("megatron-core"), "recompute=full"),
    (catalog.stack("megatron-core"), "recompute=selective:mlp"),
]


def programs(stack, words, schedule):
    return realised(LLAMA, stack, f"dp=4 pp=2 gbs=32 mbs=1 schedule={schedule} {words}")


def items(found):
    return [(segment, item) for segments in found.passes for segment in segments for item in segment.items]


def flop(found):
    return sum(
        segment.repeat.sum() * at(item.work.work().flop) * at(item.count)
        for segment, item in items(found)
        if isinstance(item.work, AbstractOperator)
    )


def sent(found, name):
    return sum(
        (segment.repeat * item.work.message_bytes * item.count).sum()
        for segment, item in items(found)
        if item.name.startswith(name)
    )


@all_cases(("stack", "words"), CASES)
def test_a_split_backward_computes_and_sends_what_the_whole_one_does(stack, words):
    whole, split = (programs(stack, words, schedule) for schedule in ("1f1b", "zb_h1"))

    assert flop(split) == pytest.approx(flop(whole), rel=1e-12)
    for name in ("gradients.reduce", "parameters.gather"):
        assert sent(split, name) == pytest.approx(sent(whole, name), rel=1e-12)


@all_cases(("stack", "words"), CASES)
def test_gradients_are_reduced_behind_weight_gradients_and_parameters_gathered_ahead_of_b(stack, words):
    found = programs(stack, words, "zb_h1")

    backward, weight = ([i for s in segments for i in s.items] for segments in found.passes[1:])
    assert not [item.name for item in backward if item.name.startswith("gradients.")]
    assert not [item.name for item in weight if item.name == "parameters.gather"]
    assert all(item.phase != "recompute" for item in weight)
    reduced = [at for at, item in enumerate(weight) if item.name.startswith("gradients.reduce")]
    first = [at for at, item in enumerate(weight) if item.name.endswith(".wgrad")]
    assert not reduced or min(first) < min(reduced)
    assert bool(reduced) == ("zero" in words)
