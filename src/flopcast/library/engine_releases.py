"""The entry of the catalogue that describes a release of a serving engine.

Answers: which entry describes vLLM 0.6.3, or the vLLM of October 2024?
Elsewhere: the entries (catalog/engines) and their fields (spec/engine.py).

Releases of one software have one entry for each era. The newest has the plain name, such as vllm. Older
ones name it as their base, such as vllm-0.6, and state what differs.
"""

import re
from functools import cache

from flopcast.errors import Problem, SpecError
from flopcast.library import catalog
from flopcast.spec.engine import UNKNOWN_RELEASE, Engine, is_month

_NAMED = re.compile(r"(.+?)(?:-|==|@|:)v?(\d+\.\d[\w.+-]*|20\d\d-\d\d)")
_VERSION = re.compile(r"v?(\d+(?:\.\d+)+)")


def release_in_name(name: str) -> tuple[str, str]:
    """Return the engine and the release that a name states, or the name and "" if it states no release.

    >>> [release_in_name(name) for name in ("vllm-0.6.3", "sglang==0.4.1.post2", "vllm-2024-10", "vllm")]
    [('vllm', '0.6.3'), ('sglang', '0.4.1.post2'), ('vllm', '2024-10'), ('vllm', '')]
    """
    match = _NAMED.fullmatch(name)
    if match is None or catalog.known("engines", name) is not None:
        return name, ""
    return match[1], match[2]


def has_releases(name: str) -> bool:
    """Return whether the catalogue distinguishes releases of an engine.

    >>> has_releases("vllm"), has_releases("llama.cpp")
    (True, False)
    """
    return bool(_eras(catalog.engine(name).base or name)[0].first_release)


def engine_of_release(name: str, release: object, where: str = "") -> str:
    """Return the name of the entry that describes a release of an engine.

    Parameters
    ----------
    name : str
        An entry of this engine, of any era.
    release : object
        A version or a month, as a user wrote it.
    where : str
        Where it stands, for errors.

    Raises
    ------
    SpecError
        The release is neither a version nor a month, or the catalogue has one entry of this engine only.

    Examples
    --------
    >>> [engine_of_release("vllm", each) for each in ("0.6.3", "2024-10", "0.30.0")]
    ['vllm-0.6', 'vllm-0.6', 'vllm']
    """
    eras = _eras(catalog.engine(name).base or name)
    if not eras[0].first_release:
        because = f"the catalogue does not distinguish releases of {name}"
        raise SpecError([_problem(release, "no release", because, "remove release", where)])
    if release == UNKNOWN_RELEASE:
        return eras[-1].name
    own = _order(release)
    if own is None:
        because = "releases of the catalogue are ordered by their versions and months"
        fix = f"write engine {name}-0.10" if isinstance(release, float) else "write release=0.6.3"
        allowed = "a version such as 0.6.3, a month such as 2024-10, or unknown"
        raise SpecError([_problem(release, allowed, because, fix, where)])
    older = [each for each in eras if _first(each, by_month=is_month(str(release))) <= own]
    return (older or eras[:1])[-1].name


def _problem(release: object, allowed: str, because: str, fix: str, where: str) -> Problem:
    return Problem("engine.release", release, allowed, because, fix, where=where)


@cache
def _eras(base: str) -> tuple[Engine, ...]:
    """Return the entries of one software, the oldest first."""
    engines = [catalog.engine(name) for name in catalog.names("engines")]
    own = [each for each in engines if base in (each.name, each.base)]
    return tuple(sorted(own, key=lambda each: _first(each, by_month=False)))


def _first(engine: Engine, *, by_month: bool) -> tuple[int, ...]:
    return _order(engine.first_month if by_month else engine.first_release) or ()


def _order(release: object) -> tuple[int, ...] | None:
    """Return the numbers by which releases are ordered; None for a text that is no release."""
    if not isinstance(release, str):
        return None
    if is_month(release):
        return tuple(map(int, release.split("-")))
    match = _VERSION.match(release)
    return tuple(map(int, match[1].split("."))) if match else None
