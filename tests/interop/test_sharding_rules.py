"""Rules of tensor parallelism from lists of parameters, against slices and a sharded forward pass."""

import json
from math import prod

import numpy as np
import pytest

from flopcast.dtypes import constant
from flopcast.errors import SpecError
from flopcast.interop.sharding.parameter_list import read_parameters
from flopcast.interop.sharding.rules import parameters_per_rank, sharding_rules
from flopcast.layers.base import Split
from flopcast.library import catalog


def llama(hidden, width, layers, vocabulary):
    shapes = {"model.embed_tokens.weight": (vocabulary, hidden)}
    for layer in range(layers):
        at = f"model.layers.{layer}"
        shapes |= {f"{at}.self_attn.{name}_proj.weight": (hidden, hidden) for name in "qkvo"}
        shapes |= {f"{at}.mlp.{name}_proj.weight": (width, hidden) for name in ("gate", "up")}
        shapes |= {f"{at}.mlp.down_proj.weight": (hidden, width)}
        shapes |= {f"{at}.{name}_layernorm.weight": (hidden,) for name in ("input", "post_attention")}
    return shapes | {"model.norm.weight": (hidden,), "lm_head.weight": (vocabulary, hidden)}


def gpt_j():
    shapes = {"transformer.wte.weight": (50400, 4096)}
    for layer in range(28):
        at = f"transformer.h.{layer}"
        shapes |= {f"{at}.ln_1.{name}": (4096,) for name in ("weight", "bias")}
        shapes |= {f"{at}.attn.{name}_proj.weight": (4096, 4096) for name in ("k", "v", "q", "out")}
        shapes |= {f"{at}.mlp.fc_in.weight": (16384, 4096), f"{at}.mlp.fc_in.bias": (16384,)}
        shapes |= {f"{at}.mlp.fc_out.weight": (4096, 16384), f"{at}.mlp.fc_out.bias": (4096,)}
    shapes |= {f"transformer.ln_f.{name}": (4096,) for name in ("weight", "bias")}
    return shapes | {"lm_head.weight": (50400, 4096), "lm_head.bias": (50400,)}


def opt_66b():
    hidden, shapes = 9216, {}
    shapes["model.decoder.embed_tokens.weight"] = (50272, hidden)
    shapes["model.decoder.embed_positions.weight"] = (2050, hidden)
    shapes |= {f"model.decoder.final_layer_norm.{name}": (hidden,) for name in ("weight", "bias")}
    for layer in range(64):
        at = f"model.decoder.layers.{layer}"
        for name in ("k", "v", "q", "out"):
            shapes[f"{at}.self_attn.{name}_proj.weight"] = (hidden, hidden)
            shapes[f"{at}.self_attn.{name}_proj.bias"] = (hidden,)
        for norm in ("self_attn_layer_norm", "final_layer_norm"):
            shapes |= {f"{at}.{norm}.{name}": (hidden,) for name in ("weight", "bias")}
        shapes |= {f"{at}.fc1.weight": (4 * hidden, hidden), f"{at}.fc1.bias": (4 * hidden,)}
        shapes |= {f"{at}.fc2.weight": (hidden, 4 * hidden), f"{at}.fc2.bias": (hidden,)}
    return shapes


def t5_11b():
    shapes = {"shared.weight": (32128, 1024)}
    for side, parts in (("encoder", ("SelfAttention",)), ("decoder", ("SelfAttention", "EncDecAttention"))):
        for layer in range(24):
            for place, part in enumerate(parts):
                at = f"{side}.block.{layer}.layer.{place}"
                shapes |= {f"{at}.{part}.{name}.weight": (16384, 1024) for name in "qkv"}
                shapes |= {f"{at}.{part}.o.weight": (1024, 16384), f"{at}.layer_norm.weight": (1024,)}
            at = f"{side}.block.{layer}.layer.{len(parts)}"
            shapes |= {f"{at}.DenseReluDense.wi.weight": (65536, 1024)}
            shapes |= {f"{at}.DenseReluDense.wo.weight": (1024, 65536), f"{at}.layer_norm.weight": (1024,)}
        bias = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        shapes |= {bias: (32, 128), f"{side}.final_layer_norm.weight": (1024,)}
    return shapes


MODELS = {  # names and shapes of the models of transformers, and their entry of the catalogue
    "gpt-j-6b": gpt_j(),
    "llama-7b": llama(4096, 11008, 32, 32000),
    "opt-66b": opt_66b(),
    "t5-11b": t5_11b(),
}


def test_each_list_has_all_parameters_of_its_model():
    for name, shapes in MODELS.items():
        assert sum(map(prod, shapes.values())) == catalog.model(name).parameters(), name


def test_slices_of_all_ranks_are_equal_and_make_up_the_whole_parameter():
    for name, shapes in MODELS.items():
        for ranks in (2, 4, 8):
            rules = {(rule.pattern, rule.shape): rule for rule in sharding_rules(shapes, ranks)}
            for rule in rules.values():
                if rule.dimension is None:
                    assert rule.part(ranks) == rule.shape
                else:
                    ends = np.linspace(0, rule.shape[rule.dimension], ranks + 1)
                    assert set(np.diff(ends)) == {rule.part(ranks)[rule.dimension]}, (name, rule)


