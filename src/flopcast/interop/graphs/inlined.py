"""Calls of an exported graph, including those inside its subgraphs.

Answers: which calls does a torch.export graph make if each subgraph is inserted at its single call?
Elsewhere: the meaning of the calls (archive.py, aten.py).

`torch.no_grad()` and autocast inside a model become calls of a subgraph: "wrap_with_set_grad_enabled".
"""

from collections.abc import Iterator, Mapping
from typing import Any

from flopcast.records import Record

Data = Mapping[str, Any]
DEEPEST = 8  # graphs inside of graphs


class CallData(Record, eq=False):
    """A call: its operator, its tensors by argument, its other arguments by name, and its results."""

    target: str
    tensors: Mapping[str, tuple[str, ...]]
    arguments: Mapping[str, object]
    outputs: tuple[str, ...]


def inlined(graph: Data) -> tuple[dict[str, Data], list[CallData], list[str]]:
    """Return the tensors by name, the calls, and the names of the outputs of a graph, with subgraphs
    inserted.

    Raises
    ------
    KeyError, TypeError, ValueError
        The graph does not have the expected form.
    """
    values: dict[str, Data] = {}
    calls: list[CallData] = []
    outputs = _walk(graph, "", {}, values, calls, 0)
    return values, calls, outputs


def _walk(
    graph: Data,
    prefix: str,
    renamed: Mapping[str, str],
    values: dict[str, Data],
    calls: list[CallData],
    depth: int,
) -> list[str]:
    """Add the tensors and calls of a subgraph under their outer names; return its outputs."""
    if depth > DEEPEST:
        raise ValueError(f"graphs are nested in more than {DEEPEST} levels")
    aliases = dict(renamed)

    def named(name: str) -> str:
        return aliases.get(name, prefix + name)

    for name, value in graph["tensor_values"].items():
        values.setdefault(named(name), value)
    for place, node in enumerate(graph["nodes"]):
        outputs = [named(name) for each in node["outputs"] for name in _tensors(each)]
        graphs = (each["arg"]["as_graph"] for each in node["inputs"] if "as_graph" in each["arg"])
        inner = next(graphs, None)
        given = {
            each["name"] or str(number): tuple(map(named, _tensors(each["arg"])))
            for number, each in enumerate(node["inputs"])
        }
        if inner is None:
            others = {each["name"]: _plain(each["arg"]) for each in node["inputs"]}
            call = CallData(target=node["target"], tensors=given, arguments=others, outputs=tuple(outputs))
            calls.append(call)
            continue
        entering = [name for names in given.values() for name in names]
        inside = [name for each in inner["graph"]["inputs"] for name in _tensors(each)]
        within = f"{prefix}{inner['name']}.{place}."
        entered = dict(zip(inside, entering, strict=False))
        results = _walk(inner["graph"], within, entered, values, calls, depth + 1)
        for outer, name in zip(node["outputs"], results, strict=False):
            aliases |= dict.fromkeys(_tensors(outer), name)
        flat = [name for each in node["outputs"] for name in _tensors(each)]
        aliases |= dict(zip(flat, results, strict=False))
    return [named(name) for each in graph["outputs"] for name in _tensors(each)]


def _tensors(argument: Data) -> Iterator[str]:
    """Yield the names of the tensors in an argument."""
    for kind, value in argument.items():
        if kind == "as_tensor":
            yield str(value["name"])
        elif kind == "as_tensors":
            yield from (str(each["name"]) for each in value)
        elif kind in ("as_optional_tensor", "as_optional_tensors"):
            several = value if isinstance(value, list) else [value]
            yield from (str(each["as_tensor"]["name"]) for each in several if "as_tensor" in each)


def _plain(argument: Data) -> object:
    """Return the value of an argument that is a number, a string or a list of them, and None otherwise."""
    plain = ("as_int", "as_float", "as_bool", "as_string", "as_ints", "as_floats", "as_bools")
    return next((value for kind, value in argument.items() if kind in plain), None)
