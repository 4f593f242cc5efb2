"""The functions that a program calls. They load the files that the core needs.

Answers: how do I get from a job to a prediction, a search or a comparison?
Elsewhere: the best plans (best_plans.py), plans that fit (plans_that_fit.py), jobs from options and files
(jobs.py); the same without files (prediction.py, lab/validation/compare.py).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, overload

from flopcast import jobs
from flopcast.argument_checks import check_job, without_options
from flopcast.errors import Problem, SpecError, collected, spec_error
from flopcast.library.curves import load_serving_book
from flopcast.prediction import programs_of
from flopcast.predictor import Predictor
from flopcast.report.memory_report import MemoryReport
from flopcast.report.report import Report
from flopcast.report.versus import ReportComparison, versus
from flopcast.spec.job import Job

if TYPE_CHECKING:
    from flopcast.files.yaml_text import Document
    from flopcast.lab.calibration.trace import Trace
    from flopcast.lab.diagnosis.suspect import SlowStep
    from flopcast.lab.logs.log import Log
    from flopcast.report.checkpoint_report import CheckpointReport
    from flopcast.rl.step import RlReport
    from flopcast.serving.memory import ServingMemory
    from flopcast.serving.serving_report import ServingReport
    from flopcast.serving.versus import ServingComparison
    from flopcast.spec.serving_job import ServingJob

SHARED = Predictor()  # of all callers of `predict` and `predict_memory`


@without_options(jobs.job)
def predict(job: Job) -> Report:
    """Predict one training step, with the efficiency curves of the catalogue.

    Raises
    ------
    SpecError
        Settings of the job contradict each other or are not supported.

    Examples
    --------
    >>> from flopcast.requests.job_files import load_catalog_job
    >>> report = predict(load_catalog_job("paper/llemma-7b-vista-pp4-tp2-dp2"))
    >>> report.step_time_low_s < report.step_time_s < report.step_time_high_s
    True
    """
    return SHARED.predict(job)


def predict_serving(job: "ServingJob", leave_out_share: float = 0.1) -> "ServingReport":
    """Predict how an engine serves requests, with the efficiency curves of the catalogue.

    If `job.traffic` names a trace file, flopcast reads the requests from it.

    Parameters
    ----------
    leave_out_share : fraction of requests (below 0.5) at the beginning, and again at the end, that are
        simulated but not counted in the latencies; 0 counts all requests, as benchmarks of engines do

    Raises
    ------
    SpecError
        Settings of the job contradict each other or are not supported, or the trace has errors.

    Examples
    --------
    >>> from flopcast.jobs import serving_job
    >>> asked = serving_job("llama-3.1-8b", gpus=1, traffic="concurrency=4 prompt=500 output=50")
    >>> 0.001 < predict_serving(asked).latencies["tpot"]["mean"].value < 0.1
    True
    """
    from flopcast.interop.request_traces.reader import trace_of
    from flopcast.serving.serve import serve

    if not hasattr(job, "traffic"):
        raise spec_error("job", job, "a serving job", "this job trains", "write flopcast.serving_job(...)")
    if (found := trace_of(job)) is not None:
        job = job.model_copy(update={"assumptions": (*job.assumptions, *found.notes)})
    return serve(job, load_serving_book(job.cluster), found.requests if found else None, leave_out_share)


def predict_rl(document: "Document | Mapping[str, object]") -> "RlReport":
    """Predict a step of reinforcement learning: generation, scoring, training and handoff of weights.

    Parameters
    ----------
    document : of a file, or its data: `rollout` (a serving job), `training` (a training job), and the
        fields of `spec.rl_plan.RlPlan`

    Raises
    ------
    SpecError
        Every fault of the document.

    Examples
    --------
    >>> machine = {"model": "llama-3.1-8b", "cluster": "dgx-h100:1"}
    >>> report = predict_rl({
    ...     "rollout": {**machine, "plan": {"tp": 1}, "traffic": {"prompt": 500, "output": 200}},
    ...     "training": {**machine, "batch": {"sequence_length": 1024}, "plan": "auto gbs=64"},
    ...     "prompts": 16,
    ...     "samples": 4,
    ... })
    >>> report.train_steps, sorted(report.phases)
    (1, ['handoff', 'rollout', 'scoring', 'training'])
    """
    from flopcast.files.yaml_text import Document
    from flopcast.requests.rl_request import rl_request
    from flopcast.rl.scoring import scoring_job
    from flopcast.rl.step import rl_step

    asked = rl_request(document if isinstance(document, Document) else Document("step", document, {}))
    trained = predict(asked.training)
    scores = asked.plan.passes and asked.plan.scored_on == "training"
    scored = predict(scoring_job(asked.training, asked.plan)) if scores else None
    return rl_step(asked.rollout, trained, scored, asked.plan, load_serving_book(asked.rollout.cluster))


def predict_checkpoint(job: Job, loading: Job | None = None) -> "CheckpointReport":
    """Predict the checkpoints of a job: size, seconds, best interval, and what another plan reads.

    Parameters
    ----------
    job : saves as in `job.checkpoint` or, by default, to the first storage of its cluster
    loading : a job with the same model, and a plan that loads the checkpoint

    Raises
    ------
    SpecError
        A job contradicts itself; checkpoints follow each other too fast or have no room; or the other plan
        cannot load them.

    Examples
    --------
    >>> from flopcast.jobs import job
    >>> asked = job("llama-3-8b", gpus=8, plan="dp=8 zero=1 gbs=64", checkpoint="lazy host")
    >>> round(predict_checkpoint(asked).cost.saved.total_bytes / asked.model.parameters())
    14
    """
    report = predict(job)
    from flopcast.report.checkpoint_report import checkpoint_report, job_of_states

    if loading is None:
        return checkpoint_report(report)
    both = (programs_of(job_of_states(job)), programs_of(job_of_states(loading)))
    return checkpoint_report(report, loading, both)


@overload
def predict_memory(job: Job) -> MemoryReport: ...


@overload
def predict_memory(job: "ServingJob") -> "ServingMemory": ...


@without_options(jobs.job)
def predict_memory(job: "Job | ServingJob") -> "MemoryReport | ServingMemory":
    """Return the memory of the job on each device, and whether the job fits, without efficiency curves.

    Returns
    -------
    MemoryReport or ServingMemory
        The same as `predict(job).memory` or `predict_serving(job).memory`, but computed much faster.

    Raises
    ------
    SpecError
        In the same cases as `predict`.

    Examples
    --------
    >>> from flopcast.requests.job_files import load_catalog_job
    >>> predict_memory(load_catalog_job("paper/llemma-7b-vista-pp4-tp2-dp2")).fits
    True
    """
    from flopcast.spec.serving_job import ServingJob

    if isinstance(job, ServingJob):
        from flopcast.serving.checks import broken_rules
        from flopcast.serving.memory import serving_memory

        if problems := broken_rules(job):
            raise SpecError(problems)
        return serving_memory(job.kinds[-1])
    return SHARED.memory(job)


@overload
def compare(first: Job | Report, second: Job | Report) -> ReportComparison: ...


@overload
def compare(
    first: "ServingJob | ServingReport", second: "ServingJob | ServingReport"
) -> "ServingComparison": ...


def compare(
    first: "Job | Report | ServingJob | ServingReport", second: "Job | Report | ServingJob | ServingReport"
) -> "ReportComparison | ServingComparison":
    """Compare two jobs or two reports. Uncertain factors that affect both equally cancel out.

    Returns
    -------
    ReportComparison or ServingComparison
        Ratios of the second job to the first, with intervals. For training: time, cost and energy per
        token. For serving: latencies, output rate, cost and energy.

    Raises
    ------
    SpecError
        In the same cases as `predict` and `predict_serving`, or if one job is for training and the other
        for serving.

    Examples
    --------
    >>> from flopcast.requests.job_files import load_catalog_job
    >>> job = load_catalog_job("paper/llemma-7b-vista-pp4-tp2-dp2")
    >>> plan = job.plan.model_copy(update={"recompute": "none", "partition_activations": False})
    >>> compared = compare(job, job.model_copy(update={"plan": plan}))
    >>> compared.low_ratio < compared.time_ratio < compared.high_ratio < 1, compared.sure
    (True, True)
    """
    if isinstance(first, (Job, Report)) and isinstance(second, (Job, Report)):
        return versus(*(predict(each) if isinstance(each, Job) else each for each in (first, second)))
    from flopcast.serving.serving_report import ServingReport
    from flopcast.serving.versus import serving_versus
    from flopcast.spec.serving_job import ServingJob

    for name, each in (("first", first), ("second", second)):
        if not isinstance(each, (Job, Report, ServingJob, ServingReport)):
            check_job(each, name)
    if isinstance(first, (Job, Report)) or isinstance(second, (Job, Report)):
        because = "a training step and a serving job have no metrics in common"
        allowed, fix = "two jobs of the same kind", "compare two training jobs or two serving jobs"
        raise spec_error("second", type(second).__name__, allowed, because, fix)
    return serving_versus(
        *(predict_serving(each) if isinstance(each, ServingJob) else each for each in (first, second))
    )


@without_options(jobs.job)
def diagnose(job: Job, log: Path | str | None = None, trace: Path | str | None = None) -> "SlowStep":
    """Return possible causes why a job is slower than it should be.

    Parameters
    ----------
    job : the job as it was configured
    log : the training log of the run, plain or .gz
    trace : a trace of the PyTorch profiler (JSON, plain or .gz) or of Nsight Systems (SQLite)

    Returns
    -------
    SlowStep
        Possible causes: measured and predicted ones first, then uncertain ones. Each has its evidence and
        the setting to change. Without a log and a trace, flopcast examines only the settings of the job.

    Raises
    ------
    SpecError
        In the same cases as `predict`, or if a file cannot be read or contains no training step.

    Examples
    --------
    >>> from flopcast.requests.job_files import load_catalog_job
    >>> found = diagnose(load_catalog_job("paper/llemma-7b-vista-pp4-tp2-dp2"))
    >>> found.suspects[0].name, found.suspects[0].cost_s > 0
    ('recompute_not_needed', True)
    """
    from flopcast.lab.diagnosis.diagnose import diagnose as diagnosed

    return diagnosed(job, predict, *read_measured(log, trace))


def read_measured(log: Path | str | None, trace: Path | str | None) -> "tuple[Log | None, Trace | None]":
    """Return the contents of a training log and of a trace, which `diagnose` uses.

    Raises
    ------
    SpecError
        A file has faults. The error lists those of both files.
    """
    from flopcast.lab.logs.reader import read_log_file
    from flopcast.lab.traces.any_format import read_trace

    problems: list[Problem] = []
    steps, spans = None, None
    with collected(problems):
        steps = None if log is None else read_log_file(Path(log))
    with collected(problems):
        spans = None if trace is None else read_trace(Path(trace))
    if problems:
        raise SpecError(problems)
    return steps, spans


def report_page(report: "Report | SlowStep | ServingReport | RlReport") -> str:
    """Return the report as an HTML page, which also contains predictions for other numbers of devices.

    Parameters
    ----------
    report : a prediction or a diagnosis. The page of a diagnosis begins with the measured steps. The page
        of a serving report has a latency–throughput curve instead of other numbers of devices. The page of
        a reinforcement learning step has its phases.

    Returns
    -------
    str
        A complete HTML document of less than one megabyte, which loads no other files.

    Examples
    --------
    >>> from flopcast.requests.job_files import load_catalog_job
    >>> page = report_page(predict(load_catalog_job("paper/llemma-7b-vista-pp4-tp2-dp2")))
    >>> page.startswith("<!doctype html>"), len(page) < 1_000_000
    (True, True)
    """
    from flopcast.rl.step import RlReport
    from flopcast.serving.serving_report import ServingReport

    if isinstance(report, Job) or hasattr(report, "traffic"):
        function = "predict" if isinstance(report, Job) else "predict_serving"
        fix = f"write flopcast.report_page(flopcast.{function}(job))"
        raise spec_error("report", "a job", "a report", "a job has not been predicted", fix)
    if isinstance(report, RlReport):
        from flopcast.render import rl_page

        return rl_page.as_html(report)
    if isinstance(report, ServingReport):
        from flopcast.render import serving_page
        from flopcast.serving.load_curve import load_curve

        return serving_page.as_html(report, load_curve(report, load_serving_book(report.job.cluster)))
    from flopcast.lab.diagnosis.settings import best_changes  # a prediction needs no page
    from flopcast.render.report_page import as_html
    from flopcast.search.scaled import scaled

    found = None if isinstance(report, Report) else report
    predicted = report if isinstance(report, Report) else report.report
    changes = best_changes(predicted, predict) if found is None else None  # these are among the suspects
    resized = scaled(predicted, SHARED.book(predicted.job), SHARED.results)
    return as_html(predicted, resized, changes, found)
