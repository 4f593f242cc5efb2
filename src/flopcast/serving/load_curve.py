"""The latency–throughput curve: one deployment under lighter and heavier loads.

Answers: how do latencies grow with the load, and where does the deployment saturate?
Elsewhere: one load (serve.py).
"""

from collections.abc import Iterator

from flopcast.cost.kernels.curve_book import CurveBook
from flopcast.serving.serve import serve
from flopcast.serving.serving_report import ServingReport
from flopcast.spec.serving_job import ServingJob
from flopcast.spec.traffic import LEAST_TURNS
from flopcast.units import Number

PARTS = (0.1, 0.25, 0.4, 0.55, 0.7, 0.8, 0.9)  # of the largest rate that is stable
REQUESTS = 4_000  # of each group of ranks, at each load: requests near saturation stay for long
GROWTH = 4.0  # of the rate, until it is too much
MOST_DOUBLINGS = 14  # of a closed loop


def load_curve(report: ServingReport, book: CurveBook) -> tuple[ServingReport, ...]:
    """Return reports of the job of a report under several loads, from light to heavy.

    Rates range from a tenth of the largest stable rate to almost this rate. A closed loop has 1, 2, 4 and
    more open requests for each group of ranks, up to the limit of the engine. Traffic whose arrivals are
    those of a trace has no curve.
    """
    job = report.job
    if job.traffic.trace is not None:
        return ()
    if job.traffic.concurrency is not None:
        return tuple(_closed(job, book))
    saturation = report.saturation_per_s or _saturation_per_s(job, book)
    return tuple(serve(_at_rate(job, part * saturation), book) for part in PARTS)


def _saturation_per_s(job: ServingJob, book: CurveBook) -> Number:
    """Return the largest stable rate: that which is served when more requests arrive."""
    rate = job.traffic.rate_per_s or 1.0
    while True:
        rate *= GROWTH
        found = serve(_at_rate(job, rate), book).saturation_per_s
        if found is not None:
            return found


def _at_rate(job: ServingJob, rate_per_s: Number) -> ServingJob:
    """Return the job at another rate, with enough requests for its percentiles."""
    update = {"rate_per_s": rate_per_s, "requests": REQUESTS * job.engines}
    return job.model_copy(update={"traffic": job.traffic.model_copy(update=update)})


def _closed(job: ServingJob, book: CurveBook) -> Iterator[ServingReport]:
    """Yield the job at rising concurrency."""
    most = job.plan.max_sequences or job.engine.max_sequences
    for power in range(MOST_DOUBLINGS):
        each = 2**power
        if each > most:
            return
        opened = each * job.replicas * job.plan.data_parallel
        update = {"concurrency": opened, "requests": max(LEAST_TURNS * opened, 64 * job.replicas)}
        traffic = job.traffic.model_copy(update=update)
        yield serve(job.model_copy(update={"traffic": traffic}), book)
