"""The model, as a sequence of layers and their numbers.

Answers: which layers and how many parameters does a model have, and how many FLOP does a token need?
Elsewhere: layers (layers/), how a model is divided over devices (spec/plan.py).
"""

from typing import Literal, Optional

from pydantic import Field, model_validator

from flopcast.dtypes import Probability, constant
from flopcast.layers.adapters import Adapted, Adapters
from flopcast.layers.base import AbstractLayer, Split, Weight
from flopcast.layers.block import Block
from flopcast.layers.block_flop import attention_flop, linear_flop
from flopcast.layers.block_order import encoder_comes_first, pattern_that_fits, runs_of_blocks
from flopcast.layers.embedding import Embedding
from flopcast.layers.head import FinalNorm, Head
from flopcast.layers.multi_token import MultiTokenPrediction
from flopcast.layers.traced import NO_ENDS, is_graph
from flopcast.layers.vision import Vision
from flopcast.spec.precision import Precision
from flopcast.spec.source import Sources
from flopcast.strict_model import NotAllowedError, StrictModel, cached_results

WHOLE = Split(
    sequences=constant(1), length=constant(1), tensor=constant(1), sequence_parallel=False, dtype="bf16"
)


class Model(StrictModel):
    """A model: an embedding, blocks, a final norm and a head.

    In an encoder-decoder model, the blocks of the encoder come before those of the decoder.

    Attributes
    ----------
    name : str
        Name of the model in reports.
    hidden : int
        Hidden size: the width of the residual stream.
    vocabulary : int
        Number of tokens in the vocabulary, without padding; 0 for an exported graph, which has only blocks.
    vocabulary_multiple : int
        The vocabulary is padded to a multiple of this number times the tensor-parallel degree, as by
        Megatron-LM's `--make-vocab-size-divisible-by`. Padding does not count as parameters.
    context_length : int
        Number of tokens of the longest sequence for which the model was made; 0 if it is not known.
    trained_length : int
        Sequence length of most of the published pretraining, if shorter than `context_length`; 0 if not
        known.
    trained_precision : Precision or None
        Precision of the published training run if it was in 8 or 4 bits.
    learned_positions : int
        Number of rows of the table of learned position embeddings; 0 if the model has none.
    relative_positions : int
        Number of rows of the table of relative position biases (T5), which has one column for each head. 0
        if the model has no such table. The encoder and the decoder have one table each.
    position_offset : int
        Unused rows at the start of the table of learned positions (2 for OPT), which count as parameters.
    tied_embeddings : bool
        Whether the head uses the weights of the embedding. If the embedding and the head are on different
        pipeline stages, both stages keep a copy, and all-reduce the gradients of the two copies.
    embedding_norm : bool
        Whether a norm follows the embedding (BLOOM), of the kind that the first block has.
    embedding_dropout : float
        Probability of dropout on the output of the embedding.
    head_bias : bool
        Whether logits have a bias (GPT-J, Phi).
    logit_softcap : bool
        Whether a tanh limits the logits (Gemma 2).
    mtp : int
        Number of multi-token prediction modules, each with a block like the last one. They do not count as
        parameters, because they are removed after training.
    mtp_shared : bool
        Whether these modules share their weights (Megatron-Core's `mtp_use_repeated_layer`).
    blocks : tuple of Block
        The blocks in order. Equal blocks in a row are one entry with a `count`, such as `count: 80`.
    pattern : tuple of int
        Order of the blocks if several kinds of blocks alternate. It lists indices into `blocks`, and is
        repeated until the end of the model. The `count` of an entry of `blocks` is then the number of its
        blocks in the whole model. For example, `pattern: [0, 0, 0, 1]` with counts 36 and 12 means three
        blocks of the first kind, then one of the second, 12 times. By default, `blocks` are in order.
    vision : Vision or None
        Vision tower. Its output replaces the embeddings of the image tokens in the sequence.
    adapters : Adapters or None
        Low-rank adapters (LoRA). If given, training changes only the adapters. They count as parameters.
    head : str
        What the head computes for each token: "tokens" (logits and their loss) or "score" (a reward).
    reference : str
        Frozen reference model of the same shape for preference tuning (DPO): "none", "separate" (it has its
        own weights) or "shared" (it is the model with its adapters switched off).
    reference_passes : int
        Number of forward passes of the reference model over each sequence: 1 for DPO.
    teacher : Model or None
        Frozen teacher model for distillation, which runs a forward pass on the same sequences.

    Examples
    --------
    >>> tiny = Model(hidden=64, vocabulary=100, blocks=[
    ...     {"count": 2, "mixer": {"heads": 4}, "feed_forward": {"ffn_hidden": 256}}])
    >>> [layer.kind for layer, count in tiny.sequence()]
    ['embedding', 'block', 'final_norm', 'head']
    """

    name: str = "unnamed"
    hidden: int = Field(ge=1)
    vocabulary: int = Field(ge=0)
    vocabulary_multiple: int = Field(default=128, ge=1)
    context_length: int = Field(default=0, ge=0)
    trained_length: int = Field(default=0, ge=0)
    trained_precision: Precision | None = None
    learned_positions: int = Field(default=0, ge=0)
    relative_positions: int = Field(default=0, ge=0)
    position_offset: int = Field(default=0, ge=0)
    tied_embeddings: bool = False
    embedding_norm: bool = False
    embedding_dropout: Probability = 0.0
    head_bias: bool = False
    logit_softcap: bool = False
    mtp: int = Field(default=0, ge=0)
    mtp_shared: bool = False
    blocks: tuple[Block, ...] = Field(min_length=1)
    pattern: tuple[int, ...] = ()
    vision: Vision | None = None
    adapters: Adapters | None = None
    head: Literal["tokens", "score"] = "tokens"
    reference: Literal["none", "separate", "shared"] = "none"
    reference_passes: int = Field(default=1, ge=1, le=16)
    teacher: Optional["Model"] = None
    source: Sources = ()

    @model_validator(mode="after")
    def _parts_agree(self) -> "Model":
        if self.position_offset and not self.learned_positions:
            raise ValueError(f"learned_positions above 0, if position_offset is {self.position_offset}")
        if not self.vocabulary and not is_graph(self.blocks):
            raise NotAllowedError("vocabulary: 1 or more", "only an exported graph has no vocabulary")
        if not encoder_comes_first(self.blocks, self.pattern):
            raise ValueError("encoder blocks (the last one with ends_encoder) before blocks with cross")
        if self.adapters and self.mtp:
            raise ValueError("mtp: 0, if the model has adapters")
        if self.pattern and (wanted := pattern_that_fits(self.blocks, self.pattern)):
            raise ValueError(wanted)
        if self.vision and (wanted := self.vision.fault_before(self.hidden, self.adapters is not None)):
            raise ValueError(wanted)
        return self

    def runs(self) -> tuple[tuple[int, int], ...]:
        """Return the index in `sequence` and the length of each run of equal layers."""
        first, layers = self.first_block, self.sequence()
        before = [(place, count) for place, (_, count) in enumerate(layers[:first])]
        inside = [(kind + first, count) for kind, count in runs_of_blocks(self.blocks, self.pattern)]
        return *before, *inside, *((place, 1) for place in range(first + len(self.blocks), len(layers)))

    @property
    def first_block(self) -> int:
        """Return the index in `sequence` of the first block, after the embedding and a vision tower."""
        return 1 + len(self._tower())

    def _tower(self) -> tuple[tuple[AbstractLayer, int], ...]:
        """Return the layers of the vision tower, each with its number; () without one."""
        return self.vision.layers(adapted=self.adapters is not None) if self.vision else ()

    @property
    def has_experts(self) -> bool:
        """Return whether any block routes its tokens to experts."""
        return any(block.feed_forward.kind == "experts" for block in self.blocks)

    @property
    def family(self) -> str:
        """Return the kind of model: "hybrids" (with linear attention), "experts" or "dense"."""
        if any(block.mixer.is_recurrent for block in self.blocks):
            return "hybrids"
        return "experts" if self.has_experts else "dense"

    @property
    def has_encoder(self) -> bool:
        """Return whether the model has an encoder, whose output the decoder reads."""
        return any(block.reads == "source" for block in self.blocks)

    @property
    def num_blocks(self) -> int:
        """Return the number of blocks of the model."""
        return sum(block.count for block in self.blocks)

    @cached_results(64)
    def sequence(self) -> tuple[tuple[AbstractLayer, int], ...]:
        """Return each distinct layer and the number of its copies, in order of first use (`runs`).

        The embedding and the head count as layers. The final norm has the kind of the last block's norms.
        """
        first, last = self.blocks[0], self.blocks[-1]
        if not self.vocabulary:
            begin, *end = ((layer, 1) for layer in NO_ENDS)
            return begin, *((block, block.count) for block in self.blocks), *end
        embedding = Embedding(
            vocabulary=self.vocabulary,
            vocabulary_multiple=self.vocabulary_multiple,
            learned_positions=self.learned_positions + self.position_offset,
            encoder=self.has_encoder,
            relative_positions=self.relative_positions
            * (first.mixer.heads + self.has_encoder * last.mixer.heads),
            norm=first.norm if self.embedding_norm else None,
            norm_bias=first.norm_bias,
            dropout=self.embedding_dropout,
        )
        head = Head(
            vocabulary=self.vocabulary,
            vocabulary_multiple=self.vocabulary_multiple,
            tied=self.tied_embeddings,
            bias=self.head_bias,
            softcap=self.logit_softcap,
            predictions=1 + self.mtp,
            score=self.head == "score",
        )
        final_norm = FinalNorm(norm=last.norm, norm_bias=last.norm_bias, norm_scale=last.norm_scale)
        layers: tuple[tuple[AbstractLayer, int], ...] = (
            (embedding, 1),
            *((block, block.count) for block in self.blocks),
            *((module, 1) for module in self._further_predictions()),
            (final_norm, 1),
            (head, 1),
        )
        if self.adapters is not None:
            layers = tuple(
                (Adapted(kind=layer.kind, inner=layer, adapters=self.adapters), count)
                for layer, count in layers
            )
        return layers[0], *self._tower(), *layers[1:]

    def _further_predictions(self) -> tuple[MultiTokenPrediction, ...]:
        """Return all modules of multi-token prediction as a single layer, or none."""
        if not self.mtp:
            return ()
        layer = MultiTokenPrediction(
            modules=self.mtp,
            shared=self.mtp_shared,
            block=self.blocks[-1].model_copy(update={"count": 1}),
            vocabulary=self.vocabulary,
            vocabulary_multiple=self.vocabulary_multiple,
            tied=self.tied_embeddings,
        )
        return (layer,)

    @cached_results(64)
    def _main_weights(self) -> tuple[tuple[int, Weight], ...]:
        """Return weights of all layers except multi-token prediction, with the layers' counts."""
        layers = (pair for pair in self.sequence() if not isinstance(pair[0], MultiTokenPrediction))
        return tuple((count, each) for layer, count in layers for each in layer.weights(self.hidden, WHOLE))

    def parameters(self) -> float:
        """Return the number of weights, without padding and multi-token prediction; tied tables count once.

        Returns
        -------
        float
            The number in a model's name, before rounding: 174.6e9 for GPT-3 175B (arXiv:2104.04473,
            equation 2).
        """
        return sum(count * weight.total for count, weight in self._main_weights())

    def trained_parameters(self) -> float:
        """Return the number of `parameters` with gradients: all, or only those of adapters."""
        return sum(count * weight.total for count, weight in self._main_weights() if weight.trained)

    def active_parameters(self) -> float:
        """Return the number of weights that one token uses; tied embeddings count once.

        Returns
        -------
        float
            The active parameters of a mixture of experts: 12.9e9 for Mixtral 8x7B (arXiv:2401.04088, table
            1).
        """
        return sum(count * weight.used for count, weight in self._main_weights())

    def forward_flop(
        self,
        sequence_length: int,
        causal: bool = False,
        windows: bool = True,
        documents: tuple[int, ...] = (),
        source_length: int | None = None,
    ) -> float:
        """Return the FLOP of the matrix products in one forward pass over one sequence, including the head.

        A multiply and an add are two FLOP. Norms, activations and softmax do not run on the matrix engine
        and are left out. The router and the experts to which a token is routed count. Modules of
        multi-token prediction count, each with a head.

        Parameters
        ----------
        sequence_length : tokens
        causal : count half of the scores, as FlashAttention computes, instead of all scores
        windows : whether to count only scores inside of windows
        documents : tokens of each packed document; there are no scores between documents
        source_length : tokens of an encoder's sequence; by default `sequence_length`

        Returns
        -------
        float
            FLOP. The backward pass needs twice as many: one product for each factor's gradient.

        References
        ----------
        arXiv:2104.04473, equation 3: with recompute, 4 times this number, without the head's fourth pass.
        """
        lengths = documents or (sequence_length,)
        attention = sum(self.attention_flop(length, causal, windows, source_length) for length in lengths)
        return self._linear_flop(sequence_length, source_length) + attention

    def attention_flop(
        self, sequence_length: int, causal: bool = False, windows: bool = True, source: int | None = None
    ) -> float:
        """Return the FLOP of attention scores and their products with values, for one sequence.

        Token pairs outside attention windows count only if `windows` is false. If `causal` is false, a
        window extends to both sides of a query.
        """
        source, blocks = source or sequence_length, [(block, block.count) for block in self.blocks]
        blocks.append((self.blocks[-1], self.mtp))  # modules of multi-token prediction hold the last kind
        return sum(
            count * attention_flop(block, self.hidden, sequence_length, source, causal, windows)
            for block, count in blocks
        )

    def _linear_flop(self, sequence_length: int, source_length: int | None = None) -> float:
        """Return two FLOP for each weight of a linear and each token, including the unpadded heads."""
        source, flop = source_length or sequence_length, self.head_flop(sequence_length)
        for block in self.blocks:
            flop += block.count * linear_flop(block, self.hidden, sequence_length, source)
        for layer in self._further_predictions():
            flop += 2 * sequence_length * layer.modules * layer.linear_elements(self.hidden)
        return flop + self._adapter_flop(sequence_length, source)

    def _adapter_flop(self, length: int, source: int) -> float:
        """Return two FLOP for each weight of adapters that a token uses, and each token."""
        return self.adapters.flop(self.blocks, self.hidden, length, source) if self.adapters else 0.0

    def frozen_flop(self, sequence_length: int, source_length: int | None = None) -> float:
        """Return the FLOP per sequence that frozen linear layers save by having no weight gradients."""
        source = source_length or sequence_length
        frozen = self._linear_flop(sequence_length, source) - self._adapter_flop(sequence_length, source)
        return frozen if self.adapters else 0.0

    def head_flop(self, sequence_length: int) -> float:
        """Return the FLOP of the logits in one forward pass over a sequence, without vocabulary padding."""
        rows = 1 if self.head == "score" else (1 + self.mtp) * self.vocabulary
        return 2.0 * sequence_length * self.hidden * rows
