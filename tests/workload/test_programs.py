"""Programs: the layers of a model, over stages and chunks, against the published counts of a whole step."""

import numpy as np
import pytest
from all_cases import all_cases
from hypothesis import given, settings
from hypothesis import strategies as st
from workload_cases import (
    BARE,
    GPT,
    HIDDEN,
    LENGTH,
    LLAMA,
    MEGATRON,
    MODELS,
    NEOX,
    VOCABULARY,
    at,
    flop_of,
    lowered,
    messages,
    moved_bytes_of,
    named,
    plan_of,
    plans_of,
    realised,
    repeats,
    stack_with,
)

from flopcast.library import catalog
from flopcast.operators.base import AbstractMessage
from flopcast.spec.batch import Batch
from flopcast.spec.plan import one_plan
from flopcast.workload.lower import lower
from flopcast.workload.program import POSITIONS, WHEN
from flopcast.workload.realise import realise

SC21 = ["megatron-1.7b", "megatron-18b", "megatron-39b", "gpt3-175b"]
SCATTERED = stack_with(MEGATRON, pipeline={"payload": "scattered"})
FULL_PAYLOAD = stack_with(MEGATRON, pipeline={"payload": "full"})


def step_flop(programs, plan=0):
    """FLOP of one step on all devices: every chunk, every micro-batch, every rank of the other axes."""
    plans = programs.plans
    ranks = at(plans.tensor_parallel, plan) * at(plans.data_parallel, plan)
    micro = at(plans.num_micro_batches, plan)
    passes = repeats(programs, (*programs.forward, *programs.backward), plan)
    return ranks * micro * sum(times * flop_of(items, plan) for items, times in passes)


def catalogued(name, text):
    return realise(
        lower(catalog.model(name), one_plan(plan_of(text)), Batch(sequence_length=LENGTH)), MEGATRON
    )


@all_cases("name", SC21)
def test_a_step_with_full_recompute_needs_the_flop_of_equation_3(name):
    model = catalog.model(name)
    blocks, hidden, batch = model.num_blocks, model.hidden, 16

    total = step_flop(catalogued(name, f"dp=2 tp=8 pp=4 mbs=2 gbs={batch} recompute=full"))

    # arXiv:2104.04473, equation 3 and appendix: F = 96 B s l h² (1 + s / 6h + V / 16 l h)
    bracket = 1 + LENGTH / (6 * hidden) + VOCABULARY / (16 * blocks * hidden)
    assert total == pytest.approx(96 * batch * LENGTH * blocks * hidden**2 * bracket, rel=1e-12)


@pytest.mark.parametrize(("recompute", "passes"), [("none", 3), ("selective", 4)])
def test_a_step_with_less_recompute_needs_the_flop_of_korthikanti_s_appendix(recompute, passes):
    model = catalog.model("gpt3-175b")
    blocks, hidden, batch = model.num_blocks, model.hidden, 8

    total = step_flop(catalogued("gpt3-175b", f"tp=8 sp pp=8 mbs=1 gbs={batch} recompute={recompute}"))

    # arXiv:2205.05198, appendix A: a forward needs 24 B s h² l in linears, 4 B s² h l in attention and
    # 2 B s h v in logits; a backward two more of each, selective recompute one more forward of attention
    forward = 3 * (24 * batch * LENGTH * hidden**2 * blocks + 2 * batch * LENGTH * hidden * VOCABULARY)
    assert total == pytest.approx(forward + passes * 4 * batch * LENGTH**2 * hidden * blocks, rel=1e-12)


@settings(max_examples=30, deadline=None)
@given(
    model=st.sampled_from(sorted(MODELS)),
    pipeline=st.sampled_from([(1, 1), (2, 1), (8, 1), (2, 2), (4, 2)]),
)
def test_every_layer_runs_once_forward_and_once_backward_for_each_micro_batch(model, pipeline):
    programs = realised(MODELS[model], FULL_PAYLOAD, "pp={} vpp={} gbs=8".format(*pipeline))

    for segments, layers in (
        (programs.forward, programs.workload.layers),
        (programs.backward, tuple(reversed(programs.workload.layers))),
    ):
        times = [times for _, times in repeats(programs, segments)]
        assert times == [layer.count for layer in layers]


def test_a_chunk_runs_its_layers_forward_in_order_and_backward_in_reverse():
    programs = realised(GPT, FULL_PAYLOAD, "gbs=1")

    forward = [segment.items[-1].name for segment in programs.forward]
    backward = [segment.items[0].name for segment in programs.backward]

    assert forward == ["embedding.drop", "mlp.bias+drop+residual", "final_norm", "head.loss"]
    assert backward[0] == "head.loss.dgrad"
    assert backward[-1] == "embedding.drop.dgrad"


