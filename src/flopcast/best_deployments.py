"""The best deployments for a traffic, with the curves of the catalogue.

Answers: how does a program search for serving?
Elsewhere: the search itself (search/deployments/), the best plans of training (best_plans.py).
"""

from collections.abc import Mapping, Sequence
from functools import cache

from flopcast.errors import spec_error
from flopcast.interop.request_traces.reader import trace_of
from flopcast.library.curves import load_serving_book
from flopcast.requests.serving_search import space_of
from flopcast.search.deployments.find import (
    SIMULATED,
    DeploymentResult,
    OnServingProgress,
    find_deployments,
)
from flopcast.search.deployments.question import DeploymentQuestion
from flopcast.search.deployments.space import DeploymentSpace
from flopcast.spec.serving_job import ServingJob


def search_deployments(
    jobs: ServingJob | Sequence[ServingJob],
    space: DeploymentSpace | str = "",
    objectives: Sequence[str] = (),
    told: OnServingProgress | None = None,
) -> DeploymentResult:
    """Simulate deployments that serve the traffic of a job, and return the best ones in order.

    Parameters
    ----------
    jobs : ServingJob, or several that differ in their cluster or engine
        Deployments have the number formats of these jobs, unless the space lists others. The search ignores
        the parallel degrees of these jobs.
    space : DeploymentSpace or str
        Allowed values of fields, as in `flopcast search --plan`: "tp=2,4 max_sequences=64". By default, all
        parallel degrees, numbers of replicas, and limits of sequences and tokens per iteration.
    objectives : names of search.deployments.objectives.SERVING_OBJECTIVES
        Deployments are ranked by the first objective. If the devices have a price, the default is the cost
        of output tokens.
    told : callable
        Called with the progress of the search.

    Raises
    ------
    SpecError
        All errors of the request, or the reason why no deployment is possible.

    Examples
    --------
    >>> from flopcast.jobs import serving_job
    >>> asked = serving_job("llama-3.1-8b", gpus=2, traffic="rate=2/s prompt=500 output=50 requests=200")
    >>> found = search_deployments(asked, "tp=1,2 max_sequences=64 max_tokens=8192")
    >>> found.deployments[0].report.job.plan.tensor_parallel
    1
    """
    if isinstance(jobs, (str, Mapping)):
        because, fix = "a search needs a serving job", f"write flopcast.serving_job({jobs!r})"
        raise spec_error("jobs", jobs, "a job, as flopcast.serving_job returns it", because, fix)
    several = (jobs,) if isinstance(jobs, ServingJob) else tuple(jobs)
    allowed = space_of(space) if isinstance(space, str) else space
    question = DeploymentQuestion(jobs=several, space=allowed, objectives=tuple(objectives))
    return answer_of_serving(question, told)


def answer_of_serving(
    question: DeploymentQuestion, told: OnServingProgress | None = None, simulated: int = SIMULATED
) -> DeploymentResult:
    """Return the answer to a complete question, like `search_deployments`.

    If the traffic is a trace, it is read.
    """
    trace = trace_of(question.jobs[0])
    requests = None if trace is None else trace.requests
    return find_deployments(question, cache(load_serving_book), requests, told, simulated)
