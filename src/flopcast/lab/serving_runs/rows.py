"""Measured runs of serving engines, and the conversion of table rows to runs.

Answers: which quantity of a run was measured, and which job do the facts of a row describe, or why can it
not be predicted?
Elsewhere: the facts in a table (one file per table), models that differ only in their weights
(catalog/runs/served_models.yaml), predictions of jobs (score.py).
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Literal

from flopcast.errors import SpecError
from flopcast.lab.catalog_facts import catalog_facts
from flopcast.lab.run_tables import Row
from flopcast.lab.scores import Compared, MeasuredNumber, MeasuredRun, Scores
from flopcast.lab.serving_runs.releases import padded_experts
from flopcast.library import catalog
from flopcast.library.engine_releases import engine_of_release
from flopcast.records import dataclass
from flopcast.requests.serving_request import with_degree
from flopcast.serving.arrivals import requests_of
from flopcast.serving.checks import serving_problems
from flopcast.serving.requests import Requests
from flopcast.serving.serving_report import Estimate, ServingReport
from flopcast.spec.deployment import Deployment
from flopcast.spec.engine import Engine
from flopcast.spec.serving_job import ServingJob
from flopcast.spec.traffic import Traffic
from flopcast.strict_model import StrictModel
from flopcast.units import Number

Teaches = Literal["", "iterations", "requests"]
FRONT_END = ("request_s", "request_tpot_ratio", "streamed_s")  # the times of HTTP and of tokenisation
LAUNCHES = ("prompt_launch_s", "prompt_experts_s", "prompt_states_s")  # the host's times in Python


@dataclass(frozen=True, eq=False, kw_only=True)
class Measured(MeasuredNumber):
    """One measured number, and the corresponding number of a report.

    `read` returns the prediction in the unit of the number (quantities.py). `teaches` states which
    constants of engines are fitted to the number: those of iterations, those of requests, or none.
    """

    read: Callable[[ServingReport], Estimate]
    teaches: Teaches = ""


@dataclass(frozen=True, eq=False, kw_only=True)
class ServingRun(MeasuredRun[Measured]):
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


@dataclass(frozen=True, kw_only=True, slots=True)
class RowFacts:
    """The facts of a row about a deployment and its traffic.

    `plan` holds fields of a Deployment; without a tensor-parallel degree, flopcast chooses the degree.
    `traffic` holds fields of a Traffic, and `trace` holds the requests if the traffic names a trace.
    Instances fill `devices` devices; by default, there is one instance. If `in_process` is set, requests
    reach the engine without a front end. `receive_interval`, `stream_interval`, `memory_fraction` (by
    default the engine's), `wait_passes`, `wait_fraction`, `sampling` and `fused_all_reduce` are settings of
    the engine, whose `release` determines some kernels. `era` is a release or a month that selects the
    entry for older releases. Unless Python launches the kernels of prompts, the host is never slower than
    these kernels.
    """

    model: str
    cluster: str
    engine: str
    plan: Mapping[str, object]
    traffic: Mapping[str, object]
    devices: int = 0
    trace: Requests | None = None
    in_process: bool = False
    receive_interval: int = 1
    stream_interval: int = 1
    wait_passes: int = 0
    wait_fraction: float = 1.0
    sampling: str = "greedy"
    fused_all_reduce: bool = True
    release: str = ""
    era: str = ""
    memory_fraction: Number | None = None
    launches_by_python: bool = True


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class ServingRows:
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
    try:
        job, _ = with_degree(job)
        replicas = max(devices // job.plan.devices, 1)
        job = job.model_copy(update={"plan": job.plan.model_copy(update={"replicas": replicas})})
        requests = requests_of(job.traffic, facts.trace, job.image_tokens)
        problems = serving_problems(job, int((requests.prompt_tokens + requests.output_tokens).max()))
    except SpecError as error:
        problems = list(error.problems)
    if problems:
        return None, f"{problems[0].field} = {problems[0].value}: {problems[0].because}"
    return job, ""


def _engine(facts: RowFacts) -> Engine:
    stated = ("receive_interval", "stream_interval", "wait_passes", "wait_fraction", "sampling")
    name = engine_of_release(facts.engine, facts.era) if facts.era else facts.engine
    engine = catalog.engine(name).model_copy(update={name: getattr(facts, name) for name in stated})
    if not facts.fused_all_reduce:
        engine = engine.model_copy(update={"fused_all_reduce": False})
    if facts.memory_fraction is not None:
        engine = engine.model_copy(update={"memory_fraction": facts.memory_fraction})
    padded = padded_experts(facts.engine, facts.release, int(str(facts.plan.get("tensor_parallel", 1))))
    engine = engine.model_copy(update={"padded_experts": padded})
    changed = dict.fromkeys(FRONT_END, 0.0) if facts.in_process else {}
    changed |= {} if facts.launches_by_python else dict.fromkeys(LAUNCHES, 0.0)
    return engine.model_copy(update={"iteration": engine.iteration.model_copy(update=changed)})
