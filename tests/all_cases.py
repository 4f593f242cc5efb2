"""A test over many cases as one test: it runs all of them and reports every one that fails.

pytest needs milliseconds for a parametrised case, and a case of a law needs less. Parametrise what a reader
selects by name; loop over products of cases with this decorator, which is written in the same way.
"""

import functools
import inspect

import pytest

MOST_SHOWN = 20


def all_cases(names, values):
    """Decorate a test that takes the named arguments: it holds for all these values.

    `names` are as those of `pytest.mark.parametrize`. The test fails with a list of the cases that failed
    and of what each said; it is skipped where every case is.
    """
    words = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    rows = [dict(zip(words, (value,) if len(words) == 1 else value, strict=True)) for value in values]

    def decorate(test):
        @functools.wraps(test)
        def looped(**fixtures):
            failures, skips = [], []
            for row in rows:
                try:
                    test(**row, **fixtures)
                except pytest.skip.Exception as skipped:
                    skips.append(skipped)
                except (Exception, pytest.fail.Exception) as error:
                    failures.append((row, error))
            if failures:
                pytest.fail(_told(failures, len(rows)))
            if skips and len(skips) == len(rows):
                raise skips[0]

        given = inspect.signature(test)
        kept = [each for name, each in given.parameters.items() if name not in words]
        assert len(kept) + len(words) == len(given.parameters), f"{test.__name__} does not take {names}"
        looped.__signature__ = given.replace(parameters=kept)
        return looped

    return decorate


def _told(failures, number):
    """Every case that failed, up to a limit, and what its assertion said."""
    lines = [f"{len(failures)} of {number} cases failed"]
    for row, error in failures[:MOST_SHOWN]:
        place = error.__traceback__
        while place.tb_next:
            place = place.tb_next
        where = f"{place.tb_frame.f_code.co_filename}:{place.tb_lineno}"
        case = ", ".join(f"{name}={_short(value)}" for name, value in row.items())
        lines.append(f"{case}\n  {where}: {type(error).__name__}: {error}")
    return "\n".join(lines)


def _short(value):
    """The name of a function or class, or the first letters of what a value looks like."""
    text = getattr(value, "__name__", None) or repr(value)
    return text if len(text) <= 200 else f"{text[:200]}…"
