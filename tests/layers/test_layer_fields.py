"""What a user may write of a layer, what it means when left out, and what is refused."""

import json

import pytest
from all_cases import all_cases
from conftest import make_job
from layer_examples import BLOCKS, HIDDEN, LAYERS, llama, operators, split
from pydantic import ValidationError

from flopcast.errors import SpecError
from flopcast.layers.adapters import Adapted
from flopcast.layers.attention import Attention
from flopcast.layers.base import AbstractLayer
from flopcast.layers.block import Block
from flopcast.layers.embedding import Embedding
from flopcast.layers.head import Head
from flopcast.layers.mlp import Mlp
from flopcast.layers.tower import SeenBlock, TowerBlock
from flopcast.workload.checks import check


def job_with(hidden=1024, **mixer):
    block = {"count": 8, "mixer": {"heads": 16} | mixer, "feed_forward": {"ffn_hidden": 4096}}
    return make_job(model={"hidden": hidden, "vocabulary": 50257, "blocks": [block]})


def faults_of(**fields):
    """What is told of a model whose blocks have such a mixer, by the place of the fault."""
    with pytest.raises(SpecError) as caught:
        job_with(**fields)
    return {problem.field: problem for problem in caught.value.problems}


def kinds(items):
    return [item.work.kind for item in operators(items) if hasattr(item.work, "kind")]


def leaves(kind):
    """Subclasses of a class that the package does not subclass further; the others are interfaces."""
    below = [one for one in kind.__subclasses__() if one.__module__.startswith("flopcast.")]
    return [leaf for one in below for leaf in leaves(one)] if below else [kind]


def test_every_layer_class_has_an_example():
    assert {type(layer) for layer in LAYERS.values()} == {Block, *leaves(AbstractLayer)}


@all_cases("name", LAYERS)
def test_a_layer_written_as_json_is_read_back_equal(name):
    layer = LAYERS[name]

    again = type(layer).model_validate(json.loads(layer.model_dump_json()))

    assert again == layer
    assert hash(again) == hash(layer)


@all_cases("name", LAYERS)
def test_a_field_that_no_layer_knows_is_refused(name):
    fields = LAYERS[name].model_dump() | {"reach": 4096}

    with pytest.raises(ValueError, match="reach"):
        type(LAYERS[name]).model_validate(fields)


@all_cases("name", LAYERS)
def test_a_layer_cannot_be_changed(name):
    with pytest.raises(ValueError, match="frozen"):
        LAYERS[name].kind = "other"


def test_each_class_of_layer_says_its_kind_but_an_adapted_one_that_of_what_it_adapts():
    plain = [layer for layer in LAYERS.values() if not isinstance(layer, Adapted)]
    adapted = [layer for layer in LAYERS.values() if isinstance(layer, Adapted)]

    kinds = {type(layer): {other.kind for other in plain if type(other) is type(layer)} for layer in plain}

    assert all(len(words) == 1 for words in kinds.values())
    assert kinds.pop(TowerBlock) == kinds.pop(SeenBlock) == kinds[Block]  # a tower's blocks are blocks too
    assert len({word for words in kinds.values() for word in words}) == len(kinds)
    assert all(layer.kind == layer.inner.kind for layer in adapted)


@all_cases(
    ("layer", "field", "value"),
    [
        (Attention, "heads", 0),
        (Attention, "kv_heads", 0),
        (Attention, "head_size", -1),
        (Attention, "rotary_fraction", 1.5),
        (Attention, "rotary_fraction", -0.1),
        (Attention, "dropout", 1.0),
        (Attention, "dropout", -0.1),
        (Attention, "qk_norm", "layernorm"),
        (Embedding, "norm", "batchnorm"),
        (Block, "norm_placement", "between"),
        (Mlp, "ffn_hidden", 0),
        (Mlp, "activation", "tanh"),
        (Embedding, "vocabulary", 0),
        (Embedding, "vocabulary_multiple", 0),
        (Embedding, "learned_positions", -1),
        (Head, "vocabulary", 0),
        (Block, "norm", "batchnorm"),
        (Block, "residual", "post_norm"),
        (Block, "count", 0),
        (Block, "dropout", 1.0),
    ],
)
def test_an_impossible_value_is_refused_by_name(layer, field, value):
    required = {
        Attention: {"heads": 8},
        Mlp: {"ffn_hidden": 256},
        Block: {"mixer": {"heads": 8}, "feed_forward": {"ffn_hidden": 256}},
    }.get(layer, {"vocabulary": 1000})

    with pytest.raises(ValidationError) as caught:
        layer.model_validate(required | {field: value})

    assert [error["loc"] for error in caught.value.errors()] == [(field,)]
    assert caught.value.errors()[0]["input"] == value


