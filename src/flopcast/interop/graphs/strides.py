"""Whether a reshape is a view or a copy, by the strides of its input.

Answers: does memory with these strides hold a tensor of another shape in the order of its elements?
The rule is that of PyTorch (aten/src/ATen/TensorUtils.cpp, computeStride): axes that lie behind each other
in memory join, and each part must hold whole axes of the new shape.
"""

Sizes = tuple[int, ...]


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
