"""What a block keeps, against the formulas of arXiv:2205.05198 (Korthikanti et al.), tables 2 and 3.

Notation of the paper: s tokens of a sequence, b sequences of a micro-batch, h hidden width, a heads,
t tensor-parallel degree. Its block is GPT-3's: biases, dropout, 16-bit activations, materialised
attention, one-byte dropout masks.
"""

import numpy as np
import pytest
from all_cases import all_cases
from hypothesis import given, settings
from hypothesis import strategies as st
from layer_examples import BLOCKS, HIDDEN, gpt, llama, split

from flopcast.layers.embedding import Embedding
from flopcast.layers.head import FinalNorm, Head
from flopcast.workload.backward import WHOLE_LAYER, kept_tensors, total_bytes
from flopcast.workload.rewrites import REWRITES

PAPER = {"22B": (64, 6144), "175B": (96, 12288), "530B": (128, 20480), "1T": (160, 25600)}  # a, h
LENGTH, TENSOR = 2048, 8
CORE = ("core_attention",)


def kept(layer, hidden, cut, recomputed=()):
    return total_bytes(kept_tensors(layer.forward(hidden, cut), frozenset(recomputed))).item()


def units(layer, hidden, cut, recomputed=()):
    """Kept bytes in units of s·b·h."""
    return kept(layer, hidden, cut, recomputed) / (cut.tokens.item() * hidden)


@pytest.mark.parametrize(("model", "spared"), [("175B", 0.70), ("530B", 0.65)])
def test_selective_recompute_spares_the_shares_that_section_5_prints(model, spared):
    a, h = PAPER[model]
    cut = split(1, LENGTH, TENSOR, sequence_parallel=True)

    share = 1 - kept(gpt(a, h), h, cut, CORE) / kept(gpt(a, h), h, cut)

    assert share == pytest.approx(spared, abs=0.005)


def test_full_recompute_keeps_nothing_but_the_input_which_is_the_neighbours():
    assert kept(gpt(96, 12288), 12288, split(), (WHOLE_LAYER,)) == 0


def test_shards_are_kept_in_place_of_what_is_gathered_from_them():
    """Section 4.2.2: the extra all-gather of the backward pass buys the t-th part of its input."""
    h, t = HIDDEN, 4
    forward = gpt(8, h).forward(h, split(1, 32, t, sequence_parallel=True))

    found = kept_tensors(forward, frozenset())

    assert not {"attention.in.full", "mlp.in.full"} & set(found)
    assert found["attention.in"].item() == found["mlp.in"].item() == 2 * 32 * h / t


@pytest.mark.parametrize(
    ("residual", "factor"),
    [
        ("parallel", 32),  # both norms read one tensor: 34 - 2
        ("parallel_shared_norm", 30),  # and both halves one norm's output: 34 - 2 - 2
    ],
)
def test_parallel_blocks_keep_shared_tensors_once(residual, factor):
    a, h, s = 96, 12288, LENGTH

    found = units(gpt(a, h, residual=residual), h, split(1, s))

    assert found == pytest.approx(factor + 5 * a * s / h)


def test_without_dropout_there_is_no_mask_and_one_square_tensor():
    """Softmax output and context's input are then one tensor: 34 - 2 and 5 - 1 - 2."""
    a, h, s = 96, 12288, LENGTH

    assert units(gpt(a, h, dropout=0.0), h, split(1, s)) == pytest.approx(32 + 2 * a * s / h)


def test_a_llama_block_without_scores_keeps_norm_inputs_projections_and_a_gated_mlp():
    """By hand, Llama-2 7B, in units of s·b·h: x, in, q, k, v, joined, middle, in: 8 · 2; f = ffn / h:
    gate, value and their product, 3 · 2 f."""
    h, ffn, a, s = 4096, 11008, 32, 4096

    found = units(llama(a, a, ffn), h, split(1, s), CORE)

    assert found == pytest.approx(16 + 6 * ffn / h)


