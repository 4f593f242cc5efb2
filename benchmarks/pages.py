"""What a person waits for at `flopcast ui`, on loopback: `python -m benchmarks pages [SECONDS]`.

Prints the time to the first answer of a server that was just started; one change, alone; the answers to
a few users without a pause, each request with one field changed; many users at once, each with another
plan and a pause between changes; and the memory of the server's processes before and after. Answers per
processor second of the server's processes do not depend on how busy the machine is with other work; twice
as many is the rate on two free cores.

Users without a pause begin with a plan that fits, as the page does. In the mix `among plans that fit`,
they take a change back if the plan with it does not fit, so each request differs in one field from a plan
that fits. In the mix `from any plan`, they keep every change, and soon most plans do not fit.
"""

import http.client
import json
import os
import random
import re
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from itertools import product
from pathlib import Path
from urllib.parse import urlencode

MIXES = {"among plans that fit": True, "from any plan": False}  # whether a misfit is taken back
PARTS = {"parts": "answer time"}  # that are in view before a reader scrolls, as the script of a page says
DOES_NOT_FIT = b"does not fit"  # in the answers that say so, in the report and on the page
USERS, PAUSE_S, SECONDS = 50, 1.0, 30.0
FEW_USERS = 4
CHANGES = {  # fields of the form that change, one at a time
    "gpus": ("64", "128", "256"),
    "tp": ("1", "2", "4", "8"),
    "pp": ("1", "2", "4", "8"),
    "vpp": ("1", "2"),
    "mbs": ("1", "2", "4"),
    "gbs": ("256", "384", "512", "768", "1024", "1536", "2048"),
    "zero": ("0", "1"),
    "recompute": ("none", "selective", "full"),
    "seq": ("2048", "4096", "8192"),
}
START = {
    "model": "llama-3-70b", "cluster": "dgx-h100", "gpus": "128", "seq": "8192", "tp": "8", "pp": "4",
    "vpp": "1", "cp": "1", "ep": "1", "mbs": "1", "gbs": "512", "zero": "1", "recompute": "selective",
    "precision": "bf16",
}  # fmt: skip
MODELS = ("llama-3-8b", "llama-3-70b", "gpt3-175b", "mixtral-8x7b", "qwen2.5-7b")


def words(chance: random.Random) -> dict[str, object]:
    """A plan that is told whole, as every change of a form is."""
    tp, pp, mbs = chance.choice((1, 2, 4, 8)), chance.choice((1, 2, 4)), chance.choice((1, 2))
    gbs = chance.randrange(1, 40) * 128
    return {
        "model": chance.choice(MODELS), "cluster": "dgx-h100", "gpus": "128", "tp": tp, "pp": pp, "vpp": 1,
        "cp": 1, "ep": 1, "mbs": mbs, "gbs": gbs, "zero": 1, "recompute": "selective", "precision": "bf16",
    }  # fmt: skip


def one_field_at_a_time(seed: int, *, back: bool) -> Generator[dict[str, str], bool, None]:
    """Yield different jobs that are valid; each differs in one field from one before it.

    The generator is sent whether the job fits. With `back`, no further job begins with one that does not.
    """
    chance, now = random.Random(seed), START
    kept: dict[tuple[str, ...], bool] = {}
    while True:
        field = chance.choice(list(CHANGES))
        new = now | {field: chance.choice(CHANGES[field])}
        key = tuple(new.values())
        if key not in kept and _is_valid(new):
            kept[key] = (yield new) or not back
        if kept.get(key):
            now = new


def answer_path(words: Mapping[str, object]) -> str:
    """Return the address from which the script of a page gets an answer to its form."""
    return f"/answer/predict?{urlencode({**words, **PARTS})}"


