"""Counts of more than 200 models of timm, transformers and diffusers, beside those of PyTorch.

The table is what oracle.py and graph_counts.py found; PyTorch is needed to compare one model anew.
"""

import csv
import os
import sys
from pathlib import Path

import pytest
from children import ran
from graph_counts import agrees, compared

HERE = Path(__file__).parent
DIFFERENT = {  # their own autograd functions keep less, or more, than the operators that an export shows
    "transformers:bloom": "a GELU of its own keeps its input alone",
    "transformers:recurrent_gemma": "a square root of its own keeps its input",
}


def test_models_of_the_table_agree_with_pytorch():
    with (HERE / "exported" / "models.csv").open() as table:
        rows = list(csv.DictReader(table))

    ratios = {row["model"]: {key: float(row[key]) for key in row if key.endswith("ratio")} for row in rows}
    differ = {model for model, found in ratios.items() if not agrees(found)}

    assert len(rows) - len(differ) >= 200
    assert {model.partition(":")[0] for model in ratios} == {"timm", "transformers", "diffusers"}
    assert differ == set(DIFFERENT)


def test_a_model_that_is_exported_now_agrees_with_pytorch(tmp_path):
    for package in ("torch", "timm", "transformers", "diffusers"):
        pytest.importorskip(package, reason="the oracle needs PyTorch and the libraries of models")
    paths = os.pathsep.join(("src", os.environ.get("PYTHONPATH", "")))
    command = [sys.executable, str(HERE / "oracle.py"), str(tmp_path), "timm:resnet18"]

    ran(command, check=True, env=os.environ | {"PYTHONPATH": paths}, cwd=HERE.parents[1])

    with (tmp_path / "counts.csv").open() as table:
        (row,) = csv.DictReader(table)
    ratios, unknown = compared(row, (tmp_path / "timm.resnet18.json.gz").read_bytes())
    assert agrees(ratios)
    assert not unknown
