"""Workers of a Dask cluster.

Answers: how do tasks run on the workers of a scheduler that the user names, and which errors can occur?
Elsewhere: workers of this machine (process_executor.py).

If a worker dies, Dask repeats its task, a few times. The scheduler and the workers need the same version of
flopcast.
"""

from dataclasses import asdict
from importlib import import_module
from typing import Any

from flopcast.errors import SpecError, spec_error
from flopcast.workers.executor import AbstractExecutor
from flopcast.workers.tasks import Task, done_elsewhere, program_digest

CONNECT_S = 10
FORM = "the address of a Dask scheduler, such as tcp://127.0.0.1:8786"
SAME_FLOPCAST = "install the same flopcast on the scheduler and every worker, and start them again"


class DaskExecutor(AbstractExecutor):
    """The workers of a scheduler.

    `size` is their number at the start; workers that join later are also used.
    """

    def __init__(self, address: str) -> None:
        """Connect.

        Raises
        ------
        SpecError
            Dask is not installed, nothing listens at the address, or the scheduler has no workers.
        """
        self._address = address
        try:
            self._dask: Any = import_module("distributed")
        except ImportError:
            raise self._fault(
                "Dask is not installed in this environment", "pip install 'flopcast[dask]'"
            ) from None
        try:
            self._client = self._dask.Client(address, timeout=CONNECT_S, set_as_default=False)
        except (OSError, ValueError) as error:
            raise self._fault(
                f"no scheduler answers at this address: {error}",
                "start the scheduler, or correct the address of --dask",
            ) from None
        self._size: int = sum(self._client.nthreads().values())
        if not self._size:
            self._client.close()
            raise self._fault("the scheduler has no workers", f"start a worker: dask worker {address}")
        self._done = self._dask.as_completed(loop=self._client.loop)

    @property
    def size(self) -> int:
        """Return the number of threads of all workers."""
        return self._size

    def submit(self, task: Task) -> None:
        """Submit a task to the scheduler."""
        future = self._client.submit(done_elsewhere, asdict(task), program_digest(), pure=False)
        future.task_name = task.name
        self._done.add(future)

    def next_done(self) -> tuple[str, str]:
        """Wait for any task. An exception of the task itself is a bug.

        Raises
        ------
        SpecError
            The task kills workers, workers have another version of flopcast, or the scheduler has stopped.
        """
        future = next(self._done)
        try:
            return future.task_name, future.result()
        except self._dask.KilledWorker as error:
            because = (
                f"workers ended repeatedly during the task {future.task_name}, most likely because memory"
                f" ran out"
            )
            fix = "give each worker more memory, or start fewer workers on a machine"
            raise self._fault(f"{because}: {error}", fix) from None
        except (self._dask.CancelledError, self._dask.comm.CommClosedError) as error:
            fix = (
                "start the cluster and run the command again; with --ledger FILE, finished parts of the"
                " search are kept"
            )
            raise self._fault(f"the cluster disconnected: {error}", fix) from None
        except (ImportError, AttributeError, RuntimeError) as error:
            cause = error.__cause__ or error  # of a RuntimeError where the scheduler cannot read the task
            if not isinstance(cause, (ImportError, AttributeError)):
                raise
            because = f"the scheduler or a worker has no flopcast, or a different version: {cause}"
            raise self._fault(because, SAME_FLOPCAST) from None

    def forget(self) -> None:
        """Request the scheduler to drop tasks that no worker has begun."""
        self._done.clear()

    def close(self) -> None:
        """Disconnect; the cluster keeps running."""
        self._client.close()

    def _fault(self, because: str, fix: str) -> SpecError:
        """Return why the cluster cannot be used, on one line."""
        reason = " ".join(because.split())
        return spec_error("--dask", self._address, FORM, reason, fix)
