"""Configurations in Python text, as plain data with the line of every value. Nothing is executed.

Answers: which values does this text assign, and on which lines?
Elsewhere: readers for YAML (files/yaml_text.py) and TOML (toml_text.py).

Only assignments of literals, of names that were assigned before, of `dict(…)`, and of arithmetic on
numbers are read. Any other expression becomes the text `${…}`, which a reader of the value refuses.
"""

import ast
import operator
from collections.abc import Callable, Mapping
from typing import TypeGuard

from flopcast.errors import spec_error
from flopcast.files.yaml_text import MAX_DEPTH, Document, Path, decoded

MAX_NUMBER = 10**18
_ARITHMETIC: Mapping[type[ast.AST], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Pow: operator.pow,
}
MAX_EXPONENT = 64


def read_python(raw: bytes, name: str) -> Document:
    """Return the sections that a text assigns, and its values with lower-case names.

    Names in capital letters are constants of the text and are left out.

    Raises
    ------
    SpecError
        The text is not UTF-8, too large, nested too deeply, or not Python.

    Examples
    --------
    >>> document = read_python(b"HEADS = 8; model = dict(heads=HEADS, width=HEADS * 128)", "a.py")
    >>> document.data, document.where(("model", "width"))
    ({'model': {'heads': 8, 'width': 1024}}, 'a.py:1')
    """
    text, found = decoded(raw, name), _Values()
    try:
        for node in ast.parse(text).body:
            target = node.targets[0] if isinstance(node, ast.Assign) and len(node.targets) == 1 else None
            if isinstance(node, ast.Assign) and isinstance(target, ast.Name):
                found.names[target.id] = found.value(node.value, (target.id,))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        where = f"{name}:{getattr(error, 'lineno', None) or 1}"
        reason = error.msg if isinstance(error, SyntaxError) else "the text nests values too deeply"
        because, fault = f"Python reports: {reason}", "cannot be read"
        fix = f"correct line {getattr(error, 'lineno', None) or 1}, so that Python can read the file"
        raise spec_error("text", None, "well-formed Python", because, fix, where, fault) from None
    data = {key: value for key, value in found.names.items() if not key.isupper()}
    lines = {path: line for path, line in found.lines.items() if path[0] in data}
    return Document(name, data, {(): 1} | lines)


class _Values:
    """The names of a text and the lines of their values."""

    def __init__(self) -> None:
        """Start without names."""
        self.names: dict[str, object] = {}
        self.lines: dict[Path, int] = {}

    def value(self, node: ast.expr, path: Path) -> object:
        """Return the value of an expression at a path, or `${…}` if only Python can evaluate it.

        Raises
        ------
        ValueError
            Values are nested deeper than MAX_DEPTH levels.
        """
        if len(path) > MAX_DEPTH:
            raise ValueError(f"values are nested deeper than {MAX_DEPTH} levels")
        self.lines[path] = node.lineno
        if isinstance(node, ast.Constant):
            plain = node.value is None or isinstance(node.value, (bool, int, float, str))
            return node.value if plain else _unknown(node)
        if isinstance(node, ast.Name) and node.id in self.names:
            return self.names[node.id]
        if _is_dict(node):
            return {str(one.arg): self.value(one.value, (*path, str(one.arg))) for one in node.keywords}
        if isinstance(node, ast.Dict) and all(isinstance(key, ast.Constant) for key in node.keys):
            keys = [str(key.value) for key in node.keys if isinstance(key, ast.Constant)]
            pairs = zip(keys, node.values, strict=True)
            return {key: self.value(one, (*path, key)) for key, one in pairs}
        if isinstance(node, (ast.List, ast.Tuple)):
            return [self.value(one, (*path, at)) for at, one in enumerate(node.elts)]
        number = self._number(node, len(path))
        return _unknown(node) if number is None else number

    def _number(self, node: ast.expr, depth: int) -> float | None:
        """Return the result of arithmetic on known numbers; None for other expressions."""
        if depth > MAX_DEPTH:
            raise ValueError(f"values are nested deeper than {MAX_DEPTH} levels")
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            inner = self._number(node.operand, depth + 1)
            return None if inner is None else -inner
        if isinstance(node, ast.Name | ast.Constant):
            known = self.names.get(node.id) if isinstance(node, ast.Name) else node.value
            return known if isinstance(known, (int, float)) and not isinstance(known, bool) else None
        if not isinstance(node, ast.BinOp) or type(node.op) not in _ARITHMETIC:
            return None
        left, right = self._number(node.left, depth + 1), self._number(node.right, depth + 1)
        if left is None or right is None or (isinstance(node.op, ast.Pow) and abs(right) > MAX_EXPONENT):
            return None
        try:
            found = _ARITHMETIC[type(node.op)](left, right)
        except (ZeroDivisionError, OverflowError):
            return None
        return found if isinstance(found, (int, float)) and abs(found) <= MAX_NUMBER else None


def _is_dict(node: ast.expr) -> TypeGuard[ast.Call]:
    """Return whether an expression is `dict(name=value, …)`."""
    called = node.func if isinstance(node, ast.Call) and not node.args else None
    named = isinstance(called, ast.Name) and called.id == "dict"
    return named and isinstance(node, ast.Call) and all(one.arg for one in node.keywords)


def _unknown(node: ast.expr) -> str:
    """Return the text of an expression that only Python can evaluate."""
    return f"${{{ast.unparse(node)}}}"
