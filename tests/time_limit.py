"""A time limit for every test: what takes longer fails with its traceback, and the suite goes on.

An alarm raises `OverTimeError` inside the test, its fixtures or their ends, again and again while one of
them swallows it. Where no Python code runs that could raise it, pytest's own `faulthandler_timeout` (in
pyproject.toml) prints all stacks and ends the process; pytest-xdist then starts another one.
"""

import contextlib
import signal

import pytest
from _pytest.outcomes import OutcomeException

AGAIN_S = 10


class OverTimeError(OutcomeException):
    """Fails one phase of a test.

    It is no `Exception`, because Hypothesis would look for a smaller example. It is an outcome, because
    pytest then keeps it as the result of a shared fixture: the next tests of that fixture fail at once.
    """


def pytest_addoption(parser):
    text = "seconds that a test, its fixtures, and their ends may take each"
    parser.addoption("--time-limit", type=float, default=600.0, metavar="SECONDS", help=text)
    text = "how often tests/workers/test_kills.py kills a command"
    parser.addoption("--kills", type=int, default=4, metavar="NUMBER", help=text)


@contextlib.contextmanager
def limited(limit_s, name):
    """Raise `OverTimeError` in the main thread where the block takes longer."""

    def over(number, frame):
        raise OverTimeError(f"{name} took longer than {limit_s:g} s")

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, limit_s, AGAIN_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _limited(item):
    """One phase of a test, with its limit where the system has alarms."""
    with limited(item.config.getoption("time_limit"), item.nodeid):
        return (yield)


if hasattr(signal, "SIGALRM"):
    pytest_runtest_setup = pytest_runtest_call = pytest_runtest_teardown = pytest.hookimpl(wrapper=True)(
        _limited
    )
