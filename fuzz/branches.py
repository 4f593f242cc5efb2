"""Branches of flopcast that an input takes, counted by marks in its code.

Answers: which arms of `if`, `for`, `while`, `except`, `case`, `and`, `or`, filters and function bodies ran?
Elsewhere: what is done with the counts (search.py).

`install` makes later imports of flopcast run marked code: each arm sets one byte of `HITS`. A mark
costs about 30 ns, so that importing a configuration takes 1.3 times as long;
with `sys.settrace` it takes 5 times as long.
"""

import ast
import marshal
import sys
from contextlib import suppress
from functools import cache
from hashlib import blake2b
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import cache_from_source
from types import CodeType, ModuleType
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Made = TypeVar("Made", bound=ast.AST)

MOST_BRANCHES = 2**16
HITS = bytearray(MOST_BRANCHES)
PLACES: list[str] = []  # "file:line" of every branch
NAME = "__branch_hits__"  # of a part of HITS in each marked module
STATE_BYTES = 16


class Marks(ast.NodeTransformer):
    """Sets a byte at the start of every arm of the functions of one file."""

    def __init__(self) -> None:
        self.lines: list[int] = []  # of the branches, whose numbers are their places in this list

    def _number(self, at: ast.AST) -> ast.Constant:
        self.lines.append(getattr(at, "lineno", 0))
        return ast.Constant(len(self.lines) - 1)

    def _arm(self, body: list[ast.stmt], at: ast.AST) -> list[ast.stmt]:
        hit = ast.Subscript(ast.Name(NAME, ast.Load()), self._number(at), ast.Store())
        return [_located(ast.Assign([hit], ast.Constant(1)), body[0] if body else at), *body]

    def _marked(self, value: ast.expr) -> ast.expr:
        setter = ast.Attribute(ast.Name(NAME, ast.Load()), "__setitem__", ast.Load())
        call = ast.Call(setter, [self._number(value), ast.Constant(1)], [])  # None, so that `or` goes on
        return ast.copy_location(ast.BoolOp(ast.Or(), [_located(call, value), value]), value)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        """Mark the body behind the docstring."""
        body = [self.visit(one) for one in node.body]
        start = 1 if ast.get_docstring(node, clean=False) is not None else 0
        node.body = [*body[:start], *self._arm(body[start:], node)]
        return node

    def _both(self, node: ast.AST) -> ast.AST:
        self.generic_visit(node)
        node.body = self._arm(node.body, node)  # type: ignore[attr-defined]
        node.orelse = self._arm(node.orelse, node)  # type: ignore[attr-defined]
        return node

    visit_If = visit_For = visit_While = _both  # noqa: N815

    def _body(self, node: ast.AST) -> ast.AST:
        self.generic_visit(node)
        node.body = self._arm(node.body, node)  # type: ignore[attr-defined]
        return node

    visit_ExceptHandler = visit_match_case = _body  # noqa: N815

    def visit_IfExp(self, node: ast.IfExp) -> ast.IfExp:
        """Mark both values of a conditional expression."""
        self.generic_visit(node)
        node.body, node.orelse = self._marked(node.body), self._marked(node.orelse)
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.BoolOp:
        """Mark every operand that an earlier one may make superfluous."""
        self.generic_visit(node)
        node.values = [node.values[0], *map(self._marked, node.values[1:])]
        return node

    def visit_comprehension(self, node: ast.comprehension) -> ast.comprehension:
        """Mark what passes the filters of a comprehension."""
        self.generic_visit(node)
        passes = [self._marked(_located(ast.Constant(True), one)) for one in node.ifs[:1]]
        node.ifs = [*node.ifs, *passes]
        return node


def _located(made: Made, at: ast.AST) -> Made:
    """Say that a new tree stands where another node does."""
    for one in ast.walk(made):
        ast.copy_location(one, at)
    return made


class Loader(SourceFileLoader):
    """Runs marked code, which it keeps beside the compiled code of Python under a name of its own."""

    def exec_module(self, module: ModuleType) -> None:
        """Run the marked code of a module; its marks set bytes of a part of `HITS`."""
        path = self.get_filename(module.__name__)
        code, lines = self._marked(path)
        first = len(PLACES)
        file = path.rpartition("/flopcast/")[2]  # the checkout may have that name, too
        PLACES.extend(f"{file}:{line}" for line in lines)
        setattr(module, NAME, memoryview(HITS)[first : len(PLACES)])
        exec(code, module.__dict__)

    def _marked(self, path: str) -> tuple[CodeType, list[int]]:
        """Return the marked code of a file and the lines of its branches, kept or new."""
        source, kept = self.get_data(path), cache_from_source(path, optimization="branches")
        state = blake2b(self.get_data(__file__) + source, digest_size=STATE_BYTES).digest()
        with suppress(OSError):
            data = self.get_data(kept)
            if data.startswith(state):
                found: tuple[CodeType, list[int]] = marshal.loads(data[STATE_BYTES:])
                return found
        tree, marks = ast.parse(source), Marks()
        _mark_functions(tree, marks)
        code = compile(tree, path, "exec", dont_inherit=True)
        if not sys.dont_write_bytecode:
            self.set_data(kept, state + marshal.dumps((code, marks.lines)))
        return code, marks.lines


def _mark_functions(node: ast.Module | ast.ClassDef, marks: Marks) -> None:
    """Mark the functions of a module and of its classes; what runs once, at its import, has no marks."""
    for place, one in enumerate(node.body):
        if isinstance(one, ast.ClassDef):
            _mark_functions(one, marks)
        elif isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef)):
            node.body[place] = marks.visit(one)


class Finder(MetaPathFinder):
    """Finds modules of flopcast where Python does, and gives them the loader above."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Return the spec of a module of flopcast, None for all others."""
        if fullname.partition(".")[0] != "flopcast":
            return None
        spec = PathFinder.find_spec(fullname, path)  # type: ignore[arg-type]
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = Loader(fullname, spec.loader.path)
        return spec


def install() -> None:
    """Mark what is imported from now on.

    Raises
    ------
    RuntimeError
        Modules of flopcast are imported already: they would have no marks.
    """
    if any(name.partition(".")[0] == "flopcast" for name in sys.modules):
        raise RuntimeError("flopcast is imported already, so its branches cannot be counted")
    sys.meta_path.insert(0, Finder())


def ran(file: str, numbers: NDArray[np.int64]) -> bool:
    """Return whether branches of a file of flopcast are among those with these numbers.

    Raises
    ------
    LookupError
        No file with this name has branches: it was renamed.
    """
    found = _branches_of(file, len(PLACES))
    if not found.size:
        raise LookupError(f"{file} is no file of flopcast")
    return bool(np.isin(found, numbers).any())


@cache
def _branches_of(file: str, num_places: int) -> NDArray[np.int64]:
    """Return the numbers of the branches of a file among the first of all places."""
    places = enumerate(PLACES[:num_places])
    return np.array([number for number, place in places if place.startswith(f"{file}:")], dtype=np.int64)


def taken() -> NDArray[np.int64]:
    """Return the numbers of the branches that ran since the last call, and forget them."""
    found = np.flatnonzero(np.frombuffer(HITS, dtype=np.uint8))
    HITS[:] = bytes(MOST_BRANCHES)
    return found
