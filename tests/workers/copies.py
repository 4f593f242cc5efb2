"""Workers that are copies of this process, for tests: `python copies.py KIND` prints JSON.

A process of its own, because pytest may have threads, and must not ignore the end of its children.
"""

import json
import os
import signal
import sys
import threading
from pathlib import Path

from small_search import search

from flopcast.workers.process_executor import ProcessExecutor


def numbers_of_files(pid="self"):
    return sorted(map(int, os.listdir(f"/proc/{pid}/fd")))


def children():
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()


def is_copy(pid):
    return Path(f"/proc/{pid}/cmdline").read_bytes() == Path("/proc/self/cmdline").read_bytes()


def worked():
    """A few tasks of two workers, and what is left of them."""
    before = numbers_of_files()
    executor = ProcessExecutor(2)
    tasks = search(20).tasks[:3]
    for task in tasks:
        executor.submit(task)
    done = {executor.next_done()[0] for _ in tasks}
    told = {
        "done": done == {task.name for task in tasks},
        "copies": [is_copy(pid) for pid in executor.process_ids()],
        "files": [numbers_of_files(pid) for pid in executor.process_ids()],
    }
    executor.close()
    return told | {"leaked": len(numbers_of_files()) - len(before), "children": children()}


def in_a_process_with_threads():
    """The same while another thread waits."""
    end = threading.Event()
    thread = threading.Thread(target=end.wait)
    thread.start()
    try:
        return worked()
    finally:
        end.set()
        thread.join()


def in_a_process_that_ignores_its_children():
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    return worked()


def interrupted():
    """Ctrl-C while the second of three workers starts."""
    executor, starts, raised = ProcessExecutor(3), [], False

    def count():
        starts.append(1)
        if len(starts) == 2:
            os.kill(os.getpid(), signal.SIGINT)

    os.register_at_fork(after_in_parent=count)
    try:
        executor.submit(search(20).tasks[0])
    except KeyboardInterrupt:
        raised = True
    executor.close()
    return {"raised": raised, "started": len(starts), "children": children()}


KINDS = {
    "plain": worked,
    "threads": in_a_process_with_threads,
    "ignoring": in_a_process_that_ignores_its_children,
    "interrupted": interrupted,
}

if __name__ == "__main__":
    print("[1,", end="")  # a copy that wrote this too would make the answer unreadable
    print(json.dumps(KINDS[sys.argv[1]]()), end="]")
