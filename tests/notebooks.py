"""Notebooks in examples/: run cell by cell, as Jupyter shows them, without Jupyter.

`python tests/notebooks.py` runs every notebook and writes today's outputs into it; read the difference.
A line that starts with "!" is a command of the shell, and runs as in tests/pages.py.
"""

import ast
import json
import sys
import tempfile
from contextlib import chdir, redirect_stdout
from io import StringIO
from pathlib import Path

from pages import ROOT, output_of, own_config

EXAMPLES = sorted((ROOT / "examples").glob("*.ipynb"))


def lines_of(text):
    """A text as notebooks keep it: lines with their ends."""
    return text.splitlines(keepends=True)


def outputs_of(source, names, number):
    """What a cell shows: what it prints, then the value of its last expression."""
    shell = "".join(output_of(line[1:])[0] for line in source.splitlines() if line.startswith("!"))
    tree = ast.parse("\n".join(line for line in source.splitlines() if not line.startswith("!")))
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    value = None
    with redirect_stdout(StringIO()) as printed:
        exec(compile(tree, "cell", "exec"), names)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
    shown = []
    if text := shell + printed.getvalue():
        shown.append({"name": "stdout", "output_type": "stream", "text": lines_of(text)})
    if value is not None:
        data = {"text/plain": lines_of(repr(value))}
        if hasattr(value, "_repr_html_"):
            data["text/html"] = lines_of(value._repr_html_())
        shown.append(
            {"data": data, "execution_count": number, "metadata": {}, "output_type": "execute_result"}
        )
    return shown


def executed(notebook):
    """The notebook with the outputs of today; its cells run in order in an empty folder."""
    names, number, cells = {}, 0, []
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        own_config(Path(folder))
        for cell in notebook["cells"]:
            if cell["cell_type"] == "code":
                number += 1
                outputs = outputs_of("".join(cell["source"]), names, number)
                cells.append({**cell, "execution_count": number, "outputs": outputs})
            else:
                cells.append(cell)
    return {**notebook, "cells": cells}


def written(notebook):
    """The text of a notebook's file."""
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    for path in EXAMPLES:
        path.write_text(written(executed(json.loads(path.read_text(encoding="utf-8")))), encoding="utf-8")
    sys.stdout.write("written: compare with git diff\n")
