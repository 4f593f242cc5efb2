"""Rewrites: laws that every entry of the registry keeps, and what each one does to the layer it is for."""

from dataclasses import replace

import pytest
from all_cases import all_cases
from workload_cases import (
    BARE,
    GPT,
    HEADS,
    HIDDEN,
    LENGTH,
    LLAMA,
    MEGATRON,
    MODELS,
    NEOX,
    at,
    block_of,
    flop_of,
    logical_block,
    lowered,
    moved_bytes_of,
    named,
    operators,
    realised,
    stack_with,
)

from flopcast.dtypes import constant
from flopcast.errors import FlopcastError, InternalError
from flopcast.lab.published.suite_files import load_suite
from flopcast.layers.adapters import Adapters
from flopcast.layers.experts import Experts
from flopcast.library import catalog
from flopcast.operators.item import kernel
from flopcast.operators.memory_bound import KINDS, MemoryBound
from flopcast.spec.model import Model
from flopcast.spec.plan import one_plan
from flopcast.workload.backward import derive_backward, kept_tensors, total_bytes
from flopcast.workload.lower import lower
from flopcast.workload.passes import rewrite_names
from flopcast.workload.realise import realise
from flopcast.workload.rewrites import REWRITES
from flopcast.workload.rewrites.base import change_kind, fuse_runs, kind_of
from flopcast.workload.rewrites.eager import MOST_FUSED_KEYS

FUSIONS = [
    "bias_dropout_add",
    "bias_gelu",
    "epilogue_bias",
    "flash_attention",
    "fused_softmax",
    "fused_softmax_dropout",
]
OF_THE_LOSS = ["loss_metrics"]
OF_GRAPHS = ["compiled_graph", "convolution_epilogues"]
OF_THE_KERNEL = ["layout_copies", "whole_window_gradients"]  # of attention
INSERTING = [  # kernels in front of one that stays: asked twice, twice
    "gathered_copies",
    "layout_copies",
    "loss_metrics",
    "separate_projections",
    "compiled_projections",
    "fp32_adapters",
    "autocast",
]
RUNS = {row.job.model.name: row.job for row in load_suite("paper").rows}  # runs of one model share a stack
MIXTURE, SHARED = (
    LLAMA.model_copy(
        update={
            "blocks": tuple(
                block.model_copy(
                    update={
                        "feed_forward": Experts(
                            num_experts=8, top_k=2, expert_hidden=1024, shared_experts=shared
                        )
                    }
                )
                for block in LLAMA.blocks
            )
        }
    )
    for shared in (0, 1)
)
SCALED = MIXTURE.model_copy(
    update={
        "blocks": tuple(
            block.model_copy(
                update={
                    "mixer": block.mixer.model_copy(update={"rotary_scaled": True}),
                    "feed_forward": block.feed_forward.model_copy(update={"gate_clamp": True}),
                }
            )
            for block in MIXTURE.blocks
        )
    }
)
PASS = {"kind": "graph_pass", "family": "elementwise", "fusible": True, "moved": {"sequences": 128}}
PASS |= {"read": [{"sequences": 64}], "written": {"sequences": 64}, "moved_backward": {"sequences": 128}}
GRAPHED = Model(
    hidden=64,
    vocabulary=0,
    blocks=[
        {
            "mixer": {
                "kind": "traced",
                "batch_of": "samples",
                "weights_of_block": [{"name": "w", "elements": 4096}],
                "operators": [
                    {"kind": "matmul", "m": {"sequences": 1}, "n": 64, "k": 64}
                    | {"name": "linear", "inputs": ["x"], "output": "t0"},
                    PASS | {"name": "relu", "inputs": ["t0"], "output": "t1"},
                    PASS | {"name": "scale", "inputs": ["t1"], "output": "y"},
                ],
            },
            "feed_forward": {"kind": "none"},
        }
    ],
)
SQUARED = catalog.model("nemotron-4-15b")  # with a squared ReLU
ARCHITECTURES = MODELS | {"mixture": MIXTURE, "shared": SHARED, "scaled": SCALED, "squared": SQUARED}
EACH_MODEL = all_cases("model", ARCHITECTURES)
EACH_REWRITE = all_cases("name", REWRITES)


