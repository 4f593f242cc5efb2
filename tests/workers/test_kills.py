"""`kill -9` at random moments of long commands: what stands is whole, and the next start ends the same.

`pytest tests/workers/test_kills.py --kills 50` makes fifty kills; the suite makes one of each command.
"""

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from children import child, ran
from scripts import environment

from flopcast.lab.calibration.operator_files import FILES

SEED = 16
PLAN = ("--seq", "2048", "--plan", "gbs=64 mbs=1 tp=1 cp=1 vpp=1 zero=1")
SEARCH = ("search", "--model", "megatron-1.7b", "--cluster", "dgx-a100", "--gpus", "8", *PLAN)
GRID = """\
model: megatron-1.7b
cluster: dgx-a100
gpus: 8
sequence_length: [1024, 2048]
plan: gbs=64 mbs=1 tp=1 cp=1 vpp=1 zero=1
"""
HELD_OUT = Path(__file__).parents[1] / "lab" / "validation" / "held_out_runs.csv"


def measurements(folder):
    """Two files of one system, as its curves need them."""
    place = folder / "operators" / "perlmutter-a100-sxm4-80gb"
    place.mkdir(parents=True)
    for file in ("linear_mlp_up", "layernorm"):
        assert file in FILES
        shapes = [(1, b, 1024, h, h // 128) for b in (4, 8, 16) for h in (2048, 4096)]
        rows = [",".join(map(str, (*one, one[1] * one[3] / 10, one[1] * one[3] / 4))) for one in shapes]
        text = "\n".join(["tp,micro_batch,seq_len,hidden,heads,fwd_us,bwd_us", *rows])
        (place / f"{file}.csv").write_text(text + "\n", encoding="utf-8")


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """A folder with a grid, a table of four runs, and measurements."""
    folder = tmp_path_factory.mktemp("inputs")
    (folder / "grid.yaml").write_text(GRID, encoding="utf-8")
    lines = HELD_OUT.read_text(encoding="utf-8").splitlines()
    (folder / "runs.csv").write_text("\n".join(lines[:5]) + "\n", encoding="utf-8")
    measurements(folder / "data")
    return folder


def commands(inputs, out):
    """Words of each command, which writes into a folder."""
    ledger = ("--ledger", out / "kept.sqlite", "--csv")
    return {
        "search": (*SEARCH, *ledger, out / "search.csv"),
        "sweep": ("sweep", inputs / "grid.yaml", *ledger, out / "sweep.csv"),
        "validate": ("validate", "--runs", inputs / "runs.csv", "--report", out / "runs.html"),
        "calibrate": ("calibrate", "fit", "--data", inputs / "data", "--out", out),
    }


def whole_files(folder):
    """Content by name of what stands under a final name: no ledger, no file that is being written."""
    kept = (path for path in folder.iterdir() if path.suffix in (".csv", ".html", ".json"))
    return {path.name: path.read_bytes() for path in kept if "ledger" not in path.name}


def line_of(words):
    return [sys.executable, "-m", "flopcast", *words]


@pytest.mark.parametrize("name", ["search", "sweep", "validate", "calibrate"])
def test_a_killed_command_leaves_no_part_of_a_file_and_ends_the_same_when_it_is_started_again(
    name, inputs, tmp_path, request
):
    dice = random.Random(f"{SEED} {name}")
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    (tmp_path / "calm").mkdir()
    start_s = time.monotonic()
    ran(line_of(commands(inputs, tmp_path / "calm")[name]), check=True, env=environment())
    took_s = time.monotonic() - start_s
    expected = whole_files(tmp_path / "calm")

    for number in range(max(1, request.config.getoption("kills") // 4)):
        out = tmp_path / str(number)
        out.mkdir()
        line = line_of(commands(inputs, out)[name])
        with child(line, env=environment(), **quiet):
            time.sleep(took_s * dice.random())
        found = whole_files(out)
        ran(line, check=True, env=environment())

        assert expected
        assert found.items() <= expected.items()
        assert whole_files(out) == expected
