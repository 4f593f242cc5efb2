"""Where modules of multi-token prediction stand, and what they add to the last stage of a pipeline."""

import pytest
from all_cases import all_cases
from single_calls import mtp_parameters
from workload_cases import GPT, MEGATRON, at, realised

from flopcast.memory.peak import peak_memory
from flopcast.workload.stages import Pile, divide

FURTHER = GPT.model_copy(update={"mtp": 1, "tied_embeddings": False})
PLAIN = GPT.model_copy(update={"tied_embeddings": False})


def of_stage(values, programs, stage):
    return float(values[0, programs.stages.of(0).stage_class[stage]])


@all_cases(("stages", "virtual"), [(1, 1), (2, 1), (4, 1), (2, 2)])
def test_modules_stand_with_the_head_on_the_last_chunk_and_blocks_as_without_them(stages, virtual):
    pile = Pile(counts=(1, 8, 1, 1, 1), stages=stages, virtual=virtual, at_end=3)

    held = divide(pile, "even")

    chunks = held.chunk_counts[held.chunk_class].swapaxes(0, 1).reshape(stages * virtual, 5)
    assert chunks[:, 1].tolist() == [8 / stages / virtual] * (stages * virtual)
    assert chunks[:, 2:].sum(axis=1).tolist() == [0] * (stages * virtual - 1) + [3]


def test_the_last_stage_holds_the_module_and_a_copy_of_the_embeddings_table():
    further, plain = (realised(model, MEGATRON, "pp=2 gbs=2") for model in (FURTHER, PLAIN))

    more = [
        of_stage(further.parameters, further, stage) - of_stage(plain.parameters, plain, stage)
        for stage in (0, 1)
    ]

    table = at(plain.layers[-1].weights[0].elements)
    assert more == [0, mtp_parameters(FURTHER) + table]


def test_on_one_stage_the_module_shares_the_table_that_is_there():
    further, plain = (realised(model, MEGATRON, "pp=1") for model in (FURTHER, PLAIN))

    assert at(further.parameters) - at(plain.parameters) == mtp_parameters(FURTHER)


@pytest.mark.parametrize(("text", "summed"), [("pp=2 gbs=2", True), ("pp=1", False)])
def test_gradients_of_both_copies_of_the_table_are_summed_between_the_ends_of_a_pipeline(text, summed):
    programs = realised(FURTHER, MEGATRON, text)

    (message,) = [item for item in programs.reduce if item.name == "gradients.tied_embeddings"]

    table = at(programs.layers[-1].weights[0].elements)
    expected = [4 * table if summed else 0] * int(text[3])
    stages = range(int(text[3]))
    assert [of_stage(message.work.message_bytes, programs, stage) for stage in stages] == expected


def test_logits_of_every_prediction_are_there_at_the_fullest_moment():
    further, plain = (
        peak_memory(realised(model, MEGATRON, "pp=1")).by_category["logits"] for model in (FURTHER, PLAIN)
    )

    assert at(further) == 2 * at(plain)


def test_full_recompute_keeps_the_input_of_a_module_as_that_of_a_block():
    programs = realised(FURTHER, MEGATRON, "pp=1 recompute=full")

    kept = {layer.kind: at(layer.kept_bytes) for layer in programs.layers}

    assert kept["mtp"] == kept["block"]
