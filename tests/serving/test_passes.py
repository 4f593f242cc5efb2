"""Passes of an engine against closed forms, and against training's items of the same layers."""

import numpy as np
import pytest
from all_cases import all_cases

from flopcast.dtypes import constant
from flopcast.library import catalog
from flopcast.library.curves import load_serving_book
from flopcast.operators.base import AbstractMessage, AbstractOperator
from flopcast.operators.item import kernel
from flopcast.operators.row_sort import RowSort
from flopcast.serving.engine_pass import EnginePass
from flopcast.serving.lower import ServedLayer, lower_passes
from flopcast.serving.pass_prices import price_passes
from flopcast.serving.pass_times import pass_times
from flopcast.spec.deployment import Deployment
from flopcast.spec.engine import Engine
from flopcast.spec.model import WHOLE
from flopcast.spec.site import Site

MODELS = ("llama-3.1-70b", "deepseek-v3", "gpt-oss-120b", "qwen3-235b-a22b", "gemma-3-1b")
CONTEXT = 1500.0
PLAIN, ENGINE = Deployment(), Engine(name="vllm")


def decoding(sequences, context=CONTEXT):
    many = np.asarray(sequences, dtype=np.float64).reshape(-1, 1)
    return EnginePass(new_tokens=many, sequences=many, cached_tokens=many * context, pairs=many * context)


def prompt(tokens):
    tokens = np.asarray(tokens, dtype=np.float64).reshape(-1, 1)
    one = np.zeros_like(tokens)
    return EnginePass(new_tokens=tokens, sequences=one, cached_tokens=one, pairs=tokens**2 / 2)


def items_of(name, run, plan=PLAIN, engine=ENGINE):
    layers = lower_passes(catalog.model(name), plan, engine, run)
    return [(item, layer.count) for layer in layers for item in layer.items]


def total(items, number):
    return sum(
        float(np.broadcast_to(number(item.work.work()), (1, 1))[0, 0]) * count
        for item, count in items
        if isinstance(item.work, AbstractOperator)
    )


def linear_weights(name):
    """The elements that one token is multiplied with, head included: every matrix but the embedding."""
    return sum(
        count * (weight.active if weight.active is not None else weight.total)
        for layer, count in catalog.model(name).sequence()
        for weight in layer.weights(catalog.model(name).hidden, WHOLE)
        if weight.matrix is not None and layer.kind not in {"embedding", "mtp"}
    )


def test_a_prompt_multiplies_every_weight_with_every_token_and_every_pair_once():
    name, tokens = "llama-3.1-70b", 2048.0
    model = catalog.model(name)
    (block,) = model.blocks
    head = model.hidden * model.vocabulary
    pairs = block.mixer.pair_flop(model.hidden) * tokens**2 / 2 * block.count

    flop = total(items_of(name, prompt(tokens)), lambda work: work.flop)

    # the head runs on sequences, of which a pass in the middle of a prompt has none
    assert flop == pytest.approx(2 * (linear_weights(name) - head) * tokens + pairs, rel=1e-6)


def test_decoding_multiplies_the_weights_once_and_reads_each_byte_of_weights_and_cache_at_least_once():
    name, sequences = "llama-3.1-70b", 16.0
    model = catalog.model(name)
    (block,) = model.blocks
    items = items_of(name, decoding(sequences))
    cached = 2 * block.mixer.groups * block.mixer.size(model.hidden) * 2 * block.count * sequences * CONTEXT
    attention = block.mixer.pair_flop(model.hidden) * sequences * CONTEXT * block.count
    padded = 128 - model.vocabulary % 128 if model.vocabulary % 128 else 0

    flop = total(items, lambda work: work.flop)
    moved = total(items, lambda work: work.moved_bytes)

    weights = linear_weights(name) + padded * model.hidden
    assert flop == pytest.approx(2 * weights * sequences + attention, rel=1e-6)
    assert 2 * weights + cached <= moved <= 1.05 * (2 * weights + cached)


