"""The batch: how long the sequences are, and the documents in them.

Answers: tokens of a sequence; pairs of tokens that attention meets. How many sequences form a micro-batch
and a step is the plan's (`micro_batch`, `global_batch`).
"""

from typing import Annotated

from pydantic import AliasChoices, Field

from flopcast.nouns import Noun


class Batch(Noun):
    """Sequences of one fixed length, each of one document or of several.

    Attributes
    ----------
    sequence_length : int
        Tokens of one sequence, "seq" for short. All are counted, padding too.
    documents : tuple of int
        Tokens of each document of a packed sequence, where masks keep documents apart: attention then
        costs Σ length², not sequence_length². They fill the sequence; padding is a document of its own.
        Every sequence of a step is like this one: micro-batches of unequal work are not built.
    packed : bool
        Whether sequences are packed: said by `documents` already, refused without them.

    Examples
    --------
    >>> Batch(seq=4096).mean_document_tokens, Batch(seq=4096, documents=(1024, 3072)).mean_document_tokens
    (4096.0, 2560.0)
    """

    sequence_length: int = Field(ge=1, validation_alias=AliasChoices("sequence_length", "seq"))
    documents: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        default=(), description="tokens of each document of a packed sequence; default: one document"
    )
    packed: bool = False

    @property
    def lengths(self) -> tuple[int, ...]:
        """Tokens of every document of a sequence: of one, where nothing is packed."""
        return self.documents or (self.sequence_length,)

    @property
    def mean_document_tokens(self) -> float:
        """Length of the document that a token stands in, on average over tokens: Σ length² / Σ length.

        As many documents of this length as fill a sequence have as many pairs of tokens as its own.
        """
        return sum(length**2 for length in self.lengths) / sum(self.lengths)
