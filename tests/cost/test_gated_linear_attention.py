"""GLA, KDA, Mamba's scan and RWKV: times of kernels; steps of GLA beside FlashAttention-2."""

import json
from pathlib import Path

import numpy as np
import pytest
from all_cases import all_cases
from alone import changed_device, seconds_of

from flopcast import job, predict
from flopcast.dtypes import constant
from flopcast.errors import SpecError
from flopcast.files.yaml_text import Document
from flopcast.interop.hugging_face.config import model_from_config
from flopcast.library import catalog
from flopcast.operators.gated_delta import CHUNK, GatedDelta
from flopcast.records import replace
from flopcast.spec.model import Model

CONFIG = Path(__file__).parents[1] / "interop" / "configs" / "gla-1.3b.json"
# What each kernel of chunk_gla reads and writes (fla/ops/gla/chunk.py). A letter is a tensor: k has a key
# for each token, v a value, h a state for each chunk, s a score for each token of a chunk. Capitals: fp32
FORWARD = {"sums": "k K", "states": "k K v h", "scores": "k k K S", "results": "k K v h S v"}
BACKWARD = {
    "sums": "k K",
    "states": "k K v H",
    "gradients of states": "k K v H",
    "values": "k K S v H v",
    "gradients of scores": "v v S",
    "inside": "k k K S K K",
    "between": "k k K v v H H K K K K K",
    "casts": "K k K k",
}
# Milliseconds of chunk_gla in bf16, by sequences, tokens, heads, and size of a head: forward, both passes
H100 = {  # flagos-ai/FlagGems-vllm, pull request 43
    (1, 8192, 96, 128): (2.491, None),
    (2, 16384, 16, 128): (1.893, None),
    (4, 2048, 16, 128): (0.454, None),
    (4, 4096, 64, 128): (3.312, None),
    (8, 2048, 32, 256): (3.711, None),
    (4, 1024, 8, 512): (0.653, None),
    (1, 4096, 32, 512): (2.441, 11.833),
    (2, 2048, 16, 512): (1.243, 5.97),
}
H200 = {  # tile-ai/TileOPs, pull request 1931, at 1.5 GHz
    (1, 32768, 16, 128): 1.9889,
    (1, 32768, 32, 128): 3.6191,
    (1, 32768, 64, 128): 7.1978,
    (1, 131072, 16, 128): 7.8492,
}


def core(sequences, tokens, heads, size, value_size=None):
    sizes = {"key_size": size, "value_size": value_size or size, "heads": heads, "key_heads": heads}
    sizes |= {"sequences": sequences, "tokens": tokens}
    return GatedDelta(
        dtype="bf16", rule="gated", **{name: constant(value) for name, value in sizes.items()}
    )


def recurrence(queries, keys, values, decays):
    """Results of one head, token by token: the state decays, and the product of key and value is added."""
    state, results = np.zeros((keys.shape[1], values.shape[1])), []
    for query, key, value, decay in zip(queries, keys, values, decays, strict=True):
        state = decay[:, None] * state + np.outer(key, value)
        results.append(query @ state)
    return np.array(results)


def chunked(queries, keys, values, decays, chunk):
    """Results of the recurrence, computed chunk by chunk, and the FLOP of the matrix products."""
    (tokens, wide), narrow = keys.shape, values.shape[1]
    state, results, flop = np.zeros((wide, narrow)), [], 0
    for start in range(0, tokens, chunk):
        q, k, v, a = (each[start : start + chunk] for each in (queries, keys, values, decays))
        product = np.cumprod(a, axis=0)
        scores = np.tril((q * product) @ (k / product).T)
        results.append((q * product) @ state + scores @ v)
        state = product[-1][:, None] * state + (k / product * product[-1]).T @ v
        flop += 2 * len(k) * (2 * wide * narrow + len(k) * (wide + narrow))
    return np.concatenate(results), flop


def test_the_chunks_compute_the_recurrence_with_the_flop_of_the_operator():
    draw = np.random.default_rng(0).uniform
    tokens, wide, narrow = 3 * CHUNK, 16, 24
    inputs = [draw(-1, 1, (tokens, size)) for size in (wide, wide, narrow)]
    inputs.append(draw(0.9, 1, (tokens, wide)))

    results, flop = chunked(*inputs, CHUNK)

    np.testing.assert_allclose(results, recurrence(*inputs), rtol=1e-9)
    assert flop == core(1, tokens, 1, wide, narrow).work().flop.item()


