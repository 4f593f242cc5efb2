"""Facts about axes that the arguments of ATen's operators state and shapes do not show.

Answers: in which order does a view have the axes of its input, which axis does it lack, and along which
axes does an operator work?
Elsewhere: the effect on the division of tensors (graph/shards.py), all other arguments (aten.py).
"""

from collections.abc import Mapping

from flopcast.graph.operator_graph import Attribute, Shape

Arguments = Mapping[str, object]
SWAPS = ("transpose", "swapaxes", "swapdims", "t", "mT", "adjoint")
SCATTERED = (  # views whose axes do not follow from shapes
    *("movedim", "diagonal", "as_strided", "view_as_real", "view_as_complex", "real", "imag"),
    *("conj", "_conj"),
)
JOINS = ("cat", "concat", "concatenate", "stack")


def of_view(base: str, shape: Shape, arguments: Arguments) -> dict[str, Attribute]:
    """Return the facts about a view that shapes do not show: the order of its axes, or the axis that it
    lacks.

    >>> of_view("transpose", (2, 8, 4), {"dim0": 1, "dim1": -1}), of_view("unbind", (3, 2), {})
    ({'permutation': (0, 2, 1)}, {'taken': 0})
    """
    axes = len(shape)
    places = list(range(axes))
    if base in SCATTERED:
        return {"scattered": True}
    if axes < 2:
        return {}
    if base in SWAPS:
        word = "axis" if base == "swapaxes" else "dim"
        first, second = (_place(arguments.get(f"{word}{end}"), axes, axes - 2 + end) for end in (0, 1))
        places[first], places[second] = second, first
        return {"permutation": tuple(places)}
    if base == "permute":
        order = arguments.get("dims")
        return {"permutation": tuple(each % axes for each in order) if isinstance(order, list) else ()}
    if base == "numpy_T":
        return {"permutation": tuple(places[::-1])}
    return {"taken": _place(arguments.get("dim"), axes, 0)} if base in ("select", "unbind") else {}


def along(base: str, arguments: Arguments) -> dict[str, Attribute]:
    """Return the axes along which an operator works, if it states them.

    >>> along("softmax", {"dim": -1}), along("mean", {"dim": [2, 3]}), along("relu", {})
    ({'along': -1}, {'along': (2, 3)}, {})
    """
    stated = arguments.get("dim", 0 if base in JOINS else None)
    if isinstance(stated, list):
        return {"along": tuple(stated)}
    return {"along": stated} if isinstance(stated, int) else {}


def _place(axis: object, axes: int, usual: int) -> int:
    """Return the place of an axis that may be counted from the last; `usual` if none is stated."""
    return axis % axes if isinstance(axis, int) else usual
