"""The items of one block, written down by hand: order, kernels, sizes, tensors, lines of the breakdown.

The block has everything that a block may have; its key/value heads are fewer than its query heads, so
that no count passes for another. One rank of two, two sequences of 32 tokens:
"""

import pytest
from all_cases import all_cases
from layer_examples import HIDDEN, operators, split

from flopcast.layers.attention import Attention
from flopcast.layers.block import Block
from flopcast.layers.mlp import Mlp

TENSOR, SEQUENCES, LENGTH = 2, 2, 32
TOKENS = SEQUENCES * LENGTH
SIZE = HIDDEN // 8
HEADS, KV_HEADS = 8 // TENSOR, 4 // TENSOR  # of the rank
QKV = TOKENS * (HEADS + 2 * KV_HEADS) * SIZE
PAIRS = SEQUENCES * HEADS * LENGTH * LENGTH
WIDE = TOKENS * HIDDEN
INNER = 160 // TENSOR
BLOCK = Block(
    mixer=Attention(heads=8, kv_heads=4, qkv_bias=True, out_bias=True, rotary_fraction=0.25, dropout=0.1),
    feed_forward=Mlp(ffn_hidden=160, activation="swiglu", bias=True),
    dropout=0.1,
)
HALF_END = [  # a half, after its sum over ranks
    ("bias", "bias_add", WIDE),
    ("drop", "dropout", WIDE),
    ("residual", "residual_add", WIDE),
]
FORWARD = [  # name, kernel, elements that a memory-bound kernel works on
    ("attention.norm", "layernorm", WIDE),
    ("attention.enter", "", None),
    ("attention.qkv", "gemm.forward", None),
    ("attention.qkv_bias", "bias_add", QKV),
    ("attention.split_heads", "split_heads", QKV),
    ("attention.rope", "rope", TOKENS * (HEADS + KV_HEADS) * SIZE / 4),
    ("attention.scores", "batched_gemm.scores", None),
    ("attention.mask", "mask_fill", PAIRS),
    ("attention.softmax", "softmax", PAIRS),
    ("attention.dropout", "dropout", PAIRS),
    ("attention.context", "batched_gemm.context", None),
    ("attention.join_heads", "copy", TOKENS * HEADS * SIZE),
    ("attention.out", "gemm.forward", None),
    ("attention.leave", "all_reduce", None),
    *[(f"attention.{name}", kernel, elements) for name, kernel, elements in HALF_END],
    ("mlp.norm", "layernorm", WIDE),
    ("mlp.enter", "", None),
    ("mlp.up", "gemm.forward", None),
    ("mlp.up_bias", "bias_add", TOKENS * 2 * INNER),
    ("mlp.activation", "swiglu", TOKENS * INNER),
    ("mlp.down", "gemm.forward", None),
    ("mlp.leave", "all_reduce", None),
    *[(f"mlp.{name}", kernel, elements) for name, kernel, elements in HALF_END],
]
PRODUCTS = {  # rows, columns, length of the sum
    "attention.qkv": (TOKENS, (HEADS + 2 * KV_HEADS) * SIZE, HIDDEN),
    "attention.out": (TOKENS, HIDDEN, HEADS * SIZE),
    "mlp.up": (TOKENS, 2 * INNER, HIDDEN),
    "mlp.down": (TOKENS, HIDDEN, INNER),
}
READS_AND_WRITES = {
    "attention.norm": (("x",), "attention.in"),
    "attention.qkv": (("attention.in.full",), "attention.qkv"),
    "attention.qkv_bias": (("attention.qkv",), "attention.qkv"),
    "attention.split_heads": (("attention.qkv",), "attention.q"),
    "attention.rope": (("attention.q",), "attention.q"),
    "attention.scores": (("attention.q", "attention.k"), "attention.scores"),
    "attention.mask": (("attention.scores",), "attention.scores"),
    "attention.softmax": (("attention.scores",), "attention.weights"),
    "attention.dropout": (("attention.weights",), "attention.dropped"),
    "attention.context": (("attention.dropped", "attention.v"), "attention.context"),
    "attention.join_heads": (("attention.context",), "attention.joined"),
    "attention.out": (("attention.joined",), "attention.partial"),
    "attention.bias": (("attention.sum",), "attention.sum"),
    "attention.drop": (("attention.sum",), "attention.sum"),
    "attention.residual": (("attention.sum", "x"), "middle"),
    "mlp.norm": (("middle",), "mlp.in"),
    "mlp.up": (("mlp.in.full",), "mlp.up"),
    "mlp.up_bias": (("mlp.up",), "mlp.up"),
    "mlp.activation": (("mlp.up",), "mlp.inner"),
    "mlp.down": (("mlp.inner",), "mlp.partial"),
    "mlp.bias": (("mlp.sum",), "mlp.sum"),
    "mlp.drop": (("mlp.sum",), "mlp.sum"),
    "mlp.residual": (("mlp.sum", "middle"), "y"),
}
COMPONENTS = {  # lines of the breakdown
    "norm": {"attention.norm", "mlp.norm"},
    "residual": {f"{part}.{name}" for part in ("attention", "mlp") for name, _, _ in HALF_END},
    "tp_communication": {f"{part}.{way}" for part in ("attention", "mlp") for way in ("enter", "leave")},
}


def items(block=BLOCK, **cut):
    return block.forward(HIDDEN, split(SEQUENCES, LENGTH, TENSOR, **cut))


