"""Low-rank adapters: what is trained, spared and kept, against printed counts and closed forms.

Elsewhere: published runs with adapters (tests/lab/validation/test_adapter_runs.py).
"""

from dataclasses import replace

import pytest
from all_cases import all_cases
from conftest import make_job
from layer_examples import BLOCKS, HIDDEN, MIXTURES, flop, operators, split
from unmarked import unmarked

from flopcast.dtypes import constant
from flopcast.errors import SpecError
from flopcast.layers.adapters import Adapted, Adapters
from flopcast.library import catalog
from flopcast.library.curves import load_book
from flopcast.operators.dequantise import Dequantise
from flopcast.operators.matmul import Matmul
from flopcast.prediction import memory_of, predict
from flopcast.render.report_json import as_json
from flopcast.render.report_text import marked_text
from flopcast.spec.model import Model
from flopcast.workload.backward import derive_backward, kept_tensors

as_text = unmarked(marked_text)

ALL = ("q", "k", "v", "out", "gate", "up", "down")
EXPERTS = ("expert_gate", "expert_up", "expert_down")


def tuned(name, rank, targets, **fields):
    """A model of the catalogue with adapters."""
    adapters = {"rank": rank, "targets": targets} | fields
    return Model.model_validate(catalog.model(name).model_dump() | {"adapters": adapters})


def adapted(block="llama", targets=("q", "v"), **fields):
    return Adapted(kind="block", inner=BLOCKS[block], adapters=Adapters(rank=4, targets=targets, **fields))


def backward(layer, cut):
    return derive_backward(layer.forward(HIDDEN, cut), frozenset())


@all_cases(
    ("name", "rank", "targets", "printed"),
    [
        # "trainable params" of Hugging Face PEFT, as its users' logs print them
        ("llama-2-7b", 8, ("q", "v"), 4_194_304),
        ("llama-2-7b", 16, ("q", "v"), 8_388_608),
        ("llama-3-8b", 8, ALL, 20_971_520),
        ("llama-3-8b", 16, ALL, 41_943_040),
        ("mistral-7b", 16, ALL, 41_943_040),
        ("qwen3-30b-a3b", 8, ALL[:4], 6_684_672),  # 6.685M, as mlx-lm prints (its issue 571)
        ("qwen3-30b-a3b", 16, EXPERTS, 48 * 128 * 3 * 16 * (2048 + 768)),
    ],
)
def test_as_many_parameters_are_trained_as_are_printed(name, rank, targets, printed):
    model = tuned(name, rank, targets)

    assert model.trained_parameters() == printed
    assert model.parameters() - printed == catalog.model(name).parameters()


@pytest.mark.parametrize("tensor", [1, 2, 4])
def test_ranks_hold_the_cut_half_of_an_adapter_once_and_the_whole_half_each(tensor):
    weights = adapted(targets=("q", "down")).weights(HIDDEN, split(tensor=tensor))

    held = {w.name: w.elements.item() * tensor / w.total for w in weights if w.trained}

    assert held == {
        "adapter.q.a": tensor, "adapter.q.b": 1.0, "adapter.down.a": 1.0, "adapter.down.b": tensor,
    }  # fmt: skip


@all_cases("block", ["gpt", "llama", "neox", "gemma2"])
def test_a_frozen_block_runs_the_gradients_of_its_inputs_alone(block):
    """One backward product for each forward one; attention's have no weight and stay."""
    plain, frozen = BLOCKS[block], adapted(block)
    cut = split(tensor=2)

    base = [
        item for item in backward(frozen, cut) if isinstance(item.work, Matmul) and ".q." not in item.name
        and ".v." not in item.name
    ]  # fmt: skip
    forward = [item for item in plain.forward(HIDDEN, cut) if isinstance(item.work, Matmul)]

    assert all(item.work.layout == "input_gradient" for item in base)
    assert sum(i.work.work().flop for i in base) == sum(i.work.work().flop for i in forward)


def test_an_adapter_is_two_products_with_both_gradients():
    """2 · tokens · rank · (inputs + outputs) forward, twice that backward."""
    cut = split(length=64)
    size = BLOCKS["llama"].mixer.size(HIDDEN)
    query, value = 8 * size, BLOCKS["llama"].mixer.groups * size
    expected = 2 * 64 * 4 * ((HIDDEN + query) + (HIDDEN + value))

    more = flop(adapted().forward(HIDDEN, cut)) - flop(BLOCKS["llama"].forward(HIDDEN, cut))
    gradients = [i for i in backward(adapted(), cut) if ".q." in i.name or ".v." in i.name]

    assert more.item() == expected
    assert flop(gradients).item() == 2 * expected


