"""Shared experts: experts that process every token.

Together they form one dense MLP, whose output is added to that of the routed experts.

Answers: which weights and items do shared experts add to a mixture of experts?
Elsewhere: their fields, and the routed experts (layers/experts.py).

References
----------
arXiv:2401.06066, section 3.2. The gate: Qwen1.5-MoE.
"""

from flopcast.dtypes import constant
from flopcast.layers.base import (
    Split,
    Weight,
    enter_tensor_parallel,
    leave_tensor_parallel,
    memory_pass,
    replicated,
)
from flopcast.layers.mlp import Mlp
from flopcast.operators.item import Item, kernel
from flopcast.operators.matmul import Matmul
from flopcast.records import replace


def shared_weights(mlp: Mlp, gate: bool, hidden: int, split: Split) -> tuple[Weight, ...]:
    """Return the weights of the dense MLP, divided as usual, and the gate, of which every rank holds all
    weights.
    """
    own = tuple(replace(weight, name=_shared(weight.name)) for weight in mlp.weights(hidden, split))
    return (*own, replicated("shared.gate", hidden)) if gate else own


def shared_items(mlp: Mlp, gate: bool, hidden: int, split: Split) -> tuple[Item, ...]:
    """Return items from "mlp.in" and "experts.sum" to "mlp.sum", in a separate tensor-parallel region.

    Parameters
    ----------
    gate : whether the sigmoid of one number per token scales the result

    Without a gather, the MLP reads the same tensor as router and experts, and this tensor is saved once.
    """
    whole = "shared.in.full" if split.sequence_parallel else "mlp.in"
    enter = enter_tensor_parallel("mlp.in", "shared.enter", hidden, split)
    inside = [
        replace(
            item,
            name=_shared(item.name),
            inputs=tuple(whole if name == "mlp.in.full" else _shared(name) for name in item.inputs),
            output=_shared(item.output),
            component="experts",
        )
        for item in mlp.forward(hidden, split)
    ]
    leave = leave_tensor_parallel("shared.partial", "shared.sum", "shared.leave", hidden, split)
    join = memory_pass("residual_add", split.own_tokens * hidden, split)
    return (
        replace(enter, output=whole),
        *inside,
        leave,
        *(_gate(hidden, split) if gate else ()),
        kernel("shared.join", join, ("experts.sum", "shared.sum"), "mlp.sum", component="experts"),
    )


def _gate(hidden: int, split: Split) -> tuple[Item, ...]:
    """Return the gate: one number per token, its sigmoid, and the product with the experts' result."""
    number = Matmul(m=split.own_tokens, n=constant(1), k=constant(hidden), dtype=split.dtype)
    scale = memory_pass("scale_rows", split.own_tokens * hidden, split)
    return (
        replace(kernel("shared.gate", number, ("mlp.in",), "shared.gate", component="experts"), wide=True),
        kernel("shared.scale", scale, ("shared.sum", "shared.gate"), "shared.sum", component="experts"),
    )


def _shared(name: str) -> str:
    """Return a name of the dense MLP as one of the shared experts: "mlp.up" is "shared.up"."""
    return f"shared.{name.removeprefix('mlp.')}"
