"""The FLOP of one block's forward pass over one sequence, as conventions count them.

Answers: which matrix products does a block need for a sequence, and for the source that an encoder reads?
Elsewhere: heads and the sum over a model (spec/model.py), the items that run (layers/block.py).
"""

from flopcast.layers.attention import Attention
from flopcast.layers.block import Block


def linear_flop(block: Block, hidden: int, length: int, source_length: int) -> float:
    """Return two FLOP for each weight of a linear and each token that it multiplies.

    Parameters
    ----------
    length : tokens of a sequence
    source_length : tokens of the sequence that an encoder reads
    """
    tokens = source_length if block.reads == "source" else length
    each = block.mixer.linear_elements(hidden) + block.feed_forward.linear_elements(hidden)
    crossed = block.cross.linear_elements(hidden, length, source_length) if block.cross else 0.0
    return 2.0 * (tokens * each + crossed)


def attention_flop(
    block: Block, hidden: int, length: int, source_length: int, causal: bool, windows: bool
) -> float:
    """Return the FLOP of attention scores and their products with values, in one block.

    Parameters
    ----------
    length, source_length : tokens of a sequence, and of its source
    causal : count only half of the scores where attention is causal, as FlashAttention computes
    windows : count only scores inside of attention windows
    """
    tokens = source_length if block.reads == "source" else length
    pairs = block.mixer.square(tokens) if windows else float(tokens) ** 2
    masked = not isinstance(block.mixer, Attention) or block.mixer.causal
    own = block.mixer.pair_flop(hidden) * pairs * (0.5 if causal and masked else 1.0)
    return own + (block.cross.pair_flop(hidden) * length * source_length if block.cross else 0.0)
