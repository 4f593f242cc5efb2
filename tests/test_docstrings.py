"""Every example in a docstring runs and prints what it says."""

import ast
import doctest
import linecache
import re
from importlib import import_module
from pathlib import Path

from all_cases import all_cases
from conftest import PACKAGE
from test_architecture import nodes, tree

PATHS = [path for path in sorted(PACKAGE.rglob("*.py")) if path.name != "__main__.py"]
FILES = [path.as_posix() for folder in (PACKAGE, Path(__file__).parent) for path in folder.rglob("*.*")]


@all_cases("path", PATHS)
def test_the_examples_of_a_module_run(path):
    """`doctest.testmod` would add the results of each module to those of all before."""
    name = ".".join(("flopcast", *path.relative_to(PACKAGE).with_suffix("").parts))
    module = import_module(name.removesuffix(".__init__"))
    if ">>>" not in path.read_text(encoding="utf-8"):
        return
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)

    for found in doctest.DocTestFinder().find(module):
        if found.examples:
            runner.run(found)
    linecache.clearcache()  # every run looks at all files of this cache

    assert runner.failures == 0


@all_cases("path", PATHS)
def test_docstrings_describe_parameters_and_files_that_exist(path):
    module = tree(path)
    documented = [node for node in nodes(path) if isinstance(node, ast.ClassDef | ast.FunctionDef)]
    wrong = [name for node in documented for name in described(node) - declared(node)]
    elsewhere = [part for part in (ast.get_docstring(module) or "").split("\n\n") if "Elsewhere:" in part]
    named = re.findall(r"[\w/-]+\.(?:py|yaml)\b", " ".join(elsewhere))

    assert wrong == []
    assert [name for name in named if not any(each.endswith(f"/{name}") for each in FILES)] == []


def described(node):
    """The names in the section Parameters or Attributes of a docstring."""
    sections = re.split(r"\n\n(?=\w+\n-{4,}\n)", ast.get_docstring(node) or "")
    listed = [part for part in sections if part.startswith(("Parameters\n", "Attributes\n"))]
    heads = [
        line for part in listed for line in part.splitlines()[2:] if re.match(r"\w[\w, ]*( :|$)", line)
    ]
    return {name for head in heads for name in re.split(r",\s*", head.partition(" :")[0])}


def declared(node):
    """The arguments of a function, or the fields and methods of a class and their arguments."""
    if isinstance(node, ast.FunctionDef):
        return {each.arg for each in ast.walk(node.args) if isinstance(each, ast.arg)}
    if not isinstance(node, ast.ClassDef):
        return set()
    fields = {each.target.id for each in node.body if isinstance(each, ast.AnnAssign)}
    methods = [each for each in node.body if isinstance(each, ast.FunctionDef)]
    return fields.union({each.name for each in methods}, *(declared(each) for each in methods))
