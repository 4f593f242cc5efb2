"""Expressions over the columns of a measured table, in which tables of the laboratory describe its rows.

Answers: what are the values of `num_tokens * topk / moe_ep_size`, in which rows is `op == "sdp_fwd"`, and
which operator do such expressions describe?
Elsewhere: the tables with expressions (spaces.yaml; in lab/calibration: operator_files.yaml, peers.yaml),
values that need more than arithmetic (lab/calibration/peer_columns.py).

Columns follow lab/samples/columns.py: a column of words becomes one column "name=word" of 0 and 1 for each
word. A comparison with a word is false in all rows if the table does not have the word. An expression is
parsed, never run.
"""

import ast
from collections.abc import Callable, Mapping, Sequence
from functools import cache, reduce
from typing import Any

import numpy as np

from flopcast.dtypes import Floats
from flopcast.errors import InternalError
from flopcast.operators.base import AbstractOperator
from flopcast.operators.decode_attention import DecodeAttention
from flopcast.operators.embedding import EmbeddingLookup
from flopcast.operators.exchanges import expected_copies
from flopcast.operators.flash_attention import FlashAttention
from flopcast.operators.fused_experts import FusedExperts
from flopcast.operators.gated_delta import GatedDelta
from flopcast.operators.latent_decode import LatentDecode
from flopcast.operators.matmul import BatchedMatmul, GroupedMatmul, Matmul
from flopcast.operators.memory_bound import MemoryBound
from flopcast.operators.optimizer import OptimizerUpdate
from flopcast.operators.served_matmul import ServedMatmul

Columns = Mapping[str, Floats]
OPERATIONS: Mapping[type[ast.AST], Callable[..., np.ndarray]] = {
    ast.Add: np.add,
    ast.Sub: np.subtract,
    ast.Mult: np.multiply,
    ast.Div: np.divide,
    ast.Mod: np.mod,
    ast.Lt: np.less,
    ast.LtE: np.less_equal,
    ast.Gt: np.greater,
    ast.GtE: np.greater_equal,
    ast.Eq: np.equal,
    ast.NotEq: np.not_equal,
    ast.And: np.logical_and,
    ast.Or: np.logical_or,
    ast.Not: np.logical_not,
}
FUNCTIONS: Mapping[str, Callable[..., np.ndarray]] = {
    "abs": np.abs,
    "ceil": np.ceil,
    "expected_copies": lambda experts, top_k, n: expected_copies(experts, top_k, np.full_like(top_k, n)),
    "floor": np.floor,
    "isfinite": np.isfinite,
    "isnan": np.isnan,
    "maximum": np.maximum,
    "minimum": np.minimum,
}
OPERATORS: Mapping[str, type[Any]] = {
    "batched_matmul": BatchedMatmul,
    "decode_attention": DecodeAttention,
    "embedding": EmbeddingLookup,
    "flash_attention": FlashAttention,
    "fused_experts": FusedExperts,
    "gated_delta": GatedDelta,
    "grouped_matmul": GroupedMatmul,
    "latent_decode": LatentDecode,
    "matmul": Matmul,
    "memory_bound": MemoryBound,
    "optimizer": OptimizerUpdate,
    "served_matmul": ServedMatmul,
}
LITERAL = "="  # begins the text of a field that is no expression
Added = Mapping[str, Callable[[Columns], Floats]]


def evaluated(text: str, columns: Columns, added: Added) -> np.ndarray:
    """Return the value of an expression in each row; a constant has the shape ().

    `added` holds functions of all columns, by the names under which expressions use their values.

    >>> rows = {"m": np.array([8.0, 600.0]), "op=forward": np.array([1.0, 0.0])}
    >>> evaluated('m >= 512 or op == "forward"', rows, {}).tolist(), evaluated("2 * m", rows, {}).tolist()
    ([True, True], [16.0, 1200.0])
    """
    return _value(_parsed(text), columns, added)


def operator_of(
    kind: str, fields: Mapping[str, object], value: Callable[[str], np.ndarray], **constants: str
) -> AbstractOperator:
    """Return the operator with some fields: `value` evaluates their texts, unless they begin with LITERAL.

    >>> fields = {"m": "tokens", "n": "hidden", "k": 64, "dtype": "=bf16"}
    >>> operator_of("matmul", fields, lambda text: np.full((3, 1), float(len(text)))).m[0].item()
    6.0
    """

    def field(given: object) -> object:
        if isinstance(given, bool):
            return given
        text = str(given)
        return text.removeprefix(LITERAL) if text.startswith(LITERAL) else value(text)

    made: AbstractOperator = OPERATORS[kind](
        **{name: field(given) for name, given in fields.items()}, **constants
    )
    return made


@cache
def _parsed(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def _value(node: ast.expr, columns: Columns, added: Added) -> np.ndarray:
    match node:
        case ast.Constant(value=float() | int() as number):
            return np.asarray(float(number))
        case ast.Name(id=name):
            return columns[name] if name in columns else added[name](columns)
        case ast.Compare(left=ast.Name(id=name), ops=[op], comparators=[ast.Constant(value=str() as word)]):
            no_row = np.zeros(len(next(iter(columns.values()))))
            return OPERATIONS[type(op)](columns.get(f"{name}={word}", no_row), 1.0)
        case ast.BoolOp(op=op, values=parts):
            return reduce(OPERATIONS[type(op)], (_value(part, columns, added) for part in parts))
    use, arguments = _operation(node)
    return use(*(_value(each, columns, added) for each in arguments))


def _operation(node: ast.expr) -> tuple[Callable[..., np.ndarray], Sequence[ast.expr]]:
    """Return what an expression does with the values of its parts, and these parts."""
    match node:
        case ast.Compare(left=left, ops=[compare], comparators=[right]):
            return OPERATIONS[type(compare)], (left, right)
        case ast.BinOp(left=left, op=op, right=right):
            return OPERATIONS[type(op)], (left, right)
        case ast.UnaryOp(op=turn, operand=part):
            return OPERATIONS[type(turn)], (part,)
        case ast.Call(func=ast.Name(id=name), args=parts):
            return FUNCTIONS[name], parts
    raise InternalError(f"{ast.unparse(node)} is not an expression over columns")
