"""Token embedding, its positions, norm and dropout: the first layer of a model.

Answers: fields, weights, sharding and forward items. The table is divided along the vocabulary, padded to a
multiple of `vocabulary_multiple` · tensor-parallel degree (Megatron-LM, `make-vocab-size-divisible-by`).

A rank looks up the tokens whose rows it holds, and writes zeros for all other tokens. The sum over ranks is
the embedding. Padding rows cost memory and time, but do not count as parameters of the model.
"""

from typing import Literal

import numpy as np
from pydantic import Field

from flopcast.dtypes import Counts, Probability, constant
from flopcast.layers.base import (
    AbstractLayer,
    Norm,
    Split,
    Weight,
    leave_tensor_parallel,
    memory_pass,
    norm_weights,
    replicated,
    whole_matrix,
)
from flopcast.operators.embedding import EmbeddingLookup
from flopcast.operators.item import Item, kernel
from flopcast.records import replace


def padded_rows(vocabulary: int, multiple: int, tensor: Counts) -> Counts:
    """Return rows of the padded table on one rank.

    Parameters
    ----------
    vocabulary : number of tokens of the vocabulary
    multiple : the rows of each rank are a multiple of this number; 128 suits tensor cores
    tensor : tensor-parallel degree, shape (plans, 1)

    Returns
    -------
    array of shape (plans, 1)
        Rows of one rank. The rows of all ranks together are at least `vocabulary`.

    Examples
    --------
    GPT-2's 50257 tokens become 50304 rows on one rank, 8 · 6400 = 51200 on eight:

    >>> padded_rows(50257, 128, np.array([[1.0], [8.0]])).tolist()
    [[50304.0], [6400.0]]
    """
    return np.ceil(vocabulary / (multiple * tensor)) * multiple


class Embedding(AbstractLayer):
    """The table of tokens, and a table of learned positions if `learned_positions` > 0.

    With an `encoder`, the tokens of the encoder are also looked up.

    `vocabulary` is the number of tokens without padding. The rows of the table are padded to a multiple of
    `vocabulary_multiple`. `norm` is the norm of the sum of token and position embeddings (BLOOM:
    arXiv:2211.05100, section 3.2); the default is none.
    """

    kind: Literal["embedding"] = "embedding"
    vocabulary: int = Field(ge=1)
    vocabulary_multiple: int = Field(default=128, ge=1)
    learned_positions: int = Field(
        default=0, ge=0, description="number of rows of the table of learned positions"
    )
    encoder: bool = Field(default=False, description="whether the tokens of an encoder are looked up too")
    relative_positions: int = Field(
        default=0, ge=0, description="number of elements of all tables of relative position biases"
    )
    norm: Norm | None = None
    norm_bias: bool = True
    dropout: Probability = 0.0

    def weights(self, hidden: int, split: Split) -> tuple[Weight, ...]:
        """Return the table, and the positions and the norm, which are not divided over ranks.

        The table of a rank has `padded_rows` / tensor-parallel rows; `total` counts the vocabulary without
        padding, as published parameter counts do.
        """
        rows = padded_rows(self.vocabulary, self.vocabulary_multiple, split.tensor)
        table = Weight(
            name="embedding.table",
            elements=rows * hidden,
            total=self.vocabulary * hidden,
            matrix=(rows, constant(hidden)),
        )
        weights: tuple[Weight, ...] = (table,)
        if self.learned_positions:
            weights += (whole_matrix("embedding.positions", self.learned_positions, hidden),)
        if self.relative_positions:
            weights += (replicated("embedding.relative_positions", self.relative_positions),)
        if self.norm:
            weights += norm_weights("embedding.norm", self.norm, hidden, self.norm_bias)
        return weights

    def forward(self, hidden: int, split: Split) -> tuple[Item, ...]:
        """Return items from token ids to tensor "y", of shape (own tokens, hidden).

        Positions, norm and dropout follow the sum over ranks, so sequence parallelism divides them. Besides
        the ids, this layer saves only the mask of dropout (one byte per element) and the input of a norm
        (arXiv:2205.05198, section 4.3).
        """
        if self.encoder:
            split = replace(split, length=split.length + split.source_length)
        rows = padded_rows(self.vocabulary, self.vocabulary_multiple, split.tensor)
        lookup = EmbeddingLookup(
            tokens=split.tokens,
            hidden=np.full_like(split.tokens, hidden),
            vocabulary=rows,
            dtype=split.dtype,
        )
        tensor = "sum" if self.norm else "y"
        items = [
            kernel("embedding.lookup", lookup, ("ids",), "partial", component="embedding"),
            leave_tensor_parallel("partial", tensor, "embedding.leave", hidden, split),
        ]
        passes = (
            (self.learned_positions, "position_add", "positions", tensor, tensor),
            (self.norm, self.norm or "", "norm", tensor, "y"),
            (self.dropout, "dropout", "drop", "y", "y"),
        )
        elements, width = split.own_tokens * hidden, constant(hidden)
        for wanted, kind, name, source, output in passes:
            if wanted:
                work = memory_pass(kind, elements, split, width)
                items.append(kernel(f"embedding.{name}", work, (source,), output, component="embedding"))
        return tuple(items)
