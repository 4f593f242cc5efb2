"""The spine of serving: job in, report out.

Answers: what do requests of this traffic wait for on this deployment?
Elsewhere: each step (the modules below), what stands in the report (serving_report.py).

Passes are lowered, rewritten and priced as training is, a grid of them at once; a scheduler then plays the
requests of one replica. Intervals come from playing them with passes that are slower or faster throughout.
"""

import math

import numpy as np

from flopcast.cost.factors import NINETY_PERCENT, Factor
from flopcast.cost.kernels.curve_book import CurveBook
from flopcast.errors import SpecError
from flopcast.serving.arrivals import requests_of
from flopcast.serving.checks import serving_problems
from flopcast.serving.engine_pass import EnginePass
from flopcast.serving.estimates import Certainty, report_of
from flopcast.serving.lower import lower_passes
from flopcast.serving.memory import ServingMemory, serving_memory
from flopcast.serving.pass_prices import PricedPasses, price_passes
from flopcast.serving.pass_times import PassTimes, pass_times
from flopcast.serving.requests import Limits, Requests
from flopcast.serving.scheduler import run
from flopcast.serving.served import Served
from flopcast.serving.serving_report import ServingReport
from flopcast.serving.stages import StagedTimes, by_stage, hops, staged_times
from flopcast.serving.summary import LEAVE_OUT_SHARE, is_stable, saturation_per_s
from flopcast.spec.serving_job import ServingJob

STAGES = "stages"  # time in which a pass waits for a stage that is busy with another one
ITERATION = "iteration"  # what an iteration takes beyond its kernels in benchmarks


def serve(
    job: ServingJob,
    book: CurveBook,
    trace: Requests | None = None,
    leave_out_share: float = LEAVE_OUT_SHARE,
) -> ServingReport:
    """Predict how an engine serves its traffic.

    Parameters
    ----------
    job : ServingJob
    book : CurveBook
        The curves of the job's cluster.
    trace : Requests or None
        The requests of the traffic's trace, if it names one.
    leave_out_share : float
        Share of the requests that is not judged, as in summary.py.

    Raises
    ------
    SpecError
        The job contradicts itself, or asks for what is not supported; every fault is listed.
    """
    requests = requests_of(_of_one_replica(job).traffic, trace)
    longest = int((requests.prompt_tokens + requests.output_tokens).max())
    if problems := serving_problems(job, longest):
        raise SpecError(problems)
    memory = serving_memory(job)
    times = times_of(job, book, longest)
    limits = limits_of(job, memory, longest)
    served = run(requests, limits, times)
    mean, weights = _mean_passes(served)
    priced = _price(job, book, mean)
    shares, certainty = _shares(job, priced, times, mean, weights)
    spread = math.exp(NINETY_PERCENT * certainty.log_sigma_factor)
    fast, slow = (run(requests, limits, times.stretched(ratio)) for ratio in (1.0 / spread, spread))
    saturation = None if is_stable(served) else saturation_per_s(requests, limits, times)
    plays = served, fast, slow
    return report_of(job, memory, plays, shares, certainty, priced.used, saturation, leave_out_share)


def times_of(job: ServingJob, book: CurveBook, longest: int) -> PassTimes | StagedTimes:
    """Return the seconds of every pass that a job may run; `longest` is that of a request, in tokens."""

    def price(passes: EnginePass) -> tuple[PricedPasses, ...]:
        return by_stage(_price(job, book, passes), job.model, job.plan, job.cluster)

    tables = pass_times(price, job.engine, _most_tokens(job, longest), job.most_sequences, longest)
    return staged_times(tables, job.model, job.plan, job.cluster, job.passes_in_flight)


def _most_tokens(job: ServingJob, longest: int) -> int:
    """Return the new tokens of the largest pass: at least one for each sequence and, where prompts are not
    split, a whole prompt beside them.
    """
    sequences = job.most_sequences
    whole = longest + sequences if job.engine.prefill == "whole" else sequences
    return max(job.plan.max_tokens or job.engine.max_tokens, whole)


