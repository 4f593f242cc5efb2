"""Shapes that the micro-benchmark measures, spread over the ranges in which curves bend.

Answers: which sizes, layouts and dtypes are sampled for each kernel class, and which shape is the n-th?
Elsewhere: the sizes (spaces.yaml), the number of shapes and their order (sampling_plan.py), the operator of
a shape (measured_operators.py), how torch runs it (kernels.py).

The points of one variant of a class (layout, dtype, flags) are a shifted Halton sequence in the logarithm
of the sizes. The first n of them are spread over all axes for any n, so that a sweep may stop at any
time, and the same seed gives the same points.

References
----------
J. H. Halton, "On the efficiency of certain quasi-random sequences of points in evaluating multi-dimensional
integrals", Numerische Mathematik 2, 1960. Shifts modulo 1: R. Cranley and T. N. L. Patterson, SIAM Journal
on Numerical Analysis 13(6), 1976.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from flopcast.files.package_table import read_table
from flopcast.operators.memory_bound import KINDS
from flopcast.records import Record, replace

# by what sizes shrink where a processor runs them: seconds become milliseconds
TINY_LOW, TINY_HIGH = 16, 64
PRIMES = (2, 3, 5, 7, 11)  # one for each axis of the class that has most
VARIANT_SHIFT = (5**0.5 - 1) / 2  # the golden ratio: shifts stay far from each other
SEED_SHIFT = 2**0.5 - 1
Sizes = tuple[tuple[str, int], ...]
Variant = tuple[str, str, tuple[str, ...]]  # layout, dtype, flags


class Shape(Record):
    """One kernel with its sizes, which is timed.

    `kernel` is the class of its curve, with the names of operators; `layout` is the layout of a dense GEMM,
    and "" for other kernels. `flags` describe how it runs: "causal", "fp32_accumulate" (a weight gradient
    added to an fp32 buffer), or the library of the kernel if it is not torch's own ("cudnn", "flash_attn").

    Examples
    --------
    >>> Shape(kernel="gemm", layout="forward", dtype="bf16", sizes=(("m", 8), ("n", 16), ("k", 32))).key
    'gemm|forward|bf16|m=8;n=16;k=32|'
    """

    kernel: str
    dtype: str
    sizes: Sizes
    layout: str = ""
    flags: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Return the shape as a string: equal shapes have equal keys in every pack."""
        sizes = ";".join(f"{name}={value}" for name, value in self.sizes)
        return "|".join((self.kernel, self.layout, self.dtype, sizes, ";".join(self.flags)))

    def size(self, name: str) -> int:
        """Return one of the sizes; raise KeyError if the class has no such size."""
        return dict(self.sizes)[name]


class SizeRange(Record):
    """One size: log-spaced between `low` and `high` in whole multiples, or one of `choices`.

    A choice that is listed twice is visited twice as often; choices are not reduced on a CPU.
    """

    name: str
    low: int = 1
    high: int = 1
    multiple: int = 1
    choices: tuple[int, ...] = ()

    def at(self, fraction: float) -> int:
        """Return the size at a position in [0, 1).

        >>> SizeRange(name="m", low=128, high=32768, multiple=128).at(0.5)
        2048
        """
        if self.choices:
            return self.choices[int(fraction * len(self.choices))]
        steps = round(self.low * math.pow(self.high / self.low, fraction) / self.multiple)
        return max(1, steps) * self.multiple

    def tiny(self) -> "SizeRange":
        """Return the same size with values that a CPU runs in milliseconds."""
        low = max(2, self.low // TINY_LOW)
        return replace(self, low=low, high=max(low, self.high // TINY_HIGH), multiple=min(self.multiple, 8))


class SamplingSpace(Record):
    """The shapes to sample for one kernel class.

    `variants` are visited in turn, one for each point. `share` is the number of points in the first
    round: classes whose time depends on more sizes, or takes more of a step, have more. `loaded` states
    whether the class is also timed under sustained load. `needs` names a package besides torch.
    """

    kernel: str
    axes: tuple[SizeRange, ...]
    variants: tuple[Variant, ...]
    share: int = 1
    loaded: bool = False
    needs: str = ""

    def shape(self, index: int, tiny: bool, seed: int) -> Shape:
        """Return point `index` of the class: variants alternate, and each has a sequence of its own."""
        turn, variant = divmod(index, len(self.variants))
        shift = (variant * VARIANT_SHIFT + seed * SEED_SHIFT) % 1.0
        axes = [axis.tiny() for axis in self.axes] if tiny else list(self.axes)
        fractions = halton(turn + 1, len(axes))
        layout, dtype, flags = self.variants[variant]
        sizes = tuple((a.name, a.at((u + shift) % 1.0)) for a, u in zip(axes, fractions, strict=True))
        return Shape(kernel=self.kernel, layout=layout, dtype=dtype, sizes=sizes, flags=flags)


def halton(index: int, dimensions: int) -> tuple[float, ...]:
    """Return point `index`, from 1, in the unit cube: its digits in base 2, 3, 5 …, mirrored at the radix
    point.

    >>> halton(1, 2), halton(6, 1)  # 6 is 110 in base 2, so 0.011
    ((0.5, 0.3333333333333333), (0.375,))
    """
    return tuple(_mirrored(index, base) for base in PRIMES[:dimensions])


def _mirrored(index: int, base: int) -> float:
    """Return the digits of `index` after the radix point, in reverse order."""
    value, place = 0.0, 1.0 / base
    while index:
        index, digit = divmod(index, base)
        value += digit * place
        place /= base
    return value


def _spaces(table: Mapping[str, Any]) -> Iterator[SamplingSpace]:
    """Yield the spaces of a table: one for each kernel of an entry, whose axes and variants have names."""
    for entry in table["spaces"]:
        axes = tuple(
            SizeRange(name=name, **{**size, "choices": tuple(size.get("choices", ()))})
            for name, size in table["axes"][entry["axes"]].items()
        )
        variants = tuple(
            (layout, dtype, tuple(flags)) for layout, dtype, *flags in table["variants"][entry["variants"]]
        )
        others = {name: entry[name] for name in ("share", "loaded", "needs") if name in entry}
        for kernel in entry["kernels"].split():
            yield SamplingSpace(kernel=kernel, axes=axes, variants=variants, **others)


COMPILED = ("swiglu", "rmsnorm", "rope")  # one fused kernel where triton is, a chain of several elsewhere
SPACES = tuple(_spaces(read_table(__package__, "spaces.yaml")))
SIZES = dict.fromkeys(KINDS, ("tokens", "width")) | {
    space.kernel: tuple(axis.name for axis in space.axes) for space in SPACES
}  # what the sizes of a class are called
