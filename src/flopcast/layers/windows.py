"""Attention windows: the number of keys to which a query attends.

Answers: to how many keys does a query in a sequence attend on average, if it attends only to nearby keys?
Elsewhere: the layer (layers/attention.py), the work of the kernel (operators/flash_attention.py).

A window counts tokens, including the query's own. "sliding": the last `window` tokens (arXiv:2004.05150,
section 3.1). "chunked": the tokens of the query's chunk, if sequences are cut into chunks of `window`
tokens (Llama 4's `attention_chunk_size`). Both are causal. As everywhere in flopcast, a causal triangle
counts as half of its square.
"""

from typing import Literal

import numpy as np

from flopcast.dtypes import Counts

WindowKind = Literal["sliding", "chunked"]


def mean_keys(length: Counts, window: int, kind: WindowKind) -> Counts:
    """Return mean keys per query over a sequence; half of the sequence if the window contains it.

    A sliding window is a band of w · s pairs, minus the triangle of w² / 2 pairs before the beginning of
    the sequence. The scores of chunks are adjacent triangles. The last triangle may be smaller.

    Parameters
    ----------
    length : tokens of one sequence, any shape
    window : tokens, at least 1

    Examples
    --------
    >>> from flopcast.dtypes import constant
    >>> [mean_keys(constant(8192), 1024, kind).item() for kind in ("sliding", "chunked")]
    [960.0, 512.0]
    >>> mean_keys(constant(8192), 8192, "sliding").item()
    4096.0
    """
    if kind == "sliding":
        width = np.minimum(window, length)
        keys: Counts = width - 0.5 * width**2 / length
        return keys
    whole = np.floor(length / window)
    rest = length - whole * window
    keys = 0.5 * (whole * window**2 + rest**2) / length
    return keys
