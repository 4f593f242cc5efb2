"""Every example in a docstring runs and prints what it says."""

import doctest
from importlib import import_module

from all_cases import all_cases
from conftest import PACKAGE

PATHS = [path for path in sorted(PACKAGE.rglob("*.py")) if path.name != "__main__.py"]


@all_cases("path", PATHS)
def test_the_examples_of_a_module_run(path):
    """`doctest.testmod` would add the results of each module to those of all before."""
    name = ".".join(("flopcast", *path.relative_to(PACKAGE).with_suffix("").parts))
    module = import_module(name.removesuffix(".__init__"))
    if ">>>" not in path.read_text(encoding="utf-8"):
        return
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)

    for examples in doctest.DocTestFinder().find(module):
        runner.run(examples)

    assert runner.failures == 0
