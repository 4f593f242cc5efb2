"""The best deployments of a space.

All deployments are estimated; the best estimates are simulated and ranked.

Answers: which deployment serves this traffic best, and which others are as good?
Elsewhere: the estimates (screen.py), the simulation (serving/serve.py), the text of the answer
(render/deployments_text.py).
"""

from collections.abc import Callable, Iterable, Mapping
from itertools import islice, product
from typing import NamedTuple

import numpy as np

from flopcast.cost.kernels.curve_book import CurveBook
from flopcast.errors import Problem, SpecError, common_problems
from flopcast.records import Record, replace
from flopcast.search.deployments.question import DeploymentQuestion
from flopcast.search.deployments.screen import Screened, promising, screened
from flopcast.search.deployments.space import deployments_of
from flopcast.search.pareto_front import front
from flopcast.serving.arrivals import requests_of
from flopcast.serving.checks import serving_problems
from flopcast.serving.requests import Requests
from flopcast.serving.serve import serve
from flopcast.serving.serving_report import ServingReport
from flopcast.serving.summary import Objective
from flopcast.spec.cluster import Cluster
from flopcast.spec.serving_job import ServingJob
from flopcast.units import Number

SIMULATED = 48
LIKELY = 0.5
TINY = 1e-9
MOST_CHECKED = 256  # deployments of a job whose errors are compared if none is possible
FEWER_BITS: Mapping[str, tuple[str, ...]] = {  # format of weights → those that are tried, most bits first
    "bf16": ("fp8", "int4"),
    "fp32": ("fp8", "int4"),
    "fp8": ("int4",),
    "fp8_block": ("int4",),
}
TIED_RATIO = 1.01  # of losses that are as good as equal: a simulation of other requests differs by more


class Progress(NamedTuple):
    """The progress of a search."""

    estimated: int
    simulated: int
    to_simulate: int  # 0 while deployments are estimated


OnServingProgress = Callable[[Progress], None]


class RankedDeployment(Record, eq=False):
    """A deployment that was simulated.

    `losses` are the losses of the objectives of the front. `kept` states whether the deployment is
    predicted to serve the traffic and to keep all limits of latency. `tied` states whether its first loss
    is within 1 % of the best such deployment.
    """

    report: ServingReport
    losses: tuple[Number, ...]
    kept: bool
    tied: bool = False
    on_front: bool = False

    @property
    def keeps_up(self) -> bool:
        """Return whether the deployment serves requests as fast as they arrive, even if it breaks limits
        of latency.
        """
        return self.report.saturation_per_s is None

    @property
    def likely(self) -> bool:
        """Return whether the deployment meets all limits of latency at once with a probability of at
        least 50 %.
        """
        chance = self.report.slo_chance
        return chance is None or chance >= LIKELY


class DeploymentResult(Record, eq=False):
    """The answer of a search over deployments.

    Attributes
    ----------
    question : DeploymentQuestion
    deployments : tuple of RankedDeployment
        Those that meet all limits, the best first.
    nearest : tuple of RankedDeployment
        Simulated deployments that break a limit, the nearest first.
    fewer_bits : RankedDeployment or None
        If no deployment meets all limits: the nearest deployment with weights in fewer bits, if it meets
        them.
    candidates, possible, simulated : int
        Number of deployments in the space, of those that keep every rule and fit, and of those that were
        simulated.
    requests : int
        Largest number of requests of one replica in a simulation.
    partial : bool
        Whether an interrupt ended the search before all simulations had run.
    """

    question: DeploymentQuestion
    deployments: tuple[RankedDeployment, ...]
    nearest: tuple[RankedDeployment, ...]
    candidates: int
    possible: int
    simulated: int
    requests: int  # of one replica in a simulation, at most
    partial: bool  # whether an interrupt ended the search before all of them
    fewer_bits: RankedDeployment | None = None

    @property
    def keeping_up(self) -> int:
        """Return how many of the simulated deployments keep up with the traffic."""
        return sum(each.keeps_up for each in (*self.deployments, *self.nearest))

    def best_of(self, job: ServingJob) -> RankedDeployment | None:
        """Return the best deployment for one cluster and engine; None if none keeps all limits."""
        of_job = (each for each in self.deployments if same_setting(each.report.job, job))
        return next(of_job, None)


def same_setting(one: ServingJob, other: ServingJob) -> bool:
    """Return whether two jobs have the same cluster and engine."""
    return (one.cluster.name, one.engine.name) == (other.cluster.name, other.engine.name)


def find_deployments(
    question: DeploymentQuestion,
    book_of: Callable[[Cluster], CurveBook],
    trace: Requests | None = None,
    told: OnServingProgress | None = None,
    simulated: int = SIMULATED,
) -> DeploymentResult:
    """Return the best deployments, each simulated with the first requests of the traffic.

    Parameters
    ----------
    book_of : the curves of a cluster, also those of serving
    trace : the requests of the traffic's trace, if it names one
    told : called after each estimate and each simulation
    simulated : largest number of deployments to simulate

    Raises
    ------
    SpecError
        No deployment is possible. The error lists the faults of the unchanged job.
    KeyboardInterrupt
        The user interrupts the first simulation. A later interrupt returns the results so far.
    """
    say = told or (lambda _: None)
    found: list[Screened] = []
    candidates = 0
    drawn = requests_of(question.jobs[0].traffic, trace, question.jobs[0].image_tokens)
    # jobs have the same model and traffic
    for job in question.jobs:
        for each in screened(job, question.space, book_of(job.cluster), drawn):
            candidates += 1
            found += [each] if each is not None else []
            if candidates % 64 == 0:
                say(Progress(candidates, 0, 0))
    if not found:
        raise SpecError(_faults(question, drawn))
    chosen = promising(found, question, simulated)
    ranked: list[RankedDeployment] = []
    partial = False
    try:
        for number, each in enumerate(chosen):
            say(Progress(candidates, number, len(chosen)))
            ranked += _simulated(each.job, question, book_of, trace)
    except KeyboardInterrupt:
        if not ranked:
            raise
        partial = True
    kept = _in_order([each for each in ranked if each.kept])
    rest = sorted((each for each in ranked if not each.kept), key=_shortfall)
    return DeploymentResult(
        question=question,
        deployments=kept,
        nearest=tuple(rest),
        fewer_bits=None if kept or partial else _with_fewer_bits(rest[:1], question, book_of, trace),
        candidates=candidates,
        possible=len(found),
        simulated=len(ranked),
        requests=drawn.size,
        partial=partial,
    )