def test_a_rank_holds_as_much_as_flopcast_counts_for_it_layer_by_layer():
    """Layers of flopcast replicate learned and relative positions."""
    for name, shapes in MODELS.items():
        model = catalog.model(name)
        for ranks in (2, 4, 8):
            split = Split(
                sequences=constant(1), length=constant(1), tensor=constant(ranks),
                sequence_parallel=False, dtype="bf16",
            )  # fmt: skip
            found = parameters_per_rank(sharding_rules(shapes, ranks), ranks)
            counted = sum(
                count * float(weight.elements.item())
                for layer, count in model.model_copy(update={"vocabulary_multiple": 1}).sequence()
                for weight in layer.weights(model.hidden, split)
                if not weight.tied
            )
            divided = 2050 * 9216 * (1 - 1 / ranks) if name == "opt-66b" and 2050 % ranks == 0 else 0
            assert found == pytest.approx(counted - divided, rel=1e-9), (name, ranks)


def test_ranks_that_follow_the_rules_compute_what_one_device_computes():
    """A block of Llama without norms: each rank multiplies its slices, and partial sums are added."""
    hidden, width, ranks, tokens, heads = 32, 48, 4, 5, 8
    shapes = llama(hidden, width, 1, 64)
    rules = {rule.pattern.replace("*", "0"): rule.dimension for rule in sharding_rules(shapes, ranks)}
    rng = np.random.default_rng(3)
    weights = {name: rng.normal(size=shape) for name, shape in shapes.items() if len(shape) == 2}
    x = rng.normal(size=(tokens, hidden))

    def block(of_rank, x, heads):
        at = "model.layers.0"
        q, k, v = (x @ of_rank[f"{at}.self_attn.{name}_proj.weight"].T for name in "qkv")
        q, k, v = (each.reshape(tokens, heads, -1).swapaxes(0, 1) for each in (q, k, v))
        scores = np.exp(q @ k.swapaxes(1, 2))
        context = ((scores / scores.sum(-1, keepdims=True)) @ v).swapaxes(0, 1).reshape(tokens, -1)
        attended = context @ of_rank[f"{at}.self_attn.o_proj.weight"].T
        inner = (x @ of_rank[f"{at}.mlp.gate_proj.weight"].T) * (x @ of_rank[f"{at}.mlp.up_proj.weight"].T)
        return attended + inner @ of_rank[f"{at}.mlp.down_proj.weight"].T

    def slices(rank):
        return {
            name: value if rules[name] is None else np.split(value, ranks, axis=rules[name])[rank]
            for name, value in weights.items()
        }

    summed = sum(block(slices(rank), x, heads // ranks) for rank in range(ranks))
    assert np.allclose(summed, block(weights, x, heads))


def test_kernels_of_flax_are_divided_along_their_last_dimension():
    shapes = {f"layers/0/attention/{name}/kernel": (64, 64) for name in ("q", "k", "v", "out")}
    shapes |= {"layers/0/attention/q/bias": (64,), "layers/0/attention/out/bias": (64,)}

    found = {rule.pattern.split("/", 3)[3]: rule.dimension for rule in sharding_rules(shapes, 4)}

    assert found == {
        "q/kernel": 1,
        "k/kernel": 1,
        "v/kernel": 1,
        "out/kernel": 0,
        "q/bias": 0,
        "out/bias": None,
    }


def test_what_ranks_do_not_divide_is_replicated_with_its_module():
    shapes = llama(64, 90, 2, 100) | {"positions.weight": (33, 64)}
    rules = {rule.pattern: rule for rule in sharding_rules(shapes, 4)}

    assert [rules[f"model.layers.*.mlp.{name}_proj.weight"].dimension for name in ("up", "down")] == [
        None,
        None,
    ]
    assert rules["model.embed_tokens.weight"].dimension == 0
    assert "4 ranks do not divide 33" in rules["positions.weight"].because


def test_headers_of_safetensors_are_read_and_weights_are_not(tmp_path):
    header = json.dumps({
        "__metadata__": {"format": "pt"},
        "up.weight": {"dtype": "BF16", "shape": [8, 4], "data_offsets": [0, 64]},
    }).encode()  # fmt: skip
    path = tmp_path / "model.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header)

    assert read_parameters(path) == {"up.weight": (8, 4)}


WRONG = {  # file → its data, and what the error says about it
    "empty.json": (b"{}", "is not a list of parameters"),
    "list.json": (b"[1]", "is not a list of parameters"),
    "text.json": (b"no", "is not a JSON file"),
    "job.yaml": (b"model: llama-3-8b", "is not a JSON file"),
    "shape.json": (b'{"a": "b"}', "not allowed"),
    "negative.json": (b'{"a": [-1, 2]}', "not allowed"),
    "truncated.safetensors": (b"\xff\x00\x00\x00\x00\x00\x00\x00{", "is not a safetensors file"),
    "huge.safetensors": (b"\xff" * 16, "cannot be read"),
    "deep.json": (b"[" * 100_000, "is not a JSON file"),
    "missing.json": (None, "cannot be read"),
}


def test_files_that_list_no_parameters_are_an_error_that_names_them(tmp_path):
    for name, (data, fault) in WRONG.items():
        path = tmp_path / name
        if data is not None:
            path.write_bytes(data)
        with pytest.raises(SpecError) as error:
            read_parameters(path)
        text = str(error.value)
        assert str(path) in text, name
        assert fault in text, name
    with pytest.raises(SpecError) as error:
        sharding_rules({"norm": (4,)}, 2)
    assert "matrix" in error.value.problems[0].allowed