def shown(items):
    """What a reader sees of items: name, kind of kernel, tensors; what the gradient skips."""
    skips = [getattr(item.work, "gradient_skips", True) for item in items]
    return [
        (item.name, kind_of(item), item.inputs, item.output, skipped)
        for item, skipped in zip(items, skips, strict=True)
    ]


def head_of(model, text="gbs=1"):
    """The logical forward items of the head."""
    return next(layer.forward for layer in lowered(model, text).layers if layer.kind == "head")


def prepared(name, model, text="tp=2 mbs=2 gbs=2"):
    """Forward items that the rewrite may meet: fused attention, the loss or gathers where it needs them."""
    if name in OF_GRAPHS:
        return logical_block(GRAPHED, text)
    if name == "fp32_adapters":
        adapters = Adapters(rank=8, targets=("q", "out"), dropout=0.1)
        return logical_block(ARCHITECTURES[model].model_copy(update={"adapters": adapters}), text)
    if name in OF_THE_LOSS:
        return head_of(ARCHITECTURES[model], text)
    if name in ("compiled_projections", "gathered_copies"):
        text = f"{text} sp"
    length = 2 * MOST_FUSED_KEYS if name == "wide_long_softmax" else LENGTH
    items = logical_block(ARCHITECTURES[model], text, length)
    if name == "whole_window_gradients":
        near = ARCHITECTURES[model].blocks[0].mixer.model_copy(update={"window": 128})
        blocks = tuple(b.model_copy(update={"mixer": near}) for b in ARCHITECTURES[model].blocks)
        items = logical_block(ARCHITECTURES[model].model_copy(update={"blocks": blocks}), text)
    return REWRITES["flash_attention"](items) if name in OF_THE_KERNEL else items


def a_norm(name="norm", kind="layernorm"):
    work = MemoryBound(kind=kind, elements=constant(64), dtype="bf16")
    return kernel(name, work, ("x",), "y", component="norm")


def chain(*kinds):
    """Memory-bound items in a row, each reading what the one before wrote."""
    return tuple(
        kernel(
            f"part.{number}",
            MemoryBound(kind=kind, elements=constant(64), dtype="bf16"),
            (f"t{number}",),
            f"t{number + 1}",
            component="mlp",
        )
        for number, kind in enumerate(kinds)
    )


@EACH_REWRITE
def test_every_rewrite_leaves_a_layer_without_its_pattern_alone(name):
    items = (a_norm(kind="residual_add"), a_norm("copy", "copy"))

    rewritten = REWRITES[name](items)

    assert all(new is old for new, old in zip(rewritten, items, strict=True))


@EACH_REWRITE
def test_every_rewrite_accepts_a_layer_without_items(name):
    assert REWRITES[name](()) == ()


@EACH_MODEL
@EACH_REWRITE
def test_every_rewrite_conserves_flop_unless_its_kernel_skips_the_masked_half(name, model):
    before = prepared(name, model)

    after = REWRITES[name](before)

    skipped = 0.0
    if (
        name == "flash_attention"
    ):  # arXiv:2307.08691, section 3.1.1: blocks above the diagonal are not computed
        square = [item for item in operators(before) if item.group == "core_attention"]
        skipped = flop_of(square) / 2
    assert flop_of(after) == pytest.approx(flop_of(before) - skipped, rel=1e-12)


