"""Traced models beside those of our own layers, and beside published sizes.

`models/NAME.yaml` is the output of `flopcast import hf-model CONFIG --trace`, made with the torch and
transformers that its `source` names.
"""

from collections import Counter
from pathlib import Path

import pytest
from all_cases import all_cases
from conftest import make_job
from oracle_cases import oracle

import flopcast
from flopcast.dtypes import constant
from flopcast.errors import SpecError
from flopcast.files.validate import build
from flopcast.files.yaml_text import read_yaml
from flopcast.layers.base import Split
from flopcast.operators.base import AbstractOperator
from flopcast.operators.matmul import Matmul
from flopcast.operators.messages import AllReduce, Replicate
from flopcast.search.space import Space
from flopcast.spec.model import Model

HERE = Path(__file__).parent
DIVIDED = ("llama-3-8b", "mixtral-8x7b", "gpt2", "olmoe-1b-7b")
NATIVE = ("llama-3-8b", "mixtral-8x7b", "gpt2")  # those that our layers describe too


def traced(name):
    document = read_yaml((HERE / "models" / f"{name}.yaml").read_bytes(), f"{name}.yaml")
    return build(Model, document, document.data)


def job_of_trace(model, plan="dp=8 mbs=1 gbs=16 zero=1", length=1024):
    return make_job(
        model=model.model_dump(mode="json"),
        cluster="dgx-h100:1",
        plan=plan,
        stack={
            "base": "megatron-core",
            "host": {"forward_item_s": "0 s", "backward_item_s": "0 s"},
        },  # numbers of kernels differ
        batch={"sequence_length": length},
    )


def report(model, plan="dp=8 mbs=1 gbs=16 zero=1", length=1024):
    return flopcast.predict(job_of_trace(model, plan, length))


@all_cases("name", NATIVE)
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


def split_over(ranks):
    return Split(
        sequences=constant(2),
        length=constant(512),
        tensor=constant(ranks),
        sequence_parallel=False,
        dtype="bf16",
    )


def forward(block, hidden, ranks):
    return block.forward(hidden, split_over(ranks))


def product_flop(items):
    return sum(float(i.work.work().flop.item()) for i in items if isinstance(i.work, AbstractOperator))


def message_bytes(items):
    """Bytes of the messages of a layer, by their kind; a tensor that enters is named once."""
    found = Counter()
    for item in items:
        if isinstance(item.work, AllReduce | Replicate):
            found[type(item.work).__name__] += float(item.work.message_bytes.item())
    return found


@all_cases("name", DIVIDED)
def test_ranks_hold_and_multiply_together_what_the_undivided_block_does(name):
    """A conservation law: what is divided adds up to the whole, what is whole is on each rank."""
    model = traced(name)
    (block,) = model.blocks
    whole, ranks = block.mixer, 4
    alone, shared = (forward(block, model.hidden, degree) for degree in (1, ranks))

    weights = {weight.name: weight for weight in whole.weights_of_block}
    for held in block.weights(model.hidden, split_over(ranks)):
        copies = 1 if weights[held.name].divided else ranks
        assert held.elements.item() * ranks == weights[held.name].elements * copies, held.name
    kernels = {item.name: item for item in shared if isinstance(item.work, AbstractOperator)}
    for operator, item in zip(whole.operators, (i for i in alone if i.name in kernels), strict=True):
        copies = ranks if operator.division == "whole" else 1
        assert product_flop([kernels[item.name]]) * ranks == product_flop([item]) * copies, item.name


@pytest.mark.parametrize("name", ["llama-3-8b", "gpt2"])
def test_a_rank_computes_and_sends_as_much_as_one_of_our_own_layers(name):
    ours, theirs = oracle(name).model, traced(name)
    for ranks in (2, 4):
        own, found = (forward(model.blocks[0], ours.hidden, ranks) for model in (ours, theirs))

        assert message_bytes(found) == message_bytes(own)
        split = split_over(ranks)
        weights = (model.blocks[0].weights(ours.hidden, split) for model in (ours, theirs))
        assert len({sum(w.elements.item() for w in each) for each in weights}) == 1
        linears = [[i for i in items if isinstance(i.work, Matmul)] for items in (own, found)]
        assert product_flop(linears[1]) == product_flop(linears[0])


