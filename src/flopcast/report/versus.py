"""Comparison of two predictions, with the interval of their difference.

Answers: which of two jobs is faster, by how much, and how certain is the order?
Elsewhere: the interval of a ratio (timeline/uncertainty.py).

Steps of different batches are not comparable, so jobs are compared by seconds, dollars and joules per
token. Uncertain factors of both jobs (the level of a device's kernels, a fabric) cancel in the ratio, which
is therefore more certain than either prediction. If the interval of a ratio contains 1, the order is
uncertain.
"""

import math

from flopcast.economics.amount import Amount
from flopcast.records import Record
from flopcast.report.report import Report
from flopcast.report.summary import Summarised, Summary
from flopcast.timeline.uncertainty import difference, holds_one, own_log_sigma_factor
from flopcast.units import show, show_usd


class ReportComparison(Record, Summarised, repr=False):
    """Two reports, and the time per token of the second divided by that of the first, with its 90 %
    interval.

    A ratio of 0.9 means that the second job needs 10 % less time per token. `sure` is True if the interval
    excludes 1, so that the order is certain. The ratios of cost and energy are None if either is unknown.
    `usd_difference` is the cost of the second job minus that of the first: of the whole runs if `of_runs`,
    otherwise of 1e12 tokens.
    """

    first: Report
    second: Report
    time_ratio: float
    low_ratio: float
    high_ratio: float
    usd_ratio: Amount | None = None
    energy_ratio: Amount | None = None
    usd_difference: Amount | None = None
    of_runs: bool = False

    @property
    def sure(self) -> bool:
        """Return whether the interval excludes 1."""
        return not holds_one(self.low_ratio, self.high_ratio)

    def summary(self) -> Summary:
        """Return a summary of both jobs, with the ratio of their time, cost and energy per token."""
        from flopcast.render.page.table import Cell, rate, seconds, share, size

        both = (self.first, self.second)
        rows: list[tuple[Cell, ...]] = [
            ("plan", *(one.job.plan.short() for one in both), ""),
            ("step", *(seconds(one.step_time_s) for one in both), ""),
            ("rate", *(rate(one.metrics.tokens_per_s, "tokens/s") for one in both), ""),
            ("time per token", "", "", _change(self.time_ratio, self.low_ratio, self.high_ratio)),
            ("MFU", *(share(one.metrics.mfu_ratio) for one in both), ""),
            ("memory", *(size(one.memory.expected_bytes) for one in both), ""),
        ]
        usd, kwh = zip(*((one.cost.many_tokens_usd, one.cost.many_tokens_kwh) for one in both), strict=True)
        costs = [show_usd(one.value) for one in usd if one is not None]
        energies = [show(one.value * 1e3, "Wh") for one in kwh if one is not None]
        for name, change, texts in (
            ("cost", self.usd_ratio, costs),
            ("energy", self.energy_ratio, energies),
        ):
            if change is not None:
                rows.append((f"{name} of 1e12 tokens", *texts, _change(change.value, *change.bounds)))
        caption = " and ".join(f"{one.job.model.name} on {one.job.cluster.name}" for one in both)
        headings = ("of", "first", "second", "second against first")
        return Summary(caption=caption, headings=headings, rows=rows)


def _change(ratio: float, low_ratio: float, high_ratio: float) -> str:
    """Return a ratio and its interval as changes in percent, and whether the order is settled."""
    text = f"{ratio - 1:+.1%}, 90 %: {low_ratio - 1:+.1%} to {high_ratio - 1:+.1%}"
    return f"{text}; the order is uncertain" if holds_one(low_ratio, high_ratio) else text


def versus(first: Report, second: Report) -> ReportComparison:
    """Compare two reports, of any models and clusters.

    Examples
    --------
    >>> from flopcast.api import predict
    >>> from flopcast.requests.job_files import load_catalog_job
    >>> report = predict(load_catalog_job("paper/llemma-7b-vista-pp4-tp2-dp2"))
    >>> same = versus(report, report)
    >>> same.time_ratio, same.low_ratio, same.high_ratio, same.sure
    (1.0, 1.0, 1.0, False)
    """
    ratio, low, high = time_ratio(first, second)
    plans_log_sigma_factor = own_log_sigma_factor(first.factors, second.factors)
    run_usd, second_run_usd = (None if one.run is None else one.run.usd for one in (first, second))
    of_runs = run_usd is not None and second_run_usd is not None
    usd, second_usd = (
        (run_usd, second_run_usd) if of_runs else (first.cost.many_tokens_usd, second.cost.many_tokens_usd)
    )
    return ReportComparison(
        first=first,
        second=second,
        time_ratio=ratio,
        low_ratio=low,
        high_ratio=high,
        usd_ratio=_ratio(first.cost.many_tokens_usd, second.cost.many_tokens_usd, plans_log_sigma_factor),
        energy_ratio=_ratio(
            first.cost.many_tokens_kwh, second.cost.many_tokens_kwh, plans_log_sigma_factor
        ),
        usd_difference=_difference(usd, second_usd, plans_log_sigma_factor),
        of_runs=of_runs,
    )


def time_ratio(first: Report, second: Report) -> tuple[float, float, float]:
    """Return the time per token of the second report divided by that of the first, with its 90 %
    interval.
    """
    ratio = first.metrics.tokens_per_s / second.metrics.tokens_per_s
    return ratio, *difference(second.factors, first.factors, math.log(ratio))


def _difference(
    first: Amount | None, second: Amount | None, plans_log_sigma_factor: float
) -> Amount | None:
    """Return the second amount minus the first; shared factors cancel as far as their changes agree."""
    if first is None or second is None:
        return None
    return (second + first * -1.0).hanging_on("plans", plans_log_sigma_factor, second.value)


def _ratio(first: Amount | None, second: Amount | None, plans_log_sigma_factor: float) -> Amount | None:
    """Return the second amount over the first; shared factors cancel as far as their shares agree.

    `plans_log_sigma_factor` is the log sigma of the part of the ratio that no factor explains.
    """
    if first is None or second is None:
        return None
    return (second * first.inverse).hanging_on("plans", plans_log_sigma_factor)


def settled(ratio: Amount) -> bool:
    """Return whether the interval of a ratio excludes 1."""
    return not holds_one(*ratio.bounds)
