"""Adapters that PEFT computes in fp32 beside linears in 16 bits."""

import pytest
from workload_cases import GPT, HIDDEN, LENGTH, LLAMA, at, flop_of, logical_block, moved_bytes_of

from flopcast.layers.adapters import Adapters
from flopcast.workload.backward import derive_backward, kept_tensors, total_bytes
from flopcast.workload.rewrites import REWRITES

# bytes an element of the input, as lora.Linear and its autograd move them beside a 16-bit adapter:
# x.to(float32); twice 4 instead of twice 2 of dropout; A reads 4 instead of 2
CAST, DROPPED, READ = 2 + 4, 2 * 4 - 2 * 2, 2
# bytes an element of the result: B writes 4 instead of 2; scaled; added to 2, written; cast; a 16-bit sum
WRITTEN, SCALED, ADDED, RETURNED, SUM = 2, 4 + 4, 2 + 4 + 4, 4 + 2, 3 * 2


def tuned(model, targets=("q",), dropout=0.0, text="gbs=1"):
    fields = Adapters(rank=4, targets=targets, dropout=dropout)
    return logical_block(model.model_copy(update={"adapters": fields}), text)


def moved_bytes(items):
    """Bytes of a layer by pass: forward, backward."""
    return [moved_bytes_of(items), moved_bytes_of(derive_backward(items, frozenset()))]


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_bytes_are_those_of_the_kernels_of_peft(dropout):
    items = tuned(GPT, dropout=dropout)
    elements = LENGTH * HIDDEN  # of the input, and of queries
    drops = DROPPED if dropout else 0

    before, after = moved_bytes(items), moved_bytes(REWRITES["fp32_adapters"](items))

    more = CAST + drops + READ + WRITTEN + SCALED + ADDED + RETURNED - SUM
    assert after[0] - before[0] == pytest.approx(elements * more)
    gradients = RETURNED + CAST + SCALED + 2 * READ + READ + drops + CAST + READ
    assert after[1] - before[1] == pytest.approx(elements * gradients)


def test_products_stay_and_what_they_read_is_kept_in_fp32():
    items = tuned(LLAMA, ("q", "k", "v", "out", "gate", "up", "down"))

    after = REWRITES["fp32_adapters"](items)

    assert flop_of(after) == flop_of(items)
    kept = [at(total_bytes(kept_tensors(each, frozenset()))) for each in (items, after)]
    assert kept[1] > kept[0]


def test_every_adapter_casts_its_own_input_once():
    after = REWRITES["fp32_adapters"](tuned(LLAMA, ("q", "k", "down"), dropout=0.1))

    casts = [item for item in after if item.name.endswith(".cast")]
    assert [item.name.rpartition(".")[0].rpartition(".")[2] for item in casts] == ["q", "k", "down"]
    readers = [item.name for item in after if casts[0].output in item.inputs]
    assert readers == [casts[0].name.replace(".cast", ".dropout")]


def test_a_layer_without_adapters_stays():
    items = logical_block(LLAMA, "gbs=1")

    assert REWRITES["fp32_adapters"](items) == items