def test_adapters_of_experts_are_products_of_the_rows_of_each_expert():
    """A row of an expert is multiplied by 3 adapters: 2 · rank · (inputs + outputs) each, forward."""
    cut, plain = replace(split(length=64), expert=constant(2)), MIXTURES["mixtral"]
    layer = Adapted(kind="block", inner=plain, adapters=Adapters(rank=4, targets=EXPERTS))
    experts = plain.feed_forward
    rows = next(i.work.rows for i in plain.forward(HIDDEN, cut) if i.name == "experts.up")
    expected = 3 * 2 * 4 * rows * (HIDDEN + experts.expert_hidden)
    held = [w for w in layer.weights(HIDDEN, cut) if w.trained]

    more = flop(layer.forward(HIDDEN, cut)) - flop(plain.forward(HIDDEN, cut))
    gradients = [i for i in backward(layer, cut) if ".expert_" in i.name]

    assert more.item() == expected.item()
    assert flop(gradients).item() == 2 * expected.item()
    assert all(w.expert and 2 * w.elements.item() == w.total for w in held)
    assert sum(w.used for w in held) * experts.num_experts == sum(w.total for w in held) * experts.top_k


def test_a_frozen_linear_keeps_no_input_unless_its_adapter_does():
    cut = split(length=64)

    without, beside = (
        kept_tensors(adapted(targets=targets).forward(HIDDEN, cut), frozenset())
        for targets in (("q",), ("q", "down"))
    )

    assert "mlp.inner" not in without
    assert "attention.in.full" in without
    assert beside["mlp.inner"].item() == kept_tensors(
        BLOCKS["llama"].forward(HIDDEN, cut), frozenset()
    )["mlp.inner"].item()  # fmt: skip


def test_dropout_before_an_adapter_keeps_its_input_again_and_a_mask():
    cut = split(length=64)
    plain, dropped = (
        kept_tensors(adapted(targets=("q", "v"), dropout=rate).forward(HIDDEN, cut), frozenset())
        for rate in (0.0, 0.05)
    )

    more_bytes = sum(dropped.values()) - sum(plain.values())

    tokens = 64 * HIDDEN
    assert more_bytes.item() == 2 * tokens * (2 + 1) - 2 * tokens  # two copies and masks, no common input


def test_weights_of_four_bits_are_written_out_once_a_pass():
    """QLoRA reads them for the products of both passes: arXiv:2305.14314, equation 5."""
    cut = split()
    layer = adapted(base_dtype="nf4")
    matrices = [w for w in layer.weights(HIDDEN, cut) if w.stored]

    once, again = (
        [item.work for item in items if isinstance(item.work, Dequantise)]
        for items in (layer.forward(HIDDEN, cut), backward(layer, cut))
    )

    for works in (once, again):
        assert sum(work.elements for work in works) == sum(weight.elements for weight in matrices)
    assert [w.name for w in matrices] == ["attention.qkv", "attention.out", "mlp.up", "mlp.down"]


def test_tables_norms_and_head_are_frozen_and_not_narrow():
    model = tuned("llama-3-8b", 8, ALL, base_dtype="nf4")

    for layer, _ in (model.sequence()[0], model.sequence()[-2], model.sequence()[-1]):
        weights = layer.weights(model.hidden, split())
        assert not any(weight.trained or weight.stored for weight in weights)


def tuned_job(fields=None, plan="dp=8 gbs=8 precision=bf16", model="llama-2-7b"):
    whole = {"base": model} | (
        {"adapters": {"rank": 8, "targets": ["q", "v"]} | fields} if fields is not None else {}
    )
    return make_job(
        model=whole, cluster="dgx-a100:1", stack="megatron-core", plan=plan, batch={"seq": 2048}
    )  # fmt: skip


