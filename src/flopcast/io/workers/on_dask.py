"""Workers of a Dask cluster.

Answers: how do tasks run on the workers of a scheduler that the user names?
Elsewhere: the same on this machine alone (processes.py).

Dask itself does a task again whose worker dies, a few times. Its workers need this very flopcast.
"""

from dataclasses import asdict
from importlib import import_module
from typing import Any

from flopcast.errors import Problem, SpecError
from flopcast.io.workers.crew import AbstractCrew
from flopcast.io.workers.tasks import Task, done_elsewhere, program_digest

CONNECT_S = 10


class OnDask(AbstractCrew):
    """The workers of a scheduler: as many as it has when this starts; later ones help all the same."""

    def __init__(self, address: str) -> None:
        """Connect.

        Raises
        ------
        SpecError
            Dask is not installed, nobody listens at the address, or the scheduler has no workers.
        """
        try:
            distributed: Any = import_module("distributed")
        except ImportError:
            because = "Dask is not installed here"
            raise _fault(address, because, "pip install 'flopcast[dask]'") from None
        try:
            self._client = distributed.Client(address, timeout=CONNECT_S, set_as_default=False)
        except (OSError, ValueError) as error:
            raise _fault(address, f"no scheduler answers: {error}", "start it, or mend --dask") from None
        self._size: int = sum(self._client.nthreads().values())
        if not self._size:
            self._client.close()
            raise _fault(address, "the scheduler has no workers", f"dask worker {address}")
        self._done = distributed.as_completed(loop=self._client.loop)

    @property
    def size(self) -> int:
        """Threads of all workers."""
        return self._size

    def submit(self, task: Task) -> None:
        """Hand a task to the scheduler."""
        future = self._client.submit(done_elsewhere, asdict(task), program_digest(), pure=False)
        future.task_name = task.name
        self._done.add(future)

    def next_done(self) -> tuple[str, str]:
        """Wait for any task; a worker's fault is ours."""
        future = next(self._done)
        return future.task_name, future.result()

    def forget(self) -> None:
        """Ask the scheduler to drop what nobody has begun."""
        self._done.clear()

    def close(self) -> None:
        """Leave the cluster as it was."""
        self._client.close()


def _fault(address: str, because: str, fix: str) -> SpecError:
    """The fault of a scheduler that cannot be used."""
    allowed = "the address of a Dask scheduler, such as tcp://127.0.0.1:8786"
    return SpecError([Problem(field="--dask", value=address, allowed=allowed, because=because, fix=fix)])
