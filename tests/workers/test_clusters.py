"""Workers of clusters that the user names: the same answer, and faults that tell what to mend."""

import json
import os
import secrets
import shutil
import signal
import socket
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from subprocess import PIPE, STDOUT
from types import SimpleNamespace

import pytest
from children import below, child, ran
from scripts import environment, scripted
from small_search import digest, question

from flopcast.errors import SpecError
from flopcast.library.curves import load_book
from flopcast.search.find import find
from flopcast.workers.dask_executor import DaskExecutor
from flopcast.workers.ray_executor import RayExecutor

SCRIPT = Path(__file__).with_name("on_a_cluster.py")
needs_ray = pytest.mark.skipif(sys.version_info >= (3, 15), reason="no wheel of Ray for this Python")


class Cluster:
    """A Ray cluster of this machine with two cores and a token, in a folder of its own."""

    def __init__(self, folder, started):
        self.env = environment(
            RAY_AUTH_MODE="token",
            RAY_AUTH_TOKEN=secrets.token_hex(16),
            RAY_USAGE_STATS_ENABLED="0",
            RAY_CLIENT_SERVER_CHECK_CHANNEL_TIMEOUT_S="200",  # of 30 s, on busy cores
        )
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.client = f"ray://127.0.0.1:{port}"
        words = ("start", "--head", "--block", "--port=0", "--num-cpus=2", "--include-dashboard=false")
        places = (f"--temp-dir={folder}", f"--ray-client-server-port={port}")
        said = folder / "said"
        with said.open("w") as talk:
            line = [sys.executable, "-m", "ray.scripts.scripts", *words, *places]
            self.process = started.enter_context(child(line, env=self.env, stdout=talk, stderr=STDOUT))
        for _ in range(1200):
            _, _, after = said.read_text().partition("--address='")
            if "'" in after or self.process.poll() is not None:
                break
            time.sleep(0.1)
        self.address = after.partition("'")[0]
        assert self.address, said.read_text()

    def workers(self):
        """Processes of the cluster that do tasks at this moment."""
        return [pid for pid in below(self.process.pid) if title(pid).startswith("ray::done_elsewhere")]


def title(pid):
    """What a process calls itself; nothing where it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""


@pytest.fixture(scope="module")
def cluster():
    folder = Path(tempfile.mkdtemp(prefix="ray"))  # short: its sockets have long names
    try:
        with ExitStack() as started:
            yield Cluster(folder, started)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def expected():
    """The digest of the search in one process, without chunks."""
    return digest(find(question(), load_book))


@pytest.fixture(scope="module")
def faults(cluster):
    return scripted(SCRIPT, "faults", cluster.address, env=cluster.env)


@needs_ray
@pytest.mark.parametrize("way", ["address", "client"])
def test_two_workers_of_a_ray_cluster_find_what_one_process_finds(cluster, way, expected):
    told = scripted(SCRIPT, "found", getattr(cluster, way), env=cluster.env)

    assert told == {"digest": expected, "size": 2}


@needs_ray
def test_kills_of_a_worker_and_of_the_driver_change_no_byte_and_lose_no_finished_part(
    cluster, tmp_path, expected
):
    line = [sys.executable, SCRIPT, "lines", cluster.address, tmp_path / "ledger.sqlite"]
    with child(line, env=cluster.env, stdout=PIPE, text=True) as driver:
        first = json.loads(driver.stdout.readline())
        killed = kill_one(cluster, driver)
        heard = sum(driver.stdout.readline() == "{}\n" for _ in range(4))

    again = ran(line, env=cluster.env, text=True, check=True, limit_s=240)

    told = [json.loads(one) for one in again.stdout.splitlines()]
    assert (first["found"], killed, heard) == (0, 1, 4)
    assert told[0]["found"] >= heard
    assert told[-1] == {"digest": expected}


def kill_one(cluster, driver):
    """Kill the first worker that is seen at work, as often as that is possible: once."""
    while driver.poll() is None:
        for pid in cluster.workers():
            os.kill(pid, signal.SIGKILL)
            return 1
        time.sleep(0.01)
    return 0


@needs_ray
@pytest.mark.parametrize(
    ("wrong", "told", "mended"),
    [
        ("another program", "its numbers would differ", "install the same flopcast on every worker"),
        ("no flopcast", "a worker has no flopcast, or another one", "install the same flopcast"),
        ("death", "workers died at 0/screen/0 repeatedly", "give each worker more memory"),
        ("another version", "Version mismatch", "mend --ray"),
    ],
)
def test_what_is_wrong_with_workers_is_told(faults, wrong, told, mended):
    assert told in faults[wrong]
    assert mended in faults[wrong]


@needs_ray
@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("127.0.0.1:9", "no cluster answers"),
        ("ray://127.0.0.1:9", "no cluster answers"),
        ("127.0.0.1", "no address of a cluster"),
        ("127.0.0.1:port", "no address of a cluster"),
        ("tcp://127.0.0.1:8786", "no address of a cluster"),
    ],
)
def test_a_ray_cluster_that_is_not_there_is_told_at_once(address, told):
    with pytest.raises(SpecError, match=told):
        RayExecutor(address)


@pytest.mark.parametrize(
    ("said", "tries"), [("Starting Ray client server failed. See its log.", 3), ("Version mismatch", 1)]
)
def test_a_head_that_fails_to_serve_a_driver_is_asked_again_and_nothing_else_is(monkeypatch, said, tries):
    asked = []

    def init(place, **_):
        asked.append(place)
        raise RuntimeError(said)

    package = SimpleNamespace(init=init, shutdown=lambda: None)
    monkeypatch.setattr("flopcast.workers.remote_cluster.import_module", lambda _: package)

    with pytest.raises(SpecError, match=said.split(".", maxsplit=1)[0]):
        RayExecutor("auto")

    assert len(asked) == tries


@pytest.mark.parametrize(("executor", "extra"), [(DaskExecutor, "dask"), (RayExecutor, "ray")])
def test_without_its_package_the_extra_is_named(monkeypatch, executor, extra):
    absent = "flopcast.workers.remote_cluster.import_module"
    monkeypatch.setattr(absent, lambda name: __import__("no_such_module"))

    with pytest.raises(SpecError, match=rf"flopcast\[{extra}\]"):
        executor("127.0.0.1:9")
