"""What a person waits for at `flopcast ui`, on loopback: `python -m benchmarks.pages [SECONDS]`.

Prints the time to the first answer of a server just started; one change, alone; many users at once, each
with another plan and a pause between changes; and the memory of the server's processes before and after.
"""

import http.client
import random
import re
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlencode

USERS, PAUSE_S, SECONDS = 50, 1.0, 30.0
MODELS = ("llama-3-8b", "llama-3-70b", "gpt3-175b", "mixtral-8x7b", "qwen2.5-7b")


def words(chance: random.Random) -> dict[str, object]:
    """A plan that is told whole, as every change of a form is."""
    tp, pp, mbs = chance.choice((1, 2, 4, 8)), chance.choice((1, 2, 4)), chance.choice((1, 2))
    gbs = chance.randrange(1, 40) * 128
    return {
        "model": chance.choice(MODELS), "cluster": "dgx-h100", "gpus": "128", "tp": tp, "pp": pp, "vpp": 1,
        "cp": 1, "ep": 1, "mbs": mbs, "gbs": gbs, "zero": 1, "recompute": "selective", "precision": "bf16",
    }  # fmt: skip


def get(connection: http.client.HTTPConnection, path: str) -> tuple[float, int]:
    """Seconds and status of one request."""
    start_s = time.perf_counter()
    connection.request("GET", path)
    answer = connection.getresponse()
    answer.read()
    return time.perf_counter() - start_s, answer.status


def resident_bytes(pid: int) -> int:
    """Of a process and those that it started."""
    total = 0
    for one in (pid, *children(pid)):
        found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{one}/status").read_text())
        total += int(found[1]) * 1024
    return total


def children(pid: int) -> list[int]:
    """Processes that a process started."""
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def user(address: tuple[str, int], number: int, until_s: float, told: list[tuple[float, int]]) -> None:
    """One person: changes a plan, waits for the answer, thinks, changes it again."""
    chance = random.Random(number)
    connection = http.client.HTTPConnection(*address, timeout=60)
    time.sleep(chance.random() * PAUSE_S)
    while time.perf_counter() < until_s:
        told.append(get(connection, f"/answer/predict?{urlencode(words(chance))}"))
        time.sleep(PAUSE_S * (0.5 + chance.random()))
    connection.close()


def quantile(values: Sequence[float], share: float) -> float:
    """The value that a share of them does not exceed."""
    return sorted(values)[min(int(share * len(values)), len(values) - 1)]


def main(seconds: float) -> None:
    """Start a server, ask it, end it."""
    command = [sys.executable, "-m", "flopcast", "ui", "--port", "0"]
    start_s = time.perf_counter()
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            found = re.search(r"http://(.*):(\d+)", process.stderr.readline())
            address = found[1], int(found[2])
            connection = http.client.HTTPConnection(*address, timeout=60)
            print(f"listens after           {time.perf_counter() - start_s:6.2f} s")
            get(connection, "/")
            print(f"first answer after      {time.perf_counter() - start_s:6.2f} s from a cold start")
            print(f"a page loaded then      {1000 * get(connection, '/')[0]:6.0f} ms")
            chance = random.Random(0)
            for _ in range(20):
                get(connection, f"/answer/predict?{urlencode(words(chance))}")
            alone = [get(connection, f"/answer/predict?{urlencode(words(chance))}")[0] for _ in range(60)]
            print(f"a change, one user      {_told(alone)}")
            before = resident_bytes(process.pid)
            _crowd(address, seconds)
            after = resident_bytes(process.pid)
            print(f"memory                  {before / 1e6:.0f} MB before, {after / 1e6:.0f} MB after")
        finally:
            process.terminate()


def _crowd(address: tuple[str, int], seconds: float) -> None:
    """Many users for so long."""
    told: list[tuple[float, int]] = []
    until_s = time.perf_counter() + seconds
    users = [threading.Thread(target=user, args=(address, n, until_s, told)) for n in range(USERS)]
    for each in users:
        each.start()
    for each in users:
        each.join()
    times = [took for took, _ in told]
    bad = sum(status >= 500 for _, status in told)
    rate = f"{len(told)} changes ({len(told) / seconds:.0f}/s), {bad} errors"
    print(f"{USERS} users, {seconds:.0f} s         {rate}, {_told(times)}")


def _told(times: Sequence[float]) -> str:
    """The median and the slowest of a hundred."""
    return f"median {1000 * quantile(times, 0.5):.0f} ms, p99 {1000 * quantile(times, 0.99):.0f} ms"


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else SECONDS)
