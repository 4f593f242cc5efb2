"""fuzz/: what it once found stays mended, a short run of a fixed seed finds nothing, and guidance pays."""

import json
import os
import sys

import pytest
from children import ran
from conftest import REPOSITORY

SHORT = 1200  # inputs; guidance needs some hundreds that it has kept before it pays


def fuzz(*words):
    """Exit code and stdout of the fuzzer, which needs a process that has not imported flopcast."""
    ended = ran(
        [sys.executable, "-m", "fuzz", *words],
        cwd=REPOSITORY,
        env=os.environ | {"PYTHONUTF8": "1", "PYTHONHASHSEED": "0"},
        limit_s=500,
    )
    return ended.returncode, ended.stdout.decode(), ended.stderr.decode()


@pytest.fixture(scope="module")
def guided():
    """The summary of a short run."""
    code, out, err = fuzz("--inputs", SHORT, "--seed", 1, "--fresh", "--dry", "--json")
    return code, json.loads(out), err


def test_inputs_that_were_handled_wrongly_once_are_handled_rightly():
    code, out, err = fuzz("--replay")

    assert (code, out) == (0, ""), err


def test_a_short_run_finds_no_failure(guided):
    code, found, err = guided

    assert (code, found["failures"]) == (0, {}), err
    assert found["inputs"] >= SHORT
    assert found["accepted"] > 50


def test_guidance_reaches_more_branches_than_changes_of_the_examples_alone(guided):
    _, out, err = fuzz("--inputs", SHORT, "--seed", 1, "--fresh", "--dry", "--json", "--unguided")

    assert guided[1]["branches"] > json.loads(out)["branches"], err