def limits_of(job: ServingJob, memory: ServingMemory, longest: int) -> Limits:
    """Return what one replica may hold and do in an iteration."""
    engine = job.engine
    return Limits(
        max_sequences=job.most_sequences,
        max_tokens=_most_tokens(job, longest),
        kv_blocks=memory.cache_tokens // job.passes_in_flight // engine.block_tokens,
        block_tokens=engine.block_tokens,
        chunked_prefill=engine.prefill != "whole",
        prefill_first=engine.prefill == "apart",
        prefix_cache=engine.prefix_cache,
        preemption=engine.preemption,
    )


def _price(job: ServingJob, book: CurveBook, passes: EnginePass) -> PricedPasses:
    layers = (
        *lower_passes(job.model, job.plan, job.engine, passes),
        *hops(job.model, job.plan, job.engine, job.cluster, passes),
    )
    size = len(passes.new_tokens)
    return price_passes(layers, size, job.plan, job.engine, job.cluster, book, job.site)


def _of_one_replica(job: ServingJob) -> ServingJob:
    """Return the job with the traffic of one engine: an equal share of the rate or of the concurrency."""
    traffic, replicas = job.traffic, job.engines
    if replicas == 1:
        return job
    share: dict[str, object] = {"requests": max(traffic.num_requests // replicas, 1)}
    if traffic.rate_per_s is not None:
        share["rate_per_s"] = traffic.rate_per_s / replicas
    if traffic.concurrency is not None:
        share["concurrency"] = max(round(traffic.concurrency / replicas), 1)
    return job.model_copy(update={"traffic": traffic.model_copy(update=share)})


def _mean_passes(served: Served) -> tuple[EnginePass, np.ndarray]:
    """Return the mean of iterations that only decode and of those with prompts, and how many there are.

    Means of both together would have a few tokens of prompts in every pass.
    """
    table = served.iterations
    prompts = table.new_tokens > table.decoding * served.limits.computed_tokens
    counts = np.array([float(table.passes[each].sum()) for each in (~prompts, prompts)])

    def means(values: np.ndarray) -> np.ndarray:
        sums = [float((values * table.passes)[each].sum()) for each in (~prompts, prompts)]
        found: np.ndarray = (np.array(sums) / np.maximum(counts, 1.0))[:, None]
        return found

    cached = means(table.kv_tokens)
    pairs = np.array([[0.0], [_pairs(served.requests) / max(counts[1], 1.0)]])
    found = EnginePass(
        new_tokens=means(table.new_tokens),
        sequences=means(table.sequences),
        cached_tokens=cached,
        pairs=cached + pairs,
    )
    return found, counts / counts.sum()


def _pairs(requests: Requests) -> float:
    """Return the pairs of queries and keys of all prompts."""
    prompts = requests.prompt_tokens.astype(np.float64)
    return float((prompts * prompts / 2.0).sum())


def _shares(
    job: ServingJob,
    priced: PricedPasses,
    times: PassTimes | StagedTimes,
    mean: EnginePass,
    weights: np.ndarray,
) -> tuple[dict[str, float], Certainty]:
    """Return shares of a mean iteration by component, and the factors that its time depends on.

    Parameters
    ----------
    mean : the passes that were priced
    weights : shares of the passes of all iterations, (passes,)
    """
    host = job.engine.iteration
    host_s = host.host_s + host.sequence_s * float(mean.sequences[:, 0] @ weights)
    ratio = host.kernel_ratio
    seconds = {name: ratio * float(part @ weights) for name, part in priced.by_component().items()}
    seconds["host"] = host_s
    if job.plan.pipeline_parallel > 1:
        numbers = (mean.new_tokens, mean.sequences, mean.cached_tokens, mean.pairs)
        passes_s = float(times(*(each[:, 0] for each in numbers)) @ weights)
        seconds[STAGES] = max(passes_s - sum(seconds.values()), 0.0)
    total_s = sum(seconds.values())
    shares = {name: ratio * float(part @ weights) / total_s for name, part in priced.by_factor().items()}
    shares[ITERATION] = 1.0
    factor = Factor(name=ITERATION, log_sigma_factor=host.log_sigma_factor)
    factors = {**priced.factors, ITERATION: factor}
    sigma = math.hypot(*(share * factors[name].log_sigma_factor for name, share in shares.items()))
    return {name: part / total_s for name, part in seconds.items()}, Certainty(sigma, factors, shares)
