"""Attention as one kernel, for models with a selectable attention.

Answers: what does a model run if its scores are never written?
Elsewhere: attention that writes its scores, which is the model's own code ("eager").

On a processor, torch has no attention kernel with the features of the GPU kernels: causal without a mask,
grouped keys and values without repetition, values that are narrower than keys. flopcast therefore defines
an operator, which has shapes and a gradient but computes nothing. It keeps what FlashAttention keeps: its
inputs, its output, and one fp32 number for each row (arXiv:2205.14135, section 3.1).
"""

from functools import cache
from importlib import import_module
from typing import Any

from flopcast.interop.tracing.recorder import Result, Tensor, Torch

NAME = "flopcast_fused"  # by which transformers knows it
FORWARD = "flopcast::fused_attention"
BACKWARD = f"{FORWARD}_backward"


@cache
def offer() -> str:
    """Register the operator and the attention once; return the attention's name in transformers."""
    torch: Torch = import_module("torch")
    transformers: Any = import_module("transformers")
    library = torch.library
    reads = "Tensor q, Tensor k, Tensor v"
    schema = f"({reads}) -> (Tensor, Tensor)"
    forward = library.custom_op(FORWARD, _stopped, mutates_args=(), schema=schema)
    schema = f"(Tensor dy, {reads}, Tensor y, Tensor s) -> (Tensor, Tensor, Tensor)"
    backward = library.custom_op(BACKWARD, _stopped, mutates_args=(), schema=schema)
    library.register_fake(FORWARD, _shapes)
    library.register_fake(BACKWARD, _shapes_of_gradients)

    def gradients(context: Result, grad: Tensor, _: Tensor) -> Result:
        return backward(grad.contiguous(), *context.saved_tensors)

    library.register_autograd(FORWARD, gradients, setup_context=_save)

    def attend(_: object, query: Tensor, key: Tensor, value: Tensor, *__: object, **___: object) -> Result:
        return forward(query, key, value)[0], None

    transformers.AttentionInterface.register(NAME, attend)
    return NAME


def _stopped(*_: Tensor) -> Result:
    """Raise an error: the operator has no kernel, because only fake tensors reach it."""
    raise NotImplementedError(f"{FORWARD} computes nothing")


def _shapes(q: Tensor, _: Tensor, v: Tensor) -> Result:
    """Return shapes (sequences, heads, tokens, elements) as (sequences, tokens, heads, elements)."""
    sequences, heads, tokens = q.shape[:3]
    sums = q.new_empty(sequences, heads, tokens, dtype=import_module("torch").float32)
    return q.new_empty(sequences, tokens, heads, v.shape[-1]), sums


def _shapes_of_gradients(_: Tensor, q: Tensor, k: Tensor, v: Tensor, *__: Tensor) -> Result:
    return tuple(x.new_empty(x.shape) for x in (q, k, v))


def _save(ctx: Result, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*inputs, *output)