def test_the_kernels_move_what_the_code_reads_and_writes():
    wide, narrow = 256, 512
    elements = {"k": wide, "v": narrow, "h": wide * narrow / CHUNK, "s": CHUNK}
    forward = core(1, 1, 1, wide, narrow)
    for kernels, operator in ((FORWARD, forward), (BACKWARD, forward.gradients()[0][1])):
        words = " ".join(kernels.values()).split()
        moved_bytes = sum(elements[word.lower()] * (4 if word.isupper() else 2) for word in words)

        assert operator.work().moved_bytes.item() == moved_bytes


def test_benchmarks_are_predicted_within_a_fifth():
    """The rate of instructions was chosen from these rows; both passes also run elementwise kernels."""
    locked = changed_device(catalog.cluster("dgx-h200"), clock_hz=1.5e9)
    ratios = [seconds_of(core(*row), locked).item() * 1e3 / ms for row, ms in H200.items()]
    for row, (ms, both_ms) in H100.items():
        operator, cluster = core(*row), catalog.cluster("dgx-h100")
        forward_ms = seconds_of(operator, cluster).item() * 1e3
        ratios.append(forward_ms / ms)
        if both_ms:
            gradient = replace(operator, is_gradient=True)
            ratios.append((forward_ms + seconds_of(gradient, cluster).item() * 1e3) / both_ms)

    assert max(abs(ratio - 1) for ratio in ratios) < 0.2, ratios


def imported(**changes):
    mapping, notes = model_from_config(
        Document("config.json", json.loads(CONFIG.read_text()) | changes, {})
    )
    return Model.model_validate(mapping), notes


def test_the_model_of_the_catalogue_is_the_imported_config():
    model, notes = imported()

    assert not notes
    assert model.blocks == catalog.model("gla-1.3b").blocks


@all_cases(
    ("changes", "field"),
    [
        ({"attn": {"layers": [1], "num_heads": 4}}, "attn"),
        ({"num_kv_heads": 2}, "num_kv_heads"),
        ({"feature_map": "relu"}, "feature_map"),
        ({"use_output_gate": False}, "use_output_gate"),
    ],
)
def test_other_forms_of_gla_are_an_error(changes, field):
    with pytest.raises(SpecError) as error:
        imported(**changes)

    assert {problem.field.partition(".")[0] for problem in error.value.problems} == {field}


def test_convolutions_and_widths_are_those_of_the_config():
    model, _ = imported(use_short_conv=True, expand_k=1.0, intermediate_size=4096)
    (block,) = model.blocks

    assert (block.mixer.convolution, block.mixer.key_size, block.feed_forward.ffn_hidden) == (4, 512, 4096)


def step_s(mixer, tokens):
    """Seconds of a step of the 1.3B model on one H100 with PyTorch's compiler and FlashAttention-2."""
    model = json.loads(catalog.model("gla-1.3b").model_dump_json(exclude_defaults=True))
    model |= {"name": "model", "context_length": tokens, "source": [{"title": "a test"}]}
    model["blocks"][0]["mixer"] = mixer or model["blocks"][0]["mixer"]
    sequences = 16384 // tokens
    plan, stack = f"mbs={sequences} gbs={sequences}", "torch-fsdp2-compiled"
    one = job(model=model, cluster="dgx-h100", gpus=1, plan=plan, seq=tokens, stack=stack)
    return predict(one).step_time_s


def test_gla_trains_as_fast_as_attention_at_2k_and_faster_from_4k():
    """arXiv:2312.06635, abstract: comparable to FlashAttention-2 at 2,048 tokens, faster beyond 4,096.

    The transformer has the same width and MLP, so that its projections have as many parameters. The paper
    does not state the size of its heads.
    """
    for heads in (16, 32):
        speed_up = {tokens: step_s({"heads": heads}, tokens) / step_s(None, tokens) for tokens in LENGTHS}

        assert 0.94 < speed_up[2048] < 1.06
        assert 1.0 < speed_up[4096] < speed_up[8192]


LENGTHS = (2048, 4096, 8192)
KDA_H800 = {  # milliseconds of `chunk_kda` forward: PaddlePaddle/flash-attention, pull request 133, and
    (1, 8192, 96): 3.268,  # fla-org/flash-linear-attention, pull request 915
    (2, 16384, 16): 2.299,
    (4, 4096, 64): 4.002,
}


