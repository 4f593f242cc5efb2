"""The input of a search for deployments.

Answers: which deployments of which jobs are compared, and by which objectives?
Elsewhere: what the objectives are (objectives.py), the answer (find.py).
"""

from difflib import get_close_matches

from flopcast.errors import Problem, SpecError
from flopcast.records import Record
from flopcast.search.deployments.objectives import SERVING_OBJECTIVES, ServingObjective
from flopcast.search.deployments.space import DeploymentSpace
from flopcast.spec.serving_job import ServingJob

MEANT = {  # objectives of training, or words for ours → the objective
    **dict.fromkeys(("mfu", "throughput", "step_time"), "tokens_per_s_per_device"),
    "latency": "end_to_end",
}


class DeploymentQuestion(Record, eq=False):
    """A search over deployments.

    Parameters
    ----------
    jobs : jobs that are equal except for their cluster or engine, with the traffic and its limits of
        latency
    space : what may vary
    objectives : names of SERVING_OBJECTIVES; the first one ranks deployments. By default, this is the cost
        if the devices have a price, and otherwise the output of a device.

    Raises
    ------
    SpecError
        The objectives have faults, which are all reported.
    """

    jobs: tuple[ServingJob, ...]
    space: DeploymentSpace
    objectives: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check that objectives are known and can be computed."""
        problems = []
        if not self.jobs:
            because, fix = "the search has no jobs", "name a model and a cluster"
            problems.append(Problem("jobs", "none", "at least one serving job", because, fix))
        for name in self.objectives:
            if name not in SERVING_OBJECTIVES:
                known = ", ".join(SERVING_OBJECTIVES)
                because = "a search does not rank deployments by other objectives"
                near = [
                    *(each for each in SERVING_OBJECTIVES if each in name),
                    *get_close_matches(name, SERVING_OBJECTIVES),
                ]
                part = next(iter(near), "cost")  # of "p99_ttft"
                fix = f"write {MEANT.get(name, part)}"
                problems.append(Problem("--objective", name, f"one of {known}", because, fix))
            elif SERVING_OBJECTIVES[name].needs_price and self.jobs and not self.priced:
                because = "the catalogue has no price for the devices of this cluster"
                fix = '--price "2.10 USD/h"'
                problems.append(Problem("--objective", name, "one that needs no price", because, fix))
        if problems:
            raise SpecError(problems)

    @property
    def priced(self) -> bool:
        """Return whether the devices of every cluster have a price."""
        return all(job.cluster.price is not None for job in self.jobs)

    @property
    def named(self) -> tuple[ServingObjective, ...]:
        """Return the objectives, beginning with the one that ranks deployments."""
        usual = "cost" if self.priced else "tokens_per_s_per_device"
        return tuple(SERVING_OBJECTIVES[name] for name in dict.fromkeys(self.objectives or (usual,)))

    @property
    def asked(self) -> tuple[ServingObjective, ...]:
        """Return the axes of the front.

        If the user names one objective, the other axis is the time per output token.
        """
        found = self.named
        other = "tpot" if found[0] is not SERVING_OBJECTIVES["tpot"] else "tokens_per_s_per_device"
        return found if len(found) > 1 else (*found, SERVING_OBJECTIVES[other])