@all_cases(
    "rewrite", ["fused_softmax", "bias_gelu", "bias_dropout_add", "epilogue_bias", "fused_layernorm"]
)
def test_megatrons_fusions_change_kernels_but_not_what_is_kept(rewrite):
    forward = gpt(96, 12288).forward(12288, split())

    fused = REWRITES[rewrite](forward)

    assert fused != forward
    before, after = (total_bytes(kept_tensors(items, frozenset())).item() for items in (forward, fused))
    assert after == before


@all_cases("name", [name for name, block in BLOCKS.items() if block.residual == "sequential"])
@all_cases("tensor", [2, 4, 8])
def test_sequence_parallel_ranks_keep_together_what_one_rank_keeps_alone(name, tensor):
    whole = kept_tensors(BLOCKS[name].forward(HIDDEN, split(2, 64)), frozenset())
    shared = kept_tensors(
        BLOCKS[name].forward(HIDDEN, split(2, 64, tensor, sequence_parallel=True)), frozenset()
    )
    own = {"attention.k", "attention.v", "attention.unnormed"}  # of key/value heads
    repeated = own if tensor > BLOCKS[name].mixer.groups else set()
    gathered = {"x": "attention.in.full", "middle": "mlp.in.full"}  # where no norm stands before

    for tensor_name, size_bytes in shared.items():
        places = (tensor_name, f"{tensor_name}.full", gathered.get(tensor_name))
        alone = next(whole[place] for place in places if place in whole)
        if tensor_name not in repeated:
            assert tensor * size_bytes.item() == pytest.approx(alone.item()), tensor_name


@given(b=st.integers(1, 8), doublings=st.integers(5, 12), name=st.sampled_from(sorted(BLOCKS)))
@settings(max_examples=60, deadline=None)
def test_kept_bytes_are_proportional_to_the_sequences_of_a_micro_batch(b, doublings, name):
    one, many = (kept(BLOCKS[name], HIDDEN, split(n, 2**doublings)) for n in (1, b))

    assert many == b * one


@all_cases("name", BLOCKS)
def test_recomputing_never_keeps_more(name):
    everything, selective = (kept(BLOCKS[name], HIDDEN, split(2, 64), mode) for mode in ((), CORE))

    assert selective < everything


@pytest.mark.parametrize(("t", "sequence_parallel"), [(1, False), (8, True)])
def test_the_ends_of_a_model_keep_what_section_4_3_says(t, sequence_parallel):
    """Dropout mask of the embedding s·b·h / t; final norm and projection 2·s·b·h / t each; the ids,
    eight bytes a token, and the fp32 logits, which depend on the stack, are apart."""
    h, s, b, cut = 12288, LENGTH, 4, split(4, LENGTH, t, sequence_parallel)
    embedding = kept_tensors(Embedding(vocabulary=51200, dropout=0.1).forward(h, cut), frozenset())

    assert embedding["embedding.drop.mask"].item() == s * b * h / t
    assert embedding["embedding.lookup.ids"].item() == 8 * s * b
    assert kept(FinalNorm(), h, cut) == 2 * s * b * h / t
    assert kept(Head(vocabulary=51200), h, cut) == 2 * s * b * h / t


def test_a_batch_of_plans_keeps_what_its_members_keep():
    together = kept_tensors(
        gpt(8, HIDDEN).forward(HIDDEN, split([1, 2, 8], [32, 64, 16], [1, 4, 8])), frozenset()
    )

    for plan, (b, s, t) in enumerate([(1, 32, 1), (2, 64, 4), (8, 16, 8)]):
        alone = kept_tensors(gpt(8, HIDDEN).forward(HIDDEN, split(b, s, t)), frozenset())
        for name, size_bytes in together.items():
            assert np.broadcast_to(size_bytes, (3, 1))[plan].item() == alone[name].item(), name