def _faults(question: DeploymentQuestion, requests: Requests) -> list[Problem]:
    """Return why no deployment is possible: what is wrong with the jobs as they stand, or in the space."""
    longest = int((requests.prompt_tokens + requests.output_tokens).max())
    problems: list[Problem] = []
    for job in question.jobs:
        problems += [one for one in serving_problems(job, longest) if one not in problems]
    if problems:
        return problems
    space, broken = question.space, []
    for job in question.jobs:
        limits = product(
            space.replicas or (1,), space.max_sequences or (None,), space.max_tokens or (None,)
        )
        for deployment, values in islice(product(deployments_of(job, space), limits), MOST_CHECKED):
            update = dict(zip(("replicas", "max_sequences", "max_tokens"), values, strict=True))
            one = job.model_copy(update={"plan": deployment.model_copy(update=update)})
            broken.append(serving_problems(one, longest))
    if problems := list(common_problems(broken)) or next(filter(None, broken), []):
        return problems
    devices = max(job.cluster.num_devices for job in question.jobs)
    allowed = f"values of which one combination fits on {devices} devices"
    because = "two pools need instances of their own" if space.pools == (True,) else "no combination fits"
    fix = "list more values in the plan, or remove a field, so that flopcast chooses its value"
    return [Problem("plan", None, allowed, because, fix, fault="has no possible deployment")]


def _with_fewer_bits(
    nearest: Iterable[RankedDeployment],
    question: DeploymentQuestion,
    book_of: Callable[[Cluster], CurveBook],
    trace: Requests | None,
) -> RankedDeployment | None:
    """Return one of the deployments with weights in fewer bits that meets all limits, if any.

    Formats that the space lists were tried already, and others are not wanted.
    """
    for job in () if question.space.weights else [each.report.job for each in nearest]:
        for weights in FEWER_BITS.get(job.plan.weights, ()):
            for found in _simulated(job.with_part("plan", weights=weights), question, book_of, trace):
                if found.kept:
                    return found
    return None


def _simulated(
    job: ServingJob,
    question: DeploymentQuestion,
    book_of: Callable[[Cluster], CurveBook],
    trace: Requests | None,
) -> list[RankedDeployment]:
    """Return the deployment as simulated; nothing where the simulation finds that it is not possible."""
    try:
        report = serve(job, book_of(job.cluster), trace)
    except SpecError:
        return []
    losses = tuple(one.loss(one.exact(report).value) for one in question.asked)
    kept = report.saturation_per_s is None and report.meets_slo is not False
    return [RankedDeployment(report=report, losses=losses, kept=kept)]


def _in_order(ranked: list[RankedDeployment]) -> tuple[RankedDeployment, ...]:
    """Return deployments with the best first; of those that are tied, the one with the lowest latency.

    Of equal latencies, the one that changes fewest settings of the engine comes first. Deployments that are
    less than likely to meet all limits come last.
    """
    if not ranked:
        return ()
    likely = [each for each in ranked if each.likely] or ranked
    best = min(each.losses[0] for each in likely)
    rounded = [[float(f"{loss:.3g}") for loss in each.losses] for each in ranked]
    fronts = front(np.array(rounded))
    marked = [
        replace(each, tied=each.losses[0] <= TIED_RATIO * best and each in likely, on_front=bool(on_front))
        for each, on_front in zip(ranked, fronts, strict=True)
    ]

    def order(each: RankedDeployment) -> tuple[object, ...]:
        plan, latency_s = each.report.job.plan, each.report.latencies["end_to_end"]["mean"].value
        changed = sum(value is not None for value in (plan.max_sequences, plan.max_tokens))
        if each.tied:
            return (0, float(f"{latency_s:.2g}"), changed, each.losses[0])
        return (1 if each.likely else 2, float(f"{each.losses[0]:.3g}"), latency_s, changed)

    return tuple(sorted(marked, key=order))


def _shortfall(each: RankedDeployment) -> tuple[Number, ...]:
    """Return how far a deployment is from what is asked, then its loss."""
    report = each.report
    arrive = None if report.saturation_per_s is None else report.job.traffic.rate_per_s or 0.0
    return max(
        excess_ratio(report.summary.objectives, arrive, report.requests_per_s.value), 1.0
    ), each.losses[0]


def excess_ratio(objectives: Iterable[Objective], arrive_per_s: Number | None, end_per_s: Number) -> Number:
    """Return the largest of these ratios: each latency divided by its limit, and arriving requests divided
    by completed requests.

    `arrive_per_s` is None if the engines keep up with the traffic. If they do not, the ratio is above 1.
    """
    ratios = [one.reached_s / one.limit_s for one in objectives]
    if arrive_per_s is not None:
        ratios.append(max(arrive_per_s / max(end_per_s, TINY), 1.0 + TINY))
    return max(ratios, default=0.0)
