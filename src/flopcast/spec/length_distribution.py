"""A distribution of sequence lengths, and how ranks share and balance the sequences of a step.

Answers: what does a user state about a step whose sequences differ in length?
Elsewhere: which micro-batches each rank gets (workload/listed_lengths.py), distributions of lengths
(lengths.py), micro-batches that are listed one by one (batch.py).
"""

from typing import Literal

from pydantic import Field, field_validator

from flopcast.spec.lengths import Lengths, WrittenLengths
from flopcast.strict_model import NotAllowedError, StrictModel

FORM = "TOKENS:WEIGHT,TOKENS:WEIGHT"


class LengthDistribution(StrictModel):
    """A distribution of sequence lengths, and how the sequences of a step are assigned to ranks.

    Attributes
    ----------
    lengths : Lengths
        Sequence lengths in tokens, with their weights. "4096:80,131072:1" means 80 sequences of 4096 tokens
        for each sequence of 131,072 tokens.
    step_tokens : int
        Number of tokens of a step.
    rank_tokens : int
        Largest number of tokens of a micro-batch on one rank. Short sequences are packed together up to
        this number.
    shared_rank_tokens : int, optional
        Largest number of tokens on one rank for sequences that `sharing: by_length` divides over several
        ranks; by default `rank_tokens`. It can be higher if their activations are offloaded.
    offload_short : bool
        Whether the plan's `offload` of activations also applies to micro-batches whose sequences are not
        divided over ranks. If false, only the activations of divided sequences are offloaded.
    sharing : str
        Over how many ranks a sequence is divided. "mesh": every sequence over the plan's context-parallel
        ranks. "by_length": each sequence over as few data-parallel ranks as can hold it (hybrid data
        parallelism, arXiv:2502.21231).
    balance : str
        What `sharing: by_length` makes equal on all ranks: the number of "tokens", or the "flop". To
        equalise FLOP, ranks get different numbers of micro-batches.

    Examples
    --------
    >>> LengthDistribution(lengths="1024:3,4096:1", step_tokens=7168, rank_tokens=2048).sequences
    ((4096, 1), (1024, 3))
    """

    lengths: WrittenLengths
    step_tokens: int = Field(ge=1, le=10**12)
    rank_tokens: int = Field(ge=1, le=10**9)
    shared_rank_tokens: int | None = Field(default=None, ge=1, le=10**9)
    offload_short: bool = True
    sharing: Literal["mesh", "by_length"] = "by_length"
    balance: Literal["tokens", "flop"] = "flop"

    @field_validator("lengths")
    @classmethod
    def _of_few_lengths(cls, value: Lengths | None) -> Lengths | None:
        if value is None or value.distribution not in ("constant", "histogram"):
            because = "the lengths of a step must be a small set of numbers, each of which is predicted"
            raise NotAllowedError(f"one length or {FORM}", because, "write 4096:80,131072:1")
        return value

    @property
    def sequences(self) -> tuple[tuple[int, int], ...]:
        """Return the lengths and the number of sequences of a step with each length, the longest first."""
        lengths = self.lengths or Lengths()
        tokens = lengths.tokens or (int(lengths.mean_tokens),)
        weights = lengths.weights or (1.0,)
        scale = self.step_tokens / sum(each * weight for each, weight in zip(tokens, weights, strict=True))
        counts = [round(scale * weight) for weight in weights]
        return tuple(sorted(((each, n) for each, n in zip(tokens, counts, strict=True) if n), reverse=True))
