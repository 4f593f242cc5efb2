"""Latent attention against a slow NumPy reading of arXiv:2405.04434, section 2.1 and appendix C.

Elsewhere: published sizes of whole models (tests/io), the kernel (tests/operators/test_flash_attention.py).
"""

import numpy as np
import pytest
from all_cases import all_cases
from hypothesis import given, settings
from hypothesis import strategies as st
from layer_examples import HIDDEN, LATENT, flop, messages, operators, split

from flopcast.layers.block import Block
from flopcast.layers.latent_attention import LatentAttention
from flopcast.layers.mlp import Mlp
from flopcast.operators.flash_attention import FlashAttention
from flopcast.workload.backward import derive_backward, kept_tensors
from flopcast.workload.rewrites import REWRITES

V3 = {  # arXiv:2412.19437, section 4.2
    "heads": 128,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_size": 128,
    "qk_rope_head_size": 64,
    "value_head_size": 128,
}
SMALL = LATENT["latent"].mixer
TOKENS, TENSOR = 2 * 32, 4


def mixers(**fields):
    return LatentAttention(**V3 | fields)


def account(mixer, hidden, tokens, ranks, sequence_parallel):
    """FLOP and weights of one rank, written out: every product is made of real arrays."""
    counts = {"flop": 0, "weights": 0}
    own = tokens // ranks if sequence_parallel else tokens
    heads, size = mixer.heads // ranks, mixer.qk_nope_head_size + mixer.qk_rope_head_size

    def linear(x, columns):
        counts["weights"] += x.shape[1] * columns
        counts["flop"] += 2 * x.shape[0] * x.shape[1] * columns
        return np.zeros((x.shape[0], columns))

    def norm(x):
        counts["weights"] += x.shape[1]
        return x

    def gathered(x):
        return np.zeros((tokens, x.shape[1]))

    x = np.zeros((own, hidden))
    if mixer.q_lora_rank:
        q = linear(gathered(norm(linear(x, mixer.q_lora_rank))), heads * size)
    else:
        q = linear(gathered(x), heads * size)
    latents = mixer.latent_groups * mixer.kv_lora_rank
    compressed = linear(x, latents + mixer.qk_rope_head_size)
    latent = gathered(norm(compressed[:, :latents]))
    up = linear(latent[:, : mixer.kv_lora_rank], heads * (mixer.qk_nope_head_size + mixer.value_head_size))
    assert q.shape == (tokens, heads * size)
    assert up.shape[0] == tokens
    linear(np.zeros((tokens, heads * mixer.value_head_size)), hidden)
    return counts


def products(items):
    return [item for item in items if getattr(item.work, "kernel", "").startswith("gemm")]


def names(items):
    return {item.name for item in items}


@all_cases("sequence_parallel", [False, True])
@all_cases("ranks", [1, 2, 4, 8])
@all_cases("name", LATENT)
def test_a_rank_multiplies_and_holds_what_the_papers_equations_written_out_do(
    name, ranks, sequence_parallel
):
    mixer, cut = LATENT[name].mixer, split(2, 32, ranks, sequence_parallel)

    counted = account(mixer, HIDDEN, TOKENS, ranks, sequence_parallel)

    assert flop(products(mixer.forward(HIDDEN, cut))).item() == counted["flop"]
    assert sum(w.elements.item() for w in mixer.weights(HIDDEN, cut)) == counted["weights"]


def test_a_layer_of_deepseek_v3_has_the_attention_parameters_of_its_checkpoint():
    """Shapes of q_a_proj, q_b_proj, kv_a_proj_with_mqa, kv_b_proj, o_proj and of two norms."""
    shapes = (7168, 1536), (1536, 24576), (7168, 576), (512, 32768), (16384, 7168), (1536, 1), (512, 1)

    total = sum(weight.total for weight in mixers().weights(7168, split()))

    assert total == sum(rows * columns for rows, columns in shapes)


def test_without_a_latent_of_queries_they_come_out_of_the_residual_stream_in_one_product():
    lite = mixers(heads=16, q_lora_rank=None)

    found = {weight.name: weight.total for weight in lite.weights(2048, split())}

    assert found["attention.q"] == 2048 * 16 * 192
    assert not {"attention.q_down", "attention.q_norm"} & set(found)


@given(
    per_rank=st.integers(1, 4),
    sizes=st.tuples(st.integers(1, 40), st.integers(1, 20), st.integers(1, 40)),
    latents=st.tuples(st.none() | st.integers(1, 64), st.integers(1, 64)),
    tensor=st.sampled_from([2, 3, 4, 8]),
)
@settings(max_examples=60, deadline=None)
def test_with_sequence_parallelism_the_flop_of_all_ranks_are_those_of_one(per_rank, sizes, latents, tensor):
    nope, rope, value = sizes
    mixer = LatentAttention(
        heads=per_rank * tensor,
        q_lora_rank=latents[0],
        kv_lora_rank=latents[1],
        qk_nope_head_size=nope,
        qk_rope_head_size=rope,
        value_head_size=value,
    )

    alone, part = (flop(mixer.forward(HIDDEN, split(2, 24, t, t > 1))).item() for t in (1, tensor))

    assert tensor * part == pytest.approx(alone, rel=1e-12)


@all_cases("name", LATENT)
def test_without_sequence_parallelism_every_rank_repeats_the_projections_down(name):
    alone, part = (
        {item.name: item.work.work().flop.item() for item in products(items)}
        for items in (LATENT[name].mixer.forward(HIDDEN, split(2, 32, ranks)) for ranks in (1, TENSOR))
    )

    repeated = {item for item in alone if part[item] == alone[item]}
    assert repeated == {item for item in alone if item.endswith("_down")}
    assert all(TENSOR * part[item] == alone[item] for item in set(alone) - repeated)


