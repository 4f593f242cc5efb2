"""Every example in a docstring runs and prints what it says."""

import doctest
from importlib import import_module

from all_cases import all_cases
from conftest import PACKAGE

MODULES = [
    ".".join(("flopcast", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__")
    for path in sorted(PACKAGE.rglob("*.py"))
    if path.name != "__main__.py"
]


@all_cases("name", MODULES)
def test_the_examples_of_a_module_run(name):
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS

    failed, _ = doctest.testmod(import_module(name), optionflags=flags)

    assert failed == 0
