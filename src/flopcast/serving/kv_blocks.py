"""KV blocks of the sequences that decode together.

Answers: how many more blocks do decoding sequences need for their next tokens, and for how many tokens do
the free blocks suffice?
Elsewhere: blocks that equal prompts share (prefix_cache.py), which requests are admitted and preempted
(scheduler.py).

All decoding sequences gain the same number of tokens, so they differ only in the position of their last
token in its block. A clock counts the gained tokens. The context of a sequence is base + clock.
"""


class KvBlocks:
    """The used and the free blocks.

    Parameters
    ----------
    capacity, block_tokens : int
        Number of blocks, and tokens of each.
    """

    def __init__(self, capacity: int, block_tokens: int) -> None:
        self.capacity: int = capacity
        self.block_tokens: int = block_tokens
        self.used: int = 0
        self._growing = 0
        self._crossings = [0] * block_tokens  # sequences that begin a block at clock = place modulo tokens

    def blocks(self, tokens: int) -> int:
        """Return the number of blocks that hold a number of tokens."""
        return -(-tokens // self.block_tokens)

    def join(self, base: int) -> None:
        """Count a sequence whose context, base + clock, grows from now on."""
        self._crossings[-base % self.block_tokens] += 1
        self._growing += 1

    def leave(self, base: int) -> None:
        """Stop counting a sequence."""
        self._crossings[-base % self.block_tokens] -= 1
        self._growing -= 1

    def needed(self, clock: int, tokens: int) -> int:
        """Return the additional blocks that growing sequences need for their next tokens.

        The count is exact. A sequence needs a block for each token that begins a new block, and
        `_crossings` counts the sequences for each position of the clock at which this happens.
        """
        whole, rest = divmod(tokens, self.block_tokens)
        begin = clock % self.block_tokens
        end = begin + rest
        count = whole * self._growing + sum(self._crossings[begin:end])
        if end > self.block_tokens:  # the rest passes the end of the table
            count += sum(self._crossings[: end - self.block_tokens])
        return count

    def enough_for(self, clock: int, most_tokens: int) -> int:
        """Return the number of tokens of each growing sequence for which the free blocks suffice.

        Parameters
        ----------
        clock : int
            Tokens that sequences have gained so far, from which the fill of their last blocks follows.
        most_tokens : int
            The answer is never larger than this.

        Notes
        -----
        Whole rounds of `block_tokens` tokens need one block of each sequence. The rest is counted token by
        token, with the number of sequences that start a new block at each position.
        """
        free = self.capacity - self.used
        if self._growing * (most_tokens // self.block_tokens + 1) <= free:
            return most_tokens
        whole = free // self._growing
        tokens, left = whole * self.block_tokens, free - whole * self._growing
        while tokens < most_tokens:
            left -= self._crossings[(clock + tokens) % self.block_tokens]
            if left < 0:
                break
            tokens += 1
        return min(tokens, most_tokens)
