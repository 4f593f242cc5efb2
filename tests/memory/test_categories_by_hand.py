"""Bytes that few plans have: counted by hand from the model's sizes, and batches against their members."""

import numpy as np
import pytest
from all_cases import all_cases
from memory_cases import BLOCKS, GPT, HIDDEN, LENGTH, VOCABULARY, Kept, programs_of, stack_with

from flopcast.layers.adapters import Adapters
from flopcast.memory.communicators import communicators_opened
from flopcast.memory.peak import peak_memory, peaks
from flopcast.spec.data_parallel import Sharding
from flopcast.spec.orders import filled_after

TABLE = VOCABULARY * HIDDEN
LINEARS = 12 * HIDDEN**2  # of a block: 4 h² of attention, 8 h² of the feed-forward
OTHERS = 13 * HIDDEN  # biases and norms of a block
NF4_BITS = 4 + 8 / 64 + 32 / (64 * 256)  # arXiv:2305.14314, section 3: constants of 64, quantised by 256
STATES = ("parameters", "gradients", "optimizer_states")


def model_with(**changes):
    return GPT.model_copy(update=changes)


@all_cases("modules", [1, 2])
@all_cases("tensor", [1, 4])
def test_every_further_prediction_has_logits_of_its_own(modules, tensor):
    stack = stack_with(memory={"logit_bytes": 6.0})

    plain, further = (
        Kept(f"tp={tensor} pp=2 mbs=2 gbs=4", model=model_with(mtp=number), stack=stack).category("logits")
        for number in (0, modules)
    )

    one_bytes = 6.0 * 2 * LENGTH * VOCABULARY / tensor
    assert plain == [0.0, one_bytes]
    assert further == [0.0, (1 + modules) * one_bytes]


@pytest.mark.parametrize("received", [1, 2])
def test_a_stage_that_receives_keeps_so_many_inputs_and_one_gradient(received):
    stack = stack_with(memory={"received_activations": received}, pipeline={"payload": "full"})

    alone, piped = (Kept(text, stack=stack).category("buffers") for text in ("gbs=2", "pp=2 mbs=2 gbs=4"))

    assert alone == [0.0]
    assert piped == [(received + 1) * 2 * 2 * LENGTH * HIDDEN] * 2


def test_stages_that_pad_a_batch_receive_nothing():
    stack = stack_with(
        memory={"received_activations": 2, "workspace_bytes": 1e9, "stage_outputs": 1},
        pipeline={"payload": "full"},
    )

    kept = Kept("pp=4 gbs=4", "pp=2 gbs=4", stack=stack)

    padded = kept.programs.stages.multiplicity[1] == 0
    assert padded.sum() == 1
    assert kept.memory.allocated_bytes[1, padded].tolist() == [0.0]
    assert kept.memory.standing_bytes[1, ~padded].min() > 1e9


@pytest.mark.parametrize("rank", [8, 64])
def test_a_base_in_4_bits_keeps_its_linears_so_and_all_else_in_16(rank):
    adapters = Adapters(rank=rank, targets=("q", "v"), base_dtype="nf4")

    kept = Kept("gbs=1", model=model_with(adapters=adapters))

    trained = BLOCKS * 2 * 2 * HIDDEN * rank  # two matrices beside q and two beside v
    wide = 2 * TABLE + 2 * HIDDEN + BLOCKS * OTHERS + trained
    assert kept.category("parameters") == [
        pytest.approx(2 * wide + BLOCKS * LINEARS * NF4_BITS / 8, rel=1e-12)
    ]
    assert kept.category("optimizer_states") == [pytest.approx(12 * trained)]


