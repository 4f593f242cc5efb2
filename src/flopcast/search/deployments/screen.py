"""Estimates of all deployments of a space, and the choice of those to simulate.

Answers: which deployments fit, how well does each of them serve the traffic, and which few may be the best?
Elsewhere: the estimate of one deployment (steady.py), the simulation (find.py).

The passes of deployments that differ only in replicas and limits are priced once.
"""

from collections.abc import Hashable, Iterator, Sequence

import numpy as np

from flopcast.cost.kernels.curve_book import CurveBook
from flopcast.records import Record, replace
from flopcast.search.deployments.question import DeploymentQuestion
from flopcast.search.deployments.space import (
    DeploymentSpace,
    deployments_of,
    limits_of,
    pools_of,
    replicas_of,
)
from flopcast.search.deployments.steady import (
    Curve,
    Load,
    Steady,
    curve_of,
    static_curve_of,
    steady_pools,
    steady_state,
)
from flopcast.serving.checks import serving_problems
from flopcast.serving.decode_times import PassSeconds
from flopcast.serving.instances import times_of
from flopcast.serving.kv_transfer import kv_transfer
from flopcast.serving.memory import serving_memory
from flopcast.serving.requests import Requests
from flopcast.spec.deployment import Deployment, Pool
from flopcast.spec.serving_job import ServingJob
from flopcast.units import Number

LEAST = 4  # deployments of each cluster and engine that are simulated
VARIANTS = 4  # limits of one deployment that are simulated beside the best by estimate
REQUEST_PART = 0.75  # of its output that a running request has in the cache, at most times


class Screened(Record, eq=False):
    """One deployment and its estimate.

    `excess_ratio` is the largest ratio of an estimate to its limit: of the load to the capacity, or of a
    latency to its objective. If it is above 1, the deployment is estimated not to serve the traffic as
    requested.
    """

    job: ServingJob
    steady: Steady
    excess_ratio: float

    def loss(self, question: DeploymentQuestion) -> Number:
        """Return the estimated loss of the first objective."""
        first, price = question.named[0], self.job.cluster.price
        usd_per_hour = price.device_usd_per_hour if price else 0.0
        return first.loss(first.estimate(self.steady, self.job.devices, usd_per_hour))


def screened(
    job: ServingJob, space: DeploymentSpace, book: CurveBook, requests: Requests
) -> Iterator[Screened | None]:
    """Yield every deployment of a space for one cluster and engine; None for one that is not possible.

    Parameters
    ----------
    requests : requests of all instances together
    """
    longest = int((requests.prompt_tokens + requests.output_tokens).max())
    if False in space.pools:
        yield from _of_instances(job, space, book, requests, longest)
    yield from _of_pools(job, space, book, requests, longest)


def _of_instances(
    job: ServingJob, space: DeploymentSpace, book: CurveBook, requests: Requests, longest: int
) -> Iterator[Screened | None]:
    """Yield deployments whose instances compute prompts and decode."""
    limits = limits_of(job, space)
    for deployment in deployments_of(job, space):
        replicas = replicas_of(job, deployment, space)
        one = _with(job, deployment, max_sequences=None, max_tokens=None, replicas=1)
        widest = _widest(one, limits)
        if serving_problems(one, longest):
            yield from [None] * (len(limits) * len(replicas))
            continue
        times = times_of(widest, book, longest)
        for sequences, tokens in limits:
            limited = _with(one, deployment, max_sequences=sequences, max_tokens=tokens, replicas=1)
            memory = serving_memory(limited)
            for count in replicas:
                chosen = _with(one, deployment, max_sequences=sequences, max_tokens=tokens, replicas=count)
                load = _load(chosen, requests, chosen.engines)
                room = memory.cache_tokens / chosen.passes_in_flight
                if room < longest:
                    yield None
                    continue
                curve = _curve(chosen, times, load, room, requests)
                steady = steady_state(curve, load, chosen.engines)
                yield Screened(job=chosen, steady=steady, excess_ratio=_excess(chosen, steady))


def _curve(job: ServingJob, times: PassSeconds, load: Load, room: Number, requests: Requests) -> Curve:
    """Return the curve of one group of ranks, whose cache has room for so many tokens."""
    budget = job.plan.max_tokens or job.engine.max_tokens
    if job.engine.batching == "static":  # which reserves the cache of whole requests
        most = min(job.most_sequences, room / (load.context_tokens + load.output_tokens))
        return static_curve_of(times, requests, most, budget, padding=job.engine.padding)
    kept = load.context_tokens + REQUEST_PART * load.output_tokens
    most = min(job.most_sequences, room / kept)
    return curve_of(times, load, most, budget, job.engine.prefill == "apart")


