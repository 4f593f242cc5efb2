"""One plan on fewer and on more devices, with everything else unchanged.

Answers: how fast is a plan with more data-parallel replicas, with the same batch and with a larger batch?
Elsewhere: the best plan of each size (find.py), the drawing of the curve (render/page/scaling.py).
"""

from flopcast.cost.kernels.curve_book import CurveBook
from flopcast.errors import SpecError
from flopcast.kept_results import NOTHING_KEPT, KeptResults
from flopcast.prediction import predict
from flopcast.records import Record
from flopcast.report.report import Report
from flopcast.search.cluster_sizes import sized
from flopcast.spec.job import Job

RATIOS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)  # of the devices
MOST_TASKS = 40_000  # of a pipeline that is played for one mark of a drawing


KEPT, GROWN = "same global batch", "batch grows with the devices"


class ScaledStep(Record):
    """The step of a plan on some number of devices.

    `batch` is KEPT or GROWN; `fits` states whether the fullest stage fits. `many_usd` is the cost of 1e12
    tokens in dollars; None if no price is known.
    """

    batch: str
    num_devices: int
    global_batch: int
    step_time_s: float
    tokens_per_s: float
    mfu_ratio: float
    fits: bool
    many_usd: float | None


def scaled(report: Report, book: CurveBook, kept: KeptResults = NOTHING_KEPT) -> tuple[ScaledStep, ...]:
    """Return the report's plan with other numbers of replicas.

    Parameters
    ----------
    book : curves of the job's cluster, which apply to every size of the cluster
    kept : layers and prices of earlier predictions

    Returns
    -------
    tuple of ScaledStep
        Steps with the same batch (KEPT), which the replicas divide, and with a batch that grows with the
        devices (GROWN), so that the work of a replica stays the same. They are sorted by the number of
        devices. Numbers that do not give whole replicas, nodes and micro-batches are left out, and so are
        pipelines of more than MOST_TASKS tasks.
    """
    job = report.job
    found = {_of(KEPT, report), _of(GROWN, report)}
    for ratio in RATIOS:
        for batch in (KEPT, GROWN):
            other = _sized(job, ratio, grows=batch == GROWN)
            if other is not None and ratio != 1.0:
                found |= _predicted(batch, other, book, kept)
    return tuple(sorted(found, key=lambda one: (one.num_devices, one.batch)))


def _sized(job: Job, ratio: float, *, grows: bool) -> Job | None:
    """Return the job on a multiple of the devices; None if replicas, nodes or batch do not divide."""
    plan = job.plan
    devices = job.cluster.num_devices * ratio
    replicas, sequences = plan.data_parallel * ratio, plan.global_batch * (ratio if grows else 1.0)
    per_node = job.cluster.node.devices
    whole = devices % per_node == 0 or devices < per_node
    if not (replicas >= 1 and replicas.is_integer() and devices.is_integer() and whole):
        return None
    if sequences % (replicas * plan.micro_batch) or job.batch.listed or len(job.cluster.groups) > 1:
        return None
    changed = plan.model_copy(update={"data_parallel": int(replicas), "global_batch": int(sequences)})
    if 2 * changed.num_micro_batches * plan.pipeline_parallel * plan.virtual_stages > MOST_TASKS:
        return None
    return job.model_copy(update={"plan": changed, "cluster": sized(job.cluster, int(devices))})


def _predicted(batch: str, job: Job, book: CurveBook, kept: KeptResults) -> set[ScaledStep]:
    try:
        return {_of(batch, predict(job, book, kept))}
    except SpecError:
        return set()


def _of(batch: str, report: Report) -> ScaledStep:
    cost = report.cost
    return ScaledStep(
        batch=batch,
        num_devices=report.job.cluster.num_devices,
        global_batch=report.job.plan.global_batch,
        step_time_s=report.step_time_s,
        tokens_per_s=report.metrics.tokens_per_s,
        mfu_ratio=report.metrics.mfu_ratio,
        fits=report.memory.fits,
        many_usd=None if cost.step_usd is None else cost.per_many_tokens(cost.step_usd).value,
    )
