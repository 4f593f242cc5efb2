"""Sizes of exported graphs: numbers, or expressions of names for which a user gives values.

Answers: what is the size of an axis, given the user's sizes, and which names lack a size?
Elsewhere: the files that contain them (archive.py, onnx_file.py).

An expression is parsed, never run. `torch.export` writes "Mul(Integer(2), Symbol('s77', …))", and ONNX
writes a name.
"""

import ast
import operator
from collections.abc import Callable, Iterable, Mapping
from math import ceil, prod
from typing import Any

from flopcast.errors import Problem, SpecError, spec_error
from flopcast.fixes import write
from flopcast.records import Record, field
from flopcast.slips import meant

BATCH = "batch"  # the name that every file accepts for the number of samples
MOST_POWER = 64  # sizes of axes are whole numbers of 64 bits
FUNCTIONS: dict[str, Callable[[list[Any]], Any]] = {
    "Integer": lambda given: given[0],
    "Add": sum,
    "Mul": prod,
    "Pow": lambda given: given[0] ** min(given[1], MOST_POWER),
    "Max": max,
    "Min": min,
    **dict.fromkeys(("FloorDiv", "CleanDiv"), lambda given: given[0] // given[1]),
    **dict.fromkeys(("Mod", "PythonMod"), lambda given: given[0] % given[1]),
    **dict.fromkeys(("Rational", "IntTrueDiv"), lambda given: given[0] / given[1]),
    **dict.fromkeys(("CeilToInt", "ceiling"), lambda given: ceil(given[0])),
    **dict.fromkeys(("FloorToInt", "floor", "TruncToInt"), lambda given: int(given[0] // 1)),
    "ToFloat": lambda given: float(given[0]),
    "Float": lambda given: float(given[0]),
}
OPERATIONS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
}


class Symbols(Record, eq=False):
    """The values of names in sizes. The object collects the names without a value, and the place where
    each was first seen.

    Attributes
    ----------
    given : mapping
        Sizes that the user states, by name.
    missing : dict
        Names without a size, and the place where each was first seen.
    """

    given: Mapping[str, int]
    missing: dict[str, str] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    parsed: dict[str, ast.expr] = field(default_factory=dict)

    def value(self, name: str, where: str) -> int:
        """Return the size of a name; 1 for a name without a size, which `require` then reports."""
        self.used.add(name)
        if name not in self.given:
            self.missing.setdefault(name, where)
        return self.given.get(name, 1)

    def of(self, expression: str, where: str) -> int:
        """Return the value of an expression.

        >>> Symbols(given={"s7": 8}).of("Mul(Integer(3), Symbol('s7', integer=True))", "x")
        24

        Raises
        ------
        SpecError
            The expression has a function that flopcast does not know.
        """
        try:
            if expression not in self.parsed:
                self.parsed[expression] = ast.parse(expression[:10_000], mode="eval").body
            return int(self._value(self.parsed[expression], where))
        except (SyntaxError, ValueError, TypeError, KeyError, ArithmeticError, RecursionError):
            allowed = f"sums, products and quotients of names ({', '.join(FUNCTIONS)})"
            because, fix = "the size cannot be computed", "export the model with fixed sizes"
            raise spec_error("graph.size", expression, allowed, because, fix, where) from None

    def named(self, text: str, where: str) -> int:
        """Return the size of a name that may be an expression; other texts count as plain names.

        >>> Symbols(given={"s7": 8}).named("s7*2 + 1", "x")
        17
        """
        try:
            part = ast.parse(text[:10_000], mode="eval").body
            return int(self._value(part, where))
        except (SyntaxError, ValueError, TypeError, KeyError, ArithmeticError, RecursionError):
            return self.value(text, where)

    def _value(self, part: ast.expr, where: str) -> int | float:
        if isinstance(part, ast.Constant) and isinstance(part.value, (int, float)):
            return part.value
        if isinstance(part, ast.UnaryOp) and isinstance(part.op, ast.USub):
            return -self._value(part.operand, where)
        if isinstance(part, ast.BinOp) and type(part.op) in OPERATIONS:
            pair = self._value(part.left, where), self._value(part.right, where)
            combined: int | float = OPERATIONS[type(part.op)](*pair)
            return combined
        if isinstance(part, ast.Name):
            return self.value(part.id, where)
        if isinstance(part, ast.Call) and isinstance(part.func, ast.Name):
            first = part.args[0] if part.args else None
            if part.func.id == "Symbol" and isinstance(first, ast.Constant):
                return self.value(str(first.value), where)
            values = [self._value(each, where) for each in part.args]
            result: int | float = FUNCTIONS[part.func.id](values)
            return result
        raise ValueError(ast.dump(part))

    def require(self, file: str) -> None:
        """Check that every name has a size.

        Raises
        ------
        SpecError
            A name has no size, or the user gives a size for a name that the file does not have.
        """
        problems = []
        for name, where in self.missing.items():
            allowed, because = "a whole number above 0", f"{where} is a symbolic size in the file"
            fix = f"add --size {name}=NUMBER"
            problems.append(Problem(f"--size {name}", "", allowed, because, fix, file, "is missing"))
        for name in self.given:
            if name not in self.used and name != BATCH:
                only = f"only {BATCH}, because the file has no symbolic sizes"
                allowed = ", ".join(sorted(self.used)) or only
                because = "the file has no symbolic size with this name"
                problems.append(Problem("--size", name, allowed, because, f"remove --size {name}", file))
        if problems:
            raise SpecError(problems)


def sizes_of(words: Iterable[str]) -> dict[str, int]:
    """Return sizes by name from texts such as "batch=8".

    >>> sizes_of(("batch=8", "tokens=512"))
    {'batch': 8, 'tokens': 512}

    Raises
    ------
    SpecError
        A text is not a name with a whole number.
    """
    found: dict[str, int] = {}
    for word in words:
        name, _, number = word.partition("=")
        if not name or not number.isdecimal() or not 0 < int(number) < 10**9:
            allowed = "NAME=NUMBER, such as batch=8"
            because = "the option sets the value of one symbolic size"
            right = meant(number, "a whole number of at least 1")
            fix = write(right, name) if name and right else "write the name of the size and a number"
            raise spec_error("--size", word, allowed, because, fix)
        found[name] = int(number)
    return found
