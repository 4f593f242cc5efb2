"""Linear attention in an engine, against its recurrence and closed forms of its states."""

import numpy as np
import pytest
from all_cases import all_cases

from flopcast import predict_serving, serving_job
from flopcast.cost.kernels.unscaled import unscaled_times
from flopcast.dtypes import constant
from flopcast.layers.gated_delta_net import GatedDeltaNet
from flopcast.library import catalog
from flopcast.library.curves import load_serving_book
from flopcast.operators.gated_delta import CHUNK, STATE_SPACE_CHUNK, DeltaDecode, GatedDelta
from flopcast.serving.engine_pass import EnginePass
from flopcast.serving.lower import lower_passes
from flopcast.serving.memory import bytes_of_prompts, serving_memory
from flopcast.serving.rewrites.cached_states import prompts_of
from flopcast.spec.deployment import Deployment
from flopcast.spec.engine import Engine

HYBRIDS = ("qwen3.5-397b-a17b", "qwen3-next-80b-a3b")
SIZES = {"heads": 8, "key_heads": 2, "key_size": 16, "value_size": 24}


def core(sequences=1.0, tokens=512.0):
    sizes = {name: constant(size) for name, size in SIZES.items()}
    return GatedDelta(sequences=constant(sequences), tokens=constant(tokens), dtype="bf16", **sizes)


def multiplied(shapes):
    """FLOP of products of matrices (rows, inner) and (inner, columns)."""
    return sum(2 * rows * inner * columns for rows, inner, columns in shapes)


def delta_rule(queries, keys, values, strengths):
    """Results of one head by the recurrence of arXiv:2412.06464, and the FLOP of its products."""
    state, flop, results = np.zeros((keys.shape[1], values.shape[1])), 0, []
    for query, key, value, strength in zip(queries, keys, values, strengths, strict=True):
        change = strength * (value - key @ state)
        state = state + np.outer(key, change)
        results.append(query @ state)
        flop += 3 * 2 * key.size * value.size
    return np.array(results), flop


def chunked(queries, keys, values, strengths, chunk):
    """The same by chunks, whose tokens meet by products (arXiv:2406.06484, section 3), and their FLOP."""
    state, flop, results = np.zeros((keys.shape[1], values.shape[1])), 0, []
    for start in range(0, len(keys), chunk):
        q, k, v, b = (each[start : start + chunk] for each in (queries, keys, values, strengths))
        size, wide, narrow = len(k), k.shape[1], v.shape[1]
        strict = np.tril(b[:, None] * (k @ k.T), -1)
        solved = np.linalg.inv(np.eye(size) + strict) * b  # a triangular solve: no product is counted
        change = solved @ v - (solved @ k) @ state
        results.append(q @ state + np.tril(q @ k.T) @ change)
        state = state + k.T @ change
        inside = [(size, wide, size), (size, size, narrow), (size, size, wide), (size, wide, size)]
        flop += multiplied([*inside, (size, size, narrow)])
        flop += multiplied([(size, wide, narrow), (size, wide, narrow), (wide, size, narrow)])
    return np.concatenate(results), flop


def test_the_flop_of_the_core_are_those_of_a_chunked_delta_rule_that_equals_the_recurrence():
    random, tokens = np.random.default_rng(0), 4 * CHUNK
    keys = random.normal(size=(tokens, 16)) / 4
    arrays = random.normal(size=(tokens, 16)), keys, random.normal(size=(tokens, 24)), random.random(tokens)

    results, flop = chunked(*arrays, CHUNK)

    np.testing.assert_allclose(results, delta_rule(*arrays)[0], rtol=1e-6, atol=1e-8)
    assert core(tokens=tokens).work().flop.item() == SIZES["heads"] * flop


