"""Explanations of the numbers of predictions, with the curves and constants of the catalogue.

Answers: how does a program get the formula, the inputs and the parts of a predicted number?
Elsewhere: which numbers can be explained (report/explain/registry.py, serving/explain.py).
"""

from flopcast import jobs
from flopcast.api import predict, predict_serving
from flopcast.argument_checks import without_options
from flopcast.library.constants import shipped
from flopcast.library.curves import load_book, load_serving_book
from flopcast.report.explain.explanation import Explanation
from flopcast.report.explain.registry import explain as of_training
from flopcast.report.report import Report
from flopcast.serving.explain import explain_serving
from flopcast.serving.serving_report import ServingReport
from flopcast.spec.job import Job
from flopcast.spec.serving_job import ServingJob


@without_options(jobs.job)
def explain(job: Job | Report | ServingJob | ServingReport, what: str = "") -> Explanation:
    """Explain a number of a prediction: its formula, its inputs and the source of each constant.

    Parameters
    ----------
    job : a job, or its report, which saves the time of a second prediction
    what : a number, as in `flopcast explain`: "step", "memory", "mlp" or an operator such as "mlp.up" of a
        training job; "ttft", "tpot", "iteration", "memory", "cost", "goodput", a component or an operator
        of a serving job. By default, "step" or "tpot"

    Returns
    -------
    Explanation
        The number in SI units, and the parts that add up to it.

    Raises
    ------
    SpecError
        In the same cases as `predict` and `predict_serving`, or if the prediction contains no such number.

    Examples
    --------
    >>> from flopcast.jobs import serving_job
    >>> asked = serving_job("llama-3.1-8b", gpus=1, traffic="concurrency=4 prompt=500 output=50")
    >>> found = explain(asked, "iteration")
    >>> abs(sum(part.amount for part in found.parts) / found.amount - 1) < 1e-6
    True
    """
    report = predict(job) if isinstance(job, Job) else job
    report = predict_serving(report) if isinstance(report, ServingJob) else report
    if isinstance(report, ServingReport):
        return explain_serving(report, load_serving_book(report.job.cluster), what or "tpot")
    sources = {
        constant.name: f"{constant.rows} runs of {', '.join(constant.sources)}"
        for constant in shipped().constants
    }
    return of_training(report, load_book(report.job.cluster), sources, what or "step")
