"""Many predictions, which reuse intermediate results of earlier ones.

Answers: which results does a program keep that predicts one job after another?
Elsewhere: a single prediction (prediction.py).
"""

from flopcast import prediction
from flopcast.argument_checks import check_job
from flopcast.cost.kernels.curve_book import CurveBook
from flopcast.kept_results import KeptResults
from flopcast.library.curves import load_book
from flopcast.report.memory_report import MemoryReport, memory_report
from flopcast.report.report import Report
from flopcast.spec.job import Job

MOST_REPORTS, MOST_BOOKS = 64, 16


class Predictor:
    """Predicts jobs, and reuses intermediate results for several jobs.

    A predictor stores recent reports, curves and intermediate results, such as the operators of layers, the
    memory of plans, and the times of kernels, layers and programs. The key of each result contains
    everything that the result depends on, so that earlier predictions never change later ones.

    Parameters
    ----------
    most_results : int
        The predictor stores at most twice this number of results: the newest ones, and older ones that were
        reused. The default number takes about 120 MB of memory. Threads may share a predictor. If two
        threads need a result at the same time, both compute it.

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

    def __init__(self, most_results: int = 16_384) -> None:
        """Hold nothing yet."""
        self.results: KeptResults = KeptResults(most_results)
        self._reports = KeptResults(MOST_REPORTS)
        self._books = KeptResults(MOST_BOOKS)

    def predict(self, job: Job) -> Report:
        """Predict one training step with the curves of the catalogue.

        Raises
        ------
        SpecError
            The value is not a training job, or its settings contradict each other or are not supported.
        """
        check_job(job)
        return self._reports.of(job, lambda: prediction.predict(job, self.book(job), self.results))

    def memory(self, job: Job) -> MemoryReport:
        """Return the memory of the job on each device, as `predict_memory` does.

        Raises
        ------
        SpecError
            In the same cases as `predict`.
        """
        check_job(job)
        return memory_report(prediction.programs_of(job, self.results), job.cluster, self.results)

    def book(self, job: Job) -> CurveBook:
        """Return the efficiency curves of the job's devices and networks."""
        return self._books.of(job.cluster, lambda: load_book(job.cluster))