@pytest.mark.parametrize(("name", "tolerance"), [("llama-3-8b", 0.02), ("gpt2", 0.10)])
def test_a_traced_model_is_divided_as_our_own_layers_are(name, tolerance):
    """GPT-2, whose time is mostly passes, is a little shorter with one rank too: it has fewer kernels."""
    plan = "tp=2 dp=4 mbs=1 gbs=16 zero=1"
    ours, theirs = report(oracle(name).model, plan), report(traced(name), plan)

    assert theirs.step_time_s == pytest.approx(ours.step_time_s, rel=tolerance)
    assert theirs.memory.allocated_bytes == pytest.approx(ours.memory.allocated_bytes, rel=0.01)


def test_degrees_that_split_a_head_are_refused():
    with pytest.raises(SpecError, match="a divisor of 12: 1, 2, 3, 4, 6, 12"):
        report(traced("gpt2"), "tp=8 dp=1 mbs=1 gbs=16")


def test_norms_over_all_heads_keep_their_products_whole_and_the_file_says_why():
    """OLMoE norms queries and keys over the whole width (arXiv:2409.02060): only experts are divided."""
    mixer = traced("olmoe-1b-7b").blocks[0].mixer
    because = {product.weight: product.because for product in mixer.whole_products}

    assert "the operator mean" in because["self_attn.q_proj.weight"]
    divided = {weight.name for weight in mixer.weights_of_block if weight.divided}
    assert divided == {"mlp.experts.gate_up_proj", "mlp.experts.down_proj"}


@pytest.mark.parametrize(
    ("fields", "allowed"),
    [
        ({}, "from an older version and does not record which GEMM uses which weight"),
        (
            {"units": 1, "whole_products": [{"weight": "w", "because": "a sum over columns"}]},
            r"no GEMM of the block can be divided \(w: a sum over columns\)",
        ),
    ],
)
def test_a_block_that_cannot_be_divided_says_why(fields, allowed):
    whole = traced("gpt2").model_dump(mode="json")
    mixer = whole["blocks"][0]["mixer"]
    whole["blocks"][0]["mixer"] = {
        key: mixer[key] for key in mixer if key not in ("units", "whole_products")
    } | fields
    model = Model.model_validate(whole)

    assert report(model).step_time_s > 0
    with pytest.raises(SpecError, match=allowed):
        report(model, "tp=2 dp=4 mbs=1 gbs=16")


@pytest.mark.parametrize("option", ["sp=true", "cp=2"])
def test_sequences_of_a_traced_model_are_not_divided(option):
    with pytest.raises(SpecError, match="a trace does not record which"):
        report(traced("llama-3-8b"), f"tp=2 dp=2 mbs=1 gbs=16 {option}")


@all_cases("name", ["llama-3-8b", "mixtral-8x7b", "gpt2", "olmoe-1b-7b"])
def test_a_traced_model_is_searched_and_its_best_plan_predicts_the_same(name):
    job = job_of_trace(traced(name))
    space = Space(gbs=64, mbs="1,2", zero=1, recompute="none", vpp=1)

    found = flopcast.search_plans(job, space)

    assert found.possible > 2
    best = (found.plans or found.nearest)[0].played
    alone = flopcast.predict(job.model_copy(update={"plan": best.plan}))
    assert alone.step_time_s == pytest.approx(best.step_time_s, rel=1e-9)


def test_recompute_of_attention_runs_the_traced_kernel_again():
    again = report(traced("llama-3-8b"), "dp=8 mbs=1 gbs=16 zero=1 recompute=selective")

    assert again.step_time_s > report(traced("llama-3-8b")).step_time_s
