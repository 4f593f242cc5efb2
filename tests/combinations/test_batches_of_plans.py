"""Plans of a batch take the time and the memory that each takes alone, whatever they share out."""

import numpy as np
import pytest
from all_cases import all_cases
from combination_cases import LENGTH, MODELS, book_of, job_of, plan_of, possible, stack

from flopcast.cost.factors import FactorBook
from flopcast.cost.price import price
from flopcast.memory.peak import peak_memory
from flopcast.spec.batch import Batch
from flopcast.spec.plan import batch_plans, structure_of
from flopcast.timeline.step import run_step
from flopcast.workload.lower import lower
from flopcast.workload.realise import realise

DEGREES = (
    {"data_parallel": 16},
    {"data_parallel": 4, "tensor_parallel": 2, "pipeline_parallel": 2},
    {"data_parallel": 2, "tensor_parallel": 4, "pipeline_parallel": 2, "micro_batch": 2},
    {"data_parallel": 4, "pipeline_parallel": 4},
)
SHARED = (  # with two ranks a sequence: whether there are any is structure where heads are exchanged
    {"data_parallel": 8, "context_parallel": 2},
    {"data_parallel": 2, "tensor_parallel": 2, "context_parallel": 2, "pipeline_parallel": 2},
    {"data_parallel": 4, "context_parallel": 2, "tensor_parallel": 2, "micro_batch": 2},
)
CASES = {
    "latent, in 8 bits": ("latent", DEGREES, {"precision": "fp8_current"}, "megatron-core-2026"),
    "windows, recomputed in groups": ("windows", DEGREES, {"recompute": "full:uniform:2"}, "megatron-core"),
    "experts, states in 8 bits": (
        "experts",
        DEGREES,
        {"optimizer": "adamw_8bit", "zero": 1},
        "megatron-core",
    ),
    "experts, fully sharded": ("experts", DEGREES, {"zero": 3}, "megatron-core"),
    "further tokens": ("further", DEGREES, {"recompute": "selective:moe"}, "megatron-core-2026"),
    "adapters, fully sharded": ("adapted", DEGREES, {"zero": 3, "recompute": "full"}, "torch-fsdp2"),
    "zero bubble in 4 bits": (
        "dense",
        DEGREES,
        {"schedule": "zb_h1", "precision": "nvfp4"},
        "megatron-core",
    ),
    "peers": (
        "dense",
        DEGREES,
        {"zero": 1, "peers": 2, "inner_steps": 10, "outer": "topk:64", "offload": "outer:host:0.5"},
        "megatron-core",
    ),
    "rings": ("dense", SHARED, {"zero": 1}, "megatron-core"),
    "heads exchanged": ("latent", SHARED, {"context_exchange": "all_to_all", "zero": 3}, "megatron-core"),
    "windows, keys gathered": ("windows", SHARED, {"context_exchange": "all_gather"}, "megatron-core"),
}


def played(case, plans):
    """Seconds of a step, allocated and resident bytes of the fullest stage, for each plan."""
    name, _, _, software = CASES[case]
    job = job_of(MODELS[name], plans[0], stack(software))
    batch = Batch(sequence_length=LENGTH)
    programs = realise(lower(job.model, batch_plans(plans), batch), job.software)
    memory = peak_memory(programs)
    priced = price(programs, job.cluster, book_of(), FactorBook(job.site))
    return {
        "step_s": np.array([run_step(priced, plan).step_time_s for plan in range(len(plans))]),
        "allocated_bytes": memory.allocated_bytes.max(axis=1),
        "resident_bytes": memory.resident_bytes.max(axis=1),
    }


def plans_of(case):
    """The plans of a case: all are possible, and have one structure."""
    name, degrees, modes, software = CASES[case]
    sequence_parallel = {"sequence_parallel": True}
    plans = [plan_of(MODELS[name], each, modes, sequence_parallel) for each in degrees]
    assert all(possible(job_of(MODELS[name], plan, stack(software))) for plan in plans)
    assert len({structure_of(plan) for plan in plans}) == 1
    return plans


@all_cases("number, case", enumerate(CASES))
def test_a_plan_in_a_batch_takes_what_it_takes_alone(number, case):
    """Every second plan of a batch, the others in the next case."""
    plans = plans_of(case)

    together = played(case, plans)

    for place in range(number % 2, len(plans), 2):
        for name, values in played(case, [plans[place]]).items():
            assert together[name][place] == pytest.approx(values[0], rel=1e-12), (name, plans[place])


@pytest.mark.parametrize("case", ["experts, states in 8 bits", "rings", "latent, in 8 bits"])
def test_the_order_of_a_batch_is_the_order_of_its_answers(case):
    plans = plans_of(case)

    forwards, backwards = played(case, plans), played(case, plans[::-1])

    for name, values in forwards.items():
        np.testing.assert_allclose(values, backwards[name][::-1], rtol=1e-12)
