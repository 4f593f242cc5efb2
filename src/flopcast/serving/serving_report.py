"""The report of serving: latencies, rates, memory, cost, limits, and their intervals.

Answers: which numbers does the report of a serving job contain?
Elsewhere: their computation (serve.py), their text (render/serving_text.py).
"""

import math
from collections.abc import Mapping

from flopcast.cost.factors import NINETY_PERCENT, Factor
from flopcast.cost.item_prices import Used
from flopcast.records import Record
from flopcast.serving.chances import Chances
from flopcast.serving.memory import ServingMemory
from flopcast.serving.output_mixture import OutputMixture
from flopcast.serving.pools import Pools
from flopcast.serving.served import Served
from flopcast.serving.summary import Objective, ServingSummary
from flopcast.spec.serving_job import ServingJob
from flopcast.units import Number


class Estimate(Record):
    """A number with its 90 % interval.

    Intervals of times and rates are those of a log-normal distribution (`log_normal`), so that they are not
    symmetric: the upper half is wider.
    """

    value: Number
    low: Number
    high: Number

    @classmethod
    def log_normal(cls, value: Number, log_sigma_factor: Number) -> "Estimate":
        """Return a log-normal number with its interval.

        >>> Estimate.log_normal(2.0, 0.0).high
        2.0
        """
        ratio = math.exp(NINETY_PERCENT * log_sigma_factor)
        return cls(value=value, low=value / ratio, high=value * ratio)

    def times(self, ratio: Number) -> "Estimate":
        """Return the estimate in another unit."""
        return Estimate(value=self.value * ratio, low=self.low * ratio, high=self.high * ratio)


class ServingReport(Record, eq=False):
    """The prediction of a serving job.

    Latencies are in seconds. Their keys are the metric (ttft, tpot, end_to_end, inter_token) and the
    statistic ("mean", "p50", "p90", "p99"). Rates are sums over all replicas. `served` and `summary`
    describe one replica. `shares` states the fraction of a mean iteration that each component takes.
    `log_sigma_factor` is the standard deviation of the logarithm of the iteration time. The intervals are
    computed from it. In a deployment with separate prefill instances, memory, shares and iterations are
    those of the decode instances.
    """

    job: ServingJob
    served: Served
    summary: ServingSummary
    chances: Chances | None  # that objectives are met; None without any
    memory: ServingMemory
    latencies: Mapping[str, Mapping[str, Estimate]]
    output_tokens_per_s: Estimate
    requests_per_s: Estimate
    goodput_per_s: Estimate | None  # requests per second that keep the objectives; None without any
    usd_per_million_tokens: Estimate | None  # of output; None without a price
    device_power_w: Estimate | None  # mean over time of one device; None without a board power
    joules_per_token: Estimate | None  # of output, of all devices alone
    kwh_per_million_tokens: Estimate | None  # of output: nodes, cooling and conversion of power included
    shares: Mapping[str, float]
    experts_s: float  # of a mean iteration: kernels of experts that a ratio of the engine scales, at 1
    decode_kernels: Number  # of a mean iteration: those that overlap
    iteration_s: float  # mean over all iterations
    decoding: Number  # mean number of decoding sequences over time
    saturation_per_s: float | None  # largest rate that can be served, where more arrive
    limited_by: str
    stable_if_slower: bool  # whether passes at the slow end of their interval keep up with the arrivals
    log_sigma_factor: float
    factors: Mapping[str, Factor]
    factor_shares: Mapping[str, float]  # of the time of iterations
    used: tuple[Used, ...]
    pools: Pools | None = None  # if prompts and decoding have separate instances
    mixture: OutputMixture | None = None  # where outputs are a histogram of several lengths

    @property
    def spreads(self) -> list[tuple[str, Number, Number]]:
        """Return the factors that make an iteration's time uncertain, the most important one first.

        Each has its name, its share of the time, and the half-width of the 90 % interval that it causes.
        """
        found = (
            (name, share, NINETY_PERCENT * share * self.factors[name].log_sigma_factor)
            for name, share in self.factor_shares.items()
            if name in self.factors
        )
        return sorted((each for each in found if each[2] > 0), key=lambda each: -each[2])

    @property
    def meets_slo(self) -> bool | None:
        """Return whether each latency limit is met at its percentile; None without limits."""
        objectives = self.summary.objectives
        return all(each.kept for each in objectives) if objectives else None

    @property
    def slo_chance(self) -> Number | None:
        """Return the probability that all latency limits are met; None without limits."""
        return None if self.chances is None else self.chances.every

    @property
    def limits(self) -> list[tuple[Objective, Estimate, Number]]:
        """Return each latency limit, the predicted latency, and the probability that the limit is met."""
        chances = () if self.chances is None else self.chances.each
        return [
            (one, self.latencies[one.metric][f"p{one.percentile:g}"], chance)
            for one, chance in zip(self.summary.objectives, chances, strict=True)
        ]