@EACH_MODEL
@all_cases("name", FUSIONS)
def test_a_fusion_never_moves_more_bytes_in_either_pass(name, model):
    before = prepared(name, model)

    after = REWRITES[name](before)

    passes = [(moved_bytes_of(i), moved_bytes_of(derive_backward(i, frozenset()))) for i in (before, after)]
    assert passes[1][0] <= passes[0][0]
    assert passes[1][1] <= passes[0][1]


@EACH_MODEL
@all_cases("name", FUSIONS)
def test_a_fusion_never_keeps_more_for_the_backward(name, model):
    before = prepared(name, model)

    after = REWRITES[name](before)

    kept = [at(total_bytes(kept_tensors(items, frozenset()))) for items in (before, after)]
    flash_keeps = LENGTH * 2 * HIDDEN * 2 / 2 + 4 * HEADS * 2 * LENGTH / 2  # its output and log-sums, tp 2
    assert kept[1] <= kept[0] + (flash_keeps if name == "flash_attention" else 0.0)


@EACH_MODEL
@all_cases("name", [name for name in REWRITES if name not in INSERTING])
def test_a_rewrite_applied_twice_does_what_it_does_once(name, model):
    once = REWRITES[name](prepared(name, model))

    twice = REWRITES[name](once)

    assert shown(twice) == shown(once)


@EACH_MODEL
@EACH_REWRITE
def test_no_rewrite_loses_what_a_later_item_reads(name, model):
    before = prepared(name, model)
    outside = {t for i in before for t in i.inputs} - {i.output for i in before}  # the layer's input; k, v

    after = REWRITES[name](before)

    made = set(outside)
    for item in after:
        assert set(item.inputs) <= made, item.name
        made.add(item.output)


@EACH_MODEL
@EACH_REWRITE
def test_every_rewrite_keeps_names_apart(name, model):
    names = [item.name for item in REWRITES[name](prepared(name, model))]

    assert len(set(names)) == len(names)


@EACH_MODEL
@EACH_REWRITE
def test_every_rewrite_keeps_the_layer_s_input_and_output(name, model):
    before = prepared(name, model)

    after = REWRITES[name](before)

    assert "x" in {tensor for item in after for tensor in item.inputs}
    last = "loss" if name in OF_THE_LOSS else "y"
    assert (before[-1].output, after[-1].output) == (last, last)


@EACH_MODEL
@EACH_REWRITE
def test_every_rewrite_leaves_messages_as_they_are(name, model):
    before = prepared(name, model, "tp=4 sp mbs=2 gbs=2")

    after = REWRITES[name](before)

    sent = [[item for item in items if item.stream == "tp"] for items in (before, after)]
    assert sorted(id(new.work) for new in sent[1]) == sorted(id(old.work) for old in sent[0])


@EACH_REWRITE
def test_every_rewrite_leaves_some_trace_on_one_of_the_architectures(name):
    changed = [shown(REWRITES[name](prepared(name, m))) != shown(prepared(name, m)) for m in ARCHITECTURES]

    assert any(changed)


def test_a_run_is_replaced_wherever_it_stands_and_only_whole():
    items = chain("bias_add", "gelu", "bias_add", "copy", "bias_add", "gelu")

    fused = fuse_runs(items, ("bias_add", "gelu"), "bias_gelu")

    assert [kind_of(item) for item in fused] == ["bias_gelu", "bias_add", "copy", "bias_gelu"]


def test_a_fused_item_reads_what_its_run_read_from_outside_and_writes_what_the_last_wrote():
    bias, drop, add = chain("bias_add", "dropout", "residual_add")
    add = kernel("part.2", add.work, ("t2", "x"), "y", component="residual")

    (fused,) = fuse_runs((bias, drop, add), ("bias_add", "dropout", "residual_add"), "bias_dropout_add")

    assert (fused.name, fused.inputs, fused.output) == ("part.0+1+2", ("t0", "x"), "y")
    assert at(fused.work.elements) == 64


