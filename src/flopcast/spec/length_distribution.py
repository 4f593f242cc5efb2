"""A distribution of lengths: sequences of a step by their length, and how ranks share and balance them.

Answers: what does a user state of a step whose sequences differ in length?
Elsewhere: which micro-batches each rank gets of it (workload/listed_lengths.py), distributions of lengths
(lengths.py), micro-batches that are listed one by one (batch.py).
"""

from typing import Literal

from pydantic import Field, field_validator

from flopcast.spec.lengths import Lengths, WrittenLengths
from flopcast.strict_model import StrictModel

FORM = "TOKENS:WEIGHT,TOKENS:WEIGHT"


class LengthDistribution(StrictModel):
    """The sequences of a step, by length.

    Attributes
    ----------
    lengths : Lengths
        How many sequences have which length: "4096:80,131072:1" has 80 of 4096 tokens for each one of
        131,072.
    step_tokens : int
        Tokens of a step.
    rank_tokens : int
        Largest number of tokens of a micro-batch that one rank holds. Short sequences are packed up to this
        number.
    shared_rank_tokens : int, optional
        The same for sequences that "by_length" divides over ranks; by default the same number.
        More of them fit if their activations are outside the devices, and longer compute then hides
        their exchanges.
    offload_short : bool
        Whether the plan's `offload` of activations also applies to micro-batches that ranks do not share.
        If not, only activations of shared sequences leave the device.
    sharing : str
        How ranks share sequences: all in the same way ("mesh": every sequence is divided over the ranks of
        the plan's context parallelism), or each by its length ("by_length": as few data-parallel ranks as
        hold it; hybrid data parallelism, arXiv:2502.21231).
    balance : str
        What "by_length" distributes evenly over ranks: "tokens", or the "flop" of their micro-batches, in
        which case ranks have different numbers of micro-batches.

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
            because = "each kind of micro-batch is predicted by itself"
            raise ValueError(f"one length or {FORM}; because {because}; fix: write 4096:80,131072:1")
        return value

    @property
    def sequences(self) -> tuple[tuple[int, int], ...]:
        """Return lengths with how many sequences of a step have each, the longest first; none of 0."""
        lengths = self.lengths or Lengths()
        tokens = lengths.tokens or (int(lengths.mean_tokens),)
        weights = lengths.weights or (1.0,)
        scale = self.step_tokens / sum(each * weight for each, weight in zip(tokens, weights, strict=True))
        counts = [round(scale * weight) for weight in weights]
        return tuple(sorted(((each, n) for each, n in zip(tokens, counts, strict=True) if n), reverse=True))