def test_scattered_activations_are_gathered_by_every_chunk_but_the_one_that_starts_the_pass():
    programs = realised(GPT, SCATTERED, "tp=4 pp=2 vpp=2 gbs=2")

    for segments in (programs.forward, programs.backward):
        (items, times), *_ = repeats(programs, segments)
        assert [(item.name, item.work.collective, item.work.axis) for item in items] == [
            ("receive.gather", "all_gather", "tp")
        ]
        assert times == 4 - 1  # chunks, less the first of the pass
        assert at(items[0].work.message_bytes) == LENGTH * HIDDEN * 2


def test_the_chunk_that_starts_a_pass_holds_the_layer_that_starts_it():
    programs = realised(GPT, SCATTERED, "tp=4 pp=4 gbs=4")
    classes = programs.stages.of(0).chunk_class[:, 0]

    received = [
        segments[0].repeat[0, classes].tolist() for segments in (programs.forward, programs.backward)
    ]

    assert received == [[0, 1, 1, 1], [1, 1, 1, 0]]


@all_cases(
    ("stack", "text", "share"),
    [
        (FULL_PAYLOAD, "tp=4 pp=2", 1),
        (SCATTERED, "tp=4 pp=2", 4),  # arXiv:2104.04473, section 4.1: scatter and gather
        (SCATTERED, "tp=4 sp pp=2", 4),  # arXiv:2205.05198, section 4.2.2: already shards
        (FULL_PAYLOAD, "tp=4 sp pp=2", 4),
    ],
)
def test_a_hop_carries_b_s_h_elements_or_a_rank_s_share_of_them(stack, text, share):
    programs = realised(GPT, stack, f"{text} mbs=2 gbs=4")

    for hop, axis in ((programs.hop_across, "pp"), (programs.hop_inside, "pp_inside")):
        for items in (hop.forward, hop.backward):
            (item,) = items
            assert (item.work.collective, item.work.axis, item.stream) == ("send_receive", axis, "pp")
            assert at(item.work.message_bytes) == 2 * LENGTH * HIDDEN * 2 / share


def test_with_sequence_parallelism_a_received_shard_is_gathered_where_it_is_used_not_on_arrival():
    programs = realised(GPT, SCATTERED, "tp=4 sp pp=2 gbs=2")

    names = [item.name for segment in (*programs.forward, *programs.backward) for item in segment.items]

    assert "receive.gather" not in names


def test_deepspeed_s_pipeline_sends_its_square_mask_forward_alone():
    neox = catalog.stack("gpt-neox-deepspeed")

    programs = realised(NEOX, neox, "pp=4 mbs=2 gbs=8 precision=fp16")

    hop = programs.hop_across
    assert [item.name for item in hop.forward] == ["hop.activation", "hop.mask", *["host.transfer"] * 2]
    assert [item.name for item in hop.backward] == ["hop.gradient", "host.transfer"]
    assert at(hop.forward[1].work.message_bytes) == 2 * LENGTH**2  # one mask for all sequences


@pytest.mark.parametrize(
    ("when", "of_four", "of_one"), [("every", 4, 1), ("not_first", 3, 0), ("last", 1, 1)]
)
def test_an_item_runs_as_often_as_its_position_says(when, of_four, of_one):
    runs = dict(zip(POSITIONS, WHEN[when], strict=True))

    assert runs["first"] + 2 * runs["middle"] + runs["last"] == of_four  # micro-batches of one step
    assert runs["only"] == of_one


def test_an_item_s_position_is_one_that_is_known():
    used = {item.when for item in realised(GPT, MEGATRON, "dp=2 tp=2 pp=2 zero=1 gbs=4").items()}

    assert used <= WHEN.keys()


def test_the_items_of_a_step_are_each_listed_once():
    programs = realised(GPT, SCATTERED, "dp=2 tp=2 pp=2 zero=1 gbs=4")

    items = programs.items()

    assert len({id(item) for item in items}) == len(items)
    assert {item.phase for item in items} == {"forward", "backward", "step"}


def test_every_message_spans_an_axis_of_the_plan():
    programs = realised(GPT, SCATTERED, "dp=2 tp=2 pp=2 zero=1 gbs=4")

    spanned = {item.work.axis for item in messages(programs.items())}

    # "model": tp and pp together; "embedding": first and last stage; "pp_inside": a hop within a node
    # "dp_replicate": ranks that hold the same shards
    assert spanned == {"tp", "dp_shard", "dp_replicate", "pp", "pp_inside", "model", "embedding"}


