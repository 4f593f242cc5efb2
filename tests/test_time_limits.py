"""No test runs for ever, and no process outlives the test that started it."""

import ast
import os
import re
import sys
import time

import pytest
from children import below, child, ran, runs
from conftest import REPOSITORY

TESTS = REPOSITORY / "tests"
SLOW = """\
import time

import pytest
from hypothesis import given, strategies

@pytest.fixture(scope="module")
def slow():
    time.sleep(60)


def test_of_a_slow_fixture(slow):
    pass


def test_of_the_same_fixture(slow):
    pass


@given(strategies.integers())
def test_of_examples(number):
    time.sleep(60)


def test_that_is_quick():
    pass
"""
STARTS_TWO = """\
import subprocess, sys, time
subprocess.Popen(["sleep", "60"])
print("ready", flush=True)
time.sleep(60)
"""
STARTERS = {
    "subprocess": {"Popen", "run", "call", "check_call", "check_output"},
    "os": {"fork", "system", "popen", "posix_spawn", "spawnv"},
    "multiprocessing": {"Process", "Pool", "get_context"},
}
NAMES = re.compile("|".join(rf"\b{module}\b" for module in STARTERS))
STARTS_OWN = {  # files that may start processes → who ends those
    "children.py": "the helper itself",
    "oracle.py": "a script for developers: it waits for each child, which an alarm ends",
    "small_search.py": "a script that runs as a child: its session is killed",
}


def test_a_slow_test_fails_and_the_next_ones_run(tmp_path):
    (tmp_path / "test_slow.py").write_text(SLOW)
    words = [sys.executable, "-m", "pytest", "-q", "-p", "time_limit", "--time-limit", "0.3"]
    start_s = time.monotonic()

    ended = ran(words, cwd=tmp_path, text=True, env=os.environ | {"PYTHONPATH": str(TESTS)})

    assert "1 failed, 1 passed, 2 errors" in ended.stdout
    assert "test_slow.py::test_of_examples took longer than 0.3 s" in ended.stdout
    assert time.monotonic() - start_s < 30


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lists children")
def test_a_failure_in_the_block_of_a_child_ends_it_and_its_children():
    def fails():
        with child([sys.executable, "-c", STARTS_TWO], stdout=-1) as process:
            process.stdout.readline()
            started.extend([process.pid, *below(process.pid)])
            raise AssertionError

    started = []
    with pytest.raises(AssertionError):
        fails()

    assert len(started) == 2
    assert not any(map(runs, started))


def starts(node):
    """Whether a node of a program names a function that starts processes."""
    if isinstance(node, ast.ImportFrom):
        return bool(STARTERS.get(node.module, set()) & {each.name for each in node.names})
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return node.attr in STARTERS.get(node.value.id, ())
    return False


def test_tests_start_processes_through_the_helper_alone():
    texts = {
        path: path.read_text(encoding="utf-8")
        for path in sorted(TESTS.rglob("*.py"))
        if path.name not in STARTS_OWN
    }
    bare = [
        f"{path.relative_to(TESTS)}:{node.lineno}"
        for path, text in texts.items()
        if NAMES.search(text)  # parsing every file takes seconds
        for node in ast.walk(ast.parse(text))
        if starts(node)
    ]

    assert bare == []
