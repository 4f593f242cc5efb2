"""workload/saved_states.py: the bytes of checkpoints in closed form, and laws of sharing the work."""

import numpy as np
import pytest
from all_cases import all_cases

from flopcast.library import catalog
from flopcast.spec.batch import Batch
from flopcast.spec.checkpoints import Checkpoint
from flopcast.spec.plan import Plan, one_plan
from flopcast.workload.lower import lower
from flopcast.workload.realise import realise
from flopcast.workload.saved_states import saved_states

LLAMA = catalog.model("llama-3-8b")
PLANS = [
    "dp=8 zero=1",
    "dp=4 tp=2 zero=1",
    "dp=2 tp=2 pp=2",
    "dp=8 zero=3",
    "dp=8 zero=3 data_shard=2",
    "dp=2 cp=2 tp=2 zero=1",
    "dp=4 cp=2 zero=1 rank_order=dp-tp-cp-pp",
]


def plan_of(text):
    pairs = (word.split("=") for word in text.split())
    return Plan(**{name: int(value) if value.isdigit() else value for name, value in pairs}, gbs=64)


def saved(text, model=LLAMA, offload=(), **checkpoint):
    plan = plan_of(text).model_copy(update={"offload": Plan(offload=offload).offload})
    batch = Batch(sequence_length=1024)
    programs = realise(lower(model, one_plan(plan), batch), catalog.stack("megatron-core"))
    return saved_states(programs, Checkpoint(**checkpoint), 4), plan


def replicated_parameters(model, tensor):
    """Norms, which each tensor-parallel rank saves: two in a block, and the last."""
    return (tensor - 1) * (2 * model.blocks[0].count + 1) * model.hidden


@all_cases("plan", PLANS)
@all_cases("writers", ["one_replica", "all_ranks"])
def test_a_checkpoint_has_14_bytes_a_parameter_or_12_with_sharded_weights_whoever_writes_it(plan, writers):
    found, stated = saved(plan, writers=writers)

    parameters = LLAMA.parameters() + replicated_parameters(LLAMA, stated.tensor_parallel)
    expected_bytes = 12 if stated.zero == 3 else 14
    assert found.total_bytes == pytest.approx(expected_bytes * parameters, rel=1e-9)
    assert found.of_nodes(found.written_bytes).sum() == pytest.approx(found.total_bytes)
    assert found.num_files == np.count_nonzero(found.written_bytes)


def test_ranks_with_zero_1_write_their_shards_and_one_of_them_the_weights():
    found, _ = saved("dp=8 zero=1")

    parameters = LLAMA.parameters()
    expected = [(2 + 12 / 8) * parameters, *[12 / 8 * parameters] * 7]
    assert found.written_bytes.tolist() == pytest.approx(expected)
    assert found.read_bytes.tolist() == pytest.approx([(2 + 12 / 8) * parameters] * 8)


@all_cases("plan", PLANS)
def test_all_ranks_share_the_work_evenly(plan):
    one, every = (saved(plan, writers=writers)[0] for writers in ("one_replica", "all_ranks"))

    assert every.written_bytes.max() <= one.written_bytes.max() * (1 + 1e-9)
    assert (every.written_bytes > 0).all()


def test_states_on_the_host_are_written_and_not_copied():
    found, _ = saved("dp=8 zero=1", offload="optimizer:host")

    assert found.total_bytes == pytest.approx(14 * LLAMA.parameters())
    assert found.copied_bytes.sum() == pytest.approx(2 * LLAMA.parameters())


def test_files_of_layers_are_those_of_deepspeed_with_a_pipeline():
    """32 blocks, embedding, norm and head, two slices each, and one file of states of each rank."""
    found, _ = saved("dp=2 tp=2 pp=2 zero=1", files="layer")

    assert found.num_files == 35 * 2 + 8


def test_experts_are_written_once():
    mixtral = catalog.model("mixtral-8x7b")
    for writers in ("one_replica", "all_ranks"):
        for plan in ("dp=8 ep=8 zero=1", "dp=8 ep=4 zero=1", "dp=8 ep=2 zero=3", "dp=8 ep=4"):
            found, _ = saved(plan, mixtral, writers=writers)

            expected_bytes = (12 if "zero=3" in plan else 14) * mixtral.parameters()
            assert found.total_bytes == pytest.approx(expected_bytes, rel=1e-9), (plan, writers)
