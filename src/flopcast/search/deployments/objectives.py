"""Objectives of a search over deployments.

They are estimated for all deployments, and exact for simulated ones.

Answers: by which objectives can deployments be ranked, and in which units?
Elsewhere: the estimates (screen.py), the reports (serving/serving_report.py).

A loss is a number to minimise: device-seconds per token if the user asks for tokens per second and device.
"""

from collections.abc import Callable, Mapping
from operator import attrgetter

from flopcast.errors import InternalError
from flopcast.records import Record
from flopcast.search.deployments.steady import Steady
from flopcast.serving.serving_report import Estimate, ServingReport
from flopcast.spec.operations import HOUR_S
from flopcast.units import Number, show, show_seconds, show_usd


class ServingObjective(Record):
    """One objective.

    Attributes
    ----------
    name, key : str
        Its name in options, and its name in JSON, with the unit.
    label : str
        Its name in tables.
    show : callable
        The value as a text.
    estimate : callable
        Returns the estimated value for all devices of a deployment, given also their dollars per second.
    exact : callable
        Returns the value of a simulated deployment, with its interval.
    inverse : bool
        Whether more of the value is better.
    needs_price : bool
        Whether the price of a device must be known.
    """

    name: str
    key: str
    label: str
    show: Callable[[Number], str]
    estimate: Callable[[Steady, Number, Number], Number]
    exact: Callable[[ServingReport], Estimate]
    inverse: bool = False
    needs_price: bool = False

    def loss(self, value: Number) -> Number:
        """Return the loss of a value, which a search minimises; infinite if nothing is served."""
        if not self.inverse:
            return value
        return 1 / value if value > 0 else float("inf")


def _mean(metric: str, label: str) -> ServingObjective:
    """Return the objective of the mean of a latency."""
    return ServingObjective(
        name=metric,
        key=f"mean_{metric}_s",
        label=f"mean {label}",
        show=show_seconds,
        estimate=lambda steady, *_: getattr(steady, f"{metric}_s"),
        exact=lambda report: report.latencies[metric]["mean"],
    )


def _each(rate: Callable[[ServingReport], Estimate]) -> Callable[[ServingReport], Estimate]:
    """Return a function of a rate per device."""
    return lambda report: rate(report).times(1 / report.job.devices)


def _cost(report: ServingReport) -> Estimate:
    """Return the dollars of a million output tokens."""
    if report.usd_per_million_tokens is None:
        raise InternalError("a deployment without a price is ranked by its cost")
    return report.usd_per_million_tokens


def _goodput(report: ServingReport) -> Estimate:
    """Return the requests of a second that keep the limits, or all where there is none."""
    return report.goodput_per_s or report.requests_per_s


def million_usd(usd_per_hour: Number, tokens_per_s: Number) -> Number:
    """Return dollars for a million tokens.

    >>> million_usd(3.6, 1000.0)
    1.0
    """
    return 1e6 * usd_per_hour / HOUR_S / tokens_per_s if tokens_per_s > 0 else float("inf")


_OBJECTIVES = (
    ServingObjective(
        name="cost",
        key="usd_per_million_output_tokens",
        label="USD/1M output tokens",
        show=show_usd,
        estimate=lambda steady, devices, usd_per_hour: million_usd(
            devices * usd_per_hour, steady.tokens_per_s
        ),
        exact=_cost,
        needs_price=True,
    ),
    ServingObjective(
        name="tokens_per_s_per_device",
        key="output_tokens_per_s_per_device",
        label="tokens/s/device",
        show=lambda value: show(value, "tokens/s"),
        estimate=lambda steady, devices, _: steady.tokens_per_s / devices,
        exact=_each(attrgetter("output_tokens_per_s")),
        inverse=True,
    ),
    ServingObjective(
        name="goodput_per_device",
        key="goodput_requests_per_s_per_device",
        label="goodput/device",
        show=lambda value: show(value, "requests/s"),
        estimate=lambda steady, devices, _: steady.requests_per_s / devices,
        exact=_each(_goodput),
        inverse=True,
    ),
    _mean("ttft", "TTFT"),
    _mean("tpot", "TPOT"),
    _mean("end_to_end", "end to end"),
)
SERVING_OBJECTIVES: Mapping[str, ServingObjective] = {each.name: each for each in _OBJECTIVES}
