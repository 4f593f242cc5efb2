"""Latent attention of one new token of each sequence against the latents in its cache.

Answers: how many FLOP and bytes does the core of absorbed multi-head latent attention need in one layer
while an engine generates tokens?
Elsewhere: its projections, which are products (layers/latent_attention.py), prompts (flash_attention.py),
cached keys and values (decode_attention.py), how long it takes (cost/).

The products that would expand the latents into keys and values of every head are absorbed into queries and
outputs (arXiv:2405.04434, section 2.1.2). All heads then read, for each token, one latent of `rank`
elements and one rotated key of `rope_size` elements.
"""

import numpy as np

from flopcast.dtypes import ELEMENT_BYTES, Counts
from flopcast.operators.base import AbstractWithoutBackward, Work
from flopcast.operators.formats import CACHED_FORMATS


class LatentDecode(AbstractWithoutBackward):
    """`softmax(q @ [C, R].T) @ C` for one query token of each sequence and every head of this rank.

    C contains the cached latents, and R the rotated keys. `keys` are the tokens read from the cache over
    all sequences. `cache` is the format of latents (`CACHED_FORMATS`), or "" for that of `dtype`. Products
    also run in "fp8" if the device supports this. The kernel is only for serving, so it keeps nothing and
    has no gradients.

    Examples
    --------
    DeepSeek-V3 (arXiv:2412.19437, section 4.2) with all 128 heads on a rank reads 1152 bytes per token, and
    needs 242 FLOP for each of these bytes:

    >>> from flopcast.dtypes import constant
    >>> decode = LatentDecode(sequences=constant(1), keys=constant(1e6), heads=constant(128),
    ...                       rank=constant(512), rope_size=constant(64), dtype="bf16")
    >>> work = decode.work()
    >>> round(work.moved_bytes.item() / 1e6), round(work.flop.item() / work.moved_bytes.item())
    (1152, 242)
    """

    sequences: Counts
    keys: Counts  # over all sequences
    heads: Counts  # query heads of this rank
    rank: Counts  # elements of a latent
    rope_size: Counts  # elements of a rotated key
    dtype: str
    cache: str = ""

    @property
    def kernel(self) -> str:
        """Return one curve for caches in the format of queries, and one for each narrower format."""
        return f"latent_decode.{self.cache}" if self.cache else "latent_decode"

    def work(self) -> Work:
        """Return the work of absorbed latent attention over all cached tokens.

        Scores are products with the latent and the rotated key, which have `rank` + `rope_size` elements
        per token and head. The weighted sum is over latents of `rank` elements. Latents and keys are read
        once for all heads, in the format of the cache.
        """
        size = ELEMENT_BYTES[self.dtype]
        wide = self.rank + self.rope_size
        queries = self.sequences * self.heads * (wide + self.rank)  # and results
        kept = CACHED_FORMATS[self.cache]
        return Work(
            flop=2 * self.keys * self.heads * (wide + self.rank),
            moved_bytes=self.keys * wide * kept.bytes_of_element(self.dtype) + queries * size,
            unit=kept.engine_of(self.dtype),
        )

    def coordinates(self) -> tuple[Counts, ...]:
        """Return the coordinates of `DecodeAttention` with one cached head: mean keys of a sequence,
        sequences, elements of a token, and heads.
        """
        keys = self.keys / np.maximum(self.sequences, 1.0)
        return keys, self.sequences, self.rank + self.rope_size, self.heads
