"""Measured runs of serving engines, and the conversion of table rows to runs.

Answers: which quantity of a run was measured, and which job do the facts of a row describe, or why can it
not be predicted?
Elsewhere: the facts in a table (one file per table), models that differ only in their weights
(catalog/runs/served_models.yaml), predictions of jobs (score.py).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal

from flopcast.errors import SpecError
from flopcast.lab.catalog_facts import catalog_facts
from flopcast.lab.run_tables import Row
from flopcast.lab.scores import Compared, MeasuredNumber, MeasuredRun, Scores
from flopcast.lab.serving_runs.quantities import Reader
from flopcast.lab.serving_runs.releases import padded_experts
from flopcast.library import catalog
from flopcast.library.engine_releases import engine_of_release
from flopcast.records import Record, field
from flopcast.requests.serving_request import with_degree
from flopcast.serving.arrivals import requests_of
from flopcast.serving.checks import serving_problems
from flopcast.serving.requests import Requests
from flopcast.spec.deployment import Deployment
from flopcast.spec.engine import Engine
from flopcast.spec.serving_job import ServingJob
from flopcast.spec.traffic import Traffic
from flopcast.strict_model import StrictModel
from flopcast.units import Number

Teaches = Literal["", "iterations", "requests"]
USUAL: Mapping[str, object] = {  # settings of the engines of benchmarks, unless a row states others
    "receive_interval": 1, "stream_interval": 1, "wait_passes": 0, "wait_fraction": 1.0,
    "sampling": "greedy",
}  # fmt: skip
FRONT_END = ("request_s", "prompt_token_s", "streamed_s")  # the times of HTTP and of tokenisation
IN_PYTHON = ("sequence_s", "prompt_launch_s", "prompt_experts_s", "prompt_states_s")  # of the host


class Measured(MeasuredNumber, slots=False):
    """One measured number, and the corresponding number of a report.

    `read` returns the prediction in the unit of the number (quantities.py). `teaches` states which
    constants of engines are fitted to the number: those of iterations, those of requests, or none.
    """

    read: Reader
    teaches: Teaches = ""


def measured_in(row: Mapping[str, Any], columns: Mapping[str, tuple[str, Reader]]) -> Iterator[Measured]:
    """Yield the numbers of a row in the columns that it fills, each with its unit and its reader."""
    for name, (unit, read) in columns.items():
        if row.get(name) not in (None, ""):
            yield Measured(quantity=name, unit=unit, value=float(row[name]), read=read)


class ServingRun(MeasuredRun[Measured], slots=False):
    """One row of a table: its job, or the reason why it cannot be predicted.

    `trace` holds the requests of a job whose traffic names a trace. The first and the last
    `leave_out_share` of the requests are not scored; benchmarks that do not wait for a steady state score
    all requests.
    """

    job: ServingJob | None
    trace: Requests | None = None
    leave_out_share: Number = 0.0


ComparedServing = Compared[ServingRun, Measured]
ServingScores = Scores[ServingRun, Measured]


class RowFacts(Record):
    """The facts of a row about a deployment and its traffic.

    `plan` holds fields of a Deployment; without a tensor-parallel degree, flopcast chooses the degree.
    `traffic` holds fields of a Traffic, and `trace` holds the requests if the traffic names a trace.
    Instances fill `devices` devices; by default, there is one instance. If `in_process` is set, requests
    reach the engine without a front end. `settings` holds fields of the engine that differ from its entry
    in the catalogue or, where they are in USUAL, from these values; its `release` determines some kernels.
    `era` is a release or a month that selects the entry for older releases. Unless Python launches the
    kernels of prompts, the host is never slower than these kernels, and takes no time for each sequence.
    """

    model: str
    cluster: str
    engine: str
    plan: Mapping[str, object]
    traffic: Mapping[str, object]
    devices: int = 0
    trace: Requests | None = None
    in_process: bool = False
    settings: Mapping[str, object] = field(default_factory=dict)
    release: str = ""
    era: str = ""
    launches_by_python: bool = True


class ServingRows(Record, eq=False):
    """The conversion of each row of a table to a run.

    `identity` names the columns that identify a row. `unsupported` returns why a row cannot be predicted,
    or "" if it can; `facts` is called only in the latter case.
    """

    source: str
    identity: tuple[str, ...]
    groups: Callable[[Row], Mapping[str, str]]
    measured: Callable[[Row], Iterable[Measured]]
    unsupported: Callable[[Row], str]
    facts: Callable[[Row], RowFacts]
    leave_out_share: Number = 0.0

    def run_of(self, row: Row) -> ServingRun:
        """Return the run of a row; if it cannot be predicted, it has the reason instead of a job."""
        reason, job, trace = self.unsupported(row), None, None
        if not reason:
            facts = self.facts(row)
            trace = facts.trace
            job, reason = job_of_row(facts)
        return ServingRun(
            id="/".join(row[name] for name in self.identity),
            source=self.source,
            job=job,
            reason=reason,
            measured=tuple(self.measured(row)),
            groups=self.groups(row),
            trace=trace,
            leave_out_share=self.leave_out_share,
        )


class ServedModels(StrictModel):
    """Models that differ from a model of the catalogue only in their weights."""

    same_shapes: Mapping[str, str]


def job_of_row(facts: RowFacts) -> tuple[ServingJob | None, str]:
    """Return the job of a row without a reason, or the reason without a job.

    Parameters
    ----------
    facts : RowFacts
        The facts of the row. The job has as many replicas as the devices of the row can hold. If the row
        states no degree, the job has the smallest degree at which the model fits.
    """
    name = catalog_facts("served_models", ServedModels).same_shapes.get(facts.model, facts.model)
    if catalog.known("models", name) is None:
        return None, f"the catalogue has no model {facts.model}"
    plan = Deployment.model_validate(facts.plan)
    per_node = catalog.cluster(facts.cluster).node.devices
    devices = facts.devices or plan.devices
    job = ServingJob(
        model=catalog.model(name),
        cluster=catalog.cluster(facts.cluster, -(-devices // per_node)),
        engine=_engine(facts),
        plan=plan,
        traffic=Traffic.model_validate(facts.traffic),
    )

    def filled() -> ServingJob:
        made, _ = with_degree(job)
        replicas = max(devices // made.plan.devices, 1)
        return made.with_part("plan", replicas=replicas)

    return job_or_reason(filled, facts.trace)


def job_or_reason(
    make: Callable[[], ServingJob], trace: Requests | None = None
) -> tuple[ServingJob | None, str]:
    """Return the job that a function makes, or None and the first rule that it breaks."""
    try:
        job = make()
        requests = requests_of(job.traffic, trace, job.image_tokens)
        problems = serving_problems(job, int((requests.prompt_tokens + requests.output_tokens).max()))
    except SpecError as error:
        problems = list(error.problems)
    if problems:
        return None, f"{problems[0].field} = {problems[0].value}: {problems[0].because}"
    return job, ""


def _engine(facts: RowFacts) -> Engine:
    name = engine_of_release(facts.engine, facts.era) if facts.era else facts.engine
    padded = padded_experts(facts.engine, facts.release, int(str(facts.plan.get("tensor_parallel", 1))))
    changes = {**USUAL, **facts.settings, "padded_experts": padded}
    changes |= {"passes_ahead": 0} if facts.in_process else {}
    engine = catalog.engine(name).model_copy(update=changes)
    changed = dict.fromkeys(FRONT_END, 0.0) if facts.in_process else {}
    changed |= {} if facts.launches_by_python else dict.fromkeys(IN_PYTHON, 0.0)
    return engine.with_part("iteration", **changed)
