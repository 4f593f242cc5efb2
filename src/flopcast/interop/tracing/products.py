"""FLOP of the operators that torch dispatches, computed only from shapes.

Answers: how many FLOP does one ATen operator need on tensors of these shapes?
Elsewhere: the operators that a model dispatches (recorder.py). torch's own counter supports neither
attention on a processor nor grouped products; this table does not need torch.

Only matrix products count, a multiply and an add each, as everywhere in flopcast. Attention counts every
pair of positions, masked or not. An operator that the table lacks is a pass over tensors and has 0 FLOP.
"""

from collections.abc import Callable, Sequence
from math import prod

Shape = tuple[int, ...]
Rule = Callable[[Sequence[Shape]], float]


def _product(left: Shape, right: Shape) -> float:
    """Return 2 · m · n · k of `left[.., m, k] @ right[.., k, n]`, over all leading axes of the left.

    If the rows of a grouped product are divided among groups, `left` has the shape (rows, k) and `right`
    (groups, k, n). If the terms of the sums are divided among groups, both are matrices.
    """
    return 2.0 * prod(left) * right[-1]


def _attention(shapes: Sequence[Shape], wide: int, narrow: int) -> float:
    """Return the FLOP of `wide` products over query and key elements and `narrow` ones over values."""
    query, key, value = shapes
    batch_heads, elements = prod(query[:-2]), wide * query[-1] + narrow * value[-1]
    return 2.0 * batch_heads * query[-2] * key[-2] * elements


def _forward_attention(shapes: Sequence[Shape]) -> float:
    """Return FLOP of scores and context."""
    return _attention(shapes[:3], wide=1, narrow=1)


def _backward_attention(shapes: Sequence[Shape]) -> float:
    """Return the FLOP of five products, with recomputed scores; the output's gradient comes first."""
    return _attention(shapes[1:4], wide=3, narrow=2)


def _convolution(shapes: Sequence[Shape]) -> float:
    """Return the FLOP of a convolution: every output element sums over one filter; the length stays."""
    image, filters = shapes[:2]
    return 2.0 * image[0] * filters[0] * prod(image[2:]) * prod(filters[1:])


FUSED = "_scaled_dot_product_"
KERNELS = "flash_attention_for_cpu flash_attention efficient_attention cudnn_attention"
FUSED_ATTENTION = tuple(f"{FUSED}{name}" for name in (*KERNELS.split(), "fused_attention_overrideable"))
RULES: dict[str, Rule] = {
    **dict.fromkeys(("mm", "bmm", "addmm", "baddbmm", "addbmm"), lambda shapes: _product(*shapes[-2:])),
    "_grouped_mm": lambda shapes: _product(*shapes[:2]),
    **dict.fromkeys(FUSED_ATTENTION, _forward_attention),
    **{f"{name}_backward": _backward_attention for name in FUSED_ATTENTION},
    "fused_attention": _forward_attention,
    "fused_attention_backward": _backward_attention,
    "convolution": _convolution,
    "convolution_backward": lambda shapes: 2.0 * _convolution(shapes[1:3]),
}


def flop_of(name: str, shapes: Sequence[Shape]) -> float:
    """Return FLOP of one operator, 0 for a pass over tensors.

    Parameters
    ----------
    name : the name in ATen, without namespace and overload: "mm"
    shapes : those of the tensors among its arguments, in order

    Examples
    --------
    >>> flop_of("addmm", [(16,), (8, 4), (4, 16)]), flop_of("add", [(8, 16), (8, 16)])
    (1024.0, 0.0)

    The examples are four experts that share eight rows, and two query heads of eight positions with their
    keys:

    >>> flop_of("_grouped_mm", [(8, 4), (4, 4, 16), (4,)])
    1024.0
    >>> flop_of("_scaled_dot_product_flash_attention_for_cpu", [(1, 2, 8, 4)] * 3)
    2048.0
    """
    rule = RULES.get(name)
    return rule(shapes) if rule else 0.0
