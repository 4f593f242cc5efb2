"""fuzz/: what it once found stays mended, a short run of a fixed seed finds nothing, and guidance pays."""

import json
import os
import sys
from random import Random

import numpy as np
import pytest
from children import ran
from conftest import REPOSITORY

from fuzz import search
from fuzz.child import Ended
from fuzz.kinds import Input

SHORT = 150  # inputs


@pytest.fixture(scope="module")
def fuzzed():
    """Exit code, summary and stderr of a short run, in a process that has not imported flopcast."""
    words = ("--replay", "--inputs", SHORT, "--seed", 2, "--fresh", "--dry", "--json")
    ended = ran(
        [sys.executable, "-m", "fuzz", *words],
        cwd=REPOSITORY,
        env=os.environ | {"PYTHONUTF8": "1", "PYTHONHASHSEED": "0"},
        limit_s=500,
    )
    return ended.returncode, json.loads(ended.stdout), ended.stderr.decode()


def test_inputs_that_were_handled_wrongly_once_are_handled_rightly(fuzzed):
    _, found, err = fuzzed

    assert found["replayed"] == {}, err


def test_a_short_run_finds_no_failure(fuzzed):
    code, found, err = fuzzed

    assert (code, found["failures"]) == (0, {}), err
    assert found["inputs"] >= SHORT
    assert found["accepted"] > SHORT / 10  # mutated inputs that are still valid


class Growing:
    """Stands for flopcast: an input takes one branch more for every 40 bytes."""

    cpu_s = 0.0

    def run(self, one):
        return Ended(code=0, branches=np.arange(len(one.data) // 40 + 1))


def branches_of(guided):
    """How many branches 400 inputs reach."""
    found = search.Search(random=Random(1), guided=guided, child=Growing())
    example = Input(kind="nccl-tests", suffix=".txt", data=b"8 16 float sum\n" * 20)
    found._keep(example, found.child.run(example))
    found.go(lambda: found.inputs < 400)
    return found.num_branches


def test_guidance_reaches_branches_that_changes_of_the_examples_alone_do_not_reach(monkeypatch):
    """How many more of flopcast's it reaches in ten minutes: docs/laws.md."""
    monkeypatch.setattr(search, "judge", lambda one, ended: None)
    monkeypatch.setattr(search, "CHECKS", ())

    assert branches_of(guided=True) > 2 * branches_of(guided=False)