def test_absorbed_latents_multiply_as_their_closed_form_says():
    name, sequences = "deepseek-v3", 4.0
    model = catalog.model(name)
    mixer = model.blocks[0].mixer
    rank, rope = mixer.kv_lora_rank, mixer.qk_rope_head_size
    layers = sum(block.count for block in model.blocks)
    one = (
        2
        * sequences
        * mixer.heads
        * (
            mixer.qk_nope_head_size * rank
            + rank * mixer.value_head_size  # absorbed, both sides
            + CONTEXT * (2 * rank + rope)  # scores over latents and rotated keys, context over latents
        )
    )

    core = [
        pair
        for pair in items_of(name, decoding(sequences))
        if pair[0].name in ("attention.absorb", "attention.decode", "attention.values")
    ]

    assert total(core, lambda work: work.flop) == pytest.approx(one * layers, rel=1e-9)


def test_fused_kernels_of_attention_compute_the_same_with_fewer_launches():
    """Of each layer, one product and its cast are missing, or the kernel that writes the cache."""
    run, plan = decoding(4.0), Deployment(weights="fp8_block")
    cluster = catalog.cluster("dgx-b200", 1)
    book = load_serving_book(cluster)
    apart = ENGINE.model_copy(update={"fused_latents": False, "fused_rotation": False})

    def read(name, **fused):
        engine = apart.model_copy(update=fused)
        layers = lower_passes(catalog.model(name), plan, engine, run)
        items = [(item, layer.count) for layer in layers for item in layer.items]
        priced = price_passes(layers, 1, plan, engine, cluster, book, Site())
        return total(items, lambda work: work.flop), priced.launches().item()

    for name, field, fewer in (
        ("deepseek-v3", "fused_latents", 2 * 61),
        ("deepseek-v3", "fused_rotation", 61),
        ("llama-3.1-70b", "fused_latents", 0),
        ("llama-3.1-70b", "fused_rotation", 80),
        ("gpt2", "fused_rotation", 0),  # learned positions
    ):
        (flop, launches), (fused_flop, fused_launches) = read(name), read(name, **{field: True})
        assert fused_flop == pytest.approx(flop, rel=1e-9), (name, field)
        assert launches - fused_launches == fewer, (name, field)
    is_fused = {
        name: catalog.engine(name).fused_latents for name in ("vllm", "vllm-0.11", "vllm-0.8", "sglang-0.4")
    }
    assert list(is_fused.values()) == [True, True, False, False]


def test_the_attention_of_deepseek_v3_takes_as_long_as_the_module_of_vllm_that_joins_its_latents():
    """vLLM 0.24 on one B200, 16 heads in FP8 with block scales and short caches (aiconfigurator)."""
    measured_us = {1: 48.5, 8: 48.0, 64: 55.9}
    cluster, plan = catalog.cluster("dgx-b200", 1), Deployment(tp=8, weights="fp8_block")
    run = decoding([float(sequences) for sequences in measured_us], context=66.0)
    outside = ("attention.norm", "attention.leave", "attention.residual", "attention.prompt")

    def predicted_us(is_fused):
        engine = Engine(name="vllm", fused_latents=is_fused)
        layers = lower_passes(catalog.model("deepseek-v3"), plan, engine, run)
        priced = price_passes(layers, 3, plan, engine, cluster, load_serving_book(cluster), Site())
        own = [
            (item, seconds / 61)
            for item, seconds in priced.seconds()
            if item.name.startswith("attention.") and not item.name.startswith(outside)
        ]
        return 1e6 * sum(seconds for _, seconds in own)

    assert predicted_us(True) == pytest.approx(list(measured_us.values()), rel=0.10)
    assert (predicted_us(False) > 1.12 * np.array(list(measured_us.values()))).all()