def chunked_states(queries, keys, values, decays, chunk):
    """Results of Mamba-2's heads of one group by chunks (arXiv:2405.21060, section 6), and their FLOP."""
    heads, wide, narrow = len(values), keys.shape[1], values.shape[2]
    states, flop, results = np.zeros((heads, wide, narrow)), 0, []
    for start in range(0, len(keys), chunk):
        q, k = queries[start : start + chunk], keys[start : start + chunk]
        scores, size = q @ k.T, len(k)
        flop += multiplied([(size, wide, size)])  # once for the heads of a group
        outputs = []
        for head in range(heads):
            v, a = values[head, start : start + chunk], np.cumsum(decays[head, start : start + chunk])
            mask = np.tril(np.exp(a[:, None] - a[None, :]))
            outputs.append((scores * mask) @ v + np.exp(a)[:, None] * (q @ states[head]))
            kept = np.exp(a[-1] - a)[:, None] * k
            states[head] = np.exp(a[-1]) * states[head] + kept.T @ v
            flop += multiplied([(size, size, narrow), (size, wide, narrow), (wide, size, narrow)])
        results.append(np.stack(outputs))
    return np.concatenate(results, axis=1), flop


def test_the_flop_of_a_state_space_are_those_of_chunks_that_equal_the_recurrence():
    random, tokens, heads = np.random.default_rng(1), 2 * int(STATE_SPACE_CHUNK), 4
    queries, keys = random.normal(size=(2, tokens, 16))
    values, decays = random.normal(size=(heads, tokens, 24)), -random.random((heads, tokens))
    states, expected = np.zeros((heads, 16, 24)), []
    for token in range(tokens):
        states = np.exp(decays[:, token, None, None]) * states
        states = states + keys[token][:, None] * values[:, token, None, :]
        expected.append(queries[token] @ states)

    results, flop = chunked_states(queries, keys, values, decays, int(STATE_SPACE_CHUNK))
    operator = GatedDelta(
        sequences=constant(1), tokens=constant(tokens), heads=constant(heads), key_heads=constant(1),
        key_size=constant(16), value_size=constant(24), dtype="bf16", rule="additive",
    )  # fmt: skip

    np.testing.assert_allclose(results, np.stack(expected, axis=1), rtol=1e-6, atol=1e-8)
    assert operator.work().flop.item() == flop


def test_hybrids_of_mamba_have_as_many_parameters_and_states_as_published():
    """Nemotron Nano v2 (arXiv:2508.14444): 8.89 and 12.31 billion; 27 and 28 layers of states."""
    published = {"nemotron-nano-9b-v2": (8.89e9, 27), "nemotron-nano-12b-v2": (12.31e9, 28)}
    for name, (parameters, layers) in published.items():
        one = serving_job(name, cluster="dgx-h100", gpus=1, traffic="concurrency=8")
        states = layers * (128 * 128 * 80 * 4 + 3 * (128 * 80 + 2 * 8 * 128) * 2)

        assert one.model.parameters() == pytest.approx(parameters, rel=0.001)
        assert serving_memory(one).state_bytes == states


def test_a_step_of_decoding_moves_two_states_and_one_more_for_each_drafted_token():
    sizes = {name: constant(size) for name, size in SIZES.items()}
    state_bytes = SIZES["heads"] * SIZES["key_size"] * SIZES["value_size"] * 4
    row_bytes = 2 * (2 * SIZES["key_heads"] * SIZES["key_size"] + 2 * SIZES["heads"] * SIZES["value_size"])

    for computed in (1, 4):
        step = DeltaDecode(sequences=constant(3), dtype="bf16", computed_tokens=computed, **sizes)
        moved_bytes = step.work().moved_bytes.item()
        assert moved_bytes == 3 * ((1 + computed) * state_bytes + computed * row_bytes)


