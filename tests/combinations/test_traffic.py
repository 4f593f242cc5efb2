"""Bytes that a rank sends, against the volumes that papers count, under several divisions at once."""

from math import comb, prod

import pytest
from all_cases import all_cases
from combination_cases import LENGTH, MODELS, at, plan_of, programs_of, runs, stack

from flopcast.operators.exchanges import AbstractExchange

BF16, FP32 = 2, 4
HIDDEN = 256
RING = {  # what one rank sends of a message, by its number of ranks (arXiv:1910.02054, section 7.1)
    "all_reduce": lambda ranks: 2 * (ranks - 1) / ranks,
    "reduce_scatter": lambda ranks: (ranks - 1) / ranks,
    "all_gather": lambda ranks: (ranks - 1) / ranks,
}
DIVIDED = [{}, {"tensor_parallel": 2}, {"tensor_parallel": 4}, {"context_parallel": 2}]


def sixteen(divided):
    """Degrees of sixteen devices, so divided, and replicas."""
    return {"data_parallel": 16 // prod(divided.values()), **divided}


def of_axis(programs, *axes):
    """Items over axes of these names, each with how often it runs in a step on a rank of every stage."""
    ends = ((item, at(item.count)) for item in (*programs.reduce, *programs.update))
    for item, times in (*runs(programs), *ends):
        if getattr(item.work, "collective", "") and item.work.axis in axes:
            yield item, times


def sent_bytes(programs, axes, ranks):
    """Bytes that a rank of a ring sends over these axes."""
    return sum(
        times * at(item.work.message_bytes) * RING[item.work.collective](ranks)
        for item, times in of_axis(programs, *axes)
    )


def held(programs):
    """Parameters of one rank of a plan without stages."""
    return at(programs.parameters)


@all_cases("divided", DIVIDED)
@all_cases("name", ["dense", "windows", "latent"])
@all_cases("zero", [0, 1])
def test_replicas_sum_their_gradients_and_those_that_share_states_hand_parameters_back(zero, name, divided):
    ranks = 16 // divided.get("tensor_parallel", 1)
    plan = plan_of(MODELS[name], sixteen(divided), {"zero": zero})

    programs = programs_of(MODELS[name], plan)

    # arXiv:1910.02054, section 7.1: an all-reduce sends twice what it sums. This stack sums in 32 bits.
    # With shared states it scatters the sums once, and gathers what was updated in 16 bits.
    volume_bytes = (FP32 + BF16 if zero else 2 * FP32) * held(programs)
    sent = sent_bytes(programs, ("dp", "dp_shard"), ranks)
    assert sent == pytest.approx(volume_bytes * (ranks - 1) / ranks, rel=1e-9)


@all_cases("divided", DIVIDED)
@all_cases("name", ["dense", "windows", "latent"])
def test_fully_sharded_replicas_send_half_as_much_again(name, divided):
    ranks = 16 // divided.get("tensor_parallel", 1)
    fields = sixteen(divided)
    one_micro_batch = {"zero": 3, "global_batch": fields["data_parallel"]}
    plan = plan_of(MODELS[name], fields, one_micro_batch)

    programs = programs_of(MODELS[name], plan)

    # arXiv:1910.02054, section 7.2.2: two gathers of parameters, one reduction of gradients
    volume_bytes = (2 * BF16 + FP32) * held(programs)
    assert sent_bytes(programs, ("dp_shard",), ranks) == pytest.approx(
        volume_bytes * (ranks - 1) / ranks, rel=1e-9
    )


@all_cases("shard", [2, 4, 8])
@all_cases("tensor", [1, 2])
def test_groups_of_shards_send_between_each_other_a_shard_of_gradients_alone(shard, tensor):
    fields = {"data_parallel": 16, "tensor_parallel": tensor, "data_shard": shard, "zero": 3}
    plan = plan_of(MODELS["dense"], fields, {"global_batch": 16})

    programs = programs_of(MODELS["dense"], plan)

    inside, across = ([*of_axis(programs, axis)] for axis in ("dp_shard", "dp_replicate"))
    assert {item.work.collective for item, _ in across} == {"all_reduce"}
    assert {item.work.collective for item, _ in inside} == {"all_gather", "reduce_scatter"}
    between = sum(times * at(item.work.message_bytes) for item, times in across)
    assert between == pytest.approx(FP32 * held(programs) / shard, rel=1e-9)


@all_cases("cp", [1, 2])
@all_cases("tensor", [2, 4])
@all_cases("recompute", ["none", "full"])
def test_a_block_gathers_and_scatters_its_tokens_twice_in_each_pass(cp, tensor, recompute):
    fields = {"data_parallel": 2, "tensor_parallel": tensor, "context_parallel": cp}
    plan = plan_of(MODELS["dense"], fields, {"recompute": recompute, "global_batch": 2})

    programs = programs_of(MODELS["dense"], plan)

    # arXiv:2205.05198, section 4.2.2: two gathers and two scatters in a forward, as many in a backward, and
    # two gathers more for weight gradients, whose inputs were kept in shards; a forward that runs again
    # sends its four once more
    tokens_bytes = BF16 * HIDDEN * LENGTH / cp
    blocks = [
        (item, times)
        for item, times in of_axis(programs, "tp")
        if item.name.startswith(("attention", "mlp"))
    ]
    sent = sum(times * at(item.work.message_bytes) for item, times in blocks)
    passes = {"none": 4 + 4 + 2, "full": 4 + 4 + 4 + 2}[recompute]
    assert sent == pytest.approx(8 * passes * tokens_bytes, rel=1e-9)


def exchanges(spread, cp, dispatcher):
    """Bytes of each exchange of a step on one rank, and of its tokens once, in six blocks of experts."""
    fields = {"data_parallel": 8, "context_parallel": cp, "expert_parallel": spread}
    plan = plan_of(MODELS["experts"], fields, {"global_batch": 8})
    software = stack(experts=stack().experts.model_copy(update={"dispatcher": dispatcher}))
    programs = programs_of(MODELS["experts"], plan, software=software)
    messages = [(item.work, times) for item, times in of_axis(programs, "ep")]
    sent = [
        times * at(work.message_bytes) for work, times in messages if isinstance(work, AbstractExchange)
    ]
    return sent, 6 * BF16 * HIDDEN * LENGTH / cp


@all_cases("spread", [2, 4, 8])
@all_cases("cp", [1, 2])
def test_every_token_travels_to_each_of_its_experts_and_back_in_both_passes(spread, cp):
    """NCCL exchanges rows that the host has put in order: one for each of a token's two experts."""
    sent, once_bytes = exchanges(spread, cp, "all_to_all")

    # out and back, forward and backward
    assert sent == pytest.approx([2 * once_bytes] * 4, rel=1e-9)


@all_cases("spread", [2, 4, 8])
@all_cases("cp", [1, 2])
@all_cases("dispatcher", ["deepep", "hybridep"])
def test_a_library_of_experts_sends_a_token_once_to_each_rank_that_holds_any_of_its_experts(
    spread, cp, dispatcher
):
    sent, once_bytes = exchanges(spread, cp, dispatcher)

    # of all ways to draw two experts out of eight, those that miss a rank are the draws from the others'
    missed = comb(8 - 8 // spread, 2) / comb(8, 2)
    ranks_of_token = spread * (1 - missed)
    assert sent == pytest.approx([ranks_of_token * once_bytes] * 4, rel=1e-9)


@all_cases("virtual", [1, 2, 4])
@all_cases("cp", [1, 2])
@all_cases("tensor", [1, 2])
def test_stages_hand_on_the_tokens_of_a_rank(virtual, cp, tensor):
    fields = {"pipeline_parallel": 2, "virtual_stages": virtual, "context_parallel": cp}
    plan = plan_of(MODELS["dense"], fields, {"tensor_parallel": tensor})

    programs = programs_of(MODELS["dense"], plan)

    # arXiv:2104.04473, section 2.2.2: b · s · h of each micro-batch between neighbouring chunks, and its
    # gradient back; what sequence parallelism has cut stays cut
    for way in (programs.hop_inside.forward, programs.hop_inside.backward):
        assert at(way[0].work.message_bytes) == pytest.approx(BF16 * HIDDEN * LENGTH / cp / tensor)
