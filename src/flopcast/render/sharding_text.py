"""Rules of tensor parallelism that follow from a list of parameters, as text and as JSON.

Elsewhere: the rules themselves (interop/sharding/rules.py).
"""

from collections.abc import Sequence
from math import prod

from flopcast.interop.sharding.rules import ShardingRule, parameters_per_rank
from flopcast.render.plain_data import FORMAT_VERSION, fields_of
from flopcast.render.tables import aligned


def as_text(rules: Sequence[ShardingRule], ranks: int) -> str:
    """Return a table of the rules, and how many parameters each of `ranks` ranks holds."""
    rows = [["parameter", "number", "shape", "divided along", "shape on a rank", "reason"]]
    rows += [
        [
            rule.pattern,
            str(rule.count),
            _shape(rule.shape),
            "–" if rule.dimension is None else f"dimension {rule.dimension}",
            _shape(rule.part(ranks)),
            rule.because,
        ]
        for rule in rules
    ]
    total, held = _total(rules), parameters_per_rank(tuple(rules), ranks)
    ends = f"each of {ranks} ranks holds {held:,} of {total:,} parameters ({held / total:.2%})"
    return "\n".join([*aligned(rows), "", ends])


def as_json(rules: Sequence[ShardingRule], ranks: int) -> dict[str, object]:
    """Return the rules as plain data; a parameter that is not divided has the dimension null."""
    return {
        "format_version": FORMAT_VERSION,
        "ranks": ranks,
        "parameters": _total(rules),
        "parameters_per_rank": parameters_per_rank(tuple(rules), ranks),
        "rules": [
            {
                **fields_of(rule, "pattern", "count", "shape", "dimension"),
                "shape_per_rank": list(rule.part(ranks)),
                "because": rule.because,
            }
            for rule in rules
        ],
    }


def _shape(shape: tuple[int, ...]) -> str:
    return " × ".join(map(str, shape))


def _total(rules: Sequence[ShardingRule]) -> int:
    """Return the parameters of the whole model."""
    return sum(rule.count * prod(rule.shape) for rule in rules)
