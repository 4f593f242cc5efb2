"""The batch: how long the sequences are.

Answers: tokens of a sequence. How many sequences form a micro-batch and a step is the plan's
(`micro_batch`, `global_batch`). Packed batches of unequal lengths are refused until they are built.
"""

from pydantic import AliasChoices, Field

from flopcast.nouns import Noun


class Batch(Noun):
    """Sequences of one fixed length.

    Attributes
    ----------
    sequence_length : int
        Tokens of one sequence, "seq" for short. All are counted, padding too.
    packed : bool
        Whether documents of unequal length share a sequence, with masks between them: then attention
        costs Σ length², not sequence_length². Refused until it is built.

    Examples
    --------
    >>> Batch(seq=4096).sequence_length
    4096
    """

    sequence_length: int = Field(ge=1, validation_alias=AliasChoices("sequence_length", "seq"))
    packed: bool = False
