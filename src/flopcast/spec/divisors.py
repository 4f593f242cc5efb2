"""Whole numbers that divide others: how things may be dealt out evenly.

Answers: which degrees cut so many heads, blocks or devices without a rest, and how is a list of them shown?
"""

from math import isqrt

MANY = 10**12  # divisors of larger numbers are not listed


def divisors(number: int) -> list[int]:
    """All divisors in order; 1 alone where there are too many numbers to try.

    >>> divisors(12)
    [1, 2, 3, 4, 6, 12]
    """
    if number > MANY:
        return [1]
    small = [d for d in range(1, isqrt(number) + 1) if number % d == 0]
    return small + [number // d for d in reversed(small) if d * d != number]


def listed(numbers: list[int]) -> str:
    """Numbers as a reader wants them, the middle left out of long lists."""
    return ", ".join(map(str, numbers if len(numbers) <= 16 else [*numbers[:8], "…", *numbers[-3:]]))


def nearest_divisor(number: int, wanted: int) -> int:
    """The divisor that changes least; of two the smaller, which needs fewer devices."""
    return min(divisors(number), key=lambda d: (abs(d - wanted), d))