def test_a_base_in_4_bits_spares_the_same_on_whichever_stage_and_rank():
    adapters = {"rank": 8, "targets": ("q", "v")}
    narrow, wide = (
        Kept("tp=2 pp=4 gbs=4", model=model_with(adapters=Adapters(**adapters, base_dtype=dtype)))
        for dtype in ("nf4", "model")
    )

    spared = np.subtract(wide.category("parameters"), narrow.category("parameters"))

    assert spared == pytest.approx([BLOCKS / 4 * LINEARS / 2 * (2 - NF4_BITS / 8)] * 4)
    for name in ("gradients", "optimizer_states"):
        assert narrow.category(name) == wide.category(name)


@pytest.mark.parametrize(("reduces", "copies"), [("every_micro_batch", 2), ("last_micro_batch", 1)])
def test_a_gradient_that_stays_whole_is_copied_only_to_travel(reduces, copies):
    """What the backward writes is in the sum already, where gradients of all micro-batches are kept."""
    stack = stack_with(gradients={"dtype": "fp16", "overlap": True}).model_copy(
        update={"sharding": Sharding(gradient_dtype="fp16", keeps_low_precision=True, reduces=reduces)}
    )

    kept = Kept("dp=8 zero=2 gbs=32", stack=stack)

    assert kept.category("unreduced_gradients") == [copies * 2.0 * TABLE]


@pytest.mark.parametrize(("replicas", "more"), [(1, 1), (2, 2)])
def test_a_tied_table_on_two_stages_is_summed_by_the_group_of_a_pipeline_of_two(replicas, more):
    """On two stages the first and the last are the whole pipeline: no group beside it is opened."""
    tied = model_with(tied_embeddings=True)

    opened = {
        stages: communicators_opened(programs_of(f"dp={replicas} pp={stages} gbs=8", model=tied)).max()
        for stages in (1, 2, 4)
    }

    assert opened == {1: more - 1, 2: more, 4: more + 1}


PAIRS = ("dp=2 tp=2 pp=4 zero=1 gbs=32", "tp=4 pp=2 gbs=16", "dp=4 pp=2 mbs=2 zero=1 gbs=64")


@all_cases("words", ["", "recompute=selective", "schedule=gpipe"])
@all_cases("update_bytes", [0.0, 60.0])
def test_peaks_of_a_search_are_the_memory_that_a_prediction_tells(words, update_bytes):
    """All plans at once, in any order and several times, with the micro-batches that fill them."""
    stack = stack_with(
        memory={"update_bytes": update_bytes, "fragmentation_fraction": 0.1, "context_bytes": 3e8}
    )
    programs = programs_of(*(f"{text.replace('zero=1', '')} {words}" for text in PAIRS), stack=stack)
    whole, filled = peak_memory(programs), filled_after(programs.plans)[:, 0]
    asked = np.array([2, 0, 1, 2])

    found = peaks(programs, asked, filled[asked])

    for name in ("reserved_bytes", "device_used_bytes", "needed_bytes"):
        np.testing.assert_allclose(getattr(found, name), getattr(whole, name)[asked], rtol=1e-12)


@all_cases("text", PAIRS)
def test_states_of_all_ranks_hold_every_parameter_as_often_as_it_is_replicated(text):
    """Summed over stages and tensor ranks: 2 and 4 bytes on every replica, 12 once or on every one."""
    kept = Kept(text, stack=stack_with(gradients={"dtype": "fp32"}))
    plans = kept.programs.plans
    tensor, replicas, zero = plans.tensor_parallel.item(), plans.data_parallel.item(), "zero=1" in text

    parameters, gradients, states = (sum(kept.category(name)) * tensor for name in STATES)

    cut = BLOCKS * (LINEARS + 7 * HIDDEN) + 2 * TABLE  # biases of q, k, v and up are cut too
    whole = BLOCKS * 6 * HIDDEN + 2 * HIDDEN  # norms, and biases behind a sum: on every tensor rank
    held = cut + tensor * whole
    assert (parameters, gradients) == pytest.approx((2.0 * held, 4.0 * held), rel=1e-12)
    assert states * (replicas if zero else 1) == pytest.approx(12.0 * held, rel=1e-12)
