"""Ranks together hold the model, each part as often as it is replicated; so are states and gradients."""

import numpy as np
import pytest
from all_cases import all_cases
from combination_cases import (
    LAYOUTS,
    MODELS,
    SPREADS,
    at,
    job_of,
    plan_of,
    possible,
    programs_of,
    ranks_of_stage,
    runs,
    stack,
)
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from single_calls import mtp_parameters

from flopcast.memory.peak import peak_memory

WHOLE = sorted(set(MODELS) - {"adapted", "further"})  # every weight trained, no table held twice
NORMS = (2 * 8 + 1) * 256  # two a block and the last one, a scale for each channel
REPLICATED = {  # weights that tensor parallelism does not cut, counted by hand
    "dense": NORMS,
    "windows": NORMS,
    "experts": NORMS + 6 * 256 * 8,  # routers
    "latent": NORMS + 8 * (256 * 192 + 192 + 256 * (128 + 16) + 128),  # projections into latents, and norms
}
EXPERTS = {"experts": 6 * 8 * 3 * 256 * 512}  # six blocks of eight gated experts
STATES_BYTES = 12.0  # AdamW: master weight and two moments in fp32 (arXiv:1910.02054, section 3.1)
OVERLAP = {"megatron-core": False, "torch-fsdp2": True}


def of_stages(programs, values):
    """Values over (plans, stage classes), one for each stage of the first plan."""
    classes = programs.stages.of(0).stage_class
    return np.broadcast_to(values, (1, int(classes.max()) + 1))[0, classes]


def held_by_one_of_each(name, plan):
    """Dense parameters on one tensor-parallel group of all stages, and experts on one of their groups."""
    model = MODELS[name]
    experts = EXPERTS.get(name, 0)
    again = (plan.tensor_parallel - 1) * REPLICATED[name]
    return model.parameters() - experts + again, experts


@settings(max_examples=60, deadline=None)
@given(name=st.sampled_from(WHOLE), layout=st.sampled_from(LAYOUTS), spread=st.sampled_from(SPREADS))
def test_parameters_of_all_ranks_are_the_model_as_often_as_it_is_replicated(name, layout, spread):
    plan = plan_of(MODELS[name], layout, spread)
    assume(possible(job_of(MODELS[name], plan)))

    programs = programs_of(MODELS[name], plan)

    on_ranks = ranks_of_stage(plan) * of_stages(programs, programs.parameters).sum()
    dense, experts = held_by_one_of_each(name, plan)
    replicas = plan.data_parallel * plan.context_parallel
    expert_replicas = ranks_of_stage(plan) / (plan.expert_parallel * plan.expert_tensor_parallel)
    assert on_ranks == pytest.approx(dense * replicas + experts * expert_replicas, rel=1e-12)


