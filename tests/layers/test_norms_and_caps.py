"""Norms in other places, caps, slopes, biases of the head: what public dense families add to a block.

Expected values are counted by hand for one rank of two: two sequences of 32 tokens, eight query heads and
four key/value heads of 8 elements, unless a test says otherwise.
"""

import pytest
from all_cases import all_cases
from layer_examples import BLOCKS, HIDDEN, llama, messages, operators, split

from flopcast.layers.attention import Attention
from flopcast.layers.block import Block
from flopcast.layers.embedding import Embedding
from flopcast.layers.head import FinalNorm, Head
from flopcast.layers.mlp import Mlp
from flopcast.spec.model import Model
from flopcast.workload.backward import derive_backward, kept_tensors
from flopcast.workload.rewrites import REWRITES

TENSOR, SEQUENCES, LENGTH, SIZE = 2, 2, 32, 8
TOKENS = SEQUENCES * LENGTH
WIDE_BYTES = 2 * TOKENS * HIDDEN
PAIRS = SEQUENCES * (8 // TENSOR) * LENGTH**2
Q_AND_K = TOKENS * (8 + 4) // TENSOR * SIZE  # elements of queries and keys on the rank


def cut(**changes):
    return split(SEQUENCES, LENGTH, TENSOR, **changes)


def block(mixer=None, **fields):
    attention = Attention(heads=8, kv_heads=4, **(mixer or {}))
    return Block(mixer=attention, feed_forward=Mlp(ffn_hidden=160), norm="rmsnorm", **fields)


def items(layer, **changes):
    return {item.name: item for item in layer.forward(HIDDEN, cut(**changes))}


def names(layer, **changes):
    return list(items(layer, **changes))


def totals(layer):
    return {weight.name: weight.total for weight in layer.weights(HIDDEN, split())}


def added(plain, other):
    """Weights that one layer has and the other has not."""
    return {name: total for name, total in totals(other).items() if name not in totals(plain)}


def kept(layer, recomputed=()):
    return {
        name: size_bytes.item()
        for name, size_bytes in kept_tensors(layer.forward(HIDDEN, cut()), frozenset(recomputed)).items()
    }


@pytest.mark.parametrize(
    ("qk_norm", "scales"),
    [("none", {}), ("per_head", {"q": 8, "k": 8}), ("whole", {"q": 8 * 8, "k": 4 * 8})],
)
def test_norms_of_queries_and_keys_have_a_scale_for_each_element_of_their_rows(qk_norm, scales):
    found = added(block(), block({"qk_norm": qk_norm}))

    assert found == {f"attention.{name}_norm": count for name, count in scales.items()}


def test_a_scale_over_the_whole_width_is_cut_and_one_of_a_head_is_on_every_rank():
    whole, per_head = (
        {w.name: w.elements.item() for w in block({"qk_norm": kind}).weights(HIDDEN, cut())}
        for kind in ("whole", "per_head")
    )

    assert (whole["attention.q_norm"], whole["attention.k_norm"]) == (8 * 8 / 2, 4 * 8 / 2)
    assert (per_head["attention.q_norm"], per_head["attention.k_norm"]) == (8, 8)


def test_repeated_key_heads_have_repeated_scales():
    weights = block({"qk_norm": "whole"}).weights(HIDDEN, split(tensor=8))

    (keys,) = [weight for weight in weights if weight.name == "attention.k_norm"]

    assert 8 * keys.elements.item() == 2 * keys.total  # eight ranks hold four heads twice


@pytest.mark.parametrize(("qk_norm", "width"), [("per_head", 8), ("whole", 8 * 8 / 2)])
def test_queries_and_keys_are_normed_once_before_they_are_turned(qk_norm, width):
    layer = block({"qk_norm": qk_norm})
    norm = items(layer)["attention.qk_norm"]
    order = [name for name in names(layer) if name in ("attention.qkv", norm.name, "attention.rope")]

    assert (norm.work.kind, norm.work.elements.item(), norm.work.width.item()) == (
        "rmsnorm",
        Q_AND_K,
        width,
    )
    assert order == ["attention.qkv", "attention.qk_norm", "attention.rope"]


@pytest.mark.parametrize("qk_norm", ["per_head", "whole"])
def test_a_norm_keeps_queries_and_keys_as_they_were(qk_norm):
    plain, normed = kept(block()), kept(block({"qk_norm": qk_norm}))

    more = {name: size_bytes for name, size_bytes in normed.items() if name not in plain}

    assert more == {"attention.unnormed": 2 * Q_AND_K}
    assert {name: normed[name] for name in plain} == plain


def test_only_norms_over_the_whole_width_send_two_numbers_a_token_in_each_pass():
    """The sums of squares of q and of k forward; of products with their gradients backward; fp32."""
    sums = {}
    for kind in ("none", "per_head", "whole"):
        forward = block({"qk_norm": kind}).forward(HIDDEN, cut())
        backward = derive_backward(forward, frozenset())
        sums[kind] = [
            [
                (i.work.collective, i.work.message_bytes.item())
                for i in messages(part)
                if "qk_norm" in i.name
            ]
            for part in (forward, backward)
        ]

    once = [("all_reduce", TOKENS * 2 * 4)]
    assert sums == {"none": [[], []], "per_head": [[], []], "whole": [once, once]}


NORMS = {
    "before": (["attention.norm", "mlp.norm"], {"norm1.scale", "norm2.scale"}),
    "after": (["attention.norm_after", "mlp.norm_after"], {"norm1.scale", "norm2.scale"}),
    "around": (
        ["attention.norm", "attention.norm_after", "mlp.norm", "mlp.norm_after"],
        {"norm1.scale", "norm2.scale", "norm1_after.scale", "norm2_after.scale"},
    ),
}


@all_cases(("placement", "run", "weights"), [(k, *v) for k, v in NORMS.items()])
def test_norms_stand_where_they_are_placed(placement, run, weights):
    layer = block(norm_placement=placement)

    assert [name for name, item in items(layer).items() if item.component == "norm"] == run
    assert {name for name in totals(layer) if name.startswith("norm")} == weights


def test_a_norm_after_a_half_reads_the_finished_sum_and_feeds_the_residual_sum():
    layer = block({"out_bias": True}, norm_placement="after", dropout=0.1)
    half = [name for name in names(layer) if name.startswith("attention")][-5:]
    found = items(layer)

    assert half == [f"attention.{n}" for n in ("leave", "bias", "norm_after", "drop", "residual")]
    assert (found["attention.norm_after"].inputs, found["attention.norm_after"].output) == (
        ("attention.sum",),
        "attention.normed",
    )
    assert found["attention.residual"].inputs == ("attention.normed", "x")


def test_without_a_norm_before_it_a_half_enters_with_the_residual_stream_itself():
    found = items(block(norm_placement="after"))

    assert (found["attention.enter"].inputs, found["attention.enter"].output) == (
        ("x",),
        "attention.in.full",
    )
    assert found["mlp.enter"].inputs == ("middle",)


@pytest.mark.parametrize(
    ("placement", "norm_inputs"),
    [("before", {"x", "middle"}), ("after", set()), ("around", {"x", "middle"})],
)
def test_every_norm_keeps_its_input_and_a_half_without_one_keeps_the_stream_as_its_own(
    placement, norm_inputs
):
    found = kept(block(norm_placement=placement))
    sums = set() if placement == "before" else {"attention.sum", "mlp.sum"}

    assert {name for name in found if name in ("x", "middle")} == norm_inputs
    assert {name for name in found if name.endswith(".sum")} == sums
    assert {found[name] for name in (*norm_inputs, *sums, "attention.in.full")} == {WIDE_BYTES}


@all_cases("placement", ["after", "around"])
@all_cases("residual", ["parallel", "parallel_shared_norm"])
def test_parallel_halves_have_no_other_norms_than_before(placement, residual):
    with pytest.raises(ValueError, match="write norm_placement='before'"):
        block(norm_placement=placement, residual=residual)


@pytest.mark.parametrize("norm", ["layernorm", "rmsnorm"])
def test_norms_without_a_scale_have_no_weights_and_run_all_the_same(norm):
    bare = llama(8, 4, 160).model_copy(update={"norm": norm, "norm_scale": False})

    assert not [name for name in totals(bare) if name.startswith("norm")]
    assert totals(FinalNorm(norm=norm, norm_scale=False)) == {}
    assert [n for n in names(bare) if n.endswith("norm")] == ["attention.norm", "mlp.norm"]


@pytest.mark.parametrize("option", ["alibi", "softcap"])
def test_slopes_and_caps_are_passes_over_the_scores_without_weights(option):
    plain, changed = block(), block({option: True})

    (new,) = [name for name in names(changed) if name not in names(plain)]

    assert (new, items(changed)[new].work.elements.item()) == (f"attention.{option}", PAIRS)
    assert totals(changed) == totals(plain)
    assert items(changed)[new].group == "core_attention"


def test_a_cap_keeps_what_it_writes_and_a_slope_nothing():
    plain = kept(block())

    more = {
        option: {n: b for n, b in kept(block({option: True})).items() if n not in plain}
        for option in ("alibi", "softcap")
    }

    assert more == {"alibi": {}, "softcap": {"attention.capped": 2 * PAIRS}}


def test_the_gradient_of_a_cap_is_a_kernel_and_that_of_a_slope_is_none():
    backward = {
        option: [
            item.name
            for item in derive_backward(block({option: True}).forward(HIDDEN, cut()), frozenset())
            if option in item.name
        ]
        for option in ("alibi", "softcap")
    }

    assert backward == {"alibi": [], "softcap": ["attention.softcap.dgrad"]}


def test_the_mask_and_softmax_read_what_the_cap_wrote():
    found = items(block({"softcap": True, "alibi": True}))

    assert found["attention.alibi"].output == "attention.scores"
    assert (found["attention.softcap"].inputs, found["attention.softcap"].output) == (
        ("attention.scores",),
        "attention.capped",
    )
    assert found["attention.mask"].inputs == found["attention.softmax"].inputs == ("attention.capped",)


@pytest.mark.parametrize("name", ["bloom", "gemma2"])
def test_a_fused_attention_kernel_makes_slopes_and_caps_free(name):
    fused = REWRITES["flash_attention"](BLOCKS[name].forward(HIDDEN, cut()))
    plain = BLOCKS[name].model_copy(
        update={"mixer": BLOCKS[name].mixer.model_copy(update={"alibi": False, "softcap": False})}
    )

    assert [i.name for i in fused] == [
        i.name for i in REWRITES["flash_attention"](plain.forward(HIDDEN, cut()))
    ]


def test_fusing_mask_and_softmax_leaves_slopes_and_caps_alone():
    fused = REWRITES["fused_softmax"](block({"softcap": True, "alibi": True}).forward(HIDDEN, cut()))

    found = [item.name for item in fused if item.group == "core_attention"]

    assert found == [
        f"attention.{name}" for name in ("scores", "alibi", "softcap", "mask+softmax", "context")
    ]


def test_selective_recompute_spares_the_capped_scores():
    assert "attention.capped" not in kept(block({"softcap": True}), ("core_attention",))


def test_a_squared_relu_is_one_kernel_that_keeps_its_input():
    layer = Mlp(ffn_hidden=160, activation="relu2")

    found = items(layer)["mlp.activation"].work

    assert (found.kind, found.elements.item()) == ("relu2", TOKENS * 160 / 2)
    assert layer.up_columns == 160  # not gated
    assert "mlp.up" in kept(layer)


@pytest.mark.parametrize(("norm", "weights"), [("layernorm", 2 * HIDDEN), ("rmsnorm", HIDDEN)])
def test_a_norm_of_the_embedding_adds_its_weights_and_keeps_its_input(norm, weights):
    plain, normed = Embedding(vocabulary=1000), Embedding(vocabulary=1000, norm=norm)

    assert sum(added(plain, normed).values()) == weights
    assert kept(normed) == kept(plain) | {"sum": WIDE_BYTES}
    assert names(normed) == ["embedding.lookup", "embedding.leave", "embedding.norm"]
    assert items(normed)["embedding.norm"].work.width.item() == HIDDEN


def test_positions_are_added_before_the_norm_of_the_embedding_and_dropout_comes_last():
    layer = Embedding(vocabulary=1000, learned_positions=32, norm="layernorm", dropout=0.1)

    found = {name: (item.inputs, item.output) for name, item in items(layer).items()}

    assert list(found)[2:] == ["embedding.positions", "embedding.norm", "embedding.drop"]
    assert [found[name] for name in list(found)[2:]] == [(("sum",), "sum"), (("sum",), "y"), (("y",), "y")]


def test_a_bias_of_the_head_is_a_number_for_each_token_cut_and_padded_with_the_table():
    """1000 tokens on two ranks: 2 · 512 = 1024 rows."""
    layer = Head(vocabulary=1000, vocabulary_multiple=128, tied=True, bias=True)
    (bias,) = [weight for weight in layer.weights(HIDDEN, cut()) if "bias" in weight.name]

    assert (bias.total, bias.elements.item(), bias.tied) == (1000, 512, False)
    assert items(layer)["head.bias"].work.elements.item() == TOKENS * 512


def test_capped_logits_are_kept_once_more():
    plain, capped = (kept(Head(vocabulary=1000, softcap=softcap)) for softcap in (False, True))

    assert plain == {"x.full": WIDE_BYTES}
    assert capped == plain | {"logits": 2 * TOKENS * 512}


def test_bias_and_cap_follow_the_product_and_precede_the_loss():
    layer = Head(vocabulary=1000, bias=True, softcap=True)

    run = [item.name for item in operators(layer.forward(HIDDEN, cut()))]

    assert run == [f"head.{name}" for name in ("logits", "bias", "softcap", "cast", "loss")]


def model(**fields):
    """Two layers of width 64 and 1000 tokens, of layer norms."""
    layer = Block(mixer=Attention(heads=8), feed_forward=Mlp(ffn_hidden=256), count=2)
    return Model(hidden=HIDDEN, vocabulary=1000, blocks=(layer,), **fields)


@all_cases(
    ("fields", "parameters"),
    [
        ({"context_length": 4096}, 0),
        ({"learned_positions": 32}, 32 * HIDDEN),
        ({"learned_positions": 32, "position_offset": 2}, 34 * HIDDEN),
        ({"embedding_norm": True}, 2 * HIDDEN),
        ({"head_bias": True}, 1000),
        ({"head_bias": True, "tied_embeddings": True}, 1000 - 1000 * HIDDEN),
        ({"logit_softcap": True}, 0),
    ],
)
def test_a_field_of_a_model_adds_its_parameters(fields, parameters):
    assert model(**fields).parameters() - model().parameters() == parameters


def test_unused_rows_need_a_table():
    with pytest.raises(ValueError, match="learned_positions above 0, if position_offset is 2"):
        model(position_offset=2)


def test_a_final_norm_has_no_scale_where_the_last_norms_have_none():
    blocks = tuple(
        Block(mixer=Attention(heads=8), feed_forward=Mlp(ffn_hidden=256), norm_scale=scale)
        for scale in (True, False)
    )

    made = Model(hidden=HIDDEN, vocabulary=1000, blocks=blocks)

    (final,) = [layer for layer, _ in made.sequence() if layer.kind == "final_norm"]
    assert totals(final) == {}
