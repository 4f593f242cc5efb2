"""Token embedding, its positions and dropout: the first layer of a model.

Answers: fields, weights, sharding and forward items. The table is cut along the vocabulary, padded to
a multiple of `vocabulary_multiple` · tensor-parallel degree (Megatron-LM, `make-vocab-size-divisible-by`).
"""

from typing import Literal

import numpy as np
from pydantic import Field

from flopcast.dtypes import Counts, Probability
from flopcast.layers.base import AbstractLayer, Split, Weight, leave_tensor_parallel, replicated
from flopcast.operators.embedding import EmbeddingLookup
from flopcast.operators.item import Item, kernel
from flopcast.operators.memory_bound import MemoryBound


def padded_rows(vocabulary: int, multiple: int, tensor: Counts) -> Counts:
    """Rows of the padded table on one rank."""
    return np.ceil(vocabulary / (multiple * tensor)) * multiple


class Embedding(AbstractLayer):
    """Token table, with learned positions where `learned_positions` > 0."""

    kind: Literal["embedding"] = "embedding"
    vocabulary: int = Field(ge=1)
    vocabulary_multiple: int = Field(default=128, ge=1)
    learned_positions: int = Field(default=0, ge=0, description="length of the position table")
    dropout: Probability = 0.0

    def weights(self, hidden: int, split: Split) -> tuple[Weight, ...]:
        """The table, and the positions, which every rank holds whole."""
        rows = padded_rows(self.vocabulary, self.vocabulary_multiple, split.tensor)
        table = Weight(name="embedding.table", elements=rows * hidden, total=self.vocabulary * hidden)
        if not self.learned_positions:
            return (table,)
        return table, replicated("embedding.positions", self.learned_positions * hidden)

    def forward(self, hidden: int, split: Split) -> tuple[Item, ...]:
        """From token ids to tensor "y"."""
        rows = padded_rows(self.vocabulary, self.vocabulary_multiple, split.tensor)
        lookup = EmbeddingLookup(
            tokens=split.tokens,
            hidden=np.full_like(split.tokens, hidden),
            vocabulary=rows,
            dtype=split.dtype,
        )
        items = [
            kernel("embedding.lookup", lookup, ("ids",), "partial", component="embedding"),
            leave_tensor_parallel("partial", "y", "embedding.leave", hidden, split),
        ]
        elements = split.own_tokens * hidden
        for wanted, kind, name in (
            (self.learned_positions, "position_add", "embedding.positions"),
            (self.dropout, "dropout", "embedding.drop"),
        ):
            if wanted:
                work = MemoryBound(kind=kind, elements=elements, dtype=split.dtype)
                items.append(kernel(name, work, ("y",), "y", component="embedding"))
        return tuple(items)
