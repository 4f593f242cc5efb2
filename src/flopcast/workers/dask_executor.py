"""Workers of a Dask cluster.

Answers: how do tasks run on the workers of a scheduler that the user names?
Elsewhere: the same on this machine alone (process_executor.py).

Dask itself does a task again whose worker dies, a few times. Its workers need this very flopcast.
"""

from dataclasses import asdict
from typing import Any

from flopcast.workers.executor import AbstractExecutor
from flopcast.workers.remote_cluster import RemoteCluster
from flopcast.workers.tasks import Task, done_elsewhere, program_digest

CONNECT_S = 10
FORM = "the address of a Dask scheduler, such as tcp://127.0.0.1:8786"


class DaskExecutor(AbstractExecutor):
    """The workers of a scheduler: as many as it has when this starts; later ones help all the same."""

    def __init__(self, address: str) -> None:
        """Connect.

        Raises
        ------
        SpecError
            Dask is not installed, nobody listens at the address, or the scheduler has no workers.
        """
        self._named = RemoteCluster(option="--dask", address=address, allowed=FORM)
        self._dask: Any = self._named.package("distributed", "Dask")
        try:
            self._client = self._dask.Client(address, timeout=CONNECT_S, set_as_default=False)
        except (OSError, ValueError) as error:
            raise self._named.fault(
                f"no scheduler answers: {error}", "start it, or correct --dask"
            ) from None
        self._size: int = sum(self._client.nthreads().values())
        if not self._size:
            self._client.close()
            raise self._named.fault("the scheduler has no workers", f"dask worker {address}")
        self._done = self._dask.as_completed(loop=self._client.loop)

    @property
    def size(self) -> int:
        """Return threads of all workers."""
        return self._size

    def submit(self, task: Task) -> None:
        """Hand a task to the scheduler."""
        future = self._client.submit(done_elsewhere, asdict(task), program_digest(), pure=False)
        future.task_name = task.name
        self._done.add(future)

    def next_done(self) -> tuple[str, str]:
        """Wait for any task; a fault in it is ours.

        Raises
        ------
        SpecError
            Workers die of it, or have another flopcast; the scheduler is gone.
        """
        future = next(self._done)
        try:
            return future.task_name, future.result()
        except self._dask.KilledWorker as error:
            raise self._named.deadly(future.task_name, error) from None
        except self._dask.CancelledError as error:
            raise self._named.gone(error) from None
        except (ImportError, AttributeError) as error:
            raise self._named.strange(error) from None

    def forget(self) -> None:
        """Ask the scheduler to drop what nobody has begun."""
        self._done.clear()

    def close(self) -> None:
        """Leave the cluster as it was."""
        self._client.close()
