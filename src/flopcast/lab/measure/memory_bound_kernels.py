"""Torch programs of memory-bound classes: norms, activations, softmax, sums, copies.

Answers: which torch code runs one forward pass, or one backward pass, over `tokens` rows of `width`?
Elsewhere: products and attention (kernels.py), bytes (operators/memory_bound.py). Each class is one line of
FORWARDS; its backward pass is torch's derivative of it.

Classes in COMPILED (shapes.py) are one kernel only if torch compiles them (triton). If their operators
run one after another, they belong to another class ("unfused_rope"). For a gated activation `width`
counts the output.
"""

from collections.abc import Callable
from functools import cache
from importlib import import_module

from flopcast.lab.measure.device import Place, Tensor, Torch
from flopcast.lab.measure.shapes import COMPILED, Shape
from flopcast.lab.measure.timing import Run

EPSILON = 1e-5
DROPOUT_FRACTION = 0.1
Forward = Callable[[Torch, Tensor, Tensor], Tensor]  # torch, the input, what else the class needs


def _rms_norm(torch: Torch, x: Tensor, weight: Tensor) -> Tensor:
    """Return the root-mean-square norm, x / sqrt(mean(x²) + ε) · weight, computed in fp32 as in models."""
    wide = x.float()
    normal = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + EPSILON)
    return weight * normal.to(x.dtype)


def _rope(torch: Torch, x: Tensor, angles: Tensor) -> Tensor:
    """Return rows with rotated halves; `angles` holds cosines and sines."""
    cosine, sine = angles.chunk(2, dim=-1)
    first, second = x.chunk(2, dim=-1)
    turned = torch.cat((-second, first), dim=-1)
    return x * cosine + turned * sine


def _swiglu(torch: Torch, x: Tensor, _: Tensor) -> Tensor:
    gate, up = x.chunk(2, dim=-1)
    return torch.nn.functional.silu(gate) * up


def _cross_entropy(torch: Torch, x: Tensor, labels: Tensor) -> Tensor:
    return torch.nn.functional.cross_entropy(x, labels)


def _layer_norm(torch: Torch, x: Tensor, weight: Tensor) -> Tensor:
    return torch.nn.functional.layer_norm(x, weight.shape, weight, weight, EPSILON)


FORWARDS: dict[str, Forward] = {
    "gelu": lambda torch, x, _: torch.nn.functional.gelu(x, approximate="tanh"),
    "layernorm": _layer_norm,
    "softmax": lambda torch, x, _: torch.softmax(x, -1),
    "dropout": lambda torch, x, _: torch.nn.functional.dropout(x, DROPOUT_FRACTION, True),
    "mask_fill": lambda _, x, mask: x.masked_fill(mask, -1e4),
    "unfused_rmsnorm": _rms_norm,
    "unfused_rope": _rope,
    "residual_add": lambda _, x, other: x + other,
    "cross_entropy": _cross_entropy,
    "swiglu": _swiglu,
    "rmsnorm": _rms_norm,
    "rope": _rope,
}
WIDE = ("swiglu",)  # whose input holds two widths


def _extra(name: str, shape: Shape, place: Place) -> Tensor:
    """Return the second operand: weights, angles, a mask, labels, or the other summand; None if there is
    none.

    Angles and a mask have one row for all tokens, because a model's tables are small compared with the
    tensors to which they are applied, and its operators do not count their bytes
    (operators/memory_bound.py).
    """
    tokens, width, dtype = shape.size("tokens"), shape.size("width"), shape.dtype
    if name in ("layernorm", "rmsnorm", "unfused_rmsnorm"):
        return place.random(width, dtype=dtype, grad=True)
    if name in ("rope", "unfused_rope"):
        return place.random(1, 2 * width, dtype=dtype)
    if name == "mask_fill":
        return place.random(1, width, dtype=dtype) > 0
    if name == "cross_entropy":
        return place.ids(tokens, width)
    return place.random(tokens, width, dtype=dtype) if name == "residual_add" else None


def backward_of(output: Tensor, inputs: tuple[Tensor, ...], place: Place) -> Run:
    """Return gradients of `inputs` from a random gradient of `output`; the graph is kept for later runs."""
    gradient = place.torch.randn_like(output)
    grad = place.torch.autograd.grad
    return lambda: grad(output, inputs, gradient, retain_graph=True)


def _pass(name: str, gradient: bool) -> Callable[[Shape, Place], Run]:
    """Return one class in one direction.

    The backward pass of a norm includes the gradient of its weight, because every training needs it; the
    graph of the forward pass is built once and is not timed.
    """

    def make(shape: Shape, place: Place) -> Run:
        torch = place.torch
        width = shape.size("width") * (2 if name in WIDE else 1)
        extra = _extra(name, shape, place)
        x = place.random(shape.size("tokens"), width, dtype=shape.dtype, grad=gradient)
        function = _compiled(name, torch) if name in COMPILED else FORWARDS[name]
        if not gradient:
            fixed = extra.detach() if extra is not None else None
            return lambda: function(torch, x, fixed)
        output = function(torch, x, extra)
        learned = (extra,) if getattr(extra, "requires_grad", False) else ()
        return backward_of(output, (x, *learned), place)

    return make


@cache
def _compiled(name: str, torch: Torch) -> Forward:
    """Return a function that is compiled once for all sizes, because compiling takes seconds.

    Backward passes run repeatedly, so their inputs must not be donated.
    """
    config: Torch = import_module("torch._functorch.config")
    if hasattr(config, "donated_buffer"):
        config.donated_buffer = False
    compiled = torch.compile(lambda x, extra: FORWARDS[name](torch, x, extra), dynamic=True)
    return lambda _, x, extra: compiled(x, extra)


def _moved(
    out_dtype: str = "", transposed: bool = False, adds: bool = False
) -> Callable[[Shape, Place], Run]:
    """Return a copy into other memory: with another type, transposed, or added to it."""

    def make(shape: Shape, place: Place) -> Run:
        tokens, width = shape.size("tokens"), shape.size("width")
        x = place.random(tokens, width, dtype=shape.dtype)
        sizes = (width, tokens) if transposed else (tokens, width)
        out = (place.random if adds else place.empty)(*sizes, dtype=out_dtype or shape.dtype)
        if adds:
            return lambda: out.add_(x)
        return lambda: out.copy_(x.t() if transposed else x)

    return make


STREAMS: dict[str, Callable[[Shape, Place], Run]] = {
    **{name: _pass(name, gradient=False) for name in FORWARDS},
    **{f"{name}.backward": _pass(name, gradient=True) for name in FORWARDS},
    "copy": _moved(),
    "transpose": _moved(transposed=True),
    "cast_to_fp32": _moved("fp32"),
    "accumulate_main_gradient": _moved("fp32", adds=True),
}
