"""Gradients, optimizer states and memory of experts, which have replicas of their own.

Elsewhere: items of the layer (tests/layers/test_experts.py), the ranks of a group
(tests/cost/test_placement.py).
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from workload_cases import LLAMA, MEGATRON, at, named, realised, stack_with

from flopcast.layers.experts import Experts
from flopcast.memory.peak import peak_memory
from flopcast.spec.model import Model
from flopcast.spec.plan import Plan, batch_plans, one_plan

EXPERT_WIDTH, NUM_EXPERTS, TOP_K = 704, 8, 2
MIXTURE = LLAMA.model_copy(
    update={
        "blocks": tuple(
            block.model_copy(
                update={
                    "feed_forward": Experts(
                        num_experts=NUM_EXPERTS,
                        top_k=TOP_K,
                        expert_hidden=EXPERT_WIDTH,
                        load_imbalance_ratio=1.0,
                    )
                }
            )
            for block in LLAMA.blocks
        )
    }
)
IN_EXPERTS = sum(b.count for b in MIXTURE.blocks) * NUM_EXPERTS * 3 * EXPERT_WIDTH * MIXTURE.hidden
OVERLAPPED = stack_with(MEGATRON, gradients={"overlap": True, "bucket_elements": 1_000_000})
FOLDS = st.sampled_from(["dp=8 ep=2", "dp=8 ep=8", "dp=4 tp=2 sp ep=4", "dp=4 tp=2 etp=1 sp ep=8",
                         "dp=2 tp=4 etp=1 sp ep=2", "dp=2 tp=4 sp", "dp=8"])  # fmt: skip


def sent_bytes(item):
    return at(item.work.message_bytes) * at(item.count)


@settings(max_examples=20, deadline=None)
@given(fold=FOLDS, zero=st.sampled_from([0, 1]))
def test_all_ranks_together_hold_every_expert_as_often_as_it_has_replicas(fold, zero):
    """Eight ranks hold `replicas` copies of all experts: each is on ranks / (ep · etp) of them."""
    programs = realised(MIXTURE, MEGATRON, f"{fold} zero={zero} gbs=8")

    replicas = at(programs.plans.expert_replicas)

    assert 8 * at(programs.expert_parameters) == pytest.approx(replicas * IN_EXPERTS)


@settings(max_examples=20, deadline=None)
@given(fold=FOLDS)
def test_with_zero_1_all_ranks_update_every_parameter_once(fold):
    programs = realised(MIXTURE, MEGATRON, f"{fold} zero=1 gbs=8")

    updated = at(named(programs.update, "optimizer.update").work.parameters)

    tensor = int(at(programs.plans.tensor_parallel))
    whole = at(realised(MIXTURE, MEGATRON, "zero=0").parameters)
    shared = at(programs.parameters) - at(programs.expert_parameters)  # norms and router repeat on tp ranks
    assert 8 * updated == pytest.approx(tensor * shared + IN_EXPERTS)
    assert 8 * updated >= whole * (1 - 1e-12)


@pytest.mark.parametrize("stack", [MEGATRON, OVERLAPPED], ids=["at the end", "overlapped"])
def test_gradients_of_experts_are_summed_over_their_own_replicas_and_all_others_over_all(stack):
    programs = realised(MIXTURE, stack, "dp=8 ep=4 gbs=8")
    element_bytes = {"fp32": 4, "bf16": 2, "fp16": 2}[stack.gradients.dtype]

    run = programs.layers[1].backward if stack is OVERLAPPED else programs.reduce
    held = programs.layers[1].weights if stack is OVERLAPPED else ()

    experts, others = named(run, "gradients.reduce_experts"), named(run, "gradients.reduce")
    assert (experts.work.axis, others.work.axis) == ("expert_dp", "dp")
    of_experts = sum(at(w.elements) for w in held if w.expert) or at(programs.expert_parameters)
    of_all = sum(at(w.elements) for w in held) or at(programs.parameters)
    assert sent_bytes(experts) == pytest.approx(of_experts * element_bytes)
    assert sent_bytes(others) == pytest.approx((of_all - of_experts) * element_bytes)


def test_updated_experts_are_gathered_from_their_own_replicas():
    programs = realised(MIXTURE, MEGATRON, "dp=8 ep=4 zero=1 gbs=8 precision=bf16")

    gathers = {item.work.axis: sent_bytes(item) for item in programs.update if "gather" in item.name}

    assert gathers["expert_dp_shard"] == pytest.approx(2 * IN_EXPERTS / 4)
    assert gathers["dp_shard"] == pytest.approx(2 * (at(programs.parameters) - IN_EXPERTS / 4))


def test_a_dense_model_sums_its_gradients_in_one_group_alone():
    programs = realised(LLAMA, MEGATRON, "dp=8 gbs=8 zero=1")

    axes = {item.work.axis for item in programs.items() if hasattr(item.work, "axis")}

    assert programs.expert_parameters is None
    assert axes & {"ep", "etp", "expert_dp", "expert_dp_shard", "expert_dp_replicate"} == set()


def test_whole_experts_on_every_tensor_parallel_rank_are_no_copies_that_it_sums():
    """The router is: each rank has routed its own tokens. Experts have replicas of their own for that."""
    programs = realised(MIXTURE, MEGATRON, "dp=2 tp=4 etp=1 sp gbs=8")
    element_bytes = {"fp32": 4, "bf16": 2, "fp16": 2}[MEGATRON.gradients.dtype]

    summed = sent_bytes(named(programs.reduce, "gradients.replicated"))

    count, hidden = MIXTURE.num_blocks, MIXTURE.hidden
    assert summed == (count * (2 + NUM_EXPERTS) + 1) * hidden * element_bytes  # norms, router, final norm


def test_spreading_experts_saves_their_share_of_weights_gradients_and_states():
    """Of experts a rank keeps 1 / ep; states, shared by all eight ranks before, stay what they are."""
    whole, spread = (
        peak_memory(realised(MIXTURE, MEGATRON, f"dp=8 ep={ep} zero=1 gbs=8 recompute=full precision=bf16"))
        for ep in (1, 8)
    )

    saved = IN_EXPERTS * 7 / 8
    kept = [{n: v.item() for n, v in m.by_category.items()} for m in (whole, spread)]
    assert kept[0]["parameters"] - kept[1]["parameters"] == pytest.approx(2 * saved)
    assert kept[0]["optimizer_states"] == pytest.approx(kept[1]["optimizer_states"])


def test_a_batch_of_folds_is_what_its_members_are_one_by_one():
    texts = [
        "dp=8 ep=2 zero=1 sp gbs=8",
        "dp=4 tp=2 ep=4 zero=1 sp gbs=8",
        "dp=2 tp=4 etp=1 ep=8 zero=1 sp gbs=8",
    ]

    together = realised(MIXTURE, MEGATRON, *texts)

    alone = [realised(MIXTURE, MEGATRON, text) for text in texts]
    for name in ("parameters", "expert_parameters"):
        singles = np.concatenate([getattr(programs, name) for programs in alone])
        np.testing.assert_array_equal(getattr(together, name), singles)
    memory = np.concatenate([peak_memory(programs).device_used_bytes for programs in alone])
    np.testing.assert_allclose(peak_memory(together).device_used_bytes, memory, rtol=1e-12)


def test_experts_are_cut_by_tensor_parallelism_unless_a_plan_says_otherwise():
    plans = batch_plans([Plan(tp=4, dp=2, gbs=2), Plan(tp=4, dp=2, gbs=2, etp=1)])

    assert plans.expert_tensor_parallel.tolist() == [[4], [1]]
    assert plans.expert_replicas.tolist() == [[2], [8]]


def test_a_plan_says_the_ranks_of_an_expert_only_where_they_are_not_the_tensor_parallel_ones():
    assert "etp" not in Plan(tp=4, etp=4).short()
    assert "etp=1" in Plan(tp=4, etp=1).short()


def test_active_parameters_are_those_of_a_dense_model_as_wide_as_its_picks():
    """Two of eight experts and a router, beside everything else, which is dense."""
    dense = LLAMA.blocks[0].feed_forward.model_copy(update={"ffn_hidden": TOP_K * EXPERT_WIDTH})
    blocks = tuple(block.model_copy(update={"feed_forward": dense}) for block in LLAMA.blocks)
    picked = LLAMA.model_copy(update={"blocks": blocks})
    routers = MIXTURE.num_blocks * NUM_EXPERTS * MIXTURE.hidden

    assert isinstance(MIXTURE, Model)
    assert MIXTURE.active_parameters() == picked.parameters() + routers
    assert MIXTURE.forward_flop(128) == picked.forward_flop(128) + 2 * 128 * routers
    assert picked.active_parameters() == picked.parameters()


def test_without_zero_every_replica_of_an_expert_updates_it():
    plans = one_plan(Plan(dp=8, ep=2, gbs=8))

    assert plans.expert_state_shards.tolist() == [[1]]
