"""Scripts of tests that are processes of their own: they listen, are killed, or lead clusters."""

import json
import os
import sys

from children import ran
from conftest import PACKAGE


def environment(**more):
    """That of a script: this package on its path, one thread for its matrices."""
    return os.environ | {"PYTHONPATH": str(PACKAGE.parent), "OPENBLAS_NUM_THREADS": "1"} | more


def scripted(script, *words, env=None):
    """What a script prints, as data."""
    line = [sys.executable, str(script), *map(str, words)]
    made = ran(line, check=True, limit_s=240, env=env or environment())
    return json.loads(made.stdout)
