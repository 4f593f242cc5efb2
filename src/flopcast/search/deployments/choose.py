"""The choice of a deployment for a job whose plan states no tensor-parallel degree.

Answers: which tensor-parallel degree, and how many replicas, serve the traffic best? For models with
experts: which data-parallel and expert-parallel degrees?
Elsewhere: the search over all fields of a deployment (find.py), which ranks in the same way.

All combinations are estimated. The most promising ones are simulated once each, without
intervals, until some of them serve the traffic. If none does, as many are simulated as in a search. With
limits of latency, which estimates near a limit often misjudge, the choice is the best of those that a
search simulates without pools.
"""

from collections.abc import Iterable, Sequence

from flopcast.cost.kernels.curve_book import CurveBook
from flopcast.errors import SpecError
from flopcast.records import Record
from flopcast.search.deployments.find import LIKELY, SIMULATED, TIED_RATIO, TINY, excess_ratio
from flopcast.search.deployments.question import DeploymentQuestion
from flopcast.search.deployments.screen import promising, screened
from flopcast.search.deployments.space import DeploymentSpace
from flopcast.serving.arrivals import requests_of
from flopcast.serving.requests import Requests
from flopcast.serving.serve import keeps_up, serve, simulation_of
from flopcast.serving.summary import summarise
from flopcast.spec.deployment import Deployment
from flopcast.spec.serving_job import ServingJob

AT_ONCE = 4  # deployments that are simulated before they are compared
WITH_LIMITS = SIMULATED // 4  # the same with limits of latency: as many as a search simulates without pools


class ChosenDeployment(Record):
    """The chosen deployment, the number of deployments that fit, and whether the chosen one serves the
    traffic.

    A deployment serves the traffic if its predicted queue does not grow and all limits of latency are met.
    """

    plan: Deployment
    possible: int
    serves: bool

    def note(self, job: ServingJob) -> str:
        """Return the sentence about the choice for the job with the chosen plan."""
        plan = self.plan
        text = f"plan tp={plan.tensor_parallel}"
        text += f" dp={plan.data_parallel}" if plan.data_parallel > 1 else ""
        text += f" ep={plan.expert_parallel}" if plan.expert_parallel > 1 else ""
        text += f" replicas={plan.replicas}"
        varied = "tp, dp, ep and replicas" if job.model.has_experts else "tp and replicas"
        compared = f"the {self.possible} combinations of {varied} that fit into memory"
        limits = " within all latency limits" if job.slo.text() else ""
        if self.possible == 1:
            text += f", the only combination of {varied} that fits into memory"
            text += "" if self.serves else f", does not serve this traffic{limits}"
        elif not self.serves:
            text += f": none of {compared} serves this traffic{limits}, and this deployment comes closest"
        else:
            sure = " and meet all latency limits with a probability of at least 50%" if limits else ""
            text += f": of {compared}{sure}, this deployment needs the fewest device-seconds"
        if job.devices < job.cluster.num_devices:
            text += f"; it uses {job.devices} of {job.cluster.num_devices} devices"
        return f"{text}; flopcast search compares other plans"


class _Trial(Record, eq=False):
    """A deployment that was simulated once.

    `excess_ratio` is the largest ratio of a latency to its limit, and of arrivals to requests that end if
    the engines do not keep up.
    """

    job: ServingJob
    excess_ratio: float
    device_s: float  # of all devices, for an output token
    end_to_end_s: float  # mean

    @property
    def serves(self) -> bool:
        """Return whether the deployment keeps up and meets all limits."""
        return self.excess_ratio <= 1.0