def _is_valid(words: dict[str, str]) -> bool:
    """Return whether the degrees divide the devices and the batch, and the schedule takes the batch."""
    gpus, tp, pp, vpp, mbs, gbs = (int(words[name]) for name in ("gpus", "tp", "pp", "vpp", "mbs", "gbs"))
    replicas = gpus // tp // pp
    if not replicas or gbs % (replicas * mbs):
        return False
    return vpp == 1 or (pp > 2 and gbs // replicas // mbs % pp == 0)


Told = tuple[float, int, bool]  # seconds, status, whether the job of an answer fits


def get(connection: http.client.HTTPConnection, path: str, body: object = None) -> Told:
    """Seconds and status of one request, and whether its answer names no memory that is too small.

    With a body, the request is sent by POST, as JSON.
    """
    start_s = time.perf_counter()
    if body is None:
        connection.request("GET", path)
    else:
        connection.request("POST", path, json.dumps(body))
    answer = connection.getresponse()
    fits = DOES_NOT_FIT not in answer.read().lower()
    return time.perf_counter() - start_s, answer.status, fits


def processor_s(pid: int) -> float:
    """Return the CPU seconds of a process and those that it started."""
    ticks = 0
    for one in (pid, *children(pid)):
        fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])  # user and system
    return ticks / os.sysconf("SC_CLK_TCK")


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


def user(address: tuple[str, int], number: int, until_s: float, told: list[Told]) -> None:
    """One person: changes a plan, waits for the answer, thinks, changes it again."""
    chance = random.Random(number)
    connection = http.client.HTTPConnection(*address, timeout=60)
    time.sleep(chance.random() * PAUSE_S)
    while time.perf_counter() < until_s:
        told.append(get(connection, answer_path(words(chance))))
        time.sleep(PAUSE_S * (0.5 + chance.random()))
    connection.close()


def quantile(values: Sequence[float], share: float) -> float:
    """The value that a share of them does not exceed."""
    return sorted(values)[min(int(share * len(values)), len(values) - 1)]


def main(duration_s: float) -> None:
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
                get(connection, answer_path(words(chance)))
            alone = [get(connection, answer_path(words(chance)))[0] for _ in range(60)]
            print(f"a change, one user      {_told(alone)}")
            for path, (mix, back) in product(("/answer/predict", "/api/v1/predict"), MIXES.items()):
                print(f"{path}, {mix}: {_without_pause(address, path, process.pid, duration_s, back=back)}")
            before = resident_bytes(process.pid)
            _crowd(address, duration_s)
            after = resident_bytes(process.pid)
            print(f"memory                  {before / 1e6:.0f} MB before, {after / 1e6:.0f} MB after")
        finally:
            process.terminate()


def _without_pause(address: tuple[str, int], path: str, pid: int, duration_s: float, *, back: bool) -> str:
    """Return the rate of answers to a few users who change one field and ask at once, for so long."""
    answered: list[Told] = []
    until_s = time.perf_counter() + duration_s

    def user(number: int) -> None:
        connection = http.client.HTTPConnection(*address, timeout=60)
        jobs = one_field_at_a_time(number, back=back)
        words = next(jobs)
        while time.perf_counter() < until_s:
            as_data = path.startswith("/api")
            asked = (path, words) if as_data else (answer_path(words),)
            answered.append(get(connection, *asked))
            words = jobs.send(answered[-1][-1])
        connection.close()

    before_s = processor_s(pid)
    _together([threading.Thread(target=user, args=(number,)) for number in range(FEW_USERS)])
    each = len(answered) / (processor_s(pid) - before_s)
    wrong = sum(status != 200 for _, status, _ in answered)
    fit = sum(fits for *_, fits in answered) / len(answered)
    return (
        f"{len(answered) / duration_s:.0f} answers/s, {each:.0f} per processor second, {fit:.0%} fit,"
        f" {wrong} not 200"
    )


def _together(threads: Sequence[threading.Thread]) -> None:
    """Run threads to their ends."""
    for each in threads:
        each.start()
    for each in threads:
        each.join()


def _crowd(address: tuple[str, int], duration_s: float) -> None:
    """Many users for so long."""
    told: list[Told] = []
    until_s = time.perf_counter() + duration_s
    _together([threading.Thread(target=user, args=(address, n, until_s, told)) for n in range(USERS)])
    times = [took for took, *_ in told]
    bad = sum(status >= 500 for _, status, _ in told)
    rate = f"{len(told)} changes ({len(told) / duration_s:.0f}/s), {bad} errors"
    print(f"{USERS} users, {duration_s:.0f} s         {rate}, {_told(times)}")


def _told(times: Sequence[float]) -> str:
    """The median and the slowest of a hundred."""
    return f"median {1000 * quantile(times, 0.5):.0f} ms, p99 {1000 * quantile(times, 0.99):.0f} ms"


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else SECONDS)