@settings(max_examples=40, deadline=None)
@given(
    name=st.sampled_from(WHOLE),
    layout=st.sampled_from(LAYOUTS),
    spread=st.sampled_from(SPREADS),
    zero=st.sampled_from([1, 2, 3]),
    groups=st.sampled_from([1, 2]),
)
def test_states_of_all_ranks_are_twelve_bytes_a_parameter_for_each_group_of_shards(
    name, layout, spread, zero, groups
):
    shard = {} if groups == 1 else {"data_shard": layout["data_parallel"] // groups}
    plan = plan_of(MODELS[name], layout, spread, shard, {"zero": zero})
    assume(possible(job_of(MODELS[name], plan)))
    programs = programs_of(MODELS[name], plan)

    states = peak_memory(programs).by_category["optimizer_states"]

    dense, experts = held_by_one_of_each(name, plan)
    on_ranks_bytes = ranks_of_stage(plan) * of_stages(programs, states).sum()
    assert on_ranks_bytes == pytest.approx(STATES_BYTES * groups * (dense + experts), rel=1e-12)


def reduced_bytes(programs):
    """Bytes of all messages that sum gradients over replicas, on one rank of every stage, by axis."""
    found = {}
    for item, times in runs(programs):
        if item.name in ("gradients.reduce", "gradients.reduce_experts"):
            axis = item.work.axis.removesuffix("_shard")
            found[axis] = found.get(axis, 0.0) + times * at(item.work.message_bytes)
    for item in programs.reduce:
        if item.name in ("gradients.reduce", "gradients.reduce_experts"):
            size = of_stages(programs, item.count * item.work.message_bytes).sum()
            axis = item.work.axis.removesuffix("_shard")
            found[axis] = found.get(axis, 0.0) + size
    return found


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from(WHOLE),
    layout=st.sampled_from(LAYOUTS),
    spread=st.sampled_from(SPREADS),
    software=st.sampled_from(sorted(OVERLAP)),
    zero=st.sampled_from([0, 1]),
)
def test_every_gradient_of_a_rank_is_reduced_once_a_step_whether_hidden_or_not(
    name, layout, spread, software, zero
):
    plan = plan_of(MODELS[name], layout, spread, {"zero": zero})
    software = stack(software)
    assume(possible(job_of(MODELS[name], plan, software)))

    programs = programs_of(MODELS[name], plan, software=software)

    dense, experts = held_by_one_of_each(name, plan)
    each_bytes = {"fp32": 4, "bf16": 2}[software.gradients.dtype]
    sent = reduced_bytes(programs)
    assert sent["dp"] == pytest.approx(each_bytes * dense / plan.tensor_parallel, rel=1e-12)
    if experts:
        held = experts / (plan.expert_parallel * plan.expert_tensor_parallel)
        assert sent["expert_dp"] == pytest.approx(each_bytes * held, rel=1e-12)


@settings(max_examples=40, deadline=None)
@given(
    name=st.sampled_from(WHOLE),
    layout=st.sampled_from([each for each in LAYOUTS if "pipeline_parallel" not in each]),
    spread=st.sampled_from(SPREADS),
    zero=st.sampled_from([2, 3]),
)
def test_sharded_gradients_travel_once_a_micro_batch(name, layout, spread, zero):
    plan = plan_of(MODELS[name], layout, spread, {"zero": zero})
    software = stack("deepspeed-zero")
    assume(possible(job_of(MODELS[name], plan, software)))

    programs = programs_of(MODELS[name], plan, software=software)

    dense, experts = held_by_one_of_each(name, plan)
    each_bytes = {"fp32": 4, "bf16": 2, "fp16": 2}[software.gradients.dtype]
    once = dense / plan.tensor_parallel + experts / (plan.expert_parallel * plan.expert_tensor_parallel)
    sent = sum(reduced_bytes(programs).values())
    assert software.sharding.reduces == "every_micro_batch"
    assert sent == pytest.approx(plan.num_micro_batches * each_bytes * once, rel=1e-12)


@all_cases("recompute", ["none", "full"])
@all_cases("layout", [each for each in LAYOUTS if "pipeline_parallel" not in each])
def test_fully_sharded_parameters_are_gathered_once_a_pass_and_micro_batch(layout, recompute):
    plan = plan_of(MODELS["dense"], layout, {"zero": 3, "recompute": recompute})

    programs = programs_of(MODELS["dense"], plan)

    dense, _ = held_by_one_of_each("dense", plan)
    gathered = sum(
        times * at(item.work.message_bytes)
        for item, times in runs(programs)
        if item.name == "parameters.gather"
    )
    # arXiv:1910.02054, section 7.2.2: parameters come once for the forward and once for the backward, in
    # 16 bits; blocks that run again find theirs there already
    assert programs.stack.sharding.ends == "own_units"
    assert gathered == pytest.approx(2 * 2 * plan.num_micro_batches * dense / plan.tensor_parallel)


def test_a_prediction_module_holds_the_tables_again_on_the_last_stage_alone():
    model = MODELS["further"]
    one, staged = (plan_of(model, layout) for layout in (LAYOUTS[0], LAYOUTS[3]))

    programs = [programs_of(model, plan) for plan in (one, staged)]
    alone, apart = (of_stages(each, each.parameters) for each in programs)

    assert alone.sum() == pytest.approx(model.parameters() + mtp_parameters(model))
    assert apart.sum() - alone.sum() == pytest.approx(256 * 4096)  # an embedding of its own
