"""Copies of inputs that PyTorch makes because of their strides.

Answers: which inputs does an operator copy before it runs, and what shape has each copy?
Elsewhere: the rule of reshapes (strides.py).
"""

from collections.abc import Iterator, Sequence
from math import prod

from flopcast.interop.graphs.strides import Sizes, is_view

PRODUCTS = ("matmul", "linear")
WHOLE = ("group_norm",)  # operators that need their first input without gaps, in the order of its axes


def copied_inputs(
    operator: str, shapes: Sequence[Sizes], strides: Sequence[Sizes]
) -> Iterator[tuple[int, Sizes]]:
    """Yield the places of the inputs that an operator copies, and the shape of each copy.

    A product with a matrix joins the rows of its other factor, and a product of batches joins their axes; a
    factor whose strides do not allow that is copied, as is one that is repeated over the other's batch.

    >>> heads, joined = ((2, 8, 64, 32), (16384, 32, 256, 1)), ((2, 8, 32, 64), (16384, 2048, 64, 1))
    >>> list(copied_inputs("matmul", *zip(heads, joined)))
    [(0, (2, 8, 64, 32))]
    """
    if operator in WHOLE and shapes:
        if not is_view(shapes[0], strides[0], (prod(shapes[0]),)):
            yield 0, shapes[0]
        return
    if operator not in PRODUCTS or len(shapes) < 2 or max(map(len, shapes[:2])) < 3:
        return
    if min(map(len, shapes[:2])) < 3:
        place = 0 if len(shapes[0]) > 2 else 1
        shape = shapes[place]
        if not is_view(shape, strides[place], (prod(shape[:-1]), shape[-1])):
            yield place, shape
        return
    batch = tuple(map(max, zip(*(_batch_axes(shape, shapes) for shape in shapes[:2]), strict=True)))
    for place in (0, 1):
        given = _batch_axes(shapes[place], shapes)
        whole = (*batch, *shapes[place][-2:])
        repeated = given != batch and len(batch) > 1
        if repeated or not is_view(shapes[place], strides[place], (prod(given), *whole[-2:])):
            yield place, whole


def _batch_axes(shape: Sizes, shapes: Sequence[Sizes]) -> Sizes:
    """Return the axes of a factor before its matrix, as many as the other factor has."""
    return (*(1 for _ in range(max(map(len, shapes[:2])) - len(shape))), *shape[:-2])
