"""Workers of a Dask cluster that the user names: the same answer, and errors that say what to mend."""

import json
import os
import signal
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from subprocess import DEVNULL, PIPE

import pytest
from children import below, child, ran
from scripts import environment, scripted
from small_search import digest, question

from flopcast.errors import SpecError
from flopcast.library.curves import load_book
from flopcast.search.find import find
from flopcast.workers.dask_executor import DaskExecutor

SCRIPT = Path(__file__).with_name("on_a_cluster.py")


class Cluster:
    """A Dask scheduler of this machine and two workers, each with a nanny that starts it again."""

    def __init__(self, folder, started):
        file = folder / "scheduler.json"
        local = ("--host", "127.0.0.1", "--dashboard-address", "127.0.0.1:0", "--no-dashboard")

        def start(program, *words):
            line = [sys.executable, "-m", f"distributed.cli.{program}", *words, *local]
            quiet = {"cwd": folder, "env": environment(), "stdout": DEVNULL, "stderr": DEVNULL}
            return started.enter_context(child(line, **quiet))

        self.scheduler = start("dask_scheduler", "--port", "0", "--scheduler-file", str(file))
        words = ("--scheduler-file", str(file), "--nthreads", "1", "--local-directory", str(folder))
        self._nannies = [start("dask_worker", *words) for _ in range(2)]
        for _ in range(600):
            if file.is_file() and file.read_text():
                break
            time.sleep(0.1)
        self.address = json.loads(file.read_text())["address"]

    def workers(self):
        """Processes of the cluster that do tasks."""
        return [pid for nanny in self._nannies for pid in below(nanny.pid) if b"spawn_main" in title(pid)]


def title(pid):
    """The command line of a process; nothing where it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with ExitStack() as started:
        yield Cluster(tmp_path_factory.mktemp("dask"), started)


@pytest.fixture(scope="module")
def expected():
    """The digest of the search in one process, without chunks."""
    return digest(find(question(), load_book))


@pytest.fixture(scope="module")
def told(cluster):
    """What a program learns that asks the cluster for a search, and then makes mistakes."""
    return scripted(SCRIPT, "asked", cluster.address)


def test_two_workers_of_a_cluster_find_what_one_process_finds(told, expected):
    assert (told["digest"], told["size"]) == (expected, 2)


def test_kills_of_a_worker_and_of_the_driver_change_no_byte_and_lose_no_finished_part(
    cluster, tmp_path, expected
):
    line = [sys.executable, SCRIPT, "lines", cluster.address, tmp_path / "ledger.sqlite"]
    with child(line, env=environment(), stdout=PIPE, text=True) as driver:
        first = json.loads(driver.stdout.readline())
        heard = sum(driver.stdout.readline() == "{}\n" for _ in range(2))
        os.kill(cluster.workers()[0], signal.SIGKILL)
        heard += sum(driver.stdout.readline() == "{}\n" for _ in range(2))

    again = ran(line, env=environment(), text=True, check=True, limit_s=240)

    told = [json.loads(one) for one in again.stdout.splitlines()]
    assert (first["found"], heard) == (0, 4)
    assert told[0]["found"] >= heard
    assert told[-1] == {"digest": expected}


@pytest.mark.parametrize(
    ("wrong", "because", "mended"),
    [
        (
            "another program",
            "results of another version would differ",
            "install the same flopcast on every worker",
        ),
        (
            "no flopcast",
            "a worker has no flopcast, or a different version",
            "the scheduler and every worker",
        ),
        ("death", "workers ended repeatedly during the task 0/screen/0", "give each worker more memory"),
    ],
)
def test_what_is_wrong_with_workers_is_told(told, wrong, because, mended):
    assert because in told["faults"][wrong]
    assert mended in told["faults"][wrong]


def test_a_cluster_that_ends_during_a_search_is_told(cluster):
    """The last test of the cluster, which is gone afterwards."""
    told = scripted(SCRIPT, "gone", cluster.address, cluster.scheduler.pid)

    assert "the cluster disconnected" in told
    assert "with --ledger FILE, finished parts of the search are kept" in told


def test_without_dask_its_extra_is_named(monkeypatch):
    absent = "flopcast.workers.dask_executor.import_module"
    monkeypatch.setattr(absent, lambda name: __import__("no_such_module"))

    with pytest.raises(SpecError, match=r"flopcast\[dask\]"):
        DaskExecutor("127.0.0.1:9")