def test_a_kind_is_changed_without_touching_anything_else():
    norm, copy = a_norm(), a_norm("copy", "copy")

    changed, same = change_kind((norm, copy), "layernorm", "fused_layernorm")

    assert same is copy
    assert (changed.name, changed.inputs, changed.output) == (norm.name, norm.inputs, norm.output)
    assert changed.work.kind == "fused_layernorm"


def test_software_with_fused_norms_fuses_both_kinds():
    """Transformer Engine, common/normalization: LayerNorm and RMSNorm share their kernels."""
    norms = (a_norm(), a_norm(kind="rmsnorm"))

    assert [kind_of(item) for item in REWRITES["fused_layernorm"](norms)] == [
        "fused_layernorm",
        "fused_rmsnorm",
    ]


def test_attention_becomes_one_kernel_and_its_dropout_happens_inside():
    before = logical_block(GPT, "tp=2 mbs=2 gbs=2")

    after = REWRITES["flash_attention"](before)

    kernels = [item.name for item in after if item.group == "core_attention"]
    assert kernels == ["attention.flash"]
    assert len(before) - len(after) == 5  # scores, mask, softmax, dropout, context, join → one


def renamed(items, old, new):
    """The items with another prefix of names and tensors: the same layer, as a second author names it."""

    def swap(text):
        return text.replace(f"{old}.", f"{new}.")

    return tuple(
        replace(item, name=swap(item.name), inputs=tuple(map(swap, item.inputs)), output=swap(item.output))
        for item in items
    )


@EACH_MODEL
@EACH_REWRITE
def test_no_rewrite_knows_a_layer_by_its_name(name, model):
    before = prepared(name, model)

    elsewhere = REWRITES[name](renamed(before, "attention", "mixer"))

    assert shown(elsewhere) == shown(renamed(REWRITES[name](before), "attention", "mixer"))


def test_flash_attention_reads_the_queries_keys_and_values_that_its_products_read():
    after = REWRITES["flash_attention"](logical_block(GPT, "gbs=1"))

    assert named(after, "flash").inputs == ("attention.q", "attention.k", "attention.v")


def test_flash_attention_computes_heads_and_groups_of_one_rank():
    work = named(REWRITES["flash_attention"](logical_block(LLAMA, "tp=4 mbs=3 gbs=3")), "flash").work

    # sixteen query heads and eight key/value heads over four ranks, three sequences
    assert (at(work.batch), at(work.kv_batch)) == (3 * 4, 3 * 2)
    assert (at(work.queries), at(work.head_size), work.causal) == (LENGTH, 64, True)


def test_attention_without_a_mask_computes_the_whole_square():
    bidirectional = [item for item in logical_block(GPT, "gbs=1") if kind_of(item) != "mask_fill"]

    work = named(REWRITES["flash_attention"](tuple(bidirectional)), "flash").work

    assert not work.causal
    assert at(work.work().flop) == 4 * LENGTH**2 * HIDDEN


def test_metrics_of_training_cost_two_more_losses_forward_and_none_backward():
    items = REWRITES["loss_metrics"](head_of(GPT))

    metrics = [item for item in items if kind_of(item) == "metric_cross_entropy"]
    logits = at(metrics[0].work.elements)
    assert [item.name for item in metrics] == ["head.metric_cross_entropy", "head.metric_perplexity"]
    assert all(at(item.work.work().moved_bytes) == (2 + 4 + 4 + 4) * logits for item in metrics)
    assert all(item.work.gradients() == () for item in metrics)


def forks(name, model, text):
    """Sums of gradients that a rewrite adds: passes over the input of a block, by the sum."""
    items = REWRITES[name](logical_block(model, text))
    sequences = 2 if "mbs=2" in text else 1
    found = {}
    for item in items:
        if kind_of(item).startswith("fork"):
            ((_, gradient),) = item.work.gradients()
            assert at(item.work.work().moved_bytes) == 0
            moved = at(item.count) * at(gradient.work().moved_bytes)
            found[item.name] = moved / (2 * sequences * LENGTH * HIDDEN)
    return found