def test_a_step_with_adapters_spares_the_weight_gradients():
    """Four FLOP a token and frozen parameter, not six; the head is frozen too."""
    full, frozen = (predict(tuned_job(fields), load_book(tuned_job().cluster)) for fields in (None, {}))
    linear = catalog.model("llama-2-7b").forward_flop(2048) - catalog.model("llama-2-7b").attention_flop(
        2048
    )

    spared_flop = full.metrics.model_flop - frozen.metrics.model_flop

    adapters_flop = 6 * 4_194_304 * 2048 * 8
    assert spared_flop == pytest.approx(8 * linear - adapters_flop, rel=1e-9)
    assert frozen.step_time_s < 0.8 * full.step_time_s


def test_states_and_gradients_are_those_of_what_is_trained():
    memory = memory_of(tuned_job({}))

    assert memory.by_category["optimizer_states"] == 12 * 4_194_304
    assert memory.by_category["gradients"] == 4 * 4_194_304


def test_qlora_in_fp32_multiplies_without_matrix_engines():
    """Without autocast, PEFT casts all but 4-bit weights to fp32, and bitsandbytes follows its input."""
    job = tuned_job({"base_dtype": "nf4"}, plan="dp=8 gbs=8 precision=fp32")
    half = tuned_job({"base_dtype": "nf4"})

    report = predict(job, load_book(job.cluster))

    peak = job.cluster.node.device.peak_flop_per_s["fp32"]
    assert report.step_time_s > report.metrics.model_flop / 8 / peak
    stored = [memory_of(each).by_category["parameters"] for each in (half, job)]
    others = 2 * 32000 * 4096 + 65 * 4096 + 4_194_304  # tables, norms and adapters, twice as wide
    assert stored[1] - stored[0] == pytest.approx(2 * others, rel=1e-6)


def test_narrow_weights_take_half_a_byte_and_their_scales():
    """4 bits, 8 for 64 weights, 32 for 256 of these: 0.127 bits of scales (arXiv:2305.14314, section 3)."""
    wide, narrow = (memory_of(tuned_job({"base_dtype": dtype})) for dtype in ("model", "nf4"))
    matrices = 32 * (4 * 4096**2 + 3 * 4096 * 11008)

    spared_bytes = wide.by_category["parameters"] - narrow.by_category["parameters"]

    assert spared_bytes == pytest.approx(matrices * (2 - 4.127 / 8), rel=1e-4)


@pytest.mark.parametrize(
    "plan", ["dp=2 tp=4 sp gbs=8 precision=bf16", "dp=2 tp=2 pp=2 gbs=8 precision=bf16"]
)
def test_adapters_are_predicted_under_every_degree(plan):
    report = predict(tuned_job({}, plan), load_book(tuned_job().cluster))

    told = as_json(report)
    assert told["trained_parameters"] + told["frozen_parameters"] == told["model_parameters"]
    assert told["trained_parameters"] == 4_194_304
    assert "in adapters" in as_text(report)
    assert sum(report.breakdown.values()) == pytest.approx(report.step_time_s, rel=1e-9)


@all_cases("targets", [("qkv", "q"), ("gate_up", "up"), ("q", "q"), ()])
def test_two_adapters_beside_one_matrix_are_refused(targets):
    with pytest.raises(SpecError):
        Adapters(rank=8, targets=targets)


def test_adapters_beside_further_predictions_are_refused():
    with pytest.raises(ValueError, match="mtp: 0"):
        Model.model_validate(tuned("llama-2-7b", 8, ("q",)).model_dump() | {"mtp": 1})


def test_only_products_of_linears_lose_their_weight_gradients():
    """The operators that are frozen are those of the block inside, in its order."""
    cut = split()

    inside = [i for i in operators(adapted(targets=("q",)).forward(HIDDEN, cut)) if ".q." not in i.name]

    for item, plain in zip(inside, operators(BLOCKS["llama"].forward(HIDDEN, cut)), strict=True):
        assert item.name == plain.name
        trained = {"trained": False} if hasattr(plain.work, "trained") else {}
        assert item.work.work().flop == replace(plain.work, **trained).work().flop


def test_factored_moments_are_those_of_adapters_alone():
    """Adafactor keeps a row and a column of each trained matrix: arXiv:1804.04235, section 3."""
    job = tuned_job({}, "dp=8 gbs=8 precision=bf16 optimizer=adafactor")
    numbers = 32 * 2 * 2 * (4096 + 8)  # two adapters of two matrices in each block

    main_weights_bytes = 4 * 4_194_304

    assert memory_of(job).by_category["optimizer_states"] == main_weights_bytes + 4 * numbers
