"""A cache of results of pure functions, with a bounded number of entries.

Answers: when is a result the same as an earlier one, and how many are kept?
Elsewhere: the results that a `Predictor` keeps (predictor.py), and the keys of results (the callers).
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from hashlib import blake2b
from operator import attrgetter
from typing import Any, TypeVar, cast

import numpy as np

Result = TypeVar("Result")
FEW_PLANS = 16
MOST_LARGE_BYTES = 16 << 20
PLAIN = frozenset((str, int, float, bool, type(None)))  # types whose values are keys as they are


class LargeResults:
    """The last results of many bytes. The keys are the inputs of a result.

    Results are in two halves, as in `KeptResults`. When the newer half has reached `most_bytes`, the older
    half is dropped. A half exceeds `most_bytes` by less than its last result.

    Parameters
    ----------
    most_bytes : int
        With 0, nothing is kept.

    Examples
    --------
    >>> kept, size = LargeResults(most_bytes=100), len
    >>> kept.of("a", lambda: b"0" * 60, size)[:1], kept.of("a", lambda: b"1", size)[:1]
    (b'0', b'0')
    >>> others = [kept.of(key, lambda: bytes(100), size) for key in "bcd"]
    >>> kept.of("a", lambda: b"1", size)
    b'1'
    """

    __slots__ = ("_most_bytes", "_newer", "_newer_bytes", "_older")

    def __init__(self, most_bytes: int) -> None:
        """Keep nothing yet."""
        self._most_bytes = most_bytes
        self.clear()

    def clear(self) -> None:
        """Drop all results."""
        self._newer: dict[Hashable, object] = {}
        self._older: dict[Hashable, object] = {}
        self._newer_bytes: int = 0

    def of(self, key: Hashable, make: Callable[[], Result], bytes_of: Callable[[Result], int]) -> Result:
        """Return the kept result, or the one that `make` returns, which is then kept."""
        result = cast("Result | None", self._newer.get(key))
        if result is None:
            result = cast("Result | None", self._older.get(key))
            if result is None:
                result = make()
            if self._newer_bytes >= self._most_bytes:
                self._newer, self._older, self._newer_bytes = {}, self._newer, 0
            if self._most_bytes:
                self._newer[key] = result
                self._newer_bytes += bytes_of(result)
        return result


class KeptResults:
    """The last results. The keys are the inputs of a result.

    At least `most` and at most 2 · `most` results are kept.

    Results are in two halves. When the newer half is full, the older half is dropped, except for results
    that were used since. With `most` of 0 nothing is kept. `large` keeps results of many bytes. Batches of
    at most `few_plans` plans count as small.

    Examples
    --------
    >>> kept = KeptResults(most=1)
    >>> kept.of("a", lambda: 1), kept.of("a", lambda: 2), kept.of("b", lambda: 3), kept.of("a", lambda: 4)
    (1, 1, 3, 1)
    """

    __slots__ = ("_few_plans", "_most", "_newer", "_older", "large")

    def __init__(self, most: int, few_plans: int = FEW_PLANS) -> None:
        """Keep nothing yet."""
        self._few_plans = few_plans
        self.large: LargeResults = LargeResults(MOST_LARGE_BYTES if most else 0)
        self._most = most
        self._newer: dict[Hashable, object] = {}
        self._older: dict[Hashable, object] = {}

    def of(self, key: Hashable, make: Callable[[], Result]) -> Result:
        """Return the kept result, or the one that `make` returns, which is then kept."""
        result = self.get(key)
        if result is None:
            result = make()
            self.put(key, result)
        return cast("Result", result)

    def of_each(
        self, keys: Sequence[Hashable], make: Callable[[list[int]], Iterable[Result]]
    ) -> list[Result]:
        """Return the results of several keys; `make` computes those that are missing, together.

        `make` gets the first place of every distinct key without a result, and returns one result for each.

        >>> KeptResults(most=2).of_each("aba", lambda places: [10 * place for place in places])
        [0, 10, 0]
        """
        results: list[Any] = [self.get(key) for key in keys]
        absent = [place for place, result in enumerate(results) if result is None]
        if not absent:
            return results
        missing: dict[Hashable, int] = {}
        for place in absent:
            missing.setdefault(keys[place], place)
        made = dict(zip(missing, make([*missing.values()]), strict=True))
        for key, result in made.items():
            self.put(key, result)
        for place in absent:
            results[place] = made[keys[place]]
        return results

    def get(self, key: Hashable) -> object:
        """Return the kept result, or None."""
        result = self._newer.get(key)
        if result is None:
            result = self._older.get(key)
            if result is not None:
                self.put(key, result)
        return result

    def put(self, key: Hashable, result: object) -> None:
        """Keep a result."""
        if len(self._newer) >= self._most:
            self._newer, self._older = {}, self._newer
        if self._most:
            self._newer[key] = result

    def of_few(self, plans: int) -> "KeptResults":
        """Return these results for a batch of few plans, or NOTHING_KEPT for many plans, whose keys are
        long.
        """
        return self if plans <= self._few_plans else NOTHING_KEPT

    def __bool__(self) -> bool:
        """Return whether results are kept at all."""
        return self._most > 0


NOTHING_KEPT = KeptResults(0)


class Same:
    """A key for an object without a hash, such as a dict: it is equal only to keys of the same object.

    The key keeps the object alive, so that no other object can take its place.

    Examples
    --------
    >>> levels = {"host": 1.0}
    >>> Same(levels) == Same(levels), Same(levels) == Same(dict(levels))
    (True, False)
    """

    __slots__ = ("of",)

    def __init__(self, of: object) -> None:
        """Make the key of an object."""
        self.of = of

    def __eq__(self, other: object) -> bool:
        """Return whether both are keys of the same object."""
        return isinstance(other, Same) and self.of is other.of

    def __hash__(self) -> int:
        """Return the hash of the identity of the object."""
        return id(self.of)


def content(value: Any) -> Hashable:  # noqa: ANN401 - keys are made of any value
    """Return a key that is equal for equal values.

    A value is hashable, an array, or a tuple or dataclass of such values.

    Examples
    --------
    >>> content((np.ones((1, 1)), "dp")) == content((np.ones((1, 1)), "dp"))
    True
    >>> content(np.ones((1, 1))) == content(np.ones((1, 2)))
    False
    """
    kind: Any = type(value)
    plain: Hashable = value
    if kind in PLAIN:
        return plain
    if kind is np.ndarray:
        return value.dtype.char, value.shape, value.tobytes()
    if kind is tuple or isinstance(value, tuple):
        return tuple([part if type(part) in PLAIN else content(part) for part in value])
    parts = _parts_of(kind)
    if parts is None:
        return plain
    return (kind, *[part if type(part) in PLAIN else content(part) for part in parts(value)])


def digest(value: object, arrays: dict[int, bytes]) -> bytes:
    """Return a digest of what `content` returns: a short key for values with long arrays.

    `arrays` stores the digests of arrays by their identity. The arrays must exist as long as `arrays`.

    Raises
    ------
    TypeError
        A part of the value has no text that describes it.

    Examples
    --------
    >>> digest((np.ones((1, 1)), "dp"), {}) == digest((np.ones((1, 1)), "dp"), {})
    True
    >>> digest(np.ones((1, 1)), {}) == digest(np.ones((1, 2)), {})
    False
    """
    kind = type(value)
    if isinstance(value, np.ndarray):
        found = arrays.get(id(value))
        if found is None:
            shape = f"{value.dtype.char}{value.shape}".encode()
            found = arrays[id(value)] = _digest(shape, np.ascontiguousarray(value).data)
        return found
    if isinstance(value, tuple):
        return _digest(b"tuple", *(digest(part, arrays) for part in value))
    name = f"{kind.__module__}.{kind.__qualname__}".encode()
    parts = _parts_of(cast("Hashable", kind))
    if parts is not None:
        return _digest(name, *(digest(part, arrays) for part in parts(value)))
    if kind.__repr__ is object.__repr__:
        raise TypeError(f"{value!r} has no text that describes it")
    return _digest(name, repr(value).encode())


def _digest(*parts: bytes | memoryview) -> bytes:
    """Return the digest of several parts."""
    found = blake2b(digest_size=16)
    for part in parts:
        found.update(part)
    return found.digest()


@cache
def _parts_of(kind: Hashable) -> Callable[[object], tuple[object, ...]] | None:
    """Return the function that gives the values of a dataclass's fields; None for other types."""
    if not is_dataclass(kind):
        return None
    names = [field.name for field in fields(kind)]
    return attrgetter(*names) if len(names) > 1 else lambda value: (getattr(value, names[0]),)