def chosen_deployment(
    job: ServingJob, book: CurveBook, trace: Requests | None = None
) -> ChosenDeployment | None:
    """Return the best degrees and number of replicas; None if no deployment fits.

    Parameters
    ----------
    job : ServingJob
        Its plan gives all other fields, and the number of replicas, the data-parallel and the
        expert-parallel degree if it states them.
    book : CurveBook
        The curves of its cluster.
    trace : Requests or None
        The requests of the trace, if the traffic names a trace.
    """
    space = _space_of(job)
    requests = requests_of(job.traffic, trace, job.image_tokens)
    found = [each for each in screened(job, space, book, requests) if each is not None]
    if not found:
        return None
    ordered = promising(found, DeploymentQuestion(jobs=(job,), space=space), 2 * SIMULATED)[:SIMULATED]
    tried: list[_Trial] = []
    best: _Trial | None = None
    limits = {name: getattr(job.plan, name) for name in ("max_sequences", "max_tokens")}
    jobs = [
        job.model_copy(update={"plan": each.job.plan.model_copy(update=limits)})  # as it is predicted later
        for each in ordered
    ]
    at_once = WITH_LIMITS if job.slo.text() else AT_ONCE
    for begin in range(0, len(jobs), at_once):
        trials = [one for each in jobs[begin : begin + at_once] for one in _trials(each, book, trace)]
        best = _best([one for one in trials if one.serves], book, trace)
        if best is not None:
            break
        tried += trials
    if best is None and not tried:
        return None
    best = best or min(tried, key=lambda one: (max(one.excess_ratio, 1.0), one.device_s))
    return ChosenDeployment(plan=best.job.plan, possible=len(found), serves=best.serves)


def _space_of(job: ServingJob) -> DeploymentSpace:
    """Return the space of all degrees and replicas, with the fields that a plan states."""
    plan, engine = job.plan, job.engine
    stated = plan.model_fields_set
    return DeploymentSpace(
        data_parallel=(plan.data_parallel,) if "data_parallel" in stated else (),
        expert_parallel=(plan.expert_parallel,) if "expert_parallel" in stated else (),
        pipeline_parallel=(plan.pipeline_parallel,),
        replicas=(plan.replicas,) if plan.replicas else (),
        max_sequences=(plan.max_sequences or engine.max_sequences,),
        max_tokens=(plan.max_tokens or engine.max_tokens,),
        pools=(False,),
    )


def _trials(job: ServingJob, book: CurveBook, trace: Requests | None) -> Iterable[_Trial]:
    """Yield the deployment as simulated; nothing where the simulation finds that it is not possible."""
    try:
        simulation = simulation_of(job, book, trace)
    except SpecError:
        return
    served = simulation.served(1.0)
    found = summarise(served, job.slo)
    arrive = None
    if not keeps_up(job, simulation, served):
        arrive = (job.traffic.rate_per_s or 0.0) / job.engines
    yield _Trial(
        job=job,
        excess_ratio=excess_ratio(found.objectives, arrive, found.requests_per_s),
        device_s=job.devices / max(found.output_tokens_per_s * job.busy_engines, TINY),
        end_to_end_s=found.end_to_end.mean_s,
    )


def _best(serving: Sequence[_Trial], book: CurveBook, trace: Requests | None) -> _Trial | None:
    """Return the trial with the fewest device-seconds for a token; of equal ones, that of least latency.

    Trials that probably miss a limit are left out.
    """
    ordered = sorted(serving, key=lambda one: (float(f"{one.device_s:.3g}"), one.end_to_end_s))
    first = next((one for one in ordered if _is_likely(one.job, book, trace)), None)
    if first is None:
        return None
    tied = [one for one in ordered if first.device_s <= one.device_s <= TIED_RATIO * first.device_s]
    quicker = (one for one in tied if one.end_to_end_s < first.end_to_end_s)
    return min(
        (first, *(one for one in quicker if _is_likely(one.job, book, trace))),
        key=lambda one: float(f"{one.end_to_end_s:.2g}"),
    )


def _is_likely(job: ServingJob, book: CurveBook, trace: Requests | None) -> bool:
    """Return whether all limits of latency are met with a probability of 50 % or more."""
    return not job.slo.text() or (serve(job, book, trace).slo_chance or 0.0) >= LIKELY
