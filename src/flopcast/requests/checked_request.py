"""The errors of a request, without a prediction.

Answers: which errors does the job of a request have?
Elsewhere: errors of a document (accepted_fixes.py), the errors of options that the command line cannot read
(cli/every_error.py).
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from flopcast.errors import MEANT, Problem, SpecError, collected
from flopcast.files.inputs import exists, similar_files
from flopcast.files.nearest_names import alternatives
from flopcast.fixes import with_gpus_as
from flopcast.records import replace
from flopcast.requests.job_request import JobRequest
from flopcast.requests.resolve import check_training
from flopcast.requests.rl_request import rl_document
from flopcast.requests.serving_words import serves
from flopcast.requests.words import NEAR, is_model, is_path


def check_each(
    requests: Iterable[JobRequest], earlier: Sequence[Problem] = (), *, may_serve: bool = True
) -> None:
    """Check the jobs of several requests.

    Raises
    ------
    SpecError
        Earlier errors, and every error of all requests.
    """
    problems, requests = list(earlier), tuple(requests)
    for each in requests:
        with collected(problems):
            check_request(each, may_serve=may_serve)
    if problems:
        given = {file for each in requests for file in each.files}
        raise SpecError(_of_one_job(each, given) for each in problems)


def _of_one_job(problem: Problem, given: set[str]) -> Problem:
    """Return a problem of one of several jobs, with a fix that changes only this job.

    If a job file does not exist, the fix does not propose the file of another job.
    """
    if len(given) > 1:  # --gpus changes all jobs
        problem = replace(problem, fix=with_gpus_as(problem.fix, "change its cluster to {} devices"))
    if problem.field != "job" or not problem.fix.startswith(MEANT) or not is_path(str(problem.value)):
        return problem
    similar = map(str, similar_files(Path(str(problem.value)), most=NEAR + len(given)))
    near = [file for file in similar if file not in given][:NEAR]
    return replace(problem, fix=f"{MEANT}{alternatives(near)}?" if near else "check the path")


def check_after(word: str, request: JobRequest) -> None:
    """Check the request of a command whose first word does not describe the job, unless the user swapped
    the words.

    Raises
    ------
    SpecError
        Every error of the request.
    """
    swapped = word != "" and (exists(word) or is_model(word))
    check_request(replace(request, files=(word,)) if swapped else request)


def check_request(request: JobRequest, *, may_serve: bool = True, assume_cluster: bool = True) -> None:
    """Check the job of a request, or the file of a step of reinforcement learning, without predicting it.

    Parameters
    ----------
    may_serve : whether the job may be one of serving
    assume_cluster : whether a training job without a cluster runs on the usual one

    Raises
    ------
    SpecError
        Every error of the request.
    """
    if may_serve and rl_document(request) is not None:
        return
    if may_serve and serves(request):
        from flopcast.requests.serving_request import answered, check_serving, with_degree

        answered(request, check_serving, with_degree)
    else:
        check_training(request, assume_cluster=assume_cluster)
