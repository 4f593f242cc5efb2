"""Workers that are copies of their process hold none of its files, and nothing is left of them."""

import shlex
import sys
from pathlib import Path

import pytest
from all_cases import all_cases
from children import ran
from command_line import flopcast
from scripts import environment, scripted

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux lists children and files")
SCRIPT = Path(__file__).parent / "copies.py"
SEARCH = (
    "-m flopcast search --model megatron-1.7b --cluster dgx-a100 --gpus 8 --seq 2048 --workers 2"
    " --plan 'gbs=64 mbs=1 tp=1 cp=1 vpp=1 zero=1'"
)
OF_A_COPY = [0, 1, 2, 3]  # tasks, what is printed, errors, results


def told_by(kind):
    return scripted(SCRIPT, kind)[1]


def test_a_copy_holds_four_files_and_leaves_neither_files_nor_processes():
    told = told_by("plain")

    assert told["done"]
    assert told["copies"] == [True, True]
    assert told["files"] == [OF_A_COPY, OF_A_COPY]
    assert told["leaked"] == 0
    assert told["children"] == []


def test_a_process_with_threads_is_not_copied():
    told = told_by("threads")

    assert told["done"]
    assert told["copies"] == [False, False]
    assert told["leaked"] == 0
    assert told["children"] == []


def test_a_process_may_ignore_the_end_of_its_children():
    told = told_by("ignoring")

    assert told["done"]
    assert told["children"] == []


def test_an_interrupt_while_workers_start_leaves_none_of_them():
    assert told_by("interrupted") == {"raised": True, "started": 3, "children": []}


def shell(line, folder):
    return ran(["sh", "-c", line], cwd=folder, env=environment(), text=True)


@pytest.fixture(scope="module")
def plans(tmp_path_factory):
    """Return the plans that a search in this process lists, without workers."""
    file = tmp_path_factory.mktemp("plain") / "plans.csv"
    words = shlex.split(SEARCH.replace("--workers 2", ""))[2:]
    assert flopcast(*words, "--csv", file).code == 0
    return file.read_text(encoding="utf-8")


@all_cases("closed", ("2>&-", "<&- >&- 2>&-"))
def test_a_search_whose_streams_are_closed_finds_the_same(closed, plans, tmp_path):
    ended = shell(f"{sys.executable} {SEARCH} --csv plans.csv {closed}", tmp_path)

    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "plans.csv").read_text(encoding="utf-8") == plans


def test_workers_that_the_system_does_not_start_are_an_error_of_the_input():
    many = SEARCH.replace("--workers 2", "--workers 40")

    ended = shell(f"ulimit -n 40; {sys.executable} {many}", Path.cwd())

    assert ended.returncode == 1
    assert "--workers = 40 is not allowed" in ended.stderr
    assert "--workers 20" in ended.stderr
