"""Scripts of tests that are processes of their own: they listen, are killed, or lead clusters."""

import json
import os
import subprocess
import sys

from conftest import PACKAGE


def environment(**more):
    """That of a script: this package on its path, one thread for its matrices."""
    return os.environ | {"PYTHONPATH": str(PACKAGE.parent), "OPENBLAS_NUM_THREADS": "1"} | more


def scripted(script, *words, env=None):
    """What a script prints, as data."""
    line = [sys.executable, str(script), *map(str, words)]
    made = subprocess.run(line, capture_output=True, check=False, timeout=240, env=env or environment())
    assert made.returncode == 0, made.stderr.decode()
    return json.loads(made.stdout)
