"""Operators of serving kernels at the nodes of their tables.

Answers: which operator corresponds to a node of a table, so that times can be interpolated between nodes?
Elsewhere: the tables' coordinates and terms (features.py), the interpolation (between_nodes.py).

Each function takes the name of a kernel and the coordinates of its table, each of shape (rows, 1).
"""

import numpy as np

from flopcast.dtypes import Counts
from flopcast.operators.decode_attention import DecodeAttention
from flopcast.operators.formats import CACHED_FORMATS
from flopcast.operators.fused_experts import FusedExperts
from flopcast.operators.gated_delta import GatedDelta
from flopcast.operators.latent_decode import LatentDecode
from flopcast.operators.memory_bound import MemoryBound
from flopcast.operators.served_matmul import ServedMatmul

Coordinates = tuple[Counts, ...]


def served_matmul(kernel: str, shape: Coordinates) -> ServedMatmul:
    """Return a product with weights in the format that the kernel's name ends with."""
    m, n, k = shape
    return ServedMatmul(m=m, n=n, k=k, dtype="bf16", weights=kernel.partition(".")[2])


def fused_experts(kernel: str, table: Coordinates) -> FusedExperts:
    """Return experts whose weights have one column, at nodes of the table.

    The coordinates are rows of each expert, elements of an expert's weights, experts that are touched, and
    tokens for each row. With one column, bytes of tokens are negligible beside those of weights, as in the
    measured kernels. The elements are those of a gated layer with three matrices.
    """
    rows_each, elements, touched, tokens_a_row = table
    rows = rows_each * touched
    return FusedExperts(
        tokens=tokens_a_row * rows,
        rows=rows,
        hidden=np.ones_like(rows),
        inner=elements / 3.0,  # gated
        touched=touched,
        imbalance=np.ones_like(rows),
        dtype="bf16",
        weights=kernel.partition(".")[2],
    )


def _cache_of(kernel: str) -> str:
    """Return the format of the cache that the kernel's name ends with, "" for that of queries."""
    last = kernel.rpartition(".")[2]
    return last if last in CACHED_FORMATS else ""


def decode_attention(kernel: str, shape: Coordinates) -> DecodeAttention:
    """Return attention with one cached head in each of the sequences and heads of the coordinates.

    The coordinates are keys of a sequence, sequences times cached heads, the size of a head, and the heads
    of queries that share a cached head.
    """
    keys, units, size, sharing = shape
    return DecodeAttention(
        sequences=units,
        keys=units * keys,
        heads=sharing,
        kv_heads=np.ones_like(sharing),
        head_size=size,
        dtype="bf16",
        cache=_cache_of(kernel),
    )


def latent_decode(kernel: str, shape: Coordinates) -> LatentDecode:
    """Return absorbed latent attention at nodes of the table.

    The coordinates are keys of a sequence, sequences, the elements of a cached token, and heads. Rotated
    elements are added, an eighth of the size of the latent (DeepSeek: 64 in addition to 512 elements).
    """
    keys, sequences, size, heads = shape
    return LatentDecode(
        sequences=sequences,
        keys=sequences * keys,
        heads=heads,
        rank=size * 8.0 / 9.0,
        rope_size=size / 9.0,
        dtype="bf16",
        cache=_cache_of(kernel),
    )


def gated_delta(_: str, shape: Coordinates) -> GatedDelta:
    """Return the delta rule over heads of 128 elements, the only measured size.

    The coordinates are tokens and states, one state for each head of each sequence.
    """
    tokens, states = shape
    size = np.full_like(tokens, 128.0)
    return GatedDelta(
        sequences=np.ones_like(tokens),
        tokens=tokens,
        heads=states,
        key_heads=states,
        key_size=size,
        value_size=size,
        dtype="bf16",
    )


def causal_convolution(_: str, shape: Coordinates) -> MemoryBound:
    """Return the convolution that moves the bytes of the coordinates.

    It reads and writes two bytes per element.
    """
    return MemoryBound(kind="causal_convolution", elements=shape[0] / 4.0, dtype="bf16")