def test_the_smallest_layers_that_there_can_be_are_possible():
    one = {"vocabulary": 1, "vocabulary_multiple": 1}
    mixer, mlp = Attention(heads=1, kv_heads=1, head_size=1), Mlp(ffn_hidden=1)

    layers = (Block(mixer=mixer, feed_forward=mlp, count=1), Embedding(**one), Head(**one))

    assert [sum(w.total for w in layer.weights(1, split())) for layer in layers] == [4 + 2 + 2 * 2, 1, 1]


def test_left_out_fields_describe_the_plainest_layer():
    mixer, mlp = Attention(heads=8), Mlp(ffn_hidden=256)
    block = Block(mixer=mixer, feed_forward=mlp)

    assert (mixer.causal, mixer.dropout, mixer.qkv_bias, mixer.out_bias) == (True, 0, False, False)
    assert (mlp.activation, mlp.bias) == ("gelu", False)
    assert (block.norm, block.norm_bias, block.residual, block.dropout) == (
        "layernorm",
        True,
        "sequential",
        0,
    )
    assert block.count == 1


def test_heads_that_are_not_a_number_are_told_with_their_place_and_what_would_pass():
    problem = faults_of(heads=0)["model.blocks[0].mixer.heads"]

    assert (problem.value, problem.allowed) == (0, "a whole number of at least 1")
    assert "heads" in problem.fix


def test_a_misspelt_field_is_told_with_the_field_that_was_meant():
    problem = faults_of(rotary_fractoin=0.25)["model.blocks[0].mixer.rotary_fractoin"]

    assert "rotary_fraction" in problem.allowed
    assert problem.fix == "did you mean rotary_fraction?"


def test_one_wrong_field_of_a_block_is_one_fault():
    """A block that could not be read is not missing: the list of blocks is not empty."""
    assert set(faults_of(heads=0)) == {"model.blocks[0].mixer.heads"}


def test_a_possible_model_is_not_refused():
    assert check(job_with(hidden=1024, kv_heads=4)) == ()


def test_a_hidden_width_that_heads_do_not_divide_is_refused():
    """16 heads cannot share 1000 elements: without a head_size the layer would drop 8 of them."""
    problem = faults_of(hidden=1000)["model.hidden"]

    assert problem.value == 1000
    assert "16" in problem.allowed


@pytest.mark.parametrize("kv_heads", [5, 32])
def test_key_value_heads_that_do_not_divide_the_heads_are_refused(kv_heads):
    """Each key/value head serves the same number of query heads: arXiv:2305.13245, section 2.2."""
    problem = faults_of(kv_heads=kv_heads)["model.blocks[0].mixer.kv_heads"]

    assert problem.value == kv_heads
    assert "16" in problem.allowed


def test_left_out_key_value_heads_and_head_size_are_those_of_multi_head_attention():
    mixer = Attention(heads=16)

    assert (mixer.groups, mixer.size(1024)) == (16, 64)


def test_a_head_size_of_its_own_frees_the_inner_width_from_the_hidden_width():
    mixer = Attention(heads=16, head_size=256)

    qkv, out = mixer.weights(3072, split())

    assert (qkv.total, out.total) == (3072 * 3 * 16 * 256, 16 * 256 * 3072)


@pytest.mark.parametrize("causal", [True, False])
def test_only_causal_attention_fills_a_mask(causal):
    items = Attention(heads=8, causal=causal).forward(HIDDEN, split(1, 32))

    assert ("mask_fill" in kinds(items)) is causal


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_only_a_layer_with_dropout_drops(dropout):
    items = Attention(heads=8, dropout=dropout).forward(HIDDEN, split(1, 32))

    assert ("dropout" in kinds(items)) is bool(dropout)


