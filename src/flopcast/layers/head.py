"""The end of a model: final norm, language-model head, vocabulary-parallel loss.

Answers: fields, weights, sharding and forward items. Logits are divided along the vocabulary. The loss
needs three all-reduces over the ranks, each of one fp32 number per token: maximum, target logit, and sum of
exponentials. No rank ever holds a whole row of logits (arXiv:1909.08053, section 3), and the backward pass
of the loss needs no message: each rank knows the gradient of its own columns.
"""

from typing import Literal

from pydantic import Field

from flopcast.dtypes import ELEMENT_BYTES, Counts, constant
from flopcast.layers.base import (
    AbstractLayer,
    Norm,
    Split,
    Weight,
    enter_tensor_parallel,
    memory_pass,
    norm_weights,
    replicated,
)
from flopcast.layers.embedding import padded_rows
from flopcast.operators.item import Item, blocking, kernel
from flopcast.operators.matmul import Matmul
from flopcast.operators.messages import AllReduce
from flopcast.records import replace


class FinalNorm(AbstractLayer):
    """The norm after the last block. Its kind, weights and bias are those of the block's norms."""

    kind: Literal["final_norm"] = "final_norm"
    norm: Norm = "layernorm"
    norm_bias: bool = True
    norm_scale: bool = True

    def weights(self, hidden: int, split: Split) -> tuple[Weight, ...]:
        """Return the scale, and the bias of a layer norm."""
        return norm_weights("final_norm", self.norm, hidden, self.norm_bias, self.norm_scale)

    def forward(self, hidden: int, split: Split) -> tuple[Item, ...]:
        """Return items from tensor "x" to tensor "y"."""
        work = memory_pass(self.norm, split.own_tokens * hidden, split, constant(hidden))
        return (kernel("final_norm", work, ("x",), "y", component="norm"),)


class Head(AbstractLayer):
    """Logits over the vocabulary and their cross entropy; `tied` reuses the embedding's table.

    With `score`, the head computes one number for each token instead of logits, as in a reward model. Its
    weight is a vector that every rank holds, without a bias.

    A tied table adds no parameters (`total` is 0). However, the last pipeline stage stores a copy of the
    table, and the gradients of both copies are summed in every step. `bias` adds one number per token of
    the vocabulary (GPT-J, Phi). `softcap` limits logits by c · tanh(logits / c) in a separate pass, which
    saves another copy of the logits (Gemma 2: arXiv:2408.00118, section 2). `predictions` counts the tokens
    that are predicted at each position: one, and one more for every module of multi-token prediction. Each
    prediction has its own logits and loss, from the same table (arXiv:2412.19437, equations 23 to 25).
    """

    kind: Literal["head"] = "head"
    vocabulary: int = Field(ge=1)
    vocabulary_multiple: int = Field(default=128, ge=1)
    tied: bool = False
    bias: bool = False
    softcap: bool = False
    predictions: int = Field(default=1, ge=1, description="tokens predicted at each place")
    score: bool = False

    def weights(self, hidden: int, split: Split) -> tuple[Weight, ...]:
        """Return the table, which is padded and divided like that of the embedding, and the bias.

        A tied table adds no parameters, because the embedding counts them, but a stage without the
        embedding holds another copy. With `score`, the table has one column, and every rank holds all of
        it.
        """
        if self.score:
            return (replicated("head.score", hidden),)
        rows = padded_rows(self.vocabulary, self.vocabulary_multiple, split.tensor)
        total = 0 if self.tied else self.vocabulary * hidden
        table = Weight(
            name="head.table",
            elements=rows * hidden,
            total=total,
            tied=self.tied,
            matrix=(rows, constant(hidden)),
        )
        if not self.bias:
            return (table,)
        return table, Weight(name="head.bias", elements=rows, total=self.vocabulary)

    def forward(self, hidden: int, split: Split) -> tuple[Item, ...]:
        """Return the items from tensor "x" to the loss, and from the tensors of other predictions to their
        losses.

        The stack determines the logits that the loss saves (spec/stack.py, `logit_bytes`). These items save
        only the input of the GEMM and the output of a soft cap.
        """
        if self.score:
            return self._one_score(hidden, split)
        items = self._one_loss(hidden, split)
        for module in range(1, self.predictions):
            items += [
                replace(
                    item,
                    name=f"mtp{module}.{item.name}",
                    inputs=tuple(f"mtp{module}.{name}" for name in item.inputs),
                    output=f"mtp{module}.{item.output}",
                )
                for item in self._one_loss(hidden, split)
            ]
        return tuple(items)

    def _one_loss(self, hidden: int, split: Split) -> list[Item]:
        """Return logits of every token and their cross entropy."""
        tokens, dtype = split.tokens, split.dtype
        rows = padded_rows(self.vocabulary, self.vocabulary_multiple, split.tensor)
        logits = Matmul(m=tokens, n=rows, k=constant(hidden), dtype=dtype)
        cast = memory_pass("cast_to_fp32", tokens * rows, split)
        loss = memory_pass("cross_entropy", tokens * rows, split, rows)
        one_number = AllReduce(axis="tp", message_bytes=tokens * ELEMENT_BYTES["fp32"])
        sums = [
            blocking(f"head.{name}", one_number, "logits", "logits")
            for name in ("maximum", "target_logit", "sum_of_exponentials")
        ]
        return [
            enter_tensor_parallel("x", "head.enter", hidden, split),
            replace(kernel("head.logits", logits, ("x.full",), "logits", component="head"), wide=True),
            *self._bend(tokens * rows, split),
            kernel("head.cast", cast, ("logits",), "logits.fp32", component="head"),
            *sums,
            kernel("head.loss", loss, ("logits.fp32",), "loss", component="head"),
        ]

    def _one_score(self, hidden: int, split: Split) -> tuple[Item, ...]:
        """Return one number for each of the rank's own tokens, and the loss over them."""
        tokens, one = split.own_tokens, constant(1)
        score = Matmul(m=tokens, n=one, k=constant(hidden), dtype=split.dtype)
        loss = memory_pass("cross_entropy", tokens, split, one)
        return (
            replace(kernel("head.score", score, ("x",), "scores", component="head"), wide=True),
            kernel("head.loss", loss, ("scores",), "loss", component="head"),
        )

    def _bend(self, elements: Counts, split: Split) -> list[Item]:
        """Return bias and soft cap on this rank's logits, in place."""
        return [
            kernel(
                f"head.{name}", memory_pass(kind, elements, split), ("logits",), "logits", component="head"
            )
            for wanted, kind, name in (
                (self.bias, "bias_add", "bias"),
                (self.softcap, "softcap", "softcap"),
            )
            if wanted
        ]