def _of_pools(
    job: ServingJob, space: DeploymentSpace, book: CurveBook, requests: Requests, longest: int
) -> Iterator[Screened | None]:
    """Yield deployments of two pools; passes of each kind of instance are priced once."""
    kinds: dict[Pool, PassSeconds | None] = {}

    def times(kind: ServingJob, pool: Pool) -> PassSeconds | None:
        key = pool.model_copy(update={"replicas": 1})
        if key not in kinds:
            possible = not serving_problems(kind, longest)
            kinds[key] = times_of(kind, book, longest) if possible else None
        return kinds[key]

    for deployment in pools_of(job, space):
        chosen = job.model_copy(update={"plan": deployment})
        both = [times(kind, pool) for kind, pool in zip(chosen.kinds, deployment.pools, strict=True)]
        if both[0] is None or both[1] is None:
            yield None
            continue
        senders, receivers = chosen.kinds
        load = _load(chosen, requests, 1)
        room = serving_memory(receivers).cache_tokens / receivers.passes_in_flight
        curve = _curve(receivers, both[1], replace(load, prompt_tokens=1e-9), room, requests)
        mean = np.array([round(load.context_tokens)])
        sent_s = float(kv_transfer(chosen, book, mean).alone_s[0])
        budget = senders.plan.max_tokens or senders.engine.max_tokens
        engines = (senders.engines, receivers.engines)
        steady = steady_pools(both[0], curve, load, engines, budget, sent_s)
        yield Screened(job=chosen, steady=steady, excess_ratio=_excess(chosen, steady))


def _with(job: ServingJob, deployment: Deployment, **changes: int | None) -> ServingJob:
    """Return the job with a deployment, changed."""
    plan = deployment.model_copy(update=changes)
    return job.model_copy(update={"plan": plan})


def _widest(job: ServingJob, limits: Sequence[tuple[int | None, int | None]]) -> ServingJob:
    """Return a job whose passes are as large as those of any of these limits."""
    sequences = max(each or job.engine.max_sequences for each, _ in limits)
    tokens = max(each or job.engine.max_tokens for _, each in limits)
    return _with(job, job.plan, max_sequences=sequences, max_tokens=tokens)


def _load(job: ServingJob, requests: Requests, engines: int) -> Load:
    """Return the means of the requests of one of so many groups of ranks."""
    context = float(requests.prompt_tokens.mean())
    computed = context - float(requests.cached_tokens.mean())
    rate, concurrency = job.traffic.rate_per_s, float(job.traffic.concurrency or 0) / engines
    if rate is None and not concurrency:
        elapsed_s = float(requests.arrival_s.max() - requests.arrival_s.min())
        rate = requests.size / max(elapsed_s, 1e-9)
    return Load(
        prompt_tokens=max(computed, 1.0),
        context_tokens=context,
        output_tokens=float(requests.output_tokens.mean()),
        rate_per_s=None if rate is None else rate / engines,
        concurrency=concurrency,
        yielded_tokens=1.0 if job.plan.drafting is None else job.plan.drafting.accepted,
        computed_tokens=float(job.computed_tokens),
    )


def _excess(job: ServingJob, steady: Steady) -> float:
    """Return the largest ratio of an estimate to its limit; a closed loop has no limit of load."""
    ratios = [steady.load_ratio if steady.load_ratio != 1.0 else 0.0]
    for limit_s, found_s in (
        (job.slo.ttft_s, steady.ttft_s),
        (job.slo.tpot_s, steady.tpot_s),
        (job.slo.end_to_end_s, steady.end_to_end_s),
    ):
        ratios += [found_s / limit_s] if limit_s else []
    return max(ratios)


def promising(candidates: Sequence[Screened], question: DeploymentQuestion, most: int) -> list[Screened]:
    """Return the deployments that are worth a simulation, the most promising first.

    Half of the simulations are divided among the clusters and engines of the question, with and without
    pools, so that each has a result. If deployments differ only in the limits of a pass, the one with the
    best estimate is simulated first. Other limits of the best deployments fill the remaining places.
    """
    ordered = sorted(candidates, key=lambda each: _order(each, question))
    families: dict[Hashable, list[Screened]] = {}
    for each in ordered:
        families.setdefault(_family(each), []).append(each)
    settings: dict[Hashable, list[list[Screened]]] = {}
    for family in families.values():
        settings.setdefault(_setting(family[0]), []).append(family)
    share = max(most // (2 * len(settings)), LEAST)
    chosen = [family[0] for of_setting in settings.values() for family in of_setting[:share]]
    chosen.sort(key=lambda each: _order(each, question))
    for variants in [families[_family(each)][1:] for each in chosen]:
        chosen += variants[: max(most - len(chosen), 0)][:VARIANTS]
    return chosen


def _order(each: Screened, question: DeploymentQuestion) -> tuple[Number, ...]:
    """Return what to sort by: the loss, the latency, and how many limits differ from the engine's own.

    An estimate beyond a limit counts as a loss that grows with its square.
    """
    loss = each.loss(question) * max(each.excess_ratio, 1.0) ** 2
    plan = each.job.plan
    stated = sum(value is not None for value in (plan.max_sequences, plan.max_tokens))
    return (float(f"{loss:.2g}"), float(f"{each.steady.end_to_end_s:.2g}"), stated)


def _setting(each: Screened) -> Hashable:
    return each.job.cluster.name, each.job.engine.name, bool(each.job.plan.pools)


def _family(each: Screened) -> Hashable:
    """Return what deployments share that differ only in the limits of a pass."""
    plan = each.job.plan.model_copy(update={"max_sequences": None, "max_tokens": None})
    return _setting(each), plan
