"""The spine of serving: job in, report out.

Answers: what do requests of this traffic wait for on this deployment?
Elsewhere: each step (the modules below), what stands in the report (serving_report.py).

Passes are lowered, rewritten and priced as training is, a grid of them at once; a scheduler then plays the
requests of one replica. Intervals come from playing them with passes that are slower or faster throughout.
"""

import math
from collections.abc import Callable

from flopcast.cost.factors import NINETY_PERCENT
from flopcast.cost.kernels.curve_book import CurveBook
from flopcast.errors import SpecError, spec_error
from flopcast.records import replace
from flopcast.serving.arrivals import requests_of
from flopcast.serving.checks import serving_problems
from flopcast.serving.estimates import report_of
from flopcast.serving.front_end import with_front_end
from flopcast.serving.instances import Instances, instances_of
from flopcast.serving.joined_pools import EnginePool, run_joined
from flopcast.serving.kv_transfer import kv_transfer
from flopcast.serving.output_mixture import output_mixture
from flopcast.serving.pools import pools_of
from flopcast.serving.power import power_of_kinds
from flopcast.serving.requests import Requests, share_of
from flopcast.serving.scheduler import run
from flopcast.serving.served import Served
from flopcast.serving.serving_report import ServingReport
from flopcast.serving.summary import LEAVE_OUT_SHARE, is_stable, saturation_per_s
from flopcast.serving.time_shares import time_shares
from flopcast.spec.serving_job import ServingJob
from flopcast.units import Number

Play = Callable[[Requests, Number], Served]  # of requests, with passes that are longer by a ratio


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
    if trace is not None and job.engines > 1:
        trace = share_of(trace.first(job.traffic.num_requests), job.engines)
    requests = requests_of(_of_one_replica(job).traffic, trace, job.image_tokens)
    longest = int((requests.prompt_tokens + requests.output_tokens).max())
    if problems := serving_problems(job, longest):
        raise SpecError(problems)
    if job.plan.pools and requests.output_tokens.max() == 1:
        because = "the prefill instances generate the first token of each output"
        fix = "remove prefill and decode from the plan, or serve longer outputs"
        raise spec_error("traffic.output_tokens", 1, "outputs of two tokens and more", because, fix)
    kinds = [instances_of(each, book, longest) for each in job.kinds]
    play = _play(job, book, kinds)
    served = play(requests, 1.0)
    shares = [
        time_shares(kind, book, requests, table) for kind, table in zip(kinds, served.tables, strict=True)
    ]
    above = max(each.certainty.log_sigma_factor for each in shares)
    below = max(each.certainty.below_log_sigma_factor for each in shares)
    faster, slower = math.exp(-NINETY_PERCENT * below), math.exp(NINETY_PERCENT * above)
    plays = served, play(requests, faster), play(requests, slower)
    stable = is_stable(served)
    saturation = None if stable else saturation_per_s(requests, lambda given: play(given, 1.0))
    power = power_of_kinds(kinds, [each.power for each in shares], served)
    pools = None
    if job.plan.pools:
        pools = pools_of(kinds, shares, served, kv_transfer(job, book, requests.prompt_tokens))
    mixture = output_mixture(job.traffic, requests, lambda given: play(given, 1.0))
    report = report_of(job, kinds[-1].memory, plays, shares[-1], saturation, power, leave_out_share, pools)
    return replace(report, mixture=mixture)


def _play(job: ServingJob, book: CurveBook, kinds: list[Instances]) -> Play:
    """Return what plays requests: one engine, or the engines of two pools."""
    last = kinds[-1]
    cost = job.engine.iteration
    if len(kinds) == 1:
        return lambda requests, ratio: with_front_end(
            run(requests, last.limits, last.times.stretched(ratio)), cost, ratio
        )

    def pool(kind: Instances, ratio: Number) -> EnginePool:
        number = kind.job.engines // job.engines
        return EnginePool(engines=number, limits=kind.limits, pass_seconds=kind.times.stretched(ratio))

    def joined(requests: Requests, ratio: Number) -> Served:
        transfer_s = kv_transfer(job, book, requests.prompt_tokens).alone_s
        served = run_joined(requests, pool(kinds[0], ratio), pool(last, ratio), transfer_s)
        return with_front_end(served, cost, ratio)

    return joined


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
