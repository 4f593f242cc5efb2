"""The numbers of a report with their intervals, computed from simulations of a replica.

Answers: which latencies, rates and costs do all replicas together have, and how uncertain are they?
Elsewhere: one simulation (scheduler.py), its latencies and rates (summary.py), the report
(serving_report.py).
"""

import math
from collections.abc import Callable, Mapping
from functools import partial
from operator import attrgetter

from flopcast.cost.factors import NINETY_PERCENT
from flopcast.dtypes import Integers
from flopcast.economics.step import KWH_J
from flopcast.serving.chances import chances_of
from flopcast.serving.memory import ServingMemory
from flopcast.serving.percentiles import Spread
from flopcast.serving.pools import Pools
from flopcast.serving.power import MeanPower
from flopcast.serving.served import ARRIVALS, CONCURRENCY, KV, LIMITED_BY, MAX_SEQUENCES, Served
from flopcast.serving.serving_report import Estimate, ServingReport
from flopcast.serving.summary import ServingSummary, summarise
from flopcast.serving.time_shares import TimeShares
from flopcast.spec.serving_job import ServingJob
from flopcast.spec.traffic import SLO_METRICS, Percentile, Traffic

PERCENTILES = (50.0, 90.0, 99.0)
TTFT = "ttft"
TINY = 1e-12
INTER_TOKEN = "inter_token"  # single times between tokens, where TPOT is the mean of a request
# by how many standard deviations passes are slower than predicted: 0, and both ends of the 90 % interval
Plays = Mapping[float, Served]


def report_of(
    job: ServingJob,
    memory: ServingMemory,
    plays: Plays,
    shares: TimeShares,
    saturation_per_s: float | None,
    power: MeanPower | None,
    leave_out_share: float,
    pools: Pools | None = None,
) -> ServingReport:
    """Return the report of all replicas. Only one replica was simulated.

    Parameters
    ----------
    memory, shares : those of the instances that decode
    saturation_per_s : largest number of requests that one replica serves in a second, if more arrive
    power : power of a mean device; None if its data sheet states no power
    """
    found = {place: summarise(play, job.slo, leave_out_share) for place, play in plays.items()}
    replicas, table, certainty = job.busy_engines, plays[0.0].iterations, shares.certainty

    def estimate(number: Callable[[ServingSummary], float]) -> Estimate:
        values = [number(each) for each in found.values()]
        return Estimate(value=number(found[0.0]), low=min(values), high=max(values))

    lengths = plays[0.0].requests.output_tokens
    drawn = _drawn_sigmas(job.traffic, lengths) if found[0.0].stable else (0.0, 0.0)
    tokens_per_s = _wider(estimate(lambda each: each.output_tokens_per_s * replicas), drawn[1])
    requests_per_s = _wider(estimate(lambda each: each.requests_per_s * replicas), drawn[0])
    chances = chances_of(found, job.engine.iteration)
    device_w = None if power is None else Estimate.log_normal(power.device_w, power.log_sigma_factor)
    return ServingReport(
        job=job,
        served=plays[0.0],
        summary=found[0.0],
        chances=chances,
        memory=memory,
        latencies=_latencies(job, estimate),
        output_tokens_per_s=tokens_per_s,
        requests_per_s=requests_per_s,
        goodput_per_s=estimate(lambda each: each.goodput_per_s * replicas) if chances else None,
        usd_per_million_tokens=_cost(job, tokens_per_s),
        device_power_w=device_w,
        joules_per_token=_joules(device_w, tokens_per_s, job.devices),
        kwh_per_million_tokens=_building(job, device_w, tokens_per_s),
        shares=shares.shares,
        experts_s=shares.experts_s,
        decode_kernels=shares.decode_kernels,
        iteration_s=float(table.elapsed_s.sum() / max(table.passes.sum(), 1.0)),
        decoding=float((table.decoding * table.elapsed_s).sum() / table.elapsed_s.sum()),
        saturation_per_s=None if saturation_per_s is None else saturation_per_s * replicas,
        limited_by=_limited_by(job, memory, found[0.0]),
        stable_if_slower=found[NINETY_PERCENT].stable,
        log_sigma_factor=certainty.log_sigma_factor,
        factors=certainty.factors,
        factor_shares=certainty.shares,
        used=shares.used,
        pools=pools,
    )


