"""A small search in many chunks, in this process, by workers, or killed again and again.

`python small_search.py killed FOLDER` prints JSON: for tests, which must not fork in the process of pytest.
"""

import hashlib
import json
import os
import random
import signal
import sys
import time
from pathlib import Path

from flopcast.files.yaml_text import Document
from flopcast.render.search_json import as_json
from flopcast.requests.job_files import job_of
from flopcast.search.chunk_text import question_text
from flopcast.search.chunks import chunks
from flopcast.search.question import Question
from flopcast.search.space import Space
from flopcast.workers.executor import SerialExecutor
from flopcast.workers.ledger import open_ledger
from flopcast.workers.process_executor import ProcessExecutor
from flopcast.workers.run import answer
from flopcast.workers.search_tasks import Search

JOB = {
    "model": "megatron-1.7b", "cluster": "dgx-a100:1", "stack": "megatron-core",
    "batch": {"sequence_length": 2048}, "plan": "dp=8 gbs=64",
}  # fmt: skip
SPACE = Space(
    gbs=64, mbs="1,2,4,8,16", tp="4,8", pp="1,2", vpp=1, cp="1,2", zero=1, dp_shard=0, recompute="full"
)
CHUNK_PLANS = 1
SCRIPT = Path(__file__)


def question():
    return Question(jobs=(job_of(Document("job", JOB, {})),), space=SPACE)


def search(number=CHUNK_PLANS):
    asked = question()
    return Search(asked, "0", chunks(asked, number))


def digest(found):
    """Of everything that is told, but for how long it took."""
    return hashlib.sha256(json.dumps(as_json(found, 1000, 0, 0)).encode()).hexdigest()


def quiet(progress):
    """Nobody listens."""


class Driver:
    """A process that searches with a ledger, and tells after every chunk who works for it."""

    def __init__(self, path, workers):
        end, told = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            os.close(end)
            drive(path, workers, told)
        os.close(told)
        self._told = os.fdopen(end)
        self.found = json.loads(self._told.readline())["found"]
        self.heard, self.workers = 0, ()

    def hear(self, number):
        """Wait for so many chunks; False where the search ended before."""
        for _ in range(number):
            line = self._told.readline()
            if not line:
                return False
            self.heard, self.workers = self.heard + 1, json.loads(line)
        return True

    def ended(self):
        """Hear it to its end."""
        while self.hear(1):
            pass
        self._told.close()
        os.waitpid(self.pid, 0)

    def kill(self):
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        self._told.close()


def drive(path, workers, told):
    """What a driver does, to the end of its process; the digest is a file beside the ledger."""
    with os.fdopen(told, "w", buffering=1) as talk:
        executor = ProcessExecutor(workers) if workers else SerialExecutor()
        with open_ledger(path, question_text(question()), "test") as ledger:
            print(json.dumps({"found": ledger.found}), file=talk)
            seen = [0]

            def tell(progress):
                if progress.done - progress.kept > 0:
                    seen[0] += 1
                    print(json.dumps(executor.process_ids() if workers else []), file=talk)

            found = answer(search(), executor, ledger, tell)
        executor.close()
        path.with_suffix(".digest").write_text(digest(found))
    os._exit(0)


def killed(folder):
    """Ten kills at random moments, of drivers and of workers, each followed by a new start.

    Returns what the last one found, how many finished chunks a start missed at most, how many chunks the
    last one took over, and the workers that outlived their drivers.
    """
    dice, path = random.Random(7), folder / "ledger.sqlite"
    kinds = ["driver"] * 6 + ["driver of workers"] + ["worker"] * 3
    dice.shuffle(kinds)
    kept, missed, workers = 0, [], set()
    for kind in kinds:
        driver = Driver(path, 0 if kind == "driver" else 2)
        missed.append(kept - driver.found)
        if not driver.hear(dice.randrange(1, 4)):
            raise RuntimeError("the search ended before it was killed: it is too small for this test")
        workers.update(driver.workers)
        time.sleep(0.05 * dice.random())
        if kind == "worker":
            os.kill(dice.choice(driver.workers), signal.SIGKILL)
            driver.hear(2)
            workers.update(driver.workers)
        driver.kill()
        kept = driver.found + driver.heard
    last = Driver(path, 2)
    missed.append(kept - last.found)
    last.hear(1)
    os.kill(last.workers[0], signal.SIGKILL)
    last.ended()
    return {
        "digest": path.with_suffix(".digest").read_text(),
        "kills": len(kinds),
        "missed": max(missed),
        "found": last.found,
        "left": left_over(workers | set(last.workers)),
    }


def left_over(process_ids):
    """Workers that still run a while after their driver is gone."""
    for _ in range(100):
        running = [pid for pid in process_ids if is_running(pid)]
        if not running:
            break
        time.sleep(0.1)
    return len(running)


def is_running(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


if __name__ == "__main__":
    print(json.dumps(killed(Path(sys.argv[2]))))