def kernel_of(item):
    return item.work.kernel if hasattr(item.work, "kernel") else item.work.collective


def names(block, **cut):
    return [item.name for item in items(block, **cut)]


def changed(part, **fields):
    return BLOCK.model_copy(update={part: getattr(BLOCK, part).model_copy(update=fields)})


def test_a_block_runs_these_kernels_in_this_order():
    assert [(item.name, kernel_of(item)) for item in items()] == [row[:2] for row in FORWARD]


def test_memory_bound_kernels_work_on_these_elements():
    expected = {name: elements for name, _, elements in FORWARD if elements is not None}

    found = {item.name: item.work.elements.item() for item in items() if hasattr(item.work, "elements")}

    assert found == expected


def test_dense_products_have_these_shapes():
    found = {item.name: item.work for item in items() if item.name in PRODUCTS}

    assert {name: (w.m.item(), w.n.item(), w.k.item()) for name, w in found.items()} == PRODUCTS


@pytest.mark.parametrize("name", ["attention.scores", "attention.context"])
def test_products_of_attention_run_once_per_sequence_and_query_head(name):
    (work,) = [item.work for item in items() if item.name == name]

    assert (work.batch.item(), work.kv_batch.item()) == (SEQUENCES * HEADS, SEQUENCES * KV_HEADS)
    assert (work.queries.item(), work.keys.item(), work.head_size.item()) == (LENGTH, LENGTH, SIZE)


def test_kernels_read_and_write_these_tensors():
    found = {item.name: (item.inputs, item.output) for item in operators(items())}

    assert found == READS_AND_WRITES


def test_seconds_go_to_these_lines_of_the_breakdown():
    expected = {name: line for line, members in COMPONENTS.items() for name in members}

    found = {item.name: item.component for item in items()}

    assert found == {name: expected.get(name, name.partition(".")[0]) for name in found}


def test_sequence_parallelism_changes_messages_and_no_kernel():
    found = {item.name: kernel_of(item) for item in items(sequence_parallel=True)}
    messages = {name: found[name] for name in COMPONENTS["tp_communication"]}

    assert list(found) == [name for name, _, _ in FORWARD]
    assert {name for name, _ in found.items() - messages.items()} == set(READS_AND_WRITES)
    assert set(messages.values()) == {"all_gather", "reduce_scatter"}


@all_cases(
    ("part", "field", "value", "gone"),
    [
        ("mixer", "qkv_bias", False, {"attention.qkv_bias"}),
        ("mixer", "out_bias", False, {"attention.bias"}),
        ("mixer", "rotary_fraction", 0.0, {"attention.rope"}),
        ("mixer", "causal", False, {"attention.mask"}),
        ("mixer", "dropout", 0.0, {"attention.dropout"}),
        ("feed_forward", "bias", False, {"mlp.up_bias", "mlp.bias"}),
    ],
)
def test_each_option_adds_its_own_kernels_and_no_other(part, field, value, gone):
    without = names(changed(part, **{field: value}))

    assert without == [name for name, _, _ in FORWARD if name not in gone]


def test_dropout_of_a_block_is_that_of_its_residual_sums():
    without = names(BLOCK.model_copy(update={"dropout": 0.0}))

    assert without == [name for name, _, _ in FORWARD if name not in ("attention.drop", "mlp.drop")]


@all_cases("residual", ["parallel", "parallel_shared_norm"])
@all_cases(("part", "gone"), [("mixer", "attention.bias"), ("feed_forward", "mlp.bias")])
def test_each_half_of_a_parallel_block_has_its_own_bias(residual, part, gone):
    block = BLOCK.model_copy(update={"residual": residual})
    field = "out_bias" if part == "mixer" else "bias"
    other = {"attention.bias", "mlp.bias"} - {gone}

    without = {part: getattr(block, part).model_copy(update={field: False})}
    found = set(names(block.model_copy(update=without)))

    assert gone not in found
    assert other <= found


def test_a_parallel_block_runs_both_halves_on_one_input_and_sums_once():
    block = BLOCK.model_copy(update={"residual": "parallel"})
    found = {item.name: (item.inputs, item.output) for item in items(block)}

    assert found["attention.norm"] == (("x",), "attention.in")
    assert found["mlp.norm"] == (("x",), "mlp.in")
    assert found["attention.enter"] == (("attention.in",), "attention.in.full")
    assert found["mlp.enter"] == (("mlp.in",), "mlp.in.full")
    assert found["join"] == (("mlp.partial", "attention.partial"), "partial")
    assert found["leave"] == (("partial",), "sum")
    assert found["residual"] == (("sum", "x"), "y")


def test_halves_with_a_shared_norm_read_one_gathered_tensor():
    block = BLOCK.model_copy(update={"residual": "parallel_shared_norm"})

    readers = [item.name for item in items(block) if "attention.in.full" in item.inputs]

    assert readers == ["attention.qkv", "mlp.up"]
    assert not {"mlp.norm", "mlp.enter"} & set(names(block))


def test_only_an_activation_that_gates_reads_twice_its_width():
    up = {
        activation: next(i.work.n.item() for i in items(changed("feed_forward", activation=activation))
                         if i.name == "mlp.up")
        for activation in ("gelu", "silu", "relu", "swiglu", "geglu")
    }  # fmt: skip

    assert up == {"gelu": INNER, "silu": INNER, "relu": INNER, "swiglu": 2 * INNER, "geglu": 2 * INNER}