@all_cases("name", MODELS[:-1])
def test_ranks_share_the_flop_of_a_pass(name):
    whole = total(items_of(name, decoding(32.0)), lambda work: work.flop)
    shared = [
        total(items_of(name, decoding(32.0), Deployment(tp=8, ep=ep)), lambda work: work.flop)
        for ep in ((1, 8) if "llama" not in name else (1,))
    ]

    for flop in shared:  # routers, latents and padding are repeated on every rank; the fullest rank counts
        assert whole <= 8 * flop * (1 + 1e-9) <= 2.2 * whole


@all_cases("name", MODELS[:-1])
def test_narrow_weights_move_fewer_bytes_and_no_pass_has_messages_alone(name):
    moved = [
        total(items_of(name, decoding(1.0), Deployment(weights=weights)), lambda work: work.moved_bytes)
        for weights in ("bf16", "fp8", "nvfp4")
    ]

    assert moved[0] > 1.5 * moved[1] > 1.5 * moved[2]
    sent = [item for item, _ in items_of(name, decoding(1.0)) if isinstance(item.work, AbstractMessage)]
    assert {item.work.collective for item in sent} == {"served_all_reduce", "all_gather"}


@all_cases("name", MODELS)
def test_interpolated_passes_take_what_priced_ones_take(name):
    cluster = catalog.cluster("dgx-h100", 1)
    plan = Deployment(tp=1 if "gemma" in name else 8, weights="fp8")
    engine, book, site = Engine(name="vllm"), load_serving_book(cluster), Site()

    def price(run):
        layers = lower_passes(catalog.model(name), plan, engine, run)
        return price_passes(layers, len(run.new_tokens), plan, engine, cluster, book, site)

    (times,) = pass_times(lambda run: (price(run),), engine, 8192, 256, 8192)
    random = np.random.default_rng(0)
    sequences = random.integers(1, 257, 60).astype(float)
    prompts = np.where(random.random(60) < 0.5, 0, random.integers(1, 7000, 60)).astype(float)
    cached = sequences * random.integers(16, 8192, 60)
    pairs = cached + prompts * random.integers(16, 4096, 60)
    numbers = prompts + sequences, sequences, cached, pairs
    exact = sum(
        price(
            EnginePass(
                **dict(
                    zip(
                        ("new_tokens", "sequences", "cached_tokens", "pairs"),
                        (column[:, None] for column in numbers),
                        strict=True,
                    )
                )
            )
        )
        .by_component()
        .values()
    )
    host = engine.iteration.host_s + engine.iteration.sequence_s * sequences
    interpolated = times(*numbers)
    errors = np.abs(interpolated / (exact + host) - 1)

    assert np.median(errors) < 0.01
    assert errors.max() < 0.05
    one_by_one = [times(*(float(column[at]) for column in numbers)) for at in range(60)]
    assert one_by_one == pytest.approx(interpolated.tolist(), rel=1e-12)


@all_cases("name", MODELS)
def test_more_to_do_never_takes_less_time(name):
    cluster = catalog.cluster("dgx-h100", 1)
    plan, engine = Deployment(weights="bf16"), Engine(name="vllm")
    book = load_serving_book(cluster)

    def seconds(run):
        layers = lower_passes(catalog.model(name), plan, engine, run)
        priced = price_passes(layers, len(run.new_tokens), plan, engine, cluster, book, Site())
        return sum(priced.by_component().values())

    for run in (decoding([1, 2, 4, 8, 16, 32, 64, 128, 256]), prompt([256, 512, 1024, 2048, 4096, 8192])):
        taken = seconds(run)
        assert (np.diff(taken) >= -1e-3 * taken[:-1]).all()


