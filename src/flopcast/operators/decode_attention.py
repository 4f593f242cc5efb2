"""Attention of one new token of each sequence against the keys and values in its cache.

Answers: how many FLOP and bytes does one layer's attention need while an engine generates tokens?
Elsewhere: prompts (flash_attention.py), attention against cached latents (latent_decode.py), how long it
takes (cost/), the tokens inside a window (serving/rewrites/cached_attention.py).

The kernel reads every cached key and value once and has few FLOP, so it is memory-bound. It divides the
tokens of a sequence over multiprocessors, because there are fewer sequences and heads than multiprocessors.
"""

import numpy as np

from flopcast.dtypes import ELEMENT_BYTES, Counts
from flopcast.operators.base import AbstractWithoutBackward, Work
from flopcast.operators.formats import CACHED_FORMATS


class DecodeAttention(AbstractWithoutBackward):
    """`softmax(q @ K.T) @ V` for one query token of each sequence and every head of this rank.

    `keys` are the tokens read from the cache over all sequences. With a window (`windowed`), they are the
    tokens inside the window, and engines run another kernel. `cache` is the format of keys and values
    (`CACHED_FORMATS`), or "" for that of `dtype`. Products also run in "fp8" if the device supports this.
    The kernel is only for serving: it saves nothing and has no gradients.

    Examples
    --------
    Llama 3 70B on eight ranks: 8 query heads share one head of keys and values
    (arXiv:2407.21783, table 3). The cache of 64 sequences of 2048 tokens is 67 MB in a layer.

    >>> from flopcast.dtypes import constant
    >>> decode = DecodeAttention(sequences=constant(64), keys=constant(64 * 2048), heads=constant(8),
    ...                          kv_heads=constant(1), head_size=constant(128), dtype="bf16")
    >>> decode.work().moved_bytes.item() / 1e6, decode.work().flop.item() / 1e9
    (67.371008, 0.536870912)
    """

    sequences: Counts
    keys: Counts  # over all sequences
    heads: Counts  # query heads of this rank
    kv_heads: Counts  # of this rank
    head_size: Counts
    dtype: str
    cache: str = ""
    windowed: bool = False

    @property
    def kernel(self) -> str:
        """Return the name of the curve, which depends on the window and the format of the cache."""
        name = "decode_attention.window" if self.windowed else "decode_attention"
        return f"{name}.{self.cache}" if self.cache else name

    def work(self) -> Work:
        """Return the work of scores and of the weighted sum of values over all cached keys.

        `keys` is the sum of the contexts of all sequences. Each cached key and value is read once, in the
        format of the cache, whose bytes include the scales of a block. Queries are read and results are
        written in the dtype of the computation. FLOP are 2 for each multiply-add of both products.
        """
        size = ELEMENT_BYTES[self.dtype]
        cached = 2 * self.keys * self.kv_heads * self.head_size
        queries = self.sequences * self.heads * self.head_size
        return Work(
            flop=4 * self.keys * self.heads * self.head_size,
            moved_bytes=cached * CACHED_FORMATS[self.cache].bytes_of_element(self.dtype)
            + 2 * queries * size,
            unit=CACHED_FORMATS[self.cache].engine_of(self.dtype),
        )

    def coordinates(self) -> tuple[Counts, ...]:
        """Return the mean keys of a sequence, cached heads over all sequences, size of a head, and the
        query heads that share a cached one.
        """
        keys = self.keys / np.maximum(self.sequences, 1.0)
        sharing = self.heads / np.maximum(self.kv_heads, 1.0)
        return keys, self.sequences * self.kv_heads, self.head_size, sharing
