"""FLOP that recompute repeats, by method and by module, against the model's own forward."""

import numpy as np
import pytest
from all_cases import all_cases
from conftest import make_job

from flopcast.report.recomputed import recomputed_flop

LENGTH = 2048
LAYERS = 96
HIDDEN = 12288  # GPT-3 175B


def gpt3(recompute, plan="tp=8 pp=8 gbs=64 precision=fp16", **stack):
    return make_job(
        model="gpt3-175b",
        cluster="selene:8",
        batch={"sequence_length": LENGTH},
        plan=f"{plan} recompute={recompute}",
        stack={"base": "megatron-2022"} | stack,
    )


def block_flop(job):
    """FLOP of one block's forward over the whole batch: of the model, less its head, over its layers."""
    head = 2 * LENGTH * HIDDEN * job.model.vocabulary
    return job.plan.global_batch * (job.model.forward_flop(LENGTH) - head) / LAYERS


@all_cases(
    ("word", "blocks"),
    [
        ("full", 96),
        ("full:uniform:5", 96),
        ("full:block:4", 8 * 4),  # of the 12 blocks of each of 8 stages
        ("full:every:5", 8 * 2),
        ("none", 0),
    ],
)
def test_a_recomputed_block_repeats_its_forward(word, blocks):
    job = gpt3(word)

    assert recomputed_flop(job, causal=False) == pytest.approx(blocks * block_flop(job), rel=1e-12)


def test_blocks_that_are_recomputed_are_counted_in_every_chunk():
    job = gpt3("full:block:2", "tp=8 pp=8 vpp=3 gbs=64 precision=fp16")

    assert recomputed_flop(job, causal=False) == pytest.approx(8 * 3 * 2 * block_flop(job), rel=1e-12)


@pytest.mark.parametrize(("causal", "share"), [(False, 1.0), (True, 0.5)])
def test_the_core_of_attention_repeats_its_two_products(causal, share):
    job = gpt3("selective")

    products = 4 * LENGTH**2 * HIDDEN * LAYERS * job.plan.global_batch  # arXiv:2205.05198, appendix A
    assert recomputed_flop(job, causal) == pytest.approx(share * products, rel=1e-12)


@pytest.mark.parametrize(("until", "linears"), [("end", 2), ("kept", 1), ("read", 1)])
def test_a_recomputed_mlp_repeats_its_linears_the_second_only_where_it_runs_to_the_end(until, linears):
    job = gpt3("selective:mlp", recompute_until=until)

    each = 2 * LENGTH * HIDDEN * 4 * HIDDEN * LAYERS * job.plan.global_batch
    assert recomputed_flop(job, causal=False) == pytest.approx(linears * each, rel=1e-12)


def test_norms_that_run_again_repeat_no_flop():
    assert recomputed_flop(gpt3("selective:layernorm"), causal=False) == 0.0


@all_cases("kind", ["sliding", "chunked"])
@all_cases(("causal", "sides"), [(True, 1), (False, 2)])
def test_of_scores_inside_of_a_window_only_those_are_repeated_that_a_mask_holds(kind, causal, sides):
    """Counted pair by pair; without the mask the same on the other side of a query."""
    length, window = 512, 64
    block = {"count": 3, "mixer": {"heads": 16, "window": window, "window_kind": kind}}
    model = {"hidden": 1024, "vocabulary": 1024, "blocks": [block | {"feed_forward": {"ffn_hidden": 4096}}]}
    job = make_job(
        model=model,
        batch={"sequence_length": length},
        stack="megatron-core",
        plan="dp=8 gbs=16 recompute=selective precision=bf16",
    )
    query, key = np.indices((length, length))
    near = query - key < window if kind == "sliding" else query // window == key // window
    far = length - window if kind == "sliding" else 0  # pairs just outside, on the other edge of the band
    pairs = ((key <= query) & near).sum() - length / 2 + far / 2  # an edge takes half of what lies on it

    expected = sides * 4 * 1024 * pairs * 3 * 16
    assert recomputed_flop(job, causal) == pytest.approx(expected, rel=1e-9)


@all_cases(
    ("kernel", "until", "products"),
    [
        ("materialised", "end", 2),
        ("materialised", "kept", 1),  # contexts end the checkpoint: what they read is enough
        ("materialised", "read", 1),
        ("flash", "end", 2),
        ("flash", "kept", 2),  # one kernel is repeated whole
    ],
)
def test_scores_and_contexts_are_repeated_as_far_as_their_kernels_and_checkpoints_reach(
    kernel, until, products
):
    job = gpt3("selective", attention_kernel=kernel, recompute_until=until)

    each = 2 * LENGTH**2 * HIDDEN * LAYERS * job.plan.global_batch
    assert recomputed_flop(job, causal=False) == pytest.approx(products * each, rel=1e-12)
