"""Sparse attention of engines: an indexer scores cached tokens, and attention reads those with the best
scores.

Answers: which kernels choose the tokens of a pass, and how many tokens does the core of attention read?
Elsewhere: the indexer (layers/sparse_index.py), the core (cached_latents.py).

For prompts, the indexer computes scores, but no product with values. The scores therefore have half of the
FLOP of attention with the same heads. They are computed in 8 bits, so they take a quarter of the time of
attention in 16 bits. A decoding query reads the keys of all tokens before it once. The selection writes the
scores in fp32 and reads them twice; if a query has fewer tokens before it than the indexer selects, there
is no selection.
"""

import numpy as np

from flopcast.dtypes import Counts, Flags, constant
from flopcast.layers.sparse_index import SparseIndex
from flopcast.operators.flash_attention import FlashAttention
from flopcast.operators.item import Item, kernel
from flopcast.operators.memory_bound import MemoryBound
from flopcast.serving.engine_pass import EnginePass
from flopcast.serving.seen import Seen

ATTENTION_RATIO = 4.0  # attention with a context product in 16 bits, over scores alone in 8


def read_keys(index: SparseIndex | None, cached: Counts, sequences: Counts) -> Counts:
    """Return the number of tokens that decoding sequences read.

    With an indexer, these are the chosen tokens.
    """
    return cached if index is None else np.minimum(cached, sequences * index.top_k)


def is_sparse(index: SparseIndex, run: EnginePass) -> Flags:
    """Return whether queries of prompts have, on average, more earlier tokens than the indexer chooses."""
    return run.prompt_pairs > run.prompt_tokens * index.top_k


def chosen_tokens(index: SparseIndex, seen: Seen) -> list[Item]:
    """Return the kernels that score tokens and choose among them, for prompts and decoding sequences."""
    run, dtype = seen.run, seen.split.dtype
    queries = run.prompt_tokens
    scores = FlashAttention(
        batch=constant(index.heads / ATTENTION_RATIO),
        kv_batch=constant(1.0),
        queries=queries,
        keys=2.0 * run.prompt_pairs / np.maximum(queries, 1.0),
        head_size=constant(index.size),
        causal=True,
        dtype=dtype,
    )
    pairs = np.where(is_sparse(index, run), run.prompt_pairs, 0.0)
    scored = run.cached_tokens * run.computed_tokens
    read = MemoryBound(
        kind="index_keys", elements=run.cached_tokens * index.cached_bytes / 2.0, dtype=dtype
    )
    return [
        kernel("attention.index_prompt", scores, ("attention.index_q",), component="prompt_attention"),
        _choice("attention.choose_prompt", pairs, "prompt_attention", dtype),
        kernel("attention.index_decode", read, ("attention.index_q",), component="decode_attention"),
        _choice("attention.choose_decode", scored, "decode_attention", dtype),
    ]


def _choice(name: str, pairs: Counts, component: str, dtype: str) -> Item:
    work = MemoryBound(kind="index_choice", elements=pairs, dtype=dtype)
    return kernel(name, work, ("attention.index_q",), component=component)