def _drawn_sigmas(traffic: Traffic, lengths: Integers) -> tuple[float, float]:
    """Return the sigmas of the logarithms of the requests/s and of the tokens/s of random requests.

    A measured run draws other arrivals and other lengths than the simulation. The relative variance of a
    mean of n independent numbers is that of one number divided by n. Traffic without a stated number of
    requests has no such uncertainty, because its rates are those of a long time.

    Parameters
    ----------
    lengths : output tokens of the simulated requests, (requests,)
    """
    if traffic.rate_per_s is None or traffic.requests is None or traffic.trace is not None:
        return 0.0, 0.0
    gaps = {"poisson": 1.0, "constant": 0.0, "gamma": 1.0 / traffic.burstiness}[traffic.arrivals]
    tokens = gaps + float(lengths.var() / lengths.mean() ** 2)
    drawn = 1.0 / traffic.requests + 1.0 / lengths.size  # of the measured and of the simulated requests
    return math.sqrt(gaps * drawn), math.sqrt(tokens * drawn)


def _limited_by(job: ServingJob, memory: ServingMemory, found: ServingSummary) -> str:
    """Return what limits the engine most of the time: "concurrency" if it keeps up with a closed loop.

    If the cache holds fewer sequences than a pass may have, the limit of sequences is that of the cache.
    """
    shares = dict(found.limited_by)
    if memory.most_sequences < job.most_sequences:
        shares[LIMITED_BY[KV]] += shares.pop(LIMITED_BY[MAX_SEQUENCES])
    word = max(shares, key=lambda word: shares[word])
    closed = word == LIMITED_BY[ARRIVALS] and job.traffic.concurrency is not None
    return CONCURRENCY if closed else word


def _latencies(
    job: ServingJob, estimate: Callable[[Callable[[ServingSummary], float]], Estimate]
) -> dict[str, dict[str, Estimate]]:
    """Return the mean and the same percentiles of each latency, those of all objectives among them."""
    found = {}
    stated = {getattr(job.slo, f"{metric}_percentile", PERCENTILES[0]) for metric in SLO_METRICS}
    beyond = job.engine.iteration.request_log_sigma_factor
    for metric in (*SLO_METRICS, INTER_TOKEN):
        spread = attrgetter(metric)
        found[metric] = {"mean": estimate(attrgetter(f"{metric}.mean_s"))} | {
            f"p{percentile:g}": estimate(partial(_at, spread, percentile))
            for percentile in sorted({*PERCENTILES, *stated})
        }
        if metric == TTFT:
            found[metric] = {name: _wider(each, beyond) for name, each in found[metric].items()}
    return found


def _wider(estimate: Estimate, log_sigma_factor: float) -> Estimate:
    """Return an estimate whose interval has another uncertainty in addition to its own, in quadrature."""
    more = NINETY_PERCENT * log_sigma_factor
    low, high = (
        math.exp(math.hypot(math.log(max(ratio, 1.0)), more))
        for ratio in (estimate.value / max(estimate.low, TINY), estimate.high / max(estimate.value, TINY))
    )
    return Estimate(value=estimate.value, low=estimate.value / low, high=estimate.value * high)


def _at(spread: Callable[[ServingSummary], Spread], percentile: Percentile, found: ServingSummary) -> float:
    return spread(found).at_s(percentile)


def _joules(device_w: Estimate | None, tokens_per_s: Estimate, devices: int) -> Estimate | None:
    """Return the joules of all devices for an output token; None without watts or without output.

    Watts and rates are uncertain independently of each other.
    """
    if device_w is None or tokens_per_s.low <= 0:
        return None
    sigmas = (math.log(each.high / each.low) / 2.0 / NINETY_PERCENT for each in (device_w, tokens_per_s))
    return Estimate.log_normal(devices * device_w.value / tokens_per_s.value, math.hypot(*sigmas))


def _building(job: ServingJob, device_w: Estimate | None, tokens_per_s: Estimate) -> Estimate | None:
    """Return the kilowatt-hours of a million output tokens: nodes, cooling and conversion included."""
    cluster = job.cluster
    beside_w = cluster.facility.node_overhead_fraction * (cluster.node.device.board_power_w or 0.0)
    if device_w is None:
        return None
    whole_w = Estimate(
        value=device_w.value + beside_w, low=device_w.low + beside_w, high=device_w.high + beside_w
    )
    found = _joules(whole_w, tokens_per_s, job.devices)
    ratio = cluster.facility.power_usage_effectiveness_ratio
    return None if found is None else found.times(ratio * 1e6 / KWH_J)


def _cost(job: ServingJob, tokens_per_s: Estimate) -> Estimate | None:
    """Return dollars for a million output tokens; None without a price or without output."""
    price = job.cluster.price
    if price is None or tokens_per_s.low <= 0:
        return None
    usd_per_s = price.device_usd_per_hour * job.devices / 3600.0
    return Estimate(
        value=1e6 * usd_per_s / tokens_per_s.value,
        low=1e6 * usd_per_s / tokens_per_s.high,
        high=1e6 * usd_per_s / tokens_per_s.low,
    )
