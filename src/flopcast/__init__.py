"""flopcast predicts how long training and serving of large models take, whether they fit, what they cost.

    from flopcast import job, predict
    report = predict(job(model="llama-3-8b", cluster="dgx-h100", gpus=64))
    print(report.step_time_s, report.memory.fits)

Everything is imported on first use, so that `import flopcast` costs nothing.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flopcast.accuracy import validate_suite
    from flopcast.api import compare, diagnose, predict, predict_memory, predict_serving, report_page
    from flopcast.best_deployments import search_deployments
    from flopcast.best_plans import search_plans
    from flopcast.errors import FlopcastError, InfeasibleError, Problem, SpecError
    from flopcast.jobs import dump_job, export_job, job, load_job, serving_job
    from flopcast.predictor import Predictor
    from flopcast.report.report import Report
    from flopcast.search.space import Space
    from flopcast.serving.serving_report import ServingReport
    from flopcast.spec.batch import Batch
    from flopcast.spec.cluster import Cluster
    from flopcast.spec.job import Job
    from flopcast.spec.model import Model
    from flopcast.spec.plan import Plan
    from flopcast.spec.serving_job import ServingJob
    from flopcast.spec.site import Site
    from flopcast.spec.stack import Stack

_HOMES = {
    name: f"flopcast.{home}"
    for home, names in {
        "api": ("compare", "diagnose", "predict", "predict_memory", "predict_serving", "report_page"),
        "best_deployments": ("search_deployments",),
        "best_plans": ("search_plans",),
        "accuracy": ("validate_suite",),
        "errors": ("FlopcastError", "InfeasibleError", "Problem", "SpecError"),
        "jobs": ("dump_job", "export_job", "job", "load_job", "serving_job"),
        "predictor": ("Predictor",),
        "report.report": ("Report",),
        "search.space": ("Space",),
        "serving.serving_report": ("ServingReport",),
        "spec.serving_job": ("ServingJob",),
    }.items()
    for name in names
} | {
    name: f"flopcast.spec.{name.lower()}"
    for name in ("Batch", "Cluster", "Job", "Model", "Plan", "Site", "Stack")
}

__all__ = [
    "Batch", "Cluster", "FlopcastError", "InfeasibleError", "Job", "Model", "Plan", "Predictor", "Problem",
    "Report", "ServingJob", "ServingReport", "Site", "Space", "SpecError", "Stack", "compare", "diagnose",
    "dump_job", "export_job", "job", "load_job", "predict", "predict_memory", "predict_serving",
    "report_page", "search_deployments", "search_plans", "serving_job", "validate_suite",
]  # fmt: skip

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:  # noqa: ANN401 - PEP 562
    if name not in _HOMES:
        near = next((each for each in sorted(_HOMES) if name.lower() in each.lower()), "")
        hint = f"; did you mean {near}?" * bool(near)
        raise AttributeError(f"module 'flopcast' has no attribute {name!r}{hint}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def explained(*call: Any) -> Exception:  # noqa: ANN401 - a model, its arguments and the error of pydantic
    """Return the error of a call such as Plan(tp="a"), in the words of errors in files."""
    from flopcast.files.refused_calls import refused_fields  # only an error needs it

    return refused_fields(*call)
