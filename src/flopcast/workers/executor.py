"""The interface of workers that run the tasks of a search.

Answers: how is a task submitted, and how is its result returned?
Elsewhere: the kinds of executors (process_executor.py, dask_executor.py), the tasks (run.py).
"""

import time
from abc import ABC, abstractmethod
from collections import deque

from flopcast.workers.tasks import Task, done


class AbstractExecutor(ABC):
    """Workers that run tasks, in any order.

    `processor_s` is the processor time of the finished tasks; None if it is unknown.
    """

    processor_s: float | None = None

    @property
    @abstractmethod
    def size(self) -> int:
        """Return the number of tasks that run at the same time."""

    @abstractmethod
    def submit(self, task: Task) -> None:
        """Submit a task."""

    @abstractmethod
    def next_done(self) -> tuple[str, str]:
        """Wait for any submitted task, and return its name and its result.

        Raises
        ------
        SpecError
            Workers cannot be started, or a task repeatedly kills its worker.
        """

    @abstractmethod
    def forget(self) -> None:
        """Drop tasks that no worker has begun. The results of all other tasks are still returned."""

    @abstractmethod
    def close(self) -> None:
        """Stop the workers, and drop unfinished tasks."""


class SerialExecutor(AbstractExecutor):
    """An executor without workers: it runs each task in this process when the result is needed."""

    def __init__(self) -> None:
        """Start without tasks."""
        self._tasks: deque[Task] = deque()
        self.processor_s: float = 0.0

    @property
    def size(self) -> int:
        """Return 1."""
        return 1

    def submit(self, task: Task) -> None:
        """Add a task to the end of the queue."""
        self._tasks.append(task)

    def next_done(self) -> tuple[str, str]:
        """Run the first task and return its result."""
        task, start_s = self._tasks.popleft(), time.process_time()
        result = done(task)
        self.processor_s += time.process_time() - start_s
        return task.name, result

    def forget(self) -> None:
        """Drop all remaining tasks."""
        self._tasks.clear()

    def close(self) -> None:
        """Do nothing, because there are no workers."""
