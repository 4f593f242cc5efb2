"""The job that loads the checkpoint of another job.

Answers: which job does `--to-plan` describe?
Elsewhere: the bytes that each of its ranks reads (workload/resharding.py).
"""

from contextlib import suppress
from functools import partial

from flopcast.errors import InfeasibleError, Problem, SpecError, problems_of, told_as
from flopcast.files.validate import build
from flopcast.files.yaml_text import Document
from flopcast.library.edits import long_names, plan_words
from flopcast.records import replace
from flopcast.requests.job_request import JobRequest
from flopcast.requests.missing_parts import USUAL
from flopcast.requests.resolve import resolve
from flopcast.spec.job import Job
from flopcast.spec.plan import Plan
from flopcast.workload.suggested_fixes import impossible_degrees

OPTION = "--to-plan"
OF_STAGES = ("stage_layers", "virtual_stages")  # hold for one number of stages


def resolve_both(request: JobRequest, to_plan: str | None) -> tuple[Job, Job | None]:
    """Return the job that saves and, if a plan for loading is given, the job that loads.

    Raises
    ------
    SpecError
        The error lists every fault of both jobs, even if the checkpoint itself is wrong.
    """
    try:
        job = resolve(request)
    except SpecError as error:
        found = _faults_of_loading(request, to_plan) if to_plan else []
        told = {(each.where, each.field) for each in error.problems}
        raise SpecError([*error.problems, *(x for x in found if (x.where, x.field) not in told)]) from None
    return job, None if to_plan is None else resolve_loading(request, job, to_plan)


def _faults_of_loading(request: JobRequest, to_plan: str) -> list[Problem]:
    """Return the faults of a plan for loading if the job that saves is wrong.

    Its model is checked without its other parts or, if it is wrong too, the usual model.
    """
    without_checkpoint = replace(request, checkpoint=None)
    alone = JobRequest(model=request.model, files=request.files)
    for other in (without_checkpoint, alone, JobRequest(model=USUAL["model"])):
        with suppress(SpecError, InfeasibleError):
            job = resolve(other)
            return problems_of(partial(resolve_loading, other, job, to_plan))
    return []


def resolve_loading(request: JobRequest, job: Job, to_plan: str) -> Job:
    """Return the job with a changed plan, on the number of devices of this plan.

    Parameters
    ----------
    request : request for the job that saves
    job : the job of this request
    to_plan : changes of its plan, "dp=4 tp=4"

    Raises
    ------
    SpecError
        The error lists every fault of the text and of the changed plan.
    """
    words = plan_words(to_plan, OPTION)
    fields = job.plan.model_dump(exclude_defaults=True)
    if job.plan.expert_tensor_parallel == job.plan.tensor_parallel:
        del fields["expert_tensor_parallel"]  # it follows the tensor-parallel degree
    if words.keys() & {"pipeline_parallel", "virtual_stages"}:  # the plan that saves has other stages
        fields = {name: value for name, value in fields.items() if name not in OF_STAGES}

    def checked(document: Document) -> Plan:
        new = document.mapping.get("plan", {})
        plan = build(Plan, document, fields | new, ("plan",))
        stated = {name: getattr(plan, name) for name in (long_names(Plan).get(each, each) for each in new)}
        if wrong := impossible_degrees(job, stated):
            raise SpecError(replace(each, where=OPTION) for each in wrong)
        return plan

    document = Document(OPTION, {"plan": words}, {})
    try:
        plan = checked(document)
    except SpecError as error:
        from flopcast.requests.accepted_fixes import with_accepted_fixes

        raise SpecError(with_accepted_fixes(error.problems, document, checked)) from None
    changes = tuple(change for change in request.changes if not change.startswith("plan"))
    with told_as(_of_option):
        return resolve(replace(request, plan=plan.short(), gpus=plan.devices, changes=changes))


def _of_option(problem: Problem) -> Problem:
    """Return a fault of the changed plan or of its devices, with the place where a user stated both."""
    if problem.field == "--gpus":
        fix = problem.fix.replace("set --gpus to", "choose degrees whose product is")
        return replace(problem, field=f"{OPTION}: devices", fix=fix)
    return replace(problem, where=OPTION) if problem.where == "--plan" else problem