@pytest.mark.parametrize("text", ["gbs=1", "tp=2 sp mbs=2 gbs=2"])
def test_gradients_of_linears_that_read_one_input_are_added_pair_by_pair_in_eager_code(text):
    found = forks("separate_projections", LLAMA, text)

    # of q, k and v two sums, of gate and value one: two tensors are read for each, and one is written
    assert found == {"attention.qkv_fork": 6, "mlp.up_fork": 3}


def test_compiled_code_adds_them_at_once_where_the_sum_is_scattered_and_in_the_norm_elsewhere():
    assert forks("compiled_projections", LLAMA, "tp=2 sp mbs=2 gbs=2") == {
        "attention.qkv_fork": 4,
        "mlp.up_fork": 3,
    }
    assert forks("compiled_projections", LLAMA, "gbs=1") == {}


def test_a_plain_linear_has_one_gradient_to_its_input():
    assert set(forks("separate_projections", GPT, "gbs=1")) == {"attention.qkv_fork"}


def test_a_stack_that_lists_both_ways_of_adding_gradients_adds_them_once():
    items = REWRITES["separate_projections"](logical_block(LLAMA, "tp=2 sp mbs=2 gbs=2"))

    assert REWRITES["compiled_projections"](items) == items


def test_a_sum_of_gradients_is_done_between_its_products_and_the_scatter():
    items = REWRITES["compiled_projections"](logical_block(LLAMA, "tp=2 sp mbs=2 gbs=2"))

    names = [item.name for item in derive_backward(items, frozenset())]

    for part, product in (("attention", "qkv"), ("mlp", "up")):
        sum_of, product_of = (
            names.index(f"{part}.{product}_fork.dgrad"),
            names.index(f"{part}.{product}.dgrad"),
        )
        assert product_of < sum_of < names.index(f"{part}.norm.dgrad")


def test_every_bias_of_a_linear_joins_its_product():
    before = logical_block(GPT, "gbs=1")

    after = REWRITES["linear_bias"](before)

    assert [kind_of(item) for item in after] == [
        "epilogue_bias" if kind == "bias_add" else kind for kind in map(kind_of, before)
    ]
    assert "bias_add" in map(kind_of, before)


def test_biases_of_grouped_experts_are_added_by_a_kernel():
    """Their product is no `nn.Linear`, which adds a bias itself."""
    biased = MIXTURE.model_copy(
        update={
            "blocks": tuple(
                block.model_copy(
                    update={"feed_forward": block.feed_forward.model_copy(update={"expert_bias": True})}
                )
                for block in MIXTURE.blocks
            )
        }
    )
    before = logical_block(biased, "gbs=1")

    after = REWRITES["linear_bias"](before)

    assert [kind_of(item) for item in after if item.component == "experts"].count("bias_add") == 2


def test_the_mask_is_applied_inside_the_fused_softmax():
    after = REWRITES["fused_softmax"](logical_block(GPT, "gbs=1"))

    item = next(item for item in after if kind_of(item) == "scaled_masked_softmax")
    assert (item.inputs, item.output, item.group) == (
        ("attention.scores",),
        "attention.weights",
        "core_attention",
    )


def test_bias_dropout_and_sum_read_two_tensors_and_write_one():
    after = REWRITES["bias_dropout_add"](logical_block(GPT, "gbs=1"))

    fused = next(item for item in after if kind_of(item) == "bias_dropout_add")
    assert fused.inputs == ("attention.sum", "x")
    assert moved_bytes_of([fused]) == LENGTH * HIDDEN * (3 * 2 + 1)  # two in, one out, a byte of mask


def test_without_dropout_bias_and_sum_are_one_kernel():
    items = chain("bias_add", "residual_add")

    (fused,) = REWRITES["bias_dropout_add"](items)

    assert kind_of(fused) == "bias_add_residual"


