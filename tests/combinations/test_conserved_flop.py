"""However work is divided, all devices together multiply what the model needs, and what is run again."""

import pytest
from all_cases import all_cases
from combination_cases import (
    LAYOUTS,
    LENGTH,
    MODELS,
    SPREADS,
    job_of,
    plan_of,
    possible,
    product_flop,
    programs_of,
    stack,
)
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from flopcast.report.metrics import measure
from flopcast.report.recomputed import recomputed_flop
from flopcast.spec.plan import Plan

SEQUENCES = 32
AGAIN = ("none", "full", "selective", "selective:mlp", "full:every:2", "selective:operators")
PRECISIONS = ("bf16", "fp8", "fp8_current", "fp8_blockwise", "mxfp8", "nvfp4")
SCHEDULES = ("auto", "gpipe", "zb_h1", "zb_h2")
EARLY = stack("torch-fsdp2")


def step_flop(model, plan, software=None):
    return product_flop(programs_of(model, plan, software=software), plan)


@settings(max_examples=30, deadline=None)
@given(
    name=st.sampled_from(sorted(MODELS)),
    layout=st.sampled_from(LAYOUTS),
    spread=st.sampled_from(SPREADS),
    recompute=st.sampled_from(AGAIN[:-1]),
    precision=st.sampled_from(PRECISIONS),
    schedule=st.sampled_from(SCHEDULES),
    zero=st.sampled_from([0, 1, 3]),
)
def test_no_way_to_divide_work_changes_the_products_of_a_step(
    name, layout, spread, recompute, precision, schedule, zero
):
    model = MODELS[name]
    modes = {"recompute": recompute, "precision": precision, "schedule": schedule, "zero": zero}
    plan = plan_of(model, layout, spread, modes)
    assume(name != "adapted" or "tensor_parallel" not in layout)  # adapters of ranks: the test below
    assume(possible(job_of(model, plan)))

    divided = step_flop(model, plan)

    one = step_flop(model, Plan(global_batch=SEQUENCES, recompute=recompute))
    assert divided == pytest.approx(one, rel=1e-12)


@all_cases("name", sorted(set(MODELS) - {"adapted"}))
def test_a_step_of_a_fused_kernel_multiplies_three_forwards_and_the_scores_once_more(name):
    model = MODELS[name]

    multiplied = step_flop(model, Plan(global_batch=SEQUENCES))

    # arXiv:2205.14135, algorithm 4: the backward makes the scores again, a fifth product beside the four
    # gradients; scores are as wide as queries and keys, contexts as values
    block = model.blocks[0].mixer
    widths = (48, 32) if name == "latent" else (32, 32)  # of queries and keys, and of values
    scores_share = widths[0] / sum(widths)
    scores = scores_share * model.attention_flop(LENGTH, causal=True)
    forward = model.forward_flop(LENGTH, causal=True)
    assert block.heads == 8
    assert multiplied == pytest.approx(SEQUENCES * (3 * forward + scores), rel=1e-12)


def test_frozen_weights_spare_their_gradients_and_adapters_pay_for_all_three_products():
    model = MODELS["adapted"]

    tuned, whole = (step_flop(each, Plan(global_batch=SEQUENCES)) for each in (model, MODELS["dense"]))

    # a forward and an input gradient of frozen weights, 4 FLOP; three products of adapters, 6 (a head of
    # frozen weights is a frozen linear too); the first block's input wants no gradient but gets one here
    tokens = SEQUENCES * LENGTH
    adapters = 8 * 16 * ((256 + 256) + (256 + 128) + (1024 + 256))  # q, v of 4 heads of 32, down
    linears = 8 * (256 * (256 + 2 * 128) + 256 * 256 + 3 * 256 * 1024) + 256 * 4096
    assert model.trained_parameters() == adapters
    assert whole - tuned == pytest.approx(tokens * (2 * linears - 6 * adapters), rel=1e-12)


@settings(max_examples=25, deadline=None)
@given(
    name=st.sampled_from(sorted(set(MODELS) - {"adapted"})),
    layout=st.sampled_from(LAYOUTS),
    recompute=st.sampled_from(AGAIN),
    software=st.sampled_from(["megatron-core", "torch-fsdp2", "deepspeed-zero"]),
)
def test_hardware_flop_of_a_report_are_those_that_devices_run_again(name, layout, recompute, software):
    model, software = MODELS[name], stack(software)
    plan = plan_of(model, layout, {"recompute": recompute})
    job = job_of(model, plan, software)
    assume(possible(job))

    more = step_flop(model, plan, software) - step_flop(model, plan_of(model, layout), software)

    assert recomputed_flop(job, causal=True) == pytest.approx(more, rel=1e-12)


@pytest.mark.parametrize("name", ["dense", "latent", "windows"])
def test_a_fused_kernel_runs_again_as_a_whole_where_software_stops_early(name):
    model = MODELS[name]
    plan = Plan(data_parallel=8, global_batch=8, recompute="selective:core_attention")

    metrics = measure(job_of(model, plan, EARLY), step_time_s=1.0)

    again = metrics.hardware_flop - metrics.model_flop
    assert again == pytest.approx(8 * model.attention_flop(LENGTH))