def test_a_step_of_mamba_takes_as_long_as_published_on_h200():
    """Pull request 44251 of vLLM: fp32 states of heads of 64 by 128, for several sequences times heads."""
    cluster = catalog.cluster("dgx-h200")
    device, book = cluster.node.device, load_serving_book(cluster)
    curve = book.find(device.name, "state_space_decode", 2e-6, device.relatives).curve
    for heads, measured_us in ((1024, 15.31), (4096, 73.64), (8192, 142.70)):
        step = DeltaDecode(
            sequences=constant(heads / 64), heads=constant(64), key_heads=constant(8),
            key_size=constant(128), value_size=constant(64), dtype="bf16", rule="additive",
        )  # fmt: skip

        found_s = unscaled_times((step,), curve, device).alone_s

        assert found_s.item() * 1e6 == pytest.approx(measured_us, rel=0.2)


@all_cases(("name", "total", "active"), [(HYBRIDS[0], 397e9, 17e9), (HYBRIDS[1], 80e9, 3e9)])
def test_parameters_are_those_in_the_name_of_a_model(name, total, active):
    model = catalog.model(name)
    tables = 2 * model.hidden * model.vocabulary

    assert model.parameters() == pytest.approx(total, rel=0.005)
    assert active * 0.9 < model.active_parameters() - tables < active * 1.2


@all_cases("name", HYBRIDS)
def test_states_are_as_large_after_a_short_prompt_as_after_a_long_one(name):
    model = catalog.model(name)
    mixers = [(block.mixer, block.count) for block in model.blocks]
    states = sum(
        count * (mixer.heads * mixer.key_size * mixer.value_size * 4 + 3 * mixer.channels * 2)
        for mixer, count in mixers
        if isinstance(mixer, GatedDeltaNet)
    )
    ((attention, layers),) = [each for each in mixers if not isinstance(each[0], GatedDeltaNet)]
    token_bytes = 2 * 2 * attention.groups * attention.head_size * layers
    job = serving_job(name, cluster="dgx-b200", plan="tp=2 weights=nvfp4", traffic="concurrency=8")

    memory = serving_memory(job)
    kept = bytes_of_prompts(job, np.array([1, 1001])) * 2  # of two ranks

    assert memory.state_bytes * 2 == states
    assert memory.token_bytes * 2 == token_bytes
    assert kept.sum(axis=0).tolist() == [states + token_bytes, states + 1001 * token_bytes]


def test_sequences_whose_states_have_no_room_wait():
    traffic = "concurrency=2048 requests=4096"
    job = serving_job(HYBRIDS[0], cluster="dgx-b200", plan="tp=4 weights=fp8_block", traffic=traffic)
    memory = serving_memory(job)

    assert memory.most_sequences * memory.state_bytes <= 0.9 / 1.9 * memory.cache_bytes
    assert memory.most_sequences < 1024
    assert predict_serving(job).served.limits.max_sequences == memory.most_sequences


@all_cases(("number", "length"), [(1, 4096), (4, 512), (64, 17)])
def test_whole_prompts_are_found_again_from_the_four_numbers_of_a_pass(number, length):
    tokens, zero = constant(number * length), constant(0)
    run = EnginePass(
        new_tokens=tokens, sequences=zero, cached_tokens=zero, pairs=constant(number * length**2 / 2)
    )

    found = prompts_of(run)

    assert (found.sequences.item(), found.new_tokens.item()) == pytest.approx((number, length))


def test_decoding_takes_as_long_with_a_long_context_as_with_a_short_one_in_these_layers():
    def moved(context):
        many = constant(16)
        run = EnginePass(
            new_tokens=many, sequences=many, cached_tokens=many * context, pairs=many * context
        )
        layers = lower_passes(catalog.model(HYBRIDS[0]), Deployment(), Engine(name="vllm"), run)
        (layer,) = [each for each in layers if each.kind == "block" and each.count == 45]
        return [
            (item.name, item.work.work().moved_bytes.item())
            for item in layer.items
            if item.component == "decode_attention"
        ]

    assert [name for name, _ in moved(100.0)] == ["attention.decode_convolution", "attention.decode"]
    assert moved(100.0) == moved(100_000.0)