def test_model_flop_of_a_mixer_are_those_that_its_items_multiply():
    mixer, tokens = mixers(), 256

    items = mixer.forward(7168, split(1, tokens))

    linear = sum(item.work.work().flop.item() for item in products(items))
    assert linear == 2 * tokens * mixer.linear_elements(7168)
    assert flop(items).item() - linear == mixer.pair_flop(7168) * tokens**2


def test_sequence_parallelism_gathers_latents_and_rotated_keys_and_not_the_residual_stream():
    """1536 + 512 + 64 elements a token in place of 7168."""
    items = mixers().forward(7168, split(1, 4096, 8, sequence_parallel=True))

    sent = {item.name: (item.work.collective, item.work.message_bytes.item()) for item in messages(items)}

    row_bytes = 4096 * 2
    assert sent == {
        "attention.enter_q": ("all_gather", 1536 * row_bytes),
        "attention.enter_kv": ("all_gather", 512 * row_bytes),
        "attention.enter_rotated": ("all_gather", 64 * row_bytes),
        "attention.leave": ("reduce_scatter", 7168 * row_bytes),
    }


def test_without_sequence_parallelism_gradients_of_the_latents_are_summed():
    forward = mixers().forward(7168, split(1, 4096, 8))

    backward = messages(derive_backward(forward, frozenset()))

    assert [item.name for item in messages(forward)] == ["attention.leave"]
    summed = {item.work.message_bytes.item() / (4096 * 2) for item in backward}
    assert summed == {1536, 512, 64}
    assert {item.work.collective for item in backward} == {"all_reduce"}


@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_projections_down_and_norms_of_latents_are_whole_on_every_rank(sequence_parallel):
    held = SMALL.weights(HIDDEN, split(tensor=8, sequence_parallel=sequence_parallel))

    whole = {weight.name for weight in held if weight.elements.item() == weight.total}

    assert whole == {f"attention.{which}_{what}" for which in ("q", "kv") for what in ("down", "norm")}


def test_fused_attention_has_wide_queries_and_narrow_values():
    """Two products of 192 and 128 elements, half of each under the causal mask."""
    items = REWRITES["flash_attention"](mixers().forward(7168, split(1, 4096, 8)))

    (work,) = [item.work for item in items if isinstance(item.work, FlashAttention)]

    assert work.kernel == "flash_attention.latent"
    assert work.work().flop.item() == 2 * 16 * 4096**2 * (192 + 128) / 2
    assert (work.batch.item(), work.kv_batch.item()) == (16, 16)


def test_heads_whose_values_are_as_wide_as_their_queries_run_the_usual_kernel():
    mixer = mixers(qk_nope_head_size=64, qk_rope_head_size=64)

    items = REWRITES["flash_attention"](mixer.forward(7168, split()))

    assert "flash_attention" in {getattr(item.work, "kernel", "") for item in items}


def test_a_block_keeps_latents_before_and_after_their_norms_and_heads_once_written_out():
    """By hand, in elements of a token: what is projected up is copied into heads, and not kept."""
    block = Block(mixer=mixers(), feed_forward=Mlp(ffn_hidden=18432, activation="swiglu"), norm="rmsnorm")
    items = REWRITES["flash_attention"](block.forward(7168, split(1, 4096)))

    found = {name: size.item() / (4096 * 2) for name, size in kept_tensors(items, frozenset()).items()}

    attention = {name.removeprefix("attention."): n for name, n in found.items() if "attention" in name}
    assert attention == {
        "in": 7168,
        "q_latent": 1536,
        "q_normed.full": 1536,
        "kv_latent": 512,
        "kv_normed.full": 512,
        "q": 128 * 192,
        "k": 128 * 192,
        "v": 128 * 128,
        "joined": 128 * 128,
        "flash.log_sum": 128 * 4 / 2,
    }


def test_sequence_parallel_ranks_keep_shares_of_the_latents_and_whole_heads():
    tokens = split(1, 64, TENSOR, sequence_parallel=True)

    found = kept_tensors(SMALL.forward(HIDDEN, tokens), frozenset())

    elements = {name.removeprefix("attention."): size.item() / 2 / 64 for name, size in found.items()}
    assert elements["q_normed"] == 24 / TENSOR
    assert elements["kv_normed"] == 16 / TENSOR
    assert elements["q"] == elements["k"] == 12 * 8 / TENSOR


def test_copies_into_another_layout_count_queries_keys_and_values_as_wide_as_they_are():
    items = REWRITES["flash_attention"](mixers().forward(7168, split(1, 64)))

    copies = [item for item in REWRITES["layout_copies"](items) if item.name == "attention.layout"]

    assert [item.work.elements.item() for item in copies] == [64 * 128 * (192 + 192 + 128)]


@pytest.mark.parametrize("residual", ["parallel", "parallel_shared_norm"])
def test_halves_that_share_a_tensor_parallel_region_have_no_latent_attention(residual):
    with pytest.raises(ValueError, match="allowed: sequential, if mixer is of kind latent_attention"):
        Block(mixer=SMALL, feed_forward=Mlp(ffn_hidden=64), residual=residual)


def test_a_mixer_that_names_a_latent_of_keys_and_values_needs_no_kind():
    block = Block(mixer=V3, feed_forward={"ffn_hidden": 64})

    assert block.mixer == mixers()


def test_a_norm_after_the_sum_leaves_the_projections_down_to_read_the_residual_stream():
    block = LATENT["latent"].model_copy(update={"norm_placement": "after"})

    items = block.forward(HIDDEN, split(2, 32))

    readers = {item.name for item in operators(items) if item.inputs[0] == "x"}
    assert {"attention.q_down", "attention.kv_down"} <= readers
    assert "attention.norm" not in names(items)