@settings(max_examples=25, deadline=None)
@given(
    shapes=st.lists(
        st.tuples(
            st.sampled_from([1, 2, 4]),  # dp
            st.sampled_from([1, 2, 4, 8]),  # tp
            st.sampled_from([1, 2, 4, 8]),  # pp
            st.sampled_from([1, 2]),  # micro-batch
        ),
        min_size=2,
        max_size=4,
    ),
    model=st.sampled_from(sorted(MODELS)),
    modes=st.sampled_from(["", "sp recompute=selective", "recompute=full zero=1"]),
)
def test_a_batch_of_plans_gives_each_what_it_has_alone(shapes, model, modes):
    texts = [f"dp={d} tp={t} pp={p} mbs={b} gbs=32 {modes}" for d, t, p, b in shapes]

    together = realised(MODELS[model], SCATTERED, *texts)

    for plan, text in enumerate(texts):
        alone = realised(MODELS[model], SCATTERED, text)
        assert step_flop(together, plan) == pytest.approx(step_flop(alone), rel=1e-12)
        for many, one in zip(together.layers, alone.layers, strict=True):
            assert at(many.kept_bytes, plan) == pytest.approx(at(one.kept_bytes), rel=1e-12)
            assert at(many.working_bytes, plan) == pytest.approx(at(one.working_bytes), rel=1e-12)
        for many, one in zip(together.items(), alone.items(), strict=True):
            assert (many.name, many.phase, many.when, many.waits) == (
                one.name,
                one.phase,
                one.when,
                one.waits,
            )
            if isinstance(one.work, AbstractMessage):
                columns = one.work.message_bytes.shape[1]
                ours = [at(many.work.message_bytes, plan, c) for c in range(columns)]
                np.testing.assert_allclose(ours, one.work.message_bytes[0], rtol=1e-12)
        held = [together.parameters[plan, together.stages.of(plan).stage_class]]
        held += [alone.parameters[0, alone.stages.of(0).stage_class]]
        np.testing.assert_allclose(held[0], held[1], rtol=1e-12)


def test_what_pads_a_batch_runs_nothing():
    programs = realised(LLAMA, SCATTERED, "tp=2 pp=4 gbs=8", "tp=2 pp=1 gbs=8")

    (sole,) = programs.stages.of(1).chunk_class.ravel()
    idle = [n for n in range(programs.stages.chunk_counts.shape[1]) if n != sole]

    runs = [float(s.repeat[1, idle].sum()) for s in (*programs.forward, *programs.backward)]
    assert runs == [0.0] * len(runs)


def test_lowering_keeps_the_model_s_layers_and_their_counts():
    workload = lowered(GPT, "tp=2")

    assert [(layer.kind, layer.count) for layer in workload.layers] == [
        ("embedding", 1),
        ("block", 8),
        ("final_norm", 1),
        ("head", 1),
    ]
    assert {item.phase for layer in workload.layers for item in layer.forward} == {"forward"}


@all_cases("model", MODELS)
def test_a_rank_that_held_every_layer_would_hold_every_parameter(model):
    held = at(realised(MODELS[model], MEGATRON, "gbs=1").parameters)

    assert held == MODELS[model].parameters()  # the vocabulary of these models needs no padding


def test_a_realised_model_computes_and_moves_what_its_layers_say():
    """No pass, rewrite or segment is dropped between the logical layers and the programs."""
    workload = lowered(GPT, "tp=2 mbs=2")
    logical = sum(layer.count * flop_of(layer.forward) for layer in workload.layers)
    bytes_of = sum(layer.count * moved_bytes_of(layer.forward) for layer in workload.layers)

    programs = realise(workload, stack_with(BARE, pipeline={"payload": "full"}))

    passes = repeats(programs, programs.forward)
    assert sum(times * flop_of(items) for items, times in passes) == pytest.approx(logical, rel=1e-12)
    assert sum(times * moved_bytes_of(items) for items, times in passes) == pytest.approx(
        bytes_of, rel=1e-12
    )


def test_the_plans_of_programs_are_those_of_their_workload():
    plans = plans_of("dp=2", "dp=4")

    programs = realise(lower(GPT, plans, Batch(sequence_length=LENGTH)), MEGATRON)

    assert programs.plans is plans
    assert named(programs.update, "optimizer.update").work.parameters.shape == (2, 1)
