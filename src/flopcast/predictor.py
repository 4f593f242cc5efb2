"""Many predictions: what earlier ones worked out is used again.

Answers: what does a program hold that predicts one job after another?
Elsewhere: one prediction, without memory of others (prediction.py).
"""

from flopcast import prediction
from flopcast.cost.kernels.curve_book import CurveBook
from flopcast.kept_results import KeptResults
from flopcast.library.curves import load_book
from flopcast.report.memory_report import MemoryReport, memory_report
from flopcast.report.report import Report
from flopcast.spec.job import Job

MOST_REPORTS, MOST_BOOKS = 64, 16


class Predictor:
    """Predicts jobs, and keeps what later ones may have in common with them.

    It holds the last reports by job, the curves of the last clusters, and the last `most_results` results
    of these kinds, each by all that it depends on: what a layer runs (by layer, split and software), the
    programs and the memory of a plan (by model, plan, batch and software), the times of kernels before any
    factor scales them (by their work, the device and its curve), the price of an item (by its work, its
    ranks, the cluster, the site and the curves), the time of a layer (by its prices), and that of a program
    (by its layers and how often each repeats). Numbers are those of `predict`; earlier predictions do not
    change them.

    Parameters
    ----------
    most_results : int
        The predictor holds at most twice this number of results: the newest, and older ones that were used
        since. The default takes about 50 MB. Threads may share a predictor; if two need the same result at
        once, both compute it.

    Examples
    --------
    >>> from flopcast.requests.job_files import load_catalog_job
    >>> job = load_catalog_job("paper/llemma-7b-vista-pp4-tp2-dp2")
    >>> plan = job.plan.model_copy(update={"global_batch": 2 * job.plan.global_batch})
    >>> larger = job.model_copy(update={"plan": plan})
    >>> predictor = Predictor()
    >>> predictor.predict(job).step_time_s < predictor.predict(larger).step_time_s
    True
    """

    def __init__(self, most_results: int = 4096) -> None:
        """Hold nothing yet."""
        self.results: KeptResults = KeptResults(most_results)
        self._reports = KeptResults(MOST_REPORTS)
        self._books = KeptResults(MOST_BOOKS)

    def predict(self, job: Job) -> Report:
        """Predict one training step with the curves of the catalogue.

        Raises
        ------
        SpecError
            The job contradicts itself, or asks for what is not supported.
        """
        return self._reports.of(job, lambda: prediction.predict(job, self.book(job), self.results))

    def memory(self, job: Job) -> MemoryReport:
        """Return what the job keeps on each device, as `predict_memory` does.

        Raises
        ------
        SpecError
            As `predict`.
        """
        return memory_report(prediction.programs_of(job, self.results), job.cluster)

    def book(self, job: Job) -> CurveBook:
        """Return the curves of a job's cluster."""
        return self._books.of(job.cluster, lambda: load_book(job.cluster))
