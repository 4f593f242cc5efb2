"""The feed-forward layer: two linears and an activation, gated or not, and the channel mixing of RWKV.

Answers: fields, weights, sharding and forward items of a dense MLP. The inner width is divided over
tensor-parallel ranks. A gated MLP computes gate and value in one GEMM.

Tensors, each prefixed "mlp.": `in.full` (tokens, hidden) → `up` (tokens, inner or twice inner) → `inner`
(tokens, inner) → `partial` (tokens, hidden). In RWKV, `shifted` is between `in.full` and `up`. `received` →
`gate` (tokens, hidden) multiplies `down`, the partial sum of each rank.
"""

from functools import partial
from typing import ClassVar, Literal

from pydantic import Field

from flopcast.dtypes import constant
from flopcast.layers.base import (
    AbstractLayer,
    Split,
    Weight,
    linear_weights,
    memory_pass,
    replicated,
    row_parallel,
    whole_matrix,
)
from flopcast.operators.item import Item, in_part
from flopcast.operators.matmul import Matmul
from flopcast.operators.memory_bound import KINDS

_item = partial(in_part, "mlp")


class Mlp(AbstractLayer):
    """A feed-forward layer, `down(activation(up(x)))`.

    If the activation is gated, `up` computes two halves; one is multiplied by the activation of the other.

    Attributes
    ----------
    ffn_hidden : int
        Width between the two linear layers: usually 4 · hidden, or about 8/3 · hidden for gated activations
        (arXiv:2002.05202, section 2).
    activation : str
        Activation function; "relu2" is a squared ReLU (arXiv:2109.08668), "swiglu" and "geglu" are gated.
    bias : bool
        Whether both linear layers have a bias. The second bias is added after the all-reduce over
        tensor-parallel ranks.
    mix : str
        Channel mixing of RWKV. "shifted": the input is a weighted sum of each token and the one before it
        (RWKV-7, arXiv:2503.14456). "gated": the result is also multiplied by the sigmoid of a product of
        such a sum (RWKV-5 and -6, arXiv:2404.05892). "none": no channel mixing.
    """

    kind: Literal["mlp"] = "mlp"
    in_tensor_region: ClassVar[bool] = True  # the block gathers its input and sums its result
    ffn_hidden: int = Field(ge=1)
    activation: Literal["gelu", "silu", "relu", "relu2", "swiglu", "geglu"] = "gelu"
    bias: bool = False
    mix: Literal["none", "shifted", "gated"] = "none"

    @property
    def up_columns(self) -> int:
        """Return the columns of the first linear.

        >>> Mlp(ffn_hidden=11008, activation="swiglu").up_columns
        22016
        """
        return self.ffn_hidden * (2 if KINDS[self.activation].is_gated else 1)

    def linear_elements(self, hidden: int) -> int:
        """Return the elements of all matrices, by which every token is multiplied."""
        return hidden * (self.up_columns + self.ffn_hidden + (self.mix == "gated") * hidden)

    def weights(self, hidden: int, split: Split) -> tuple[Weight, ...]:
        """Return the up- and down-projection. The bias of the down-projection belongs to the block.

        The up-projection is divided along its output and the down-projection along its input, so no message
        is needed between them. Each rank holds the gate of RWKV whole, and multiplies its partial sum.
        """
        inner = self.ffn_hidden
        down = row_parallel("mlp.down", inner, hidden, split.tensor)
        both = (*linear_weights("mlp.up", hidden, self.up_columns, split.tensor, self.bias), down)
        if self.mix == "gated":
            both += (whole_matrix("mlp.gate", hidden, hidden), replicated("mlp.gate_shift", hidden))
        return both if self.mix == "none" else (*both, replicated("mlp.shift", hidden))

    def forward(self, hidden: int, split: Split) -> tuple[Item, ...]:
        """Return the items from "mlp.in.full" to "mlp.partial", the partial sum of one rank.

        They do not include the bias of the second linear layer, which is added with the residual after the
        sum over ranks (block.py).
        """
        tokens, dtype = split.tokens, split.dtype
        width, inner = self.up_columns / split.tensor, self.ffn_hidden / split.tensor
        up = Matmul(m=tokens, n=width, k=constant(hidden), dtype=dtype)
        down = Matmul(m=tokens, n=constant(hidden), k=inner, dtype=dtype)
        act = memory_pass(self.activation, tokens * inner, split)
        shift = memory_pass("token_shift", tokens * hidden, split)
        source = "in.full" if self.mix == "none" else "shifted"
        items = [] if self.mix == "none" else [_item("shift", shift, ("in.full",), "shifted")]
        items.append(_item("up", up, (source,), "up"))
        if self.bias:
            bias = memory_pass("bias_add", tokens * width, split)
            items.append(_item("up_bias", bias, ("up",), "up"))
        items.append(_item("activation", act, ("up",), "inner"))
        items.append(_item("down", down, ("inner",), "down" if self.mix == "gated" else "partial"))
        if self.mix == "gated":
            gate = Matmul(m=tokens, n=constant(hidden), k=constant(hidden), dtype=dtype)
            multiply = memory_pass("sigmoid_gate", tokens * hidden, split)
            items += [
                _item("gate_shift", shift, ("in.full",), "received"),
                _item("gate", gate, ("received",), "gate"),
                _item("multiply", multiply, ("down", "gate"), "partial"),
            ]
        return tuple(items)
