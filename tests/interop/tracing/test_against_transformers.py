"""Our layers against the models' own code: parameters, FLOP, and the bytes that autograd keeps.

The code ran weightlessly, its operators were counted by a table of ours (interop/tracing/products.py).
Windows are left aside: eager code computes the whole square.
"""

import pytest
from all_cases import all_cases
from oracle_cases import NAMES, blocks, flop_of, oracle, programs

KEPT_TOLERANCE = 0.003  # no numbers of a row are counted: statistics of norms, places of rows
CHAINS_OF_THEIR_OWN = {  # families that keep what no stack of ours keeps, and why
    "cohere": "layer norms and rotary positions are chains in fp32",
    "llama4_text": "every token is repeated for every expert",
    "gpt_oss": "sinks are joined to the scores as a column, gates are clamped and scaled in seven passes",
}


def extra_bytes(case, attention):
    """Of one layer, what a family keeps beside the chains that are rewrites, as its code says.

    OLMo norms an fp32 copy of its input. GPT-J and GPT-Neo multiply queries and keys in fp32; GPT-J looks
    its rotary angles up in every layer, and a layer of GPT-Neo holds on to a mask of all positions, a byte
    each. Where one projection makes queries, keys and values, and rotary positions write new queries and
    keys, the values are a view that holds on to all three.
    """
    tokens, mixer = case.sequences * case.length, case.model.blocks[0].mixer
    inner = mixer.heads * mixer.size(case.model.hidden)
    extra = {
        ("olmo", attention): 2 * 2 * case.model.hidden * tokens,
        ("gptj", "eager"): (2 * 2 * inner + 4 * case.config.get("rotary_dim", 64)) * tokens,
        ("gpt_neo", "eager"): 2 * 2 * inner * tokens + case.config["max_position_embeddings"] ** 2
        if case.family == "gpt_neo"
        else 0,
        ("gpt_neox", "fused"): 2 * 2 * inner * tokens,
        ("phi3", "fused"): 2 * (inner + mixer.groups * mixer.size(case.model.hidden)) * tokens,
    }
    fast_gelu = 6 * 2 * tokens * case.config["intermediate_size"] if _has_fast_gelu(case) else 0
    return extra.get((case.family, attention), 0) + fast_gelu


def _has_fast_gelu(case):
    """Whether the activation is "gelu_fast", a chain that keeps six tensors beside its input."""
    return case.config.get("hidden_act") == "gelu_fast"


@all_cases("name", NAMES)
def test_parameters_are_those_of_the_model_s_own_code(name):
    case = oracle(name)

    assert case.model.parameters() == case.total("parameters")


@all_cases("name", NAMES)
def test_every_layer_holds_the_parameters_of_its_code(name):
    ours = sorted((sum(weight.total for weight in layer.weights), count) for layer, count in blocks(name))

    theirs = {}
    for run in oracle(name).runs():
        theirs[run["parameters"]] = theirs.get(run["parameters"], 0) + run["layers"]
    merged = {}
    for elements, count in ours:  # kinds that differ in their windows alone hold as much
        merged[elements] = merged.get(elements, 0) + count
    assert merged == theirs


@all_cases("name", NAMES)
def test_model_flop_are_those_that_the_code_multiplies(name):
    case = oracle(name)

    ours = case.sequences * case.model.forward_flop(case.length, windows=False)

    assert ours == pytest.approx(case.total("forward_flop"), rel=1e-9)
    assert 2 * ours == pytest.approx(case.total("backward_flop"), rel=1e-9)


@all_cases("name", NAMES)
def test_items_of_the_forward_and_of_the_derived_backward_multiply_what_the_code_does(name):
    layers = blocks(name)

    forward = sum(count * flop_of(layer.forward) for layer, count in layers)
    backward = sum(count * flop_of(layer.backward) for layer, count in layers)

    runs = oracle(name).runs()
    assert forward == pytest.approx(sum(run["layers"] * run["forward_flop"] for run in runs), rel=1e-9)
    assert backward == pytest.approx(sum(run["layers"] * run["backward_flop"] for run in runs), rel=1e-9)


@all_cases(("name", "attention"), [(n, attention) for n in NAMES for attention in oracle(n).told["traces"]])
def test_a_stack_of_eager_kernels_keeps_what_autograd_keeps(name, attention):
    case = oracle(name)
    if case.family in CHAINS_OF_THEIR_OWN:
        pytest.skip(CHAINS_OF_THEIR_OWN[case.family])

    ours = sum(count * layer.kept_bytes.item() for layer, count in blocks(name, attention))

    extra = extra_bytes(case, attention) * case.model.num_blocks
    theirs = sum(run["layers"] * run["kept_bytes"] for run in case.runs(attention))
    assert ours + extra == pytest.approx(theirs, rel=KEPT_TOLERANCE)


def test_the_oracle_knows_the_families_that_people_train():
    families = {oracle(name).family for name in NAMES}

    assert families >= {
        "gpt2",
        "gpt_neox",
        "gptj",
        "llama",
        "mistral",
        "mixtral",
        "qwen2",
        "qwen2_moe",
        "qwen3",
    }
    assert families >= {
        "qwen3_moe",
        "gemma",
        "gemma2",
        "gemma3_text",
        "phi",
        "phi3",
        "falcon",
        "bloom",
        "opt",
    }
    assert families >= {"starcoder2", "olmo", "olmo2", "nemotron", "gpt_oss", "llama4_text"}
    assert len(NAMES) >= 30
    assert all(programs(name, "eager").layers for name in NAMES)
