"""The best plans of a space, with the curves of the catalogue.

Answers: how does a program search?
Elsewhere: the search itself (search/), one prediction (api.py).
"""

from collections.abc import Mapping, Sequence
from functools import cache

from flopcast.argument_checks import check_job, without_options
from flopcast.errors import Problem, SpecError, collected, spec_error
from flopcast.files.validate import build
from flopcast.files.yaml_text import Document
from flopcast.jobs import job
from flopcast.library.curves import load_book
from flopcast.library.edits import plan_words
from flopcast.search.find import OnProgress, SearchResult, find
from flopcast.search.largest_model import LargestOn, largest_model
from flopcast.search.question import Question
from flopcast.search.space import Space
from flopcast.search.space_words import space_values
from flopcast.spec.job import Job


@without_options(job)
def search_plans(
    jobs: Job | Sequence[Job],
    space: Space | Mapping[str, object] | str | None = None,
    objectives: Sequence[str] | str = ("step_time",),
    total_tokens: float | None = None,
    deadline_s: float | None = None,
    budget_usd: float | None = None,
    told: OnProgress | None = None,
) -> SearchResult:
    """Estimate all plans of a space, simulate the best ones, and return these in order, with reasons.

    Parameters
    ----------
    jobs : Job, or several that differ in their cluster or stack
        The plans of these jobs set the fields that the space does not contain, such as the optimizer and
        the rank order. The search uses `stage_layers` of a plan only if the space allows no other
        number of stages.
    space : Space
        Allowed values of the fields of a plan, or a mapping such as {"tp": "1,2"}, or a text such as
        "tp=1,2 gbs=512". By default, all degrees and all options that the stack supports.
    objectives : names of search.objectives.OBJECTIVES
        Plans are ranked by the first objective. All objectives form the Pareto front.
    total_tokens, deadline_s, budget_usd
        Number of tokens of the whole run, and the limits of its time and cost. By default, `total_tokens`
        is the number of tokens of the first job.
    told : callable
        Called with messages about the progress of the search.

    Raises
    ------
    SpecError
        All errors of the request.

    Examples
    --------
    >>> from flopcast.requests.job_files import load_catalog_job
    >>> job = load_catalog_job("paper/llemma-7b-vista-pp4-tp2-dp2")
    >>> found = search_plans(job, Space(gbs=64, cp=1, mbs=4, vpp=1, zero=1, recompute="full"))
    >>> found.candidates >= found.possible >= found.feasible >= len(found.plans) - found.refined > 0
    True
    """
    given = tuple(jobs) if isinstance(jobs, Sequence) and not isinstance(jobs, str) else (jobs,)
    names = (objectives,) if isinstance(objectives, str) else tuple(objectives)
    limits = {"total_tokens": total_tokens, "deadline_s": deadline_s, "budget_usd": budget_usd}
    return answer(_question(given, space, names, limits), told)


def _question(
    given: Sequence[Job], space: object, objectives: tuple[str, ...], limits: Mapping[str, float | None]
) -> Question:
    """Return the question of a search; all errors of its parts are reported together."""
    problems: list[Problem] = []
    for each in given:
        with collected(problems):
            check_job(each, "jobs")
    known = Space()
    with collected(problems):
        known = _space(space)
    if any(not isinstance(each, Job) for each in given):
        raise SpecError(problems)  # nothing else can be checked
    jobs = tuple(_without_list(job, known) for job in given)
    tokens = limits["total_tokens"]
    tokens = jobs[0].run_tokens if tokens is None and jobs else tokens
    with collected(problems):
        question = Question(
            jobs=jobs,
            space=_with_batch(known, jobs),
            objectives=objectives,
            total_tokens=tokens or 0.0,
            deadline_s=limits["deadline_s"],
            budget_usd=limits["budget_usd"],
        )
    if problems:
        raise SpecError(problems)
    return question


def _space(space: object) -> Space:
    """Return a space that is given as such, as a mapping or as a text."""
    if isinstance(space, Space):
        return space
    if not isinstance(space, str | Mapping | None):
        allowed, because = (
            "a flopcast.Space, a mapping or a text",
            "a search space states values for the fields of a plan",
        )
        raise spec_error("space", space, allowed, because, 'write space="tp=1,2 gbs=512"')
    fields = space_values(plan_words(space)) if isinstance(space, str) else space or {}
    return build(Space, Document("space", fields, {}), fields)


def _without_list(job: Job, space: Space) -> Job:
    """Return the job without the list of its stages' blocks if the space may have other stages."""
    stages = (space.pipeline_parallel, space.virtual_stages)
    if stages == ((job.plan.pipeline_parallel,), (job.plan.virtual_stages,)):
        return job
    return job.model_copy(update={"plan": job.plan.model_copy(update={"stage_layers": ()})})


def _with_batch(space: Space, jobs: Sequence[Job]) -> Space:
    """Return the space with the global batch of the jobs, unless it names some or they differ."""
    batches = {job.plan.global_batch for job in jobs}
    if space.global_batch or len(batches) != 1:
        return space
    return space.model_copy(update={"global_batch": tuple(batches)})


def answer(question: Question, told: OnProgress | None = None) -> SearchResult:
    """Return the answer to a complete question, like `search_plans`.

    The curves of each cluster are read once.
    """
    return find(question, cache(load_book), told)


def largest_models(question: Question) -> tuple[LargestOn, ...]:
    """Return the largest models with the layers of the question's model, on each cluster, size and stack.

    Examples
    --------
    >>> from flopcast.jobs import job
    >>> space = Space(tp=8, cp=1, mbs=1, gbs=8, zero=1, recompute="full")
    >>> asked = Question(jobs=(job("llama-2-7b", cluster="dgx-a100:1", plan="tp=8 gbs=8"),), space=space)
    >>> on_one_node, = largest_models(asked)
    >>> on_one_node.found[False].num_layers < on_one_node.found[True].num_layers
    True
    """
    answers = []
    for sized in question.sized():
        book = load_book(sized.cluster)
        found = {
            outside: largest_model(question, sized, book, offload=outside) for outside in (False, True)
        }
        answers.append(LargestOn(job=sized, found=found))
    return tuple(answers)
