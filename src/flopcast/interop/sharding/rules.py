"""Rules of tensor parallelism derived only from the names and shapes of parameters, as in Redco.

Answers: along which dimension is each parameter divided over ranks, and what does a rank hold?
Elsewhere: the file that lists parameters (parameter_list.py).

The hidden width is the most frequent dimension of all matrices. Then:

- A table outside of the numbered layers (embedding, head) is divided along its vocabulary.
- A matrix of a layer with one hidden dimension is divided along the other one: the first linear of a pair
along
  its output, the second along its input, so that no message is needed between them.
- Of square matrices in one module, in the order of the list, the last is divided along its input, and all
others
  along their output: queries, keys and values, then the output projection.
- A bias is divided like the output of its matrix. All other parameters are replicated.

If ranks do not divide a dimension, the parameter and all others of its module are replicated.

References
----------
Redco, arXiv:2310.16355, section 3.1: automatic rules of tensor parallelism. Along which dimension each
linear layer is divided: arXiv:1909.08053, section 3.
"""

import re
from collections import Counter
from collections.abc import Mapping
from math import prod

from flopcast.errors import spec_error
from flopcast.interop.sharding.parameter_list import Shape
from flopcast.records import Record, replace

NUMBER = re.compile(r"(?<=[./])\d+(?=[./])")
BIAS = re.compile(r"[._/]bias$")
WEIGHT = re.compile(r"[._/](weight|kernel|embedding)$")


class ShardingRule(Record):
    """The division of all parameters with one pattern of names and one shape.

    Attributes
    ----------
    pattern : str
        Name of the parameters, with `*` in place of the layer number.
    shape : tuple of int
        Shape of each parameter.
    count : int
        The number of parameters that match the pattern.
    dimension : int or None
        The dimension that is divided over ranks; None for a parameter that every rank holds whole.
    because : str
        Why the parameter is divided along this dimension, or not at all.
    """

    pattern: str
    shape: Shape
    count: int
    dimension: int | None
    because: str

    def part(self, ranks: int) -> Shape:
        """Return the shape of the part that one rank holds.

        >>> rule = ShardingRule(pattern="up", shape=(64, 16), count=1, dimension=0, because="")
        >>> rule.part(4)
        (16, 16)
        """
        sizes = enumerate(self.shape)
        return tuple(size // ranks if place == self.dimension else size for place, size in sizes)


def sharding_rules(shapes: Mapping[str, Shape], ranks: int) -> tuple[ShardingRule, ...]:
    """Return one rule for each pattern of names and shape, in the order of the list.

    Raises
    ------
    SpecError
        No parameter is a matrix.

    Examples
    --------
    >>> shapes = {"embed.weight": (100, 16), "layers.0.up.weight": (64, 16)}
    >>> shapes |= {"layers.0.down.weight": (16, 64)}
    >>> [(rule.pattern, rule.dimension) for rule in sharding_rules(shapes, ranks=4)]
    [('embed.weight', 0), ('layers.*.up.weight', 0), ('layers.*.down.weight', 1)]
    """
    counts = Counter((NUMBER.sub("*", name), shape) for name, shape in shapes.items())
    widths = Counter(
        size for (_, shape), count in counts.items() if len(shape) > 1 for size in shape[-2:] * count
    )
    if not widths:
        because = "flopcast decides from the shapes of matrices how parameters are divided over ranks"
        fix = "list all parameters of the model"
        raise spec_error("parameters", "no matrix", "at least one matrix", because, fix)
    hidden = widths.most_common(1)[0][0]
    last = _last_squares(counts, hidden)
    rules = [
        _matrix(pattern, shape, count, hidden, (pattern, shape) in last)
        if len(shape) > 1
        else ShardingRule(pattern=pattern, shape=shape, count=count, dimension=None, because="a vector")
        for (pattern, shape), count in counts.items()
    ]
    return _biases(_divisible(rules, ranks))


def parameters_per_rank(rules: tuple[ShardingRule, ...], ranks: int) -> int:
    """Return the number of elements that each rank holds."""
    return sum(rule.count * prod(rule.part(ranks)) for rule in rules)


def _last_squares(counts: Mapping[tuple[str, Shape], int], hidden: int) -> set[tuple[str, Shape]]:
    """Return the last square matrix of each module that has several."""
    squares: dict[str, list[tuple[str, Shape]]] = {}
    for pattern, shape in counts:
        if shape[-2:] == (hidden, hidden):
            squares.setdefault(_parent(pattern), []).append((pattern, shape))
    return {group[-1] for group in squares.values() if len(group) > 1}


def _parent(pattern: str) -> str:
    """Return the module that contains the linear of a parameter.

    >>> _parent("h.*.attn.q_proj.weight"), _parent("h/*/attn/q/kernel")
    ('h.*.attn', 'h/*/attn')
    """
    return re.sub(r"[./][^./]+$", "", _linear(pattern))


def _unit(pattern: str) -> str:
    """Return the module whose matrices are divided together; a table outside modules is alone."""
    return _parent(pattern) if "*" in pattern else pattern


def _linear(pattern: str) -> str:
    """Return the linear of a parameter: its name without "weight", "kernel" or "bias"."""
    return WEIGHT.sub("", BIAS.sub("", pattern))


def _output(pattern: str, shape: Shape) -> int:
    """Return the dimension of the output: the first for PyTorch, the last for the kernels of Flax."""
    return len(shape) - (1 if pattern.endswith("kernel") else 2)


def _matrix(pattern: str, shape: Shape, count: int, hidden: int, is_last: bool) -> ShardingRule:
    """Return the rule for a matrix, or for a tensor that stacks the matrices of experts."""
    first, output = len(shape) - 2, _output(pattern, shape)
    wide = [place for place in (first, first + 1) if shape[place] == hidden]
    dimension: int | None
    if not wide:
        dimension, because = None, "no dimension is the hidden width"
    elif len(wide) == 1:
        dimension = 2 * first + 1 - wide[0]
        because = "the other dimension is the hidden width"
    elif "*" not in pattern:
        dimension, because = first, "an embedding table is divided along its rows"
    else:
        dimension = 2 * first + 1 - output if is_last else output
        because = "the last square matrix of its module" if is_last else "a square matrix"
    return ShardingRule(pattern=pattern, shape=shape, count=count, dimension=dimension, because=because)


def _divisible(rules: list[ShardingRule], ranks: int) -> list[ShardingRule]:
    """Replicate modules with a dimension that ranks do not divide, as their matrices belong together."""
    uneven = {
        _unit(rule.pattern): rule.shape[rule.dimension]
        for rule in rules
        if rule.dimension is not None and rule.shape[rule.dimension] % ranks
    }
    return [
        replace(
            rule,
            dimension=None,
            because=f"{ranks} ranks do not divide {uneven[_unit(rule.pattern)]} (a size of its module)",
        )
        if rule.dimension is not None and _unit(rule.pattern) in uneven
        else rule
        for rule in rules
    ]


def _biases(rules: list[ShardingRule]) -> tuple[ShardingRule, ...]:
    """Divide each bias like the output of its matrix."""
    along_output = {
        _linear(rule.pattern): rule.shape[rule.dimension]
        for rule in rules
        if rule.dimension is not None and rule.dimension == _output(rule.pattern, rule.shape)
    }
    return tuple(
        replace(
            rule,
            dimension=len(rule.shape) - 1,
            because="the bias is divided like the output of its linear layer",
        )
        if BIAS.search(rule.pattern) and along_output.get(_linear(rule.pattern)) == rule.shape[-1]
        else rule
        for rule in rules
    )
