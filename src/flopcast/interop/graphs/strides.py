"""Facts that strides show about a tensor: the order of its elements, and which reshapes are views.

Answers: does memory with these strides hold a tensor of another shape in the order of its elements? Are the
channels of a pixel next to each other? The rule is that of PyTorch (aten/src/ATen/TensorUtils.cpp,
computeStride): axes that are contiguous in memory are merged, and each merged part must consist of whole
axes of the new shape.
"""

from typing import Literal

Sizes = tuple[int, ...]
Order = Literal["planes", "pixels", "strided"]


def is_view(shape: Sizes, strides: Sizes, new: Sizes) -> bool:
    """Return whether a tensor of shape `shape` can be viewed as one of shape `new`.

    >>> is_view((2, 3, 4), (12, 4, 1), (6, 4)), is_view((3, 2, 4), (4, 12, 1), (6, 4))
    (True, False)
    """
    joined = list[list[int]]()  # size and stride of the last axis of parts that are contiguous
    for size, stride in zip(shape, strides, strict=False):
        if size == 1:
            continue
        if joined and joined[-1][1] == size * stride:
            joined[-1] = [joined[-1][0] * size, stride]
        else:
            joined.append([size, stride])
    if 0 in shape:
        return True
    sizes = [size for size in new if size != 1]
    for part, _ in joined:
        filled = 1
        while filled < part and sizes:
            filled *= sizes.pop(0)
        if filled != part:
            return False
    return not sizes


def order_of(shape: Sizes, strides: Sizes) -> Order:
    """Return the order of a tensor's elements: nested axes, channels last, or another order.

    >>> order_of((2, 8, 4, 4), (128, 16, 4, 1)), order_of((2, 8, 4, 4), (128, 1, 32, 8))
    ('planes', 'pixels')
    """
    places = tuple(range(len(shape)))
    if _is_in_order(shape, strides, places):
        return "planes"
    last = (places[0], *places[2:], places[1]) if len(places) > 2 else places
    return "pixels" if _is_in_order(shape, strides, last) else "strided"


def _is_in_order(shape: Sizes, strides: Sizes, axes: Sizes) -> bool:
    """Return whether the axes, in this order, are nested without gaps."""
    expected = 1
    for axis in reversed(axes):
        if shape[axis] > 1 and strides[axis] != expected:
            return False
        expected *= shape[axis]
    return True
