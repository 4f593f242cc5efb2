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
    operator: str, shapes: Sequence[Sizes], strides: Sequence[Sizes], equation: str = ""
) -> Iterator[tuple[int, Sizes]]:
    """Yield the places of the inputs that an operator copies, and the shape of each copy.

    A product with a matrix merges all axes of rows of its other factor, and a batched product merges all
    axes of the batch. PyTorch copies a factor if its strides do not allow this, or if it is repeated over
    the batch of the other factor.

    >>> heads, joined = ((2, 8, 64, 32), (16384, 32, 256, 1)), ((2, 8, 32, 64), (16384, 2048, 64, 1))
    >>> list(copied_inputs("matmul", *zip(heads, joined)))
    [(0, (2, 8, 64, 32))]
    """
    if operator == "einsum" and len(shapes) == 2 and "." not in equation:
        yield from _of_einsum(shapes, strides, equation.replace(" ", ""))
        return
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
            yield place, shapes[place]
        return
    batch = tuple(map(max, zip(*(_batch_axes(shape, shapes) for shape in shapes[:2]), strict=True)))
    for place in (0, 1):
        given = _batch_axes(shapes[place], shapes)
        whole = (*batch, *shapes[place][-2:])
        repeated = given != batch and len(batch) > 1
        if repeated or not is_view(shapes[place], strides[place], (prod(given), *whole[-2:])):
            yield place, whole


def _of_einsum(
    shapes: Sequence[Sizes], strides: Sequence[Sizes], equation: str
) -> Iterator[tuple[int, Sizes]]:
    """Yield the copies that an einsum makes when it joins axes to one product of batches.

    Axes of both operands and of the output form the batch, axes of one operand form the rows or the
    columns, and axes that the output lacks are summed (PyTorch: sumproduct_pair of Linear.cpp).
    """
    operands, _, output = equation.partition("->")
    words = operands.split(",")
    if len(words) != 2 or any(len(word) != len(shape) for word, shape in zip(words, shapes, strict=True)):
        return
    shared = [letter for letter in output if letter in words[0] and letter in words[1]]
    summed = sorted(letter for letter in set(words[0]) & set(words[1]) if letter not in output)
    if not summed:
        return
    for place, word in enumerate(words):
        own = [letter for letter in output if letter in word and letter not in shared]
        groups = (shared, own, summed) if place == 0 else (shared, summed, own)
        axes = [word.index(letter) for group in groups for letter in group]
        shape = tuple(shapes[place][axis] for axis in axes)
        joined = tuple(prod(shapes[place][word.index(letter)] for letter in group) for group in groups)
        if not is_view(shape, tuple(strides[place][axis] for axis in axes), joined):
            yield place, shapes[place]


def _batch_axes(shape: Sizes, shapes: Sequence[Sizes]) -> Sizes:
    """Return the axes of a factor before its matrix, as many as the other factor has."""
    return (*(1 for _ in range(max(map(len, shapes[:2])) - len(shape))), *shape[:-2])