@pytest.mark.parametrize(("fraction", "turned"), [(0.0, None), (0.25, 0.25), (1.0, 1.0)])
def test_rotary_positions_turn_their_fraction_of_queries_and_keys(fraction, turned):
    mixer = Attention(heads=8, kv_heads=2, rotary_fraction=fraction)
    items = {item.name: item.work for item in mixer.forward(HIDDEN, split(2, 32))}
    queries_and_keys = 2 * 32 * (8 + 2) * (HIDDEN // 8)

    rope = items.get("attention.rope")

    assert (rope and rope.elements.item()) == (turned and turned * queries_and_keys)


@pytest.mark.parametrize("bias", [True, False])
def test_a_projection_with_a_bias_has_one_more_vector_and_one_more_kernel(bias):
    mixer, mlp = Attention(heads=8, qkv_bias=bias), Mlp(ffn_hidden=256, bias=bias)

    for layer in (mixer, mlp):
        biases = [weight.name for weight in layer.weights(HIDDEN, split()) if "bias" in weight.name]
        assert len(biases) == kinds(layer.forward(HIDDEN, split(1, 32))).count("bias_add") == bias


@pytest.mark.parametrize("residual", ["sequential", "parallel", "parallel_shared_norm"])
def test_biases_after_a_sum_are_the_blocks(residual):
    mixer, mlp = Attention(heads=8, out_bias=True), Mlp(ffn_hidden=256, bias=True)
    block = Block(mixer=mixer, feed_forward=mlp, residual=residual)

    own = {weight.name for weight in block.weights(HIDDEN, split())}
    parts = {weight.name for layer in (mixer, mlp) for weight in layer.weights(HIDDEN, split())}

    assert {name for name in own - parts if "norm" not in name} == {"attention.out_bias", "mlp.down_bias"}


@all_cases("activation", ["gelu", "silu", "relu", "swiglu", "geglu"])
def test_an_activation_works_on_the_inner_width_gated_or_not(activation):
    items = Mlp(ffn_hidden=256, activation=activation).forward(HIDDEN, split(1, 32, 4))

    (work,) = [item.work for item in items if item.name == "mlp.activation"]

    assert (work.kind, work.elements.item()) == (activation, 32 * 256 / 4)


@all_cases("name", BLOCKS)
def test_norms_reduce_rows_of_the_hidden_width_and_softmax_rows_of_keys(name):
    items = {item.name: item.work for item in BLOCKS[name].forward(HIDDEN, split(2, 32, 4))}

    norms = [name for name in items if name.split(".")[-1] in ("norm", "norm_after")]
    assert {items[norm].width.item() for norm in norms} == {HIDDEN}
    assert items["attention.softmax"].width.item() == 32


def test_the_number_of_equal_blocks_changes_nothing_inside_a_block():
    one, many = (llama(8, 2, 160, count=count) for count in (1, 80))

    assert [w.total for w in one.weights(HIDDEN, split())] == [
        w.total for w in many.weights(HIDDEN, split())
    ]
    assert len(one.forward(HIDDEN, split())) == len(many.forward(HIDDEN, split()))


@all_cases("name", LAYERS)
def test_only_a_head_and_further_predictions_may_reuse_a_tensor_of_another_layer(name):
    tied = {weight.name for weight in LAYERS[name].weights(HIDDEN, split()) if weight.tied}

    assert tied == {"tied_head": {"head.table"}, "mtp": {"mtp.table"}}.get(name, set())


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_items_carry_the_precision_of_the_split(dtype):
    items = operators(BLOCKS["gpt"].forward(HIDDEN, split(dtype=dtype)))

    assert {item.work.dtype for item in items} == {dtype}


def test_tokens_of_a_split_are_those_of_all_its_sequences():
    whole = split([1, 4], [2048, 512], [2, 8])

    assert whole.tokens.tolist() == whole.own_tokens.tolist() == [[2048], [2048]]
    assert whole.element_bytes == 2


def test_tokens_outside_tensor_parallel_regions_are_divided_by_sequence_parallelism():
    assert split([1, 4], [2048, 512], [2, 8], sequence_parallel=True).own_tokens.tolist() == [[1024], [256]]
