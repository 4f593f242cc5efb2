"""Multi-token prediction: modules after the last block, each of which predicts the token one position
later.

Answers: fields, weights, sharding and forward items of all modules but their logits.
Elsewhere: their logits and losses, which the head of the model computes (layers/head.py), their block
(layers/block.py), the stage that runs them (workload/stages.py).

Module i reads the output of the previous module (the first module reads the output of the last block) and
the embedding of the token i positions ahead. It norms and concatenates both, projects them to the hidden
width, and runs a block and a final norm. The embedding's table is the model's: the last stage of a pipeline
holds a copy of it, whose gradient is summed with that of the first.

Tensors of module i, each prefixed "mtp" and i: `in` (that of the last block: "x") → `hidden`; `embedded` →
`token`; both → `pair` (own tokens, 2 hidden) → `part` (tokens, share of hidden) → `x` → the block's → `y` →
`normed`.

References
----------
DeepSeek-V3, arXiv:2412.19437, section 2.2, equations 21 to 25. Sharding: `MultiTokenPredictionLayer` of
Megatron-Core (megatron/core/transformer/multi_token_prediction.py).
"""

from typing import Literal

from pydantic import Field

from flopcast.dtypes import constant
from flopcast.layers.base import (
    AbstractLayer,
    Split,
    Weight,
    column_parallel,
    enter_tensor_parallel,
    memory_pass,
    norm_weights,
)
from flopcast.layers.block import Block
from flopcast.layers.embedding import Embedding
from flopcast.operators.item import Item, blocking, kernel
from flopcast.operators.matmul import Matmul
from flopcast.operators.messages import AllGather
from flopcast.records import replace


class MultiTokenPrediction(AbstractLayer):
    """A sequence of `modules` modules, each with a block and norms of the block's kind.

    If `shared` is true, all modules use the weights of the first. `vocabulary` and `vocabulary_multiple`
    are those of the embedding. If the head reuses the table of the embedding (`tied`), its stage already
    has a copy of the table.
    """

    kind: Literal["mtp"] = "mtp"
    modules: int = Field(default=1, ge=1)
    shared: bool = False
    block: Block
    vocabulary: int = Field(ge=1)
    vocabulary_multiple: int = Field(default=128, ge=1)
    tied: bool = False

    @property
    def _embedding(self) -> Embedding:
        """Return the look-up of later tokens in the model's embedding, without positions."""
        return Embedding(vocabulary=self.vocabulary, vocabulary_multiple=self.vocabulary_multiple)

    def linear_elements(self, hidden: int) -> int:
        """Return the weights of one module that multiply a token, without the head."""
        inside = self.block.mixer.linear_elements(hidden) + self.block.feed_forward.linear_elements(hidden)
        return 2 * hidden * hidden + inside

    def weights(self, hidden: int, split: Split) -> tuple[Weight, ...]:
        """Return the norms, the projection and the block of each module with its own weights, and the table
        only once.

        The projection is divided along its output.
        """
        weights: list[Weight] = []
        for module in range(1, 2 if self.shared else self.modules + 1):
            projection = column_parallel("projection", 2 * hidden, hidden, split.tensor)
            norms = [
                weight
                for name in ("hidden_norm", "token_norm", "final_norm")
                for weight in norm_weights(
                    name, self.block.norm, hidden, self.block.norm_bias, self.block.norm_scale
                )
            ]
            own = (*norms, projection, *self.block.weights(hidden, split))
            weights += [replace(weight, name=f"mtp{module}.{weight.name}") for weight in own]
        if not self.tied:
            table = self._embedding.weights(hidden, split)[0]
            weights.append(replace(table, name="mtp.table", total=0, tied=True))
        return tuple(weights)

    def forward(self, hidden: int, split: Split) -> tuple[Item, ...]:
        """Return items from tensor "x" to tensor "y": the modules in order, after the last block.

        Each module writes its own tensor "normed" for the head.
        """
        items: list[Item] = []
        for module in range(1, self.modules + 1):
            source = "x" if module == 1 else f"mtp{module - 1}.y"
            inside = (*self._join(hidden, split), *self._predict(hidden, split))
            items += [_named(item, f"mtp{module}.", source) for item in inside]
        return tuple(items)

    def _join(self, hidden: int, split: Split) -> list[Item]:
        """Return hidden state and embedding, normed and concatenated, projected to tensor "x" of the block.

        The projection is column parallel: its whole input is gathered, and so are the columns of its
        output. Backward that gather is counted as a reduce-scatter; without sequence parallelism it is a
        cut that sends nothing, and this is one message of each module too many.
        """
        tokens, own = split.tokens, split.own_tokens
        look_up = [
            replace(item, output="embedded" if item.output == "y" else item.output)
            for item in self._embedding.forward(hidden, split)
        ]
        product = Matmul(m=tokens, n=hidden / split.tensor, k=constant(2 * hidden), dtype=split.dtype)
        both = memory_pass("copy", 2 * own * hidden, split)
        whole = AllGather(axis="tp", message_bytes=tokens * hidden * split.element_bytes)
        return [
            *look_up,
            self._norm("hidden_norm", "in", "hidden", hidden, split),
            self._norm("token_norm", "embedded", "token", hidden, split),
            kernel("pair", both, ("hidden", "token"), "pair", component="mtp"),
            enter_tensor_parallel("pair", "enter", 2 * hidden, split),
            kernel("projection", product, ("pair.full",), "part", component="mtp"),
            blocking("leave", whole, "part", "x"),
        ]

    def _predict(self, hidden: int, split: Split) -> list[Item]:
        """Return the block, and the norm before the head."""
        return [*self.block.forward(hidden, split), self._norm("final_norm", "y", "normed", hidden, split)]

    def _norm(self, name: str, source: str, output: str, hidden: int, split: Split) -> Item:
        """Return a norm of the block's kind over own tokens."""
        work = memory_pass(self.block.norm, split.own_tokens * hidden, split, constant(hidden))
        return kernel(name, work, (source,), output, component="norm")


def _named(item: Item, prefix: str, source: str) -> Item:
    """Return an item of one module: its name and its tensors name the module; "in" is the input."""
    shared = {"in": source, "ids": "ids"}
    inputs = tuple(shared.get(name, f"{prefix}{name}") for name in item.inputs)
    return replace(item, name=f"{prefix}{item.name}", inputs=inputs, output=f"{prefix}{item.output}")
