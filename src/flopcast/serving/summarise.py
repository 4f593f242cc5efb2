"""From played requests to the numbers of a report.

Answers: which latencies, rates and costs follow from when each request was served?
Elsewhere: playing the requests (scheduler.py), what a report holds (serving_report.py).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from flopcast.cost.factors import Factor
from flopcast.cost.item_prices import Used
from flopcast.dtypes import Floats
from flopcast.serving.memory import ServingMemory
from flopcast.serving.served import LIMITED_BY, Served, limit_share
from flopcast.serving.serving_report import Estimate, ServingReport
from flopcast.spec.serving_job import ServingJob

PERCENTILES = (50.0, 90.0, 99.0)
METRICS = ("ttft", "tpot", "end_to_end")
Plays = tuple[Served, Served, Served]  # as predicted, faster, slower


@dataclass(frozen=True, eq=False, slots=True)
class Certainty:
    """The sigma of the logarithm of an iteration's time, the factors that it follows from, and their shares
    of that time.
    """

    log_sigma: float
    factors: Mapping[str, Factor]
    shares: Mapping[str, float]


def summarise(
    job: ServingJob,
    memory: ServingMemory,
    plays: Plays,
    shares: Mapping[str, float],
    certainty: Certainty,
    used: tuple[Used, ...],
) -> ServingReport:
    """Return the report of one replica's requests, for all replicas."""
    served = plays[0]
    table, replicas = served.iterations, job.replicas
    busy_s = float(table.elapsed_s.sum())
    tokens_per_s = _estimate(plays, lambda play: replicas * _tokens_per_s(play))
    goodput = _estimate(plays, lambda play: replicas * _good_per_s(play, job)) if job.slo.text() else None
    busiest = max(range(len(LIMITED_BY)), key=lambda code: limit_share(table, code))
    saturation = saturation_per_s(served, job)
    return ServingReport(
        job=job,
        served=served,
        memory=memory,
        latencies=_latencies(plays, job),
        output_tokens_per_s=tokens_per_s,
        requests_per_s=tokens_per_s.times(1.0 / float(served.requests.output_tokens.mean())),
        goodput_per_s=goodput,
        usd_per_million_tokens=_cost(job, tokens_per_s),
        shares=shares,
        iteration_s=busy_s / max(float(table.passes.sum()), 1.0),
        decoding=float((table.decoding * table.elapsed_s).sum()) / busy_s,
        cache_share=float((table.kv_blocks * table.elapsed_s).sum()) / busy_s / served.limits.kv_blocks,
        saturated=saturation is not None,
        saturation_per_s=None if saturation is None else saturation * replicas,
        limited_by=LIMITED_BY[busiest],
        stretched_log_sigma=certainty.log_sigma,
        factors=certainty.factors,
        factor_shares=certainty.shares,
        used=used,
    )


def latency_s(served: Served, metric: str) -> Floats:
    """Return a latency of every request, (requests,); the time per token of those with several tokens."""
    if metric == "ttft":
        return served.first_token_s - served.arrival_s
    if metric == "end_to_end":
        return served.last_token_s - served.arrival_s
    further = served.requests.output_tokens - 1.0
    several = further > 0
    between_s: Floats = (served.last_token_s - served.first_token_s)[several] / further[several]
    return between_s if len(between_s) else np.zeros(1)


def _latencies(plays: Plays, job: ServingJob) -> dict[str, dict[str, Estimate]]:
    found: dict[str, dict[str, Estimate]] = {}
    for metric in METRICS:
        stated = getattr(job.slo, f"{metric}_percentile")
        each = [latency_s(play, metric) for play in plays]
        found[metric] = {"mean": _ordered([float(values.mean()) for values in each])} | {
            f"p{percentile:g}": _ordered([float(np.percentile(values, percentile)) for values in each])
            for percentile in sorted({*PERCENTILES, stated})
        }
    return found


def _ordered(values: list[float]) -> Estimate:
    return Estimate(value=values[0], low=min(values), high=max(values))


def _estimate(plays: Plays, number: Callable[[Served], float]) -> Estimate:
    return _ordered([number(play) for play in plays])


def _tokens_per_s(served: Served) -> float:
    """Return the output tokens of a second, from the first arrival to the last token."""
    return float(served.requests.output_tokens.sum()) / (served.end_s - float(served.arrival_s.min()))


def _good_per_s(served: Served, job: ServingJob) -> float:
    """Return the requests of a second that keep every objective."""
    good = np.ones(served.requests.size, dtype=bool)
    for metric in METRICS:
        limit_s = getattr(job.slo, f"{metric}_s")
        if limit_s is None:
            continue
        if metric == "tpot":
            several = served.requests.output_tokens > 1
            good[several] &= latency_s(served, metric) <= limit_s
        else:
            good &= latency_s(served, metric) <= limit_s
    return float(good.sum()) / (served.end_s - float(served.arrival_s.min()))


def _cost(job: ServingJob, tokens_per_s: Estimate) -> Estimate | None:
    """Return dollars for a million output tokens; None without a price."""
    price = job.cluster.price
    if price is None:
        return None
    usd_per_s = price.device_usd_per_hour * job.devices / 3600.0
    return Estimate(
        value=1e6 * usd_per_s / tokens_per_s.value,
        low=1e6 * usd_per_s / tokens_per_s.high,
        high=1e6 * usd_per_s / tokens_per_s.low,
    )


def saturation_per_s(served: Served, job: ServingJob) -> float | None:
    """Return the requests of a second that one replica serves, if more arrive; None if the queue is stable.

    The queue grows as long as requests arrive: those of the last tenth wait longer than those of the tenth
    in the middle, by more than a tenth of the time between them.
    """
    if job.traffic.concurrency is not None or served.requests.size < 100:
        return None
    tenth = served.requests.size // 10
    middle, last = slice(5 * tenth, 6 * tenth), slice(-tenth, None)
    waited_s = float(served.queued_s[last].mean() - served.queued_s[middle].mean())
    apart_s = float(served.arrival_s[last].mean() - served.arrival_s[middle].mean())
    if waited_s <= 0.1 * apart_s:
        return None
    return served.requests.size / (served.end_s - float(served.arrival_s.min()))
