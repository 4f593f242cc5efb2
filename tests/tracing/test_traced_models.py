"""Traced models beside those of our own layers, and beside published sizes.

`models/NAME.yaml` is the output of `flopcast import hf-model CONFIG --trace`, made with the torch and
transformers that its `source` names.
"""

from pathlib import Path

import pytest
from conftest import make_job
from oracle_cases import oracle

import flopcast
from flopcast.errors import SpecError
from flopcast.io.validate import build
from flopcast.io.yaml_text import read_yaml
from flopcast.search.space import Space
from flopcast.spec.model import Model

HERE = Path(__file__).parent
NATIVE = ("llama-3-8b", "mixtral-8x7b", "gpt2")  # those that our layers describe too


def traced(name):
    document = read_yaml((HERE / "models" / f"{name}.yaml").read_bytes(), f"{name}.yaml")
    return build(Model, document, document.data)


def job_of_trace(model, plan="dp=8 mbs=1 gbs=16 zero=1", length=1024):
    return make_job(
        model=model.model_dump(mode="json"),
        cluster="dgx-h100:1",
        plan=plan,
        stack="megatron-core",
        batch={"sequence_length": length},
    )


def report(model, plan="dp=8 mbs=1 gbs=16 zero=1", length=1024):
    return flopcast.predict(job_of_trace(model, plan, length))


@pytest.mark.parametrize("name", NATIVE)
def test_a_trace_holds_the_parameters_and_flop_of_our_own_layers(name):
    ours, theirs = oracle(name).model, traced(name)

    assert theirs.parameters() == ours.parameters()
    assert theirs.active_parameters() == pytest.approx(ours.active_parameters(), rel=1e-9)
    for length in (512, 4096):
        flop = ours.forward_flop(length, windows=False)
        assert theirs.forward_flop(length) == pytest.approx(flop, rel=1e-9)


@pytest.mark.parametrize(("name", "tolerance"), [("llama-3-8b", 0.04), ("gpt2", 0.09)])
def test_a_traced_model_takes_about_as_long_as_our_own_layers_of_it(name, tolerance):
    """A little less: a residual sum and the norm behind it are one kernel, which tells in a small model."""
    ours, theirs = report(oracle(name).model), report(traced(name))

    assert theirs.step_time_s == pytest.approx(ours.step_time_s, rel=tolerance)


def test_a_traced_model_keeps_as_much_as_our_own_layers_of_it():
    ours, theirs = report(oracle("llama-3-8b").model), report(traced("llama-3-8b"))

    assert theirs.memory.allocated_bytes == pytest.approx(ours.memory.allocated_bytes, rel=0.01)


def test_a_model_without_a_layer_of_ours_has_its_published_sizes():
    """OLMoE-1B-7B: 6.9 billion parameters, of which a token uses 1.3 (arXiv:2409.02060, table 1)."""
    olmoe = traced("olmoe-1b-7b")

    assert olmoe.parameters() == pytest.approx(6.9e9, rel=0.01)
    assert olmoe.active_parameters() == pytest.approx(1.3e9, rel=0.02)
    assert report(olmoe).step_time_s > 0


def test_stages_of_a_pipeline_share_a_traced_model():
    two = report(traced("llama-3-8b"), "pp=2 dp=4 mbs=1 gbs=16 zero=1")

    assert two.memory.allocated_bytes < report(traced("llama-3-8b")).memory.allocated_bytes


@pytest.mark.parametrize("degree", ["tp=2 dp=4", "tp=8 dp=1"])
def test_a_traced_block_is_not_cut(degree):
    with pytest.raises(SpecError, match="does not record which axis"):
        report(traced("llama-3-8b"), f"{degree} mbs=1 gbs=16")


@pytest.mark.parametrize("name", ["llama-3-8b", "mixtral-8x7b", "gpt2", "olmoe-1b-7b"])
def test_a_traced_model_is_searched_and_its_best_plan_predicts_the_same(name):
    job = job_of_trace(traced(name))
    space = Space(gbs=64, mbs="1,2", zero=1, recompute="none", vpp=1)

    found = flopcast.search_plans(job, space)

    assert found.possible > 2
    best = (found.plans or found.nearest)[0].played
    alone = flopcast.predict(job.model_copy(update={"plan": best.plan}))
    assert alone.step_time_s == pytest.approx(best.step_time_s, rel=1e-9)
    assert best.plan.tensor_parallel == 1


def test_recompute_of_attention_runs_the_traced_kernel_again():
    again = report(traced("llama-3-8b"), "dp=8 mbs=1 gbs=16 zero=1 recompute=selective")

    assert again.step_time_s > report(traced("llama-3-8b")).step_time_s
