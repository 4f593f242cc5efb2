"""Passes of a serving engine: what one iteration computes, described by four numbers.

Answers: how many prompt tokens and how many decoding sequences does a pass contain, and to how many tokens
do they attend?
Elsewhere: the items of a pass (lower.py), which passes an engine runs (scheduler.py), how long they take
(pass_times.py).
"""

import numpy as np

from flopcast.dtypes import Counts
from flopcast.records import Record


class EnginePass(Record, eq=False):
    """One iteration of an engine on one replica, or several: arrays of shape (passes, 1).

    `new_tokens` is the number of computed tokens: one for each decoding sequence, and any number for each
    prompt. `sequences` is the number of both. `cached_tokens` is the sum of all contexts after the pass,
    and `pairs` is the sum over new tokens of the tokens to which each attends.

    A pass that only decodes has as many new tokens as sequences, and as many pairs as cached tokens. All
    further tokens and pairs belong to prompts. The pairs of a prompt's last token, one query among
    thousands, also count as decoded.

    Examples
    --------
    >>> from flopcast.dtypes import constant
    >>> mixed = EnginePass(new_tokens=constant(1032), sequences=constant(9), cached_tokens=constant(17408),
    ...                    pairs=constant(8 * 2048 + 1024**2 / 2))
    >>> mixed.prompt_tokens.item(), mixed.prompt_pairs.item()
    (1023.0, 523264.0)
    """

    new_tokens: Counts
    sequences: Counts
    cached_tokens: Counts
    pairs: Counts
    computed_tokens: int = 1  # of each decoding sequence: more if tokens are drafted

    @property
    def decoded_tokens(self) -> Counts:
        """Return the tokens of decoding sequences, whose logits are needed."""
        tokens: Counts = self.sequences * self.computed_tokens
        return tokens

    @property
    def prompt_tokens(self) -> Counts:
        """Return the tokens of prompts."""
        tokens: Counts = np.maximum(self.new_tokens - self.decoded_tokens, 0.0)
        return tokens

    @property
    def prompt_pairs(self) -> Counts:
        """Return the pairs of a query and a key in prompts: half of the square for a whole prompt."""
        decoded = decoded_pairs(self.cached_tokens, self.sequences, self.computed_tokens)
        pairs: Counts = np.maximum(self.pairs - decoded, 0.0)
        return pairs


def decoded_pairs(cached_tokens: Counts, sequences: Counts, computed_tokens: int) -> Counts:
    """Return the pairs of decoding sequences, whose last new token attends to its whole context.

    >>> decoded_pairs(np.array([10.0]), np.array([1.0]), 3).tolist()  # contexts of 8, 9 and 10
    [27.0]
    """
    return computed_tokens * cached_tokens - sequences * (computed_tokens * (computed_tokens - 1) / 2)