def test_a_sorted_vocabulary_adds_the_bytes_of_a_radix_sort_and_as_many_kernels_for_any_batch():
    # four digits of eight bits; for each, keys of 4 bytes and pairs of 8 bytes are read and written
    name, sequences = "llama-3.1-8b", np.array([[24.0], [512.0]])
    padded = -(-catalog.model(name).vocabulary // 128) * 128
    sorts, none = (
        [
            item.work
            for item, _ in items_of(name, decoding(sequences), engine=Engine(name="vllm", sampling=how))
            if item.name == "head.sort"
        ]
        for how in ("sorted", "greedy")
    )

    assert none == []
    digits, others, cut = 4 * 2 * (4 + 8), 8 + 4 + 3 * 8 + 2 * 8 + 2 * 4, 16 + 5 + 9 + 16
    moved_bytes = (digits + others + cut) * padded * sequences
    np.testing.assert_allclose(sorts[0].work().moved_bytes, moved_bytes)
    assert sorts[0].in_turn().size == 1


def test_sorted_batches_take_the_times_that_vllm_measured():
    measured_ms = {(64, 131072): 1.074, (128, 131072): 2.318, (512, 131072): 6.150, (1024, 32768): 4.236}
    cluster, plan = catalog.cluster("dgx-h100", 1), Deployment()
    book = load_serving_book(cluster)

    for (rows, columns), expected_ms in measured_ms.items():
        work = RowSort(rows=constant(rows), columns=constant(columns), dtype="fp32")
        item = kernel("head.sort", work, ("logits",), "sorted", component="head")
        layers = (ServedLayer(kind="head", count=1, items=(item,), weights=()),)
        priced = price_passes(layers, 1, plan, Engine(), cluster, book, Site())
        assert 0.6 < priced.by_component()["head"].item() * 1e3 / expected_ms < 1.6, rows


def test_a_pass_with_a_prompt_takes_at_least_its_launches_and_a_long_one_hides_them():
    cluster, plan, launch_s = catalog.cluster("dgx-h100", 1), Deployment(tp=8, weights="fp8"), 1e-4
    book = load_serving_book(cluster)

    def price(run):
        layers = lower_passes(catalog.model("llama-3.1-70b"), plan, Engine(), run)
        return price_passes(layers, len(run.new_tokens), plan, Engine(), cluster, book, Site())

    def times(launch_s):
        cost = {"host_s": 0.0, "prompt_launch_s": launch_s}
        (found,) = pass_times(lambda run: (price(run),), Engine(iteration=cost), 16384, 64, 8192)
        return found

    slow, fast = times(launch_s), times(0.0)
    launches = float(price(prompt([64])).launches()[0])
    decode, short, long = (8.0, 8.0, 8e3, 8e3), (64.0, 0.0, 0.0, 2048.0), (16384.0, 0.0, 0.0, 1e8)

    assert launches > 80 * 8  # kernels of each block
    assert slow(*short) == pytest.approx(launches * launch_s)
    assert (slow(*decode), slow(*long)) == (fast(*decode), fast(*long))
    assert fast(*short) < slow(*short) < fast(*long)
    arrays = [np.array(column) for column in zip(decode, short, long, strict=True)]
    assert slow(*arrays).tolist() == pytest.approx([slow(*each) for each in (decode, short, long)])


def test_a_product_whose_inputs_the_kernel_before_casts_takes_less_by_the_time_of_the_cast():
    cluster, plan = catalog.cluster("dgx-h200", 1), Deployment(weights="fp8")
    model, run = catalog.model("llama-3.1-70b"), prompt(8192.0)
    # 8,192 x 8,192 inputs times 32 columns on H200 in vLLM 0.24: in fp8 with the cast, and in 16 bits
    cast_us = 201.1 - 34.9  # (aiconfigurator)

    def priced(casts):
        engine = Engine(name="one", fused_casts=casts)
        layers = lower_passes(model, plan, engine, run)
        return price_passes(layers, 1, plan, engine, cluster, load_serving_book(cluster), Site())

    apart, fused, other = (priced(casts) for casts in ((), ("fp8",), ("nvfp4",)))
    out_us = [
        next(
            1e6 * found.alone_s.item()
            for item, found in each.prices.items()
            if item.name == "attention.out"
        )
        for each in (apart, fused, other)
    ]
    assert out_us[0] - out_us[1] == pytest.approx(cast_us, rel=0.05)
    assert out_us[2] == out_us[0]
    products = 80 * 4  # of 80 blocks: QKV, out, gate and up together, down; the head keeps 16 bits
    assert apart.launches() - fused.launches() == [products]