def test_the_gemm_s_epilogue_adds_the_bias_of_q_k_and_v_for_nothing_forward():
    (qkv,) = [
        item
        for item in REWRITES["epilogue_bias"](logical_block(GPT, "gbs=1"))
        if item.name == "attention.qkv_bias"
    ]

    gradients = [work for _, work in qkv.work.gradients()]
    assert moved_bytes_of([qkv]) == 0.0
    assert [at(work.work().moved_bytes) for work in gradients] == [
        LENGTH * 3 * HIDDEN * 2
    ]  # sum over tokens


@pytest.mark.parametrize(("model", "bias"), [("gpt", "mlp.up_bias"), ("neox", "mlp.up_bias")])
def test_the_bias_before_an_activation_is_no_epilogue(model, bias):
    """Megatron-LM and GPT-NeoX build the MLP's first linear with `skip_bias_add=True`: a kernel adds it."""
    after = REWRITES["epilogue_bias"](logical_block(MODELS[model], "gbs=1"))

    assert kind_of(named(after, bias)) == "bias_add"


@pytest.mark.parametrize("bias", ["attention.bias", "mlp.bias"])
def test_the_bias_of_a_row_parallel_linear_is_no_epilogue(bias):
    """GPT-NeoX's `dense` and `dense_4h_to_h` skip it too: ranks hold summands, to which it belongs once."""
    after = REWRITES["epilogue_bias"](logical_block(NEOX, "tp=2"))

    assert kind_of(named(after, bias)) == "bias_add"


def test_rotary_embedding_of_whole_heads_needs_nothing_joined():
    after = REWRITES["unfused_rope"](logical_block(LLAMA, "gbs=1"))

    assert [kind_of(item) for item in after if "rope" in kind_of(item)] == ["unfused_rope"]


def test_only_scaled_rotary_positions_lack_a_fused_kernel_of_transformer_engine():
    plain, scaled = (
        [kind_of(i) for i in REWRITES["unfused_scaled_rope"](logical_block(m, "gbs=1")) if "rope" in i.name]
        for m in (MIXTURE, SCALED)
    )

    assert (plain, scaled) == (["rope"], ["unfused_rope"])


@pytest.mark.parametrize("name", ["unfused_gate", "chunked_gate", "fused_experts"])
def test_a_clamp_stays_with_its_gate_in_whatever_kernel(name):
    kinds = {kind_of(item) for item in REWRITES[name](logical_block(SCALED, "gbs=1"))}

    assert not [kind for kind in kinds if kind.startswith("clamped")]


def test_a_clamp_of_eager_pytorch_stands_before_the_gate_that_it_cuts():
    items = REWRITES["chunked_gate"](logical_block(SCALED, "gbs=1"))

    place = items.index(named(items, "experts.clamp"))
    clamp, gate = items[place : place + 2]
    assert (kind_of(clamp), kind_of(gate), gate.name) == ("clamp_halves", "swiglu", "experts.activation")
    assert gate.inputs == (clamp.output,)


def test_gates_of_experts_may_be_compiled_where_a_dense_one_is_not():
    dense, experts = (
        {kind_of(item) for item in REWRITES["unfused_dense_gate"](logical_block(model, "gbs=1"))}
        for model in (LLAMA, MIXTURE)
    )

    gates = ({kind for kind in kinds if "swiglu" in kind} for kinds in (dense, experts))
    assert list(gates) == [{"unfused_swiglu"}, {"swiglu"}]


def test_a_quarter_of_each_head_is_turned_and_joined_with_the_rest():
    after = REWRITES["unfused_rope"](logical_block(NEOX, "tp=2 mbs=3 gbs=3"))

    turned, joined = (item.work for item in after if "rope" in kind_of(item))
    queries_and_keys = 3 * LENGTH * 2 * HIDDEN / 2
    assert at(turned.elements) == queries_and_keys / 4
    assert (joined.kind, at(joined.elements)) == ("rope_join", queries_and_keys)


