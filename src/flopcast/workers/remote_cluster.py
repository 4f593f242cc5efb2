"""A cluster that the user names, and what can be wrong with it.

Answers: which message does a reader get whose cluster cannot be reached, or whose workers fail?
Elsewhere: the clusters themselves (dask_executor.py, ray_executor.py).
"""

from dataclasses import dataclass
from importlib import import_module
from types import ModuleType

from flopcast.errors import Problem, SpecError


@dataclass(frozen=True, kw_only=True, slots=True)
class RemoteCluster:
    """A cluster by its option and its address."""

    option: str  # "--dask"
    address: str
    allowed: str  # what addresses look like

    def fault(self, because: str, fix: str) -> SpecError:
        """Return why the cluster cannot be used, on one line."""
        told = " ".join(because.split())
        problem = Problem(
            field=self.option, value=self.address, allowed=self.allowed, because=told, fix=fix
        )
        return SpecError([problem])

    def package(self, module: str, name: str) -> ModuleType:
        """Return a package of an extra with the same name as the option.

        Raises
        ------
        SpecError
            It is not installed.
        """
        try:
            return import_module(module)
        except ImportError:
            extra = f"pip install 'flopcast[{self.option.removeprefix('--')}]'"
            raise self.fault(f"{name} is not installed here", extra) from None

    def deadly(self, task: str, error: Exception) -> SpecError:
        """Return the error of a task on which workers died repeatedly."""
        because = f"workers died at {task} repeatedly, most likely because memory ran out: {error}"
        return self.fault(because, "give each worker more memory, or let fewer share a machine")

    def strange(self, error: Exception) -> SpecError:
        """Return the error of a worker that cannot read its task."""
        said = str(error).strip().rpartition("\n")[2]  # Ray has the worker's whole traceback before it
        because = f"a worker has no flopcast, or another one: {said}"
        return self.fault(because, "install the same flopcast on every worker, and start them again")

    def gone(self, error: Exception) -> SpecError:
        """Return the error of a cluster that disconnected during the search."""
        because = f"the cluster disconnected: {error}"
        return self.fault(
            because, "start it and run the command again; with --ledger FILE, finished parts are kept"
        )
