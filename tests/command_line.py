"""Runs `flopcast WORDS…` inside this process, or as a process of its own."""

import json
import os
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import BytesIO, TextIOWrapper
from unittest.mock import patch

from children import ran
from conftest import PACKAGE

from flopcast.cli.main import main

JOB = """\
model: megatron-1.7b
cluster: dgx-a100:1
stack: megatron-2022
batch: {sequence_length: 2048}
plan:
  data_parallel: 8
  micro_batch: 1
  global_batch: 16
  precision: fp16
"""
WORDS = ("--model", "megatron-1.7b", "--cluster", "dgx-a100", "--stack", "megatron-2022")
PLAN = "dp=8 mbs=1 gbs=16 precision=fp16"


@dataclass(frozen=True, slots=True)
class Ended:
    """How a call ended, and what it said."""

    code: int
    out: str
    err: str


class Terminal(TextIOWrapper):
    """A stream that takes itself for a terminal, and keeps what it is sent."""

    def isatty(self):
        return True


def flopcast(*words, input=b"", variables=None, stream=TextIOWrapper):
    """One call in this process, with bytes on stdin and with more variables of the environment."""
    out, err = (stream(BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    try:
        with (
            patch("sys.argv", ["flopcast", *map(str, words)]),
            patch("sys.stdin", TextIOWrapper(BytesIO(input))),
            patch.dict(os.environ, variables or {}),
            redirect_stdout(out),
            redirect_stderr(err),
        ):
            main()
    except SystemExit as end:
        return Ended(end.code, *(stream.buffer.getvalue().decode() for stream in (out, err)))
    raise AssertionError("a command ends with an exit code")


def data_of(*words):
    """What a successful call in this process prints as JSON."""
    ended = flopcast(*words, "--json")
    assert ended.code == 0, ended.err
    return json.loads(ended.out)


def environment(**changes):
    """This process's environment, and the package on the path."""
    return os.environ | {"PYTHONPATH": str(PACKAGE.parent), "PYTHONWARNINGS": "error"} | changes


def process(*words, **options):
    """One call as `python -m flopcast`."""
    made = ran([sys.executable, "-m", "flopcast", *words], env=environment(), **options)
    return Ended(made.returncode, made.stdout.decode(), made.stderr.decode())