def test_the_layout_of_q_k_and_v_is_copied_once_before_the_kernel():
    items = REWRITES["layout_copies"](prepared("layout_copies", "llama", "tp=4 mbs=2 gbs=2"))

    place = items.index(named(items, "attention.flash"))
    copy = items[place - 1]
    assert (copy.name, kind_of(copy)) == ("attention.layout", "copy")
    assert at(copy.work.elements) == 2 * LENGTH * (4 + 2 + 2) * 64  # q, k, v heads of one rank


def test_the_attention_kernel_reads_the_copy():
    items = REWRITES["layout_copies"](prepared("layout_copies", "gpt"))

    assert named(items, "attention.layout").output in named(items, "attention.flash").inputs


def test_the_kernel_s_result_is_copied_out_of_its_layout_once():
    items = REWRITES["layout_copies"](prepared("layout_copies", "llama", "tp=4 mbs=2 gbs=2"))

    (copy,) = [item for item in items if item.inputs == (named(items, "attention.flash").output,)]
    assert (kind_of(copy), at(copy.work.elements)) == ("copy", 2 * LENGTH * 4 * 64)
    assert copy.output in named(items, "attention.out").inputs


def test_what_ranks_gather_and_scatter_along_the_sequence_is_copied_once():
    """`torch.cat(torch.chunk(...))` of all_gather_tensor and reduce_scatter_tensor, dimension 1."""
    items = prepared("gathered_copies", "llama", "tp=4 mbs=2 gbs=2")

    found = REWRITES["gathered_copies"](items)

    added = [item for item in found if item not in items]
    messages = [item for item in items if item.stream == "tp"]
    assert [item.name for item in added] == [f"{message.name}.chunks" for message in messages]
    for copy, message in zip(added, messages, strict=True):
        assert kind_of(copy) == "copy"
        assert at(copy.work.elements) * 2 == at(message.work.message_bytes)
        assert (found.index(copy) > found.index(message)) == message.name.endswith("enter")
    alone = prepared("compiled_graph", "llama")
    assert REWRITES["gathered_copies"](alone) == alone


def test_a_stack_s_attention_kernel_comes_before_its_other_rewrites():
    flash = stack_with(MEGATRON, attention_kernel="flash", rewrites=("layout_copies", "bias_gelu"))

    assert rewrite_names(flash) == ("flash_attention", "layout_copies", "bias_gelu")
    assert rewrite_names(MEGATRON) == MEGATRON.rewrites


def rewritten(programs):
    """The accounts of rewrites, without those of the passes that every stack has."""
    return [account for account in programs.accounting if account.rewrite in REWRITES]


def test_every_pass_accounts_for_what_it_changes():
    narrow = "tp=4 sp pp=2 mbs=1 gbs=8 recompute=full precision=fp8_current schedule=zb_h1"
    programs = realised(LLAMA, stack_with(MEGATRON, synchronise_each_layer=True), narrow)
    changed = {account.rewrite for account in programs.accounting}

    assert {"quantise", "backward", "checkpoint", "split"} <= changed
    for account in programs.accounting:
        kept = set(account.taken) & set(account.put)
        assert not kept, account.rewrite
        if account.rewrite not in ("flash_attention", "backward"):
            assert account.keeps_flop, account.rewrite


def test_a_stack_without_rewrites_runs_the_logical_items():
    programs = realised(GPT, BARE, "tp=2")

    assert rewritten(programs) == []
    assert shown(block_of(programs).forward) == shown(logical_block(GPT, "tp=2"))


