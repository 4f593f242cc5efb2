"""The order of blocks in a model: kinds that alternate, and an encoder before its decoder.

Elsewhere: the items of a block (layers/block.py), the parts of a model (spec/model.py).
"""

from collections.abc import Sequence
from itertools import groupby

from flopcast.layers.block import Block


def encoder_comes_first(blocks: Sequence[Block], pattern: Sequence[int]) -> bool:
    """Return whether the model is only a decoder, or an encoder followed by its decoder.

    Only the last block of an encoder has `ends_encoder`, and at least one block of the decoder reads the
    encoder's output.

    >>> from flopcast.layers.attention import Attention
    >>> from flopcast.layers.cross_attention import CrossAttention
    >>> from flopcast.layers.mlp import Mlp
    >>> parts = {"mixer": Attention(heads=2), "feed_forward": Mlp(ffn_hidden=64)}
    >>> last = Block(reads="source", ends_encoder=True, **parts)
    >>> decoder = Block(cross=CrossAttention(heads=2), **parts)
    >>> encoder_comes_first([last, decoder], ()), encoder_comes_first([decoder, last], ())
    (True, False)
    """
    reads = [block.reads for block in blocks]
    crosses = any(block.cross for block in blocks)
    if "source" not in reads:
        return not crosses
    length = reads.count("source")
    ends = [place for place, block in enumerate(blocks) if block.ends_encoder]
    return crosses and not pattern and "source" not in reads[length:] and ends == [length - 1]


def counts_of_pattern(pattern: Sequence[int], kinds: int, blocks: int) -> list[int]:
    """Return how many blocks of each kind there are if the pattern repeats over all blocks.

    >>> counts_of_pattern((0, 0, 1), kinds=2, blocks=4)
    [3, 1]
    """
    whole, rest = divmod(blocks, len(pattern))
    return [whole * pattern.count(kind) + pattern[:rest].count(kind) for kind in range(kinds)]


def pattern_that_fits(blocks: Sequence[Block], pattern: Sequence[int]) -> str:
    """Return a text with the counts of blocks that would fit a pattern; "" if the pattern fits.

    >>> from flopcast.layers.attention import Attention
    >>> from flopcast.layers.mlp import Mlp
    >>> parts = {"mixer": Attention(heads=2), "feed_forward": Mlp(ffn_hidden=64)}
    >>> pattern_that_fits([Block(count=2, **parts), Block(count=2, **parts)], (0, 0, 1))
    'counts of [3, 1] for the entries of blocks, which is how often the pattern contains each'
    """
    kinds, counts = [*range(len(blocks))], [block.count for block in blocks]
    if set(pattern) != set(kinds):
        return f"a pattern that contains the index of every entry of blocks ({kinds})"
    wanted = counts_of_pattern(pattern, len(kinds), sum(counts))
    if wanted != counts:
        return f"counts of {wanted} for the entries of blocks, which is how often the pattern contains each"
    return ""


def runs_of_blocks(blocks: Sequence[Block], pattern: Sequence[int]) -> list[tuple[int, int]]:
    """Return runs of equal blocks: the index of their kind in `blocks`, and their number.

    >>> from flopcast.layers.attention import Attention
    >>> from flopcast.layers.mlp import Mlp
    >>> parts = {"mixer": Attention(heads=2), "feed_forward": Mlp(ffn_hidden=64)}
    >>> runs_of_blocks([Block(count=3, **parts), Block(**parts)], (0, 0, 1))
    [(0, 2), (1, 1), (0, 1)]
    """
    if not pattern:
        return [(kind, block.count) for kind, block in enumerate(blocks)]
    order = (pattern[layer % len(pattern)] for layer in range(sum(block.count for block in blocks)))
    return [(kind, len(list(row))) for kind, row in groupby(order)]
