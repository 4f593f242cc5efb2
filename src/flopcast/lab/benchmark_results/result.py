"""The result of a benchmark of a running engine, and its comparison with a prediction.

Answers: what did the benchmark measure, which requests did it send, and how far is the prediction off?
Elsewhere: the files that hold results (formats.py), tables of many runs (lab/serving_runs/).
"""

from collections.abc import Mapping

from flopcast.lab.serving_runs.quantities import output_tokens_per_s, requests_per_s
from flopcast.records import Record, field
from flopcast.serving.serving_report import Estimate, ServingReport
from flopcast.units import Number

RATES = {"output_tokens_per_s": output_tokens_per_s, "requests_per_s": requests_per_s}
LATENCIES = ("ttft", "tpot", "end_to_end", "inter_token")


class MeasuredNumber(Record):
    """One number: a latency in seconds with its statistic ("mean", "p99"), or a rate per second."""

    metric: str  # of LATENCIES or RATES
    statistic: str
    value: Number


class BenchmarkResult(Record):
    """The output of a benchmark.

    `traffic` describes the requests that it sent, and `notes` states which of their properties the output
    omits. `model` is the model that the output names, "" if it names none.
    """

    name: str
    program: str
    numbers: tuple[MeasuredNumber, ...]
    traffic: Mapping[str, object] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    model: str = ""


class ComparedNumber(Record):
    """A measured number and its prediction.

    `ratio` is predicted / measured, and `inside` states whether the measured number is in the 90 %
    interval.
    """

    measured: MeasuredNumber
    predicted: Estimate

    @property
    def ratio(self) -> Number:
        """Return the predicted value divided by the measured one."""
        return self.predicted.value / self.measured.value

    @property
    def inside(self) -> bool:
        """Return whether the 90 % interval holds the measured value."""
        return self.predicted.low <= self.measured.value <= self.predicted.high


def compare_with_result(report: ServingReport, result: BenchmarkResult) -> tuple[ComparedNumber, ...]:
    """Return each measured number with its prediction."""
    return tuple(
        ComparedNumber(measured=each, predicted=_predicted(report, each)) for each in result.numbers
    )


def _predicted(report: ServingReport, measured: MeasuredNumber) -> Estimate:
    if measured.metric in RATES:
        return RATES[measured.metric](report)
    latencies = report.latencies[measured.metric]
    if measured.statistic in latencies:
        return latencies[measured.statistic]
    mean = latencies["mean"]  # another percentile is as uncertain as the mean
    value_s = getattr(report.summary, measured.metric).at_s(float(measured.statistic[1:]))
    return mean.times(value_s / mean.value) if mean.value else mean
