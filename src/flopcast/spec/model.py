"""The model: what is trained, as a sequence of (layer, count).

Answers: which layers follow each other, how many parameters they hold, how many FLOP one token needs.
Elsewhere: what a layer is (layers/), how it is cut (spec/plan.py).
"""

from pydantic import BaseModel, ConfigDict, Field

from flopcast.dtypes import Probability, constant
from flopcast.layers.base import AbstractLayer, Split
from flopcast.layers.block import Block
from flopcast.layers.embedding import Embedding
from flopcast.layers.head import FinalNorm, Head

WHOLE = Split(
    sequences=constant(1), length=constant(1), tensor=constant(1), sequence_parallel=False, dtype="bf16"
)


class Source(BaseModel):
    """Where numbers come from."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    covers: str = "all"
    title: str
    url: str = ""


class Model(BaseModel):
    """A decoder: embedding, runs of equal blocks, final norm, head."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = "unnamed"
    hidden: int = Field(ge=1)
    vocabulary: int = Field(ge=1)
    vocabulary_multiple: int = Field(default=128, ge=1, description="padded to this times tp")
    learned_positions: int = Field(default=0, ge=0)
    tied_embeddings: bool = False
    embedding_dropout: Probability = 0.0
    blocks: tuple[Block, ...] = Field(min_length=1)
    source: tuple[Source, ...] = ()

    @property
    def num_blocks(self) -> int:
        """Decoder blocks over all runs."""
        return sum(block.count for block in self.blocks)

    def sequence(self) -> tuple[tuple[AbstractLayer, int], ...]:
        """Layers in order, each with how often it stands in a row."""
        embedding = Embedding(
            vocabulary=self.vocabulary,
            vocabulary_multiple=self.vocabulary_multiple,
            learned_positions=self.learned_positions,
            dropout=self.embedding_dropout,
        )
        head = Head(
            vocabulary=self.vocabulary,
            vocabulary_multiple=self.vocabulary_multiple,
            tied=self.tied_embeddings,
        )
        last = self.blocks[-1]
        final_norm = FinalNorm(norm=last.norm, norm_bias=last.norm_bias)
        return (
            (embedding, 1),
            *((block, block.count) for block in self.blocks),
            (final_norm, 1),
            (head, 1),
        )

    def parameters(self) -> float:
        """All weights, without padding; a tied table counts once."""
        return sum(
            count * weight.total
            for layer, count in self.sequence()
            for weight in layer.weights(self.hidden, WHOLE)
        )

    def forward_flop(self, sequence_length: int, causal: bool = False) -> float:
        """Model FLOP of one forward pass over one sequence: matrix products, head included.

        `causal` counts half of the attention scores, as FlashAttention needs; the usual convention
        (Megatron-LM, arXiv:2104.04473 eq. 3) counts them all.
        """
        return self._linear_flop(sequence_length) + self.attention_flop(sequence_length, causal)

    def attention_flop(self, sequence_length: int, causal: bool = False) -> float:
        """FLOP of all scores and contexts of one sequence."""
        full = sum(
            block.count * 4 * block.mixer.heads * block.mixer.size(self.hidden) * sequence_length**2
            for block in self.blocks
        )
        return full * (0.5 if causal else 1.0)

    def _linear_flop(self, sequence_length: int) -> float:
        elements = 0.0
        for block in self.blocks:
            size = block.mixer.size(self.hidden)
            projections = (2 * block.mixer.heads + 2 * block.mixer.groups) * size
            mlp = block.feed_forward.up_columns + block.feed_forward.ffn_hidden
            elements += block.count * self.hidden * (projections + mlp)
        return 2 * sequence_length * (elements + self.hidden * self.vocabulary)
