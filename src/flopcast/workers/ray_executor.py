"""Workers of a Ray cluster.

Answers: how do tasks run on the workers of a cluster that the user names?
Elsewhere: the same on this machine alone (process_executor.py), on Dask (dask_executor.py).

Ray itself does a task again whose worker dies, a few times. Its workers need this very flopcast, and this
very Ray and Python: Ray refuses others. A cluster that asks for a token finds it where Ray looks for it.
"""

import os
import socket
import sys
from contextlib import ExitStack, redirect_stdout, suppress
from dataclasses import asdict
from typing import Any
from urllib.parse import urlsplit

from flopcast.errors import InternalError, SpecError
from flopcast.workers.executor import AbstractExecutor
from flopcast.workers.remote_cluster import RemoteCluster
from flopcast.workers.tasks import Task, done_elsewhere, program_digest

CONNECT_S = 10
TRIES = 3  # again, of a task whose worker died
STARTS = 3  # of the process that serves a ray:// driver, each on another port of the head
UNSERVED = "Starting Ray client server failed"  # what Ray says where that process ends as it starts
UNREAD = "failed to import"  # what Ray says of a task that a worker cannot read
HERE = "auto"  # the cluster of RAY_ADDRESS, else the one that this machine is part of
MEND = "start it, or mend --ray"
FORMS = "auto, HOST:6379 on a machine of the cluster, or ray://HOST:10001 from elsewhere"


class RayExecutor(AbstractExecutor):
    """The workers of a cluster: as many as it has cores when this starts; later ones help all the same."""

    def __init__(self, address: str) -> None:
        """Connect.

        Raises
        ------
        SpecError
            Ray is not installed, no cluster is at the address, it is of another version, or without cores.
        """
        self._named = RemoteCluster(option="--ray", address=address, allowed=FORMS)
        place = os.environ.get("RAY_ADDRESS") or HERE if address == HERE else address
        os.environ.setdefault("RAY_NUM_REDIS_GET_RETRIES", "1")  # else it waits a quarter of an hour
        self._ray: Any = self._named.package("ray", "Ray")
        if place != HERE:
            self._answers(place)
        with ExitStack() as left:
            left.enter_context(redirect_stdout(sys.stderr))  # where Ray prints that workers died
            left.callback(self._ray.shutdown)
            self._connect(place)
            self._size = int(self._ray.cluster_resources().get("CPU", 0))
            if not self._size:
                raise self._named.fault("the cluster has no cores", "ray start --address=HOST:6379")
            self._left = left.pop_all()
        self._task: Any = self._ray.remote(num_cpus=1, max_retries=TRIES)(done_elsewhere)
        self._waiting: dict[Any, str] = {}  # names of tasks by what stands for their results

    @property
    def size(self) -> int:
        """Return cores of the cluster."""
        return self._size

    def submit(self, task: Task) -> None:
        """Hand a task to the cluster."""
        try:
            reference = self._task.remote(asdict(task), program_digest())
        except (ImportError, AttributeError) as error:  # of a server that serves ray:// addresses
            raise self._named.strange(error) from None
        self._waiting[reference] = task.name

    def next_done(self) -> tuple[str, str]:
        """Wait for any task.

        Raises
        ------
        SpecError
            Workers die of it, or have another flopcast; the cluster is gone.
        InternalError
            It failed by itself.
        """
        kinds = self._ray.exceptions
        (first, *_), _ = self._ray.wait(list(self._waiting), num_returns=1)
        name = self._waiting.pop(first)
        try:
            return name, self._ray.get(first)
        except kinds.RayTaskError as error:
            raise self._failed(name, error) from None
        except (kinds.WorkerCrashedError, kinds.OutOfMemoryError, kinds.NodeDiedError) as error:
            raise self._named.deadly(name, error) from None
        except (kinds.RayError, ConnectionError) as error:
            raise self._named.gone(error) from None

    def forget(self) -> None:
        """Cancel all tasks: pending ones never begin, and results of running ones are not read."""
        for reference in self._waiting:
            self._ray.cancel(reference)
        self._waiting.clear()

    def close(self) -> None:
        """Leave the cluster as it was."""
        with suppress(self._ray.exceptions.RayError, ConnectionError):  # it may be gone
            self.forget()
        self._left.close()

    def _answers(self, place: str) -> None:
        """Check that an address answers, since Ray itself would wait long."""
        parts = urlsplit(place if "://" in place else f"//{place}")
        try:
            host, port = parts.hostname, parts.port
        except ValueError:  # of a port that is no number
            host = port = None
        if parts.scheme not in ("", "ray") or not (host and port):
            raise self._named.fault("it is no address of a cluster", "name a host and a port, or auto")
        try:
            socket.create_connection((host, port), CONNECT_S).close()
        except OSError as error:
            raise self._named.fault(f"no cluster answers: {error}", MEND) from None

    def _connect(self, place: str) -> None:
        """Connect to the cluster as a driver, without its log output."""
        for tries_left in reversed(range(STARTS)):
            try:
                self._ray.init(place, log_to_driver=False, logging_level="ERROR")
            except (OSError, RuntimeError, ValueError) as error:
                if not (tries_left and UNSERVED in str(error)):
                    raise self._named.fault(f"none can be used there: {error}", MEND) from None
            else:
                return

    def _failed(self, name: str, error: Any) -> SpecError | InternalError:  # noqa: ANN401
        """Return the meaning of a worker's fault: it refused, could not begin, or found a bug."""
        if isinstance(error.cause, SpecError):
            return error.cause
        if isinstance(error.cause, ImportError) or UNREAD in str(error.cause):
            return self._named.strange(error.cause)
        return InternalError(f"a worker failed at {name}: {error}")
