"""Division of products and of tensors' elements over tensor-parallel ranks.

Answers: along which axis is a tensor divided after its columns were split into heads, moved or merged, and
which products must be divided together?
Elsewhere: which products divide their outputs, and which operators keep the division (division.py;
interop/tracing/division.py for decoders that were traced).

An axis is a list of factors, from the outermost to the innermost. Factors that come from the columns of a
product have a key, and the keys of factors of the same columns have the order of the factors. The
outermost of these factors is divided over ranks: if columns were split into heads and elements, the heads
are divided.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from math import gcd, prod
from typing import Any, Generic, TypeVar

from flopcast.graph.operator_graph import GraphNode, Shape
from flopcast.records import Record

Root = TypeVar("Root", bound=Hashable)  # the weight of a product that is divided by columns
Result = TypeVar("Result")
Key = tuple[int, ...]  # () for factors that are not columns
Factor = tuple[int, Key]
Axes = tuple[tuple[Factor, ...], ...]


class CannotDivideError(Exception):
    """The columns of some weights cannot be divided; the text is the reason."""

    def __init__(self, roots: Iterable[Hashable], reason: str) -> None:
        """Keep the weights, and the reason as the text."""
        super().__init__(reason)
        self.roots: frozenset[Hashable] = frozenset(roots)


class ColumnProducts(Generic[Root]):
    """The products that are divided by columns, and those of them that must be divided together."""

    def __init__(self) -> None:
        """Begin without products."""
        self.units: dict[Root, int] = {}  # the heads or columns of each product
        self.joined: dict[Root, frozenset[Root]] = {}  # with which products each must be divided
        self.ended: set[Root] = set()  # products whose output reaches a product that is divided by rows

    def add(self, root: Root, columns: int) -> frozenset[Root]:
        """Add a product of its own, and return it as a set."""
        self.units[root], self.joined[root] = columns, frozenset({root})
        return self.joined[root]

    def join(self, roots: frozenset[Root], *extents: int) -> None:
        """Record that products are divided together, by a degree that divides all of `extents`."""
        together = roots.union(*(self.joined[root] for root in roots))
        units = gcd(*extents, *(self.units[root] for root in together))
        for root in together:
            self.joined[root], self.units[root] = together, units

    def degree(self) -> int:
        """Return the number of heads or columns that a degree must divide; 1 if nothing is divided.

        Raises
        ------
        CannotDivideError
            A product by columns has no product by rows after it, or only a single head or column.
        """
        for root, together in self.joined.items():
            if not together & self.ended:
                raise CannotDivideError(together, "no GEMM that could be row-parallel reads its output")
            if self.units[root] == 1:
                raise CannotDivideError(together, "its output has a single head or column")
        return gcd(*self.units.values()) or 1


def divided(attempt: Callable[[Mapping[Any, str]], Result]) -> Result:
    """Return the first division that is possible.

    `attempt` divides all products except those of some weights, which are mapped to the reason why their
    products stay whole. After each CannotDivideError, the products that it names stay whole, too.
    """
    whole: dict[Hashable, str] = {}
    while True:
        try:
            return attempt(whole)
        except CannotDivideError as error:
            whole |= dict.fromkeys(error.roots - whole.keys(), str(error))


class Divided(Record):
    """The divided axis of a tensor.

    Attributes
    ----------
    axis : int
        Its place, counted from the last axis, which is -1.
    before : int
        The elements of the axis outside the divided factor.
    extent : int
        The number of parts into which the axis can be divided: heads or columns.
    """

    axis: int
    before: int
    extent: int


def columns(shape: Shape, axis: int, *factors: int) -> Axes:
    """Return the axes of a product's output, whose axis `axis` consists of columns.

    >>> columns((2, 16), -1, 4, 4)
    (((2, ()),), ((4, (0,)), (4, (1,))))
    """
    parts = tuple((size, (place,)) for place, size in enumerate(factors) if size > 1)
    return tuple(parts if place - len(shape) == axis else ((size, ()),) for place, size in enumerate(shape))


def divided_axis(axes: Axes) -> Divided | None:
    """Return the axis that is divided, or None if a single head or column is left.

    >>> divided_axis(columns((2, 16), -1, 4, 4))
    Divided(axis=-1, before=1, extent=4)
    """
    found = [
        (key, axis, place)
        for axis, factors in enumerate(axes)
        for place, (size, key) in enumerate(factors)
        if key and size > 1
    ]
    if not found:
        return None
    _, axis, place = min(found)
    before = prod(size for size, _ in axes[axis][:place])
    return Divided(axis=axis - len(axes), before=before, extent=axes[axis][place][0])


def viewed(node: GraphNode, before: Shape, after: Shape, axes: Axes) -> Axes | None:
    """Return the axes of a view of a divided tensor, or None if flopcast cannot follow the view."""
    if node.attributes.get("scattered"):
        return None
    order, taken = node.attributes.get("permutation"), node.attributes.get("taken")
    if isinstance(order, tuple):
        return tuple(axes[place] for place in order) if len(order) == len(axes) else None
    if isinstance(taken, int) and len(after) == len(before) - 1:
        place = taken % len(before)
        return axes[:place] + axes[place + 1 :]
    if prod(after) == prod(before):
        return reshaped(axes, after)
    return resized(before, after, axes)


def resized(before: Shape, after: Shape, axes: Axes) -> Axes | None:
    """Return the axes of a tensor after some axes changed their length and some were added in front.

    >>> resized((2, 8), (3, 2, 4), columns((2, 8), -1, 8))
    (((3, ()),), ((2, ()),), ((4, (0,)),))
    """
    if len(after) < len(before):
        return None
    more = len(after) - len(before)
    found: list[tuple[Factor, ...]] = [((size, ()),) for size in after[:more]]
    for old, new, factors in zip(before, after[more:], axes, strict=True):
        if old == new:
            found.append(factors)
        elif all(not key for _, key in factors):
            found.append(((new, ()),))
        elif len(factors) == 1:
            found.append(((new, factors[0][1]),))
        else:
            return None
    return tuple(found)


def reshaped(axes: Axes, shape: Shape) -> Axes | None:
    """Return the axes of a tensor after a reshape that keeps the order of its elements.

    >>> reshaped(columns((2, 16), -1, 16), (2, 4, 4))
    (((2, ()),), ((4, (0, 0)),), ((4, (0, 1)),))
    >>> reshaped(columns((3, 16), -1, 16), (2, 24)) is None
    True
    """
    left = _joined([factor for factors in axes for factor in factors if factor[0] > 1])[::-1]
    found = list[tuple[Factor, ...]]()
    for size in shape:
        parts, missing = list[Factor](), size
        while missing > 1 and left:
            whole, key = left.pop()
            if whole > missing:
                if whole % missing:
                    return None
                left.append((whole // missing, (*key, 1) if key else ()))
                whole, key = missing, (*key, 0) if key else ()
            if missing % whole:
                return None
            parts.append((whole, key))
            missing //= whole
        found.append(tuple(parts))
    return tuple(found)


def _joined(factors: Sequence[Factor]) -> list[Factor]:
    """Return the factors after neighbours that are not columns are joined."""
    found = list[Factor]()
    for size, key in factors:
        if found and not key and not found[-1][1]:
            found[-1] = (found[-1][0] * size, ())
        else:
            found.append((size, key))
    return found
