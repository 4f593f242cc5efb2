"""The settings of a search over deployments, which are the same for all interfaces.

Answers: which deployments of which engines and clusters does a request compare, and which faults does it
contain?
Elsewhere: a search of training plans (search_request.py), one serving job (serving_request.py).
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import product

from flopcast.errors import Problem, SpecError
from flopcast.files.validate import build
from flopcast.files.yaml_text import Document
from flopcast.files.yaml_text import Path as Place
from flopcast.fixes import write
from flopcast.library.edits import plan_words
from flopcast.records import replace
from flopcast.requests.accepted_fixes import with_accepted_fixes
from flopcast.requests.job_request import JobRequest
from flopcast.requests.search_request import Faults, SearchRequest, each_once, names, split_changes
from flopcast.requests.serving_request import resolve_serving, with_degree
from flopcast.search.deployments.question import DeploymentQuestion
from flopcast.search.deployments.space import AS_STATED, DeploymentSpace
from flopcast.serving.checks import DEGREES, broken_rules
from flopcast.spec.deployment import WITHOUT_POOLS
from flopcast.spec.serving_job import ServingJob

OF_TRAINING = {  # settings of a search that only training has: the option of each, and the fix
    "stacks": ("--stack", "remove --stack; --engine names the serving software"),
    "power_limits": ("--power-limit", "remove --power-limit"),
    "deadline": ("--deadline", "remove --deadline; --slo limits latencies"),
    "budget": ("--budget", "remove --budget; --objective cost ranks by cost"),
    "headroom": ("--headroom", "remove --headroom; engine.memory_fraction=0.9 sets what an engine uses"),
    "tp_beyond_domain": ("--tp-beyond-domain", "remove --tp-beyond-domain"),
    "no_refine": ("--no-refine", "remove --no-refine"),
    "evolve": ("--evolve", "remove --evolve; all deployments are estimated"),
}


def deployment_question(request: SearchRequest) -> DeploymentQuestion:
    """Return the question of a serving request.

    Raises
    ------
    SpecError
        Every fault of the jobs, of the space and of the objectives.
    """
    faults = Faults()
    faults.found.extend(_of_training(request))
    settled, changes = split_changes(request.job.changes)
    text = " ".join([str(request.job.plan or ""), *settled])
    document = _space_document(faults.of(lambda: plan_words(text, "--plan"), {}), "--plan")
    clusters = each_once(names(request.clusters))
    engines = each_once(names([request.job.engine] if request.job.engine is not None else []))
    gpus = faults.of(partial(_devices, request.job.gpus), None)
    jobs = []
    for cluster, engine in product(clusters, engines):
        one = replace(request.job, plan=None, gpus=gpus, changes=changes, cluster=cluster, engine=engine)
        jobs.append(faults.of(partial(resolve_serving, one, with_degree), None))
    found = tuple(job for job in jobs if job is not None)
    usual = JobRequest(files=request.job.files, model=request.job.model, gpus=gpus)
    checked = found
    with suppress(SpecError):  # without a right job, values are checked with the model in the usual engine
        checked = found or (resolve_serving(usual, with_degree),)
    space = DeploymentSpace()
    try:
        space = _possible_space(document, checked)
    except SpecError as error:
        check = partial(_possible_space, jobs=checked)
        faults.found.extend(with_accepted_fixes(error.problems, document, check))
    objectives = tuple(map(str, names(request.objectives)))
    question = faults.of(lambda: DeploymentQuestion(jobs=found, space=space, objectives=objectives), None)
    if question is None or faults.found:
        raise SpecError([one for one in faults.found if found or one.field != "jobs"])
    return question


def space_of(text: str) -> DeploymentSpace:
    """Return a space in the form of `--plan`: each name with its values, separated by commas.

    Raises
    ------
    SpecError
        The text has errors. All of them are reported.

    Examples
    --------
    >>> space_of("tp=2,4 weights=fp8").tensor_parallel
    (2, 4)
    """
    return _possible_space(_space_document(plan_words(text, "space"), "space"), ())


def _space_document(words: dict[str, object], where: str) -> Document:
    """Return the words of a space as the plan of a document."""
    places: dict[Place, str] = {(): where}
    return Document(where, {"plan": words}, {}, places)


def _possible_space(document: Document, jobs: Sequence[ServingJob]) -> DeploymentSpace:
    """Return the space that is the plan of a document.

    Raises
    ------
    SpecError
        Every fault of the plan, and of each field of which no listed value is possible for any of the jobs.
    """
    space = build(DeploymentSpace, document, document.mapping["plan"], ("plan",))
    impossible = [*_impossible_values(jobs, space, document.name), *_missing_pools(jobs, space)]
    if impossible:
        raise SpecError(impossible)
    return space


def _impossible_values(jobs: Sequence[ServingJob], space: DeploymentSpace, where: str) -> Iterator[Problem]:
    """Yield the fault of each field of which no listed value is possible for any job."""
    for name in (*DEGREES, *AS_STATED):
        broken: list[Problem] = []
        for job, value in product(jobs, getattr(space, name)):
            wrong = broken_rules(job.with_part("plan", **{name: value}))
            own = [each for each in wrong if each.field == f"plan.{name}"]
            if not own:
                broken = []
                break
            broken += own
        yield from [replace(each, where=where) for each in broken[:1]]


def _missing_pools(jobs: Sequence[ServingJob], space: DeploymentSpace) -> Iterator[Problem]:
    """Yield a fault if the space has only deployments with separate pools, and no engine has these."""
    if jobs and False not in space.pools and not any(job.engine.separate_pools for job in jobs):
        engines = " and ".join(dict.fromkeys(job.engine.name for job in jobs))
        because = f"with {engines}, {WITHOUT_POOLS}"
        yield Problem("plan.pools", "yes", "no", because, write("no", "pools"), where="--plan")


def _of_training(request: SearchRequest) -> list[Problem]:
    """Return the settings that a search of serving does not have."""
    because = "this option applies only to training, but the search is for serving"
    return [
        Problem(option, value, "no value in a serving job", because, fix)
        for name, (option, fix) in OF_TRAINING.items()
        if (value := getattr(request, name))
    ]


def _devices(given: object) -> int | None:
    """Return the devices of each cluster: a search uses as many of them as it needs.

    Raises
    ------
    SpecError
        Several sizes, or no number.
    """
    if given is None or isinstance(given, int):
        return given
    if str(given).strip().isdecimal() and int(str(given)) > 0:
        return int(str(given))
    allowed, because = "one number of devices", "a deployment uses as many of these devices as it needs"
    raise SpecError(
        [
            Problem(
                "--gpus", given, allowed, because, "state the largest number that you can use, such as 64"
            )
        ]
    )