def test_the_accounts_of_flash_attention_show_half_of_the_two_square_products():
    flash = stack_with(BARE, attention_kernel="flash")

    (account,) = rewritten(realised(GPT, flash, "mbs=2 gbs=2"))

    assert (account.rewrite, account.layer) == ("flash_attention", "block")
    assert at(account.before_flop) == 2 * 4 * LENGTH**2 * HIDDEN
    assert at(account.after_flop) == at(account.before_flop) / 2
    assert at(account.after_bytes) < at(account.before_bytes)


def test_the_accounts_of_a_fusion_count_what_was_replaced_and_nothing_else():
    (account,) = rewritten(realised(GPT, stack_with(BARE, rewrites=("bias_gelu",)), "gbs=1"))

    wide_bytes = LENGTH * 4 * HIDDEN * 2
    assert (at(account.before_flop), at(account.after_flop)) == (0.0, 0.0)
    assert at(account.before_bytes) == 4 * wide_bytes  # each kernel reads and writes once
    assert at(account.after_bytes) == 2 * wide_bytes


def test_a_rewrite_that_changes_nothing_is_not_accounted_for():
    unfitting = stack_with(BARE, rewrites=("unfused_rmsnorm", "layout_copies"))

    assert rewritten(realised(GPT, unfitting, "gbs=1")) == []


def test_a_rewrite_that_loses_a_matmul_is_told_by_name_as_a_bug_of_ours(monkeypatch):
    monkeypatch.setitem(
        REWRITES, "careless", lambda items: tuple(i for i in items if not i.name.endswith(".out"))
    )

    with pytest.raises(InternalError, match=r"'careless' changed the FLOP of a block"):
        realised(GPT, stack_with(BARE, rewrites=("careless",)), "gbs=1")


def test_a_stack_that_names_an_unknown_rewrite_is_refused_with_the_names_that_exist():
    misspelt = stack_with(BARE, rewrites=("bias_gleu",))

    with pytest.raises(FlopcastError, match=r"bias_gleu[\s\S]*bias_gelu"):
        realised(GPT, misspelt, "gbs=1")


@EACH_REWRITE
def test_every_kind_that_a_rewrite_makes_has_passes(name):
    kinds = {
        item.work.kind
        for model in MODELS
        for item in REWRITES[name](prepared(name, model))
        if isinstance(item.work, MemoryBound)
    }

    assert kinds <= KINDS.keys()


@all_cases("model", RUNS)
def test_every_fusion_that_a_published_run_s_log_prints_takes_effect(model):
    job = RUNS[model]
    printed = {"bias_gelu", "fused_softmax", "flash_attention"}.intersection(rewrite_names(job.stack))

    programs = realise(lower(job.model, one_plan(job.plan), job.batch), job.stack)

    assert printed
    assert printed <= {account.rewrite for account in programs.accounting}


def test_rewrites_see_all_plans_of_a_batch_at_once():
    flash = stack_with(MEGATRON, attention_kernel="flash")
    texts = ("tp=2 mbs=2 gbs=2", "tp=8 mbs=1 gbs=1")

    together = block_of(realised(LLAMA, flash, *texts)).forward

    for plan, text in enumerate(texts):
        alone = block_of(realised(LLAMA, flash, text)).forward
        assert moved_bytes_of(together, plan) == pytest.approx(moved_bytes_of(alone), rel=1e-12)


def test_softmax_over_more_keys_than_a_kernel_takes_keeps_four_bytes_of_each_score():
    model = next(iter(ARCHITECTURES.values()))
    for length, kinds in ((MOST_FUSED_KEYS, {"softmax"}), (MOST_FUSED_KEYS + 8, {"wide_softmax"})):
        items = REWRITES["wide_long_softmax"](logical_block(model, "mbs=1 gbs=1", length))
        found = [item for item in items if "softmax" in kind_of(item)]

        assert {kind_of(item) for item in found} == kinds
        kept = sum(at(saved.size_bytes) for saved in found[0].work.saves())
        assert kept == at(found[0].work.elements) * (2 if kinds == {"softmax"} else 4)
