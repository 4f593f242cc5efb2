"""What a prediction of serving says: latencies, rates, memory, cost, limits, and how sure they are.

Answers: which numbers come out for a serving job?
Elsewhere: how they are found (serve.py), how they look (render/serving_text.py).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from flopcast.cost.factors import Factor
from flopcast.cost.item_prices import Used
from flopcast.serving.memory import ServingMemory
from flopcast.serving.served import Served
from flopcast.spec.serving_job import ServingJob


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """A number with the interval that holds it in nine of ten cases."""

    value: float
    low: float
    high: float

    def times(self, ratio: float) -> "Estimate":
        """Return the estimate in another unit."""
        return Estimate(value=self.value * ratio, low=self.low * ratio, high=self.high * ratio)


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class ServingReport:
    """The prediction of a serving job.

    Latencies are in seconds, by metric and name: "mean", "p50", "p90", "p99". Rates are those of all
    replicas while requests arrive or are served. `shares` divides the time of iterations by component, and
    sums to 1. `stretched_log_sigma` is the sigma of the logarithm of an iteration's time, which the
    intervals follow from.
    """

    job: ServingJob
    served: Served
    memory: ServingMemory
    latencies: Mapping[str, Mapping[str, Estimate]]
    output_tokens_per_s: Estimate
    requests_per_s: Estimate
    goodput_per_s: Estimate | None  # requests per second that keep the objectives; None without any
    usd_per_million_tokens: Estimate | None  # of output; None without a price
    shares: Mapping[str, float]
    iteration_s: float  # mean over all iterations
    decoding: float  # mean number of decoding sequences over time
    cache_share: float  # mean share of the KV blocks in use
    saturated: bool  # requests arrive faster than they are served
    saturation_per_s: float | None  # largest rate that can be served, where saturated
    limited_by: str
    stretched_log_sigma: float
    factors: Mapping[str, Factor]
    factor_shares: Mapping[str, float]  # of the time of iterations
    used: tuple[Used, ...]

    @property
    def meets_slo(self) -> bool | None:
        """Return whether every objective is kept at its percentile; None without objectives."""
        slo = self.job.slo
        kept = [
            self.latencies[metric][f"p{getattr(slo, f'{metric}_percentile'):g}"].value <= limit_s
            for metric in self.latencies
            if (limit_s := getattr(slo, f"{metric}_s")) is not None
        ]
        return all(kept) if kept else None