def test_kda_needs_the_products_of_the_gated_delta_rule_and_takes_longer():
    """One row chose the rate of instructions. Two generations differ by a factor of 1.5."""
    h800 = catalog.cluster("h800")
    for (sequences, tokens, heads), ms in KDA_H800.items():
        kda = replace(core(sequences, tokens, heads, 128), rule="channel")
        plain = replace(kda, rule="delta")
        backward = replace(kda, is_gradient=True)

        assert kda.work().flop == plain.work().flop
        assert seconds_of(kda, h800).item() * 1e3 == pytest.approx(ms, rel=0.3)
        assert 3 < seconds_of(backward, h800).item() / seconds_of(kda, h800).item() < 3.6


def test_the_scan_takes_time_with_its_states_and_lengths():
    scan = replace(core(2, 4096, 8192, 16), rule="selective", key_heads=constant(1), value_size=constant(1))
    h100 = catalog.cluster("dgx-h100")
    one = seconds_of(scan, h100).item()

    assert scan.work().flop.item() == 0
    assert seconds_of(replace(scan, key_size=constant(32)), h100).item() == pytest.approx(2 * one, rel=0.1)
    assert seconds_of(replace(scan, tokens=constant(8192)), h100).item() == pytest.approx(2 * one, rel=0.1)
    assert 3 < seconds_of(replace(scan, is_gradient=True), h100).item() / one < 4
    kept = sum(saved.size_bytes.item() for saved in scan.saves())
    states = 4 * 2 * 16 / 2048  # of a channel, for each token: two numbers after 2,048 tokens
    assert kept == 2 * 4096 * 8192 * (3 * 2 + states)  # inputs, step sizes and gates


def wkv(version):
    return replace(core(8, 4096, 64, 64), rule=f"rwkv{version}")


def test_kernels_take_about_the_times_of_two_benchmarks():
    """The cycles of an instruction are the geometric mean of the first two rows (operators/gated_delta.py).
    Milliseconds of both passes of RWKV-7, and of the forward pass of RWKV-5, on A100's clock."""
    a100 = changed_device(catalog.cluster("dgx-a100"), clock_hz=1.41e9)
    for cluster, ms in ((catalog.cluster("dgx-h100"), 17), (a100, 36)):
        both = (wkv(7), replace(wkv(7), is_gradient=True))
        assert 0.85 < sum(seconds_of(one, cluster).item() for one in both) * 1e3 / ms < 1.15
    for ms in (7.1, 10.14):
        assert 0.55 < seconds_of(wkv(5), a100).item() * 1e3 / ms < 0.95


def test_one_sequence_waits_for_its_additions():
    """Four cycles each (arXiv:2208.11174); RWKV-7 computes two sums over the keys of a token forward."""
    h100 = changed_device(catalog.cluster("dgx-h100"), clock_hz=1e9)
    few = replace(wkv(7), sequences=constant(1), heads=constant(16))
    one = seconds_of(few, h100).item()

    assert one == pytest.approx(4096 * 64 * 2 * 4 / 1e9)
    assert one == seconds_of(replace(few, heads=constant(32)), h100).item()
    assert seconds_of(replace(wkv(7), sequences=constant(16)), h100) > 1.9 * seconds_of(wkv(7), h100)


def test_rwkv_7_keeps_inputs_states_of_every_16th_token_and_products_in_fp32():
    element = 8 * 4096 * 4096
    kept = {version: sum(one.size_bytes.item() for one in wkv(version).saves()) for version in (5, 6, 7)}

    assert kept == {5: 3 * 2 * element, 6: 4 * 2 * element, 7: (6 * 2 + 64 / 16 * 4 + 4) * element}


def test_kda_keeps_decays_of_elements_and_two_products_of_a_chunk():
    tokens, heads, size = 4096, 8, 128
    kda = replace(core(1, tokens, heads, size), rule="channel")

    kept = sum(saved.size_bytes.item() for saved in kda.saves())

    assert kept == tokens * heads * (3 * size + size + 2 * CHUNK) * 2


def test_rules_of_the_mixer_are_errors():
    mixer = {"kind": "gated_delta", "heads": 4, "key_heads": 4, "key_size": 8, "value_size": 8}
    for wrong in (
        {"gate_rank": 8},
        {"out_gate_rank": 8},
        {"convolution": 0},
        {"rule": "channel", "convolution": 0},
        {"rule": "gated", "out_gate_rank": 8},
        {"rule": "gated", "key_heads": 2},
        {"rule": "channel", "key_heads": 2},
    ):
        with pytest.raises(SpecError):
            job(model={"hidden": 32, "vocabulary": 64, "blocks": [{"count": 1, "mixer": mixer | wrong}]})
