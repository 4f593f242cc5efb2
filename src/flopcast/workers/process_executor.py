"""Workers that are processes of this machine.

Answers: how do tasks run on several cores, and what happens to a task whose worker is killed?
Elsewhere: the start of a process (worker_process.py), its program (serve.py).

A thread waits for each process. If a signal kills a process, the process is replaced and its task is
repeated. If a process fails without a signal, flopcast has a bug.
"""

import json
from contextlib import suppress
from dataclasses import asdict
from queue import Empty, SimpleQueue
from threading import Thread

from flopcast.errors import InternalError, SpecError, spec_error
from flopcast.workers.executor import AbstractExecutor
from flopcast.workers.tasks import Task
from flopcast.workers.worker_process import can_fork, interrupts_held, start_process

DEATHS = 3  # of workers at one task: then it is the task


class ProcessExecutor(AbstractExecutor):
    """A number of worker processes."""

    def __init__(self, size: int) -> None:
        """Start them now, unless they can be copies of this process: copies start with the first task.

        By then this process has read and worked out much of what they need. New interpreters read it
        while the first tasks are made.
        """
        self._size = size
        self._tasks: SimpleQueue[Task | None] = SimpleQueue()
        self._done: SimpleQueue[tuple[str, str, float] | Exception] = SimpleQueue()
        self.processor_s: float = 0.0
        self._workers: list[_Worker] = []
        self._threads: list[Thread] = []
        if not can_fork():
            self._start()

    @property
    def size(self) -> int:
        """Return the number of processes."""
        return self._size

    def submit(self, task: Task) -> None:
        """Submit a task to the first free process."""
        if not self._workers:
            self._start()
        self._tasks.put(task)

    def next_done(self) -> tuple[str, str]:
        """Wait for any task to end and return its name and its result.

        Raises
        ------
        SpecError, InternalError
            The task raised this error in its worker, or the system allows no further process.
        """
        found = self._done.get()
        if isinstance(found, Exception):
            raise found
        name, text, processor_s = found
        self.processor_s += processor_s
        return name, text

    def forget(self) -> None:
        """Drop tasks that no process has begun."""
        with suppress(Empty):
            while True:
                self._tasks.get_nowait()

    def close(self) -> None:
        """End every process immediately.

        Running tasks are lost. The ledger has the results of all finished tasks. Threads end with their
        processes.
        """
        for worker in self._workers:
            worker.end()
            self._tasks.put(None)
        for thread in self._threads:
            thread.join()
        for worker in self._workers:
            worker.end()  # one that was being replaced
            worker.release()

    def process_ids(self) -> tuple[int, ...]:
        """Return the ids of the running processes. There are none before the first task."""
        return tuple(worker.process.pid for worker in self._workers)

    def _start(self) -> None:
        """Start the processes, then a thread for each: a process with threads cannot be copied.

        Ctrl-C waits until all of them are known, so that `close` ends all of them.

        Raises
        ------
        SpecError
            The system allows no further process, thread or file.
        """
        with interrupts_held():
            try:
                while len(self._workers) < self._size:
                    self._workers.append(_Worker())
                for worker in self._workers:
                    thread = Thread(target=self._serve, args=(worker,), daemon=True)
                    thread.start()
                    self._threads.append(thread)
            except (OSError, RuntimeError) as error:  # RuntimeError: no further thread
                self.close()
                raise _too_many(self._size, error) from None

    def _serve(self, worker: "_Worker") -> None:
        """Let one worker do tasks until there are no more."""
        while (task := self._tasks.get()) is not None and not worker.closed:
            try:
                self._done.put((task.name, *self._answer(worker, task)))
            except (SpecError, InternalError) as error:
                if not worker.closed:
                    self._done.put(error)
            except OSError as error:  # no process can take the place of one that was killed
                self._done.put(_too_many(self._size, error))

    def _answer(self, worker: "_Worker", task: Task) -> tuple[str, float]:
        """Return the result of a task and its processor time; a worker that was killed is replaced."""
        for _ in range(DEATHS):
            line = worker.ask(task)
            if line:
                text, processor_s = json.loads(line)
                return str(text), float(processor_s)
            if worker.closed:
                break
            code = worker.process.wait()
            if code >= 0:
                raise InternalError(f"a worker failed at {task.name}; the message of the worker is above")
            worker.restart()
        raise _deadly(task, self._size)


class _Worker:
    """One process, and the next one in its place."""

    def __init__(self) -> None:
        """Start it."""
        self.closed = False
        self.process = start_process()

    def ask(self, task: Task) -> str:
        """Send one line and return the answer.

        Returns
        -------
        str
            One line with its newline. It is "" if the process has ended or its pipe is closed; the caller
            replaces the process and does the task again.
        """
        try:
            self.process.stdin.write(json.dumps(asdict(task)) + "\n")  # type: ignore[union-attr]
            self.process.stdin.flush()  # type: ignore[union-attr]
            line: str = self.process.stdout.readline()  # type: ignore[union-attr]
        except (OSError, ValueError):
            return ""
        return line if line.endswith("\n") else ""

    def restart(self) -> None:
        """Start another process in place of one that has ended."""
        self.release()
        if not self.closed:
            self.process = start_process()

    def end(self) -> None:
        """End the process, even in the middle of a task."""
        self.closed = True
        self.process.kill()
        self.process.wait()

    def release(self) -> None:
        """Close the pipes of a process that is gone."""
        for pipe in (self.process.stdin, self.process.stdout):
            with suppress(OSError):  # what was not written has no reader
                pipe.close()  # type: ignore[union-attr]


def _too_many(size: int, error: Exception) -> SpecError:
    """Return the fault of workers that the system does not start."""
    allowed = "at most as many processes as this system lets you start"
    because = f"the system does not start another process: {error}"
    return spec_error("--workers", size, allowed, because, f"use --workers {max(1, size // 2)}")


def _deadly(task: Task, size: int) -> SpecError:
    """Return the fault of a task that every worker dies of."""
    because = (
        f"{DEATHS} workers were killed during the task {task.name}, most likely because memory ran out"
    )
    fewer = f"--workers {size // 2}, or " if size > 1 else ""
    fix = f"use {fewer}a machine with more memory"
    return spec_error("--workers", size, "a number of workers that fit into memory", because, fix)
