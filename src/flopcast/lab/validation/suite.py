"""Suites: measured runs that stand in the catalogue, each with the job that reproduces it.

Answers: what was measured, by whom, under which protocol is it compared, and which FLOP formula did a
source divide by the step time?
Elsewhere: reading suite files (lab/published/suite_files.py), predicting and comparing (compare.py).
"""

from collections.abc import Callable, Mapping
from typing import Literal

from pydantic import Field, model_validator

from flopcast.report.flop_conventions import CONVENTIONS, equation_3
from flopcast.spec.job import Job
from flopcast.strict_model import StrictModel

Formula = Literal["megatron-2021", "megatron-core"]
FORMULAS: Mapping[Formula, Callable[[Job], float]] = {
    # `F = 96 B s l h² (1 + s / 6h + V / 16 l h)` of SC21: four passes, so recompute is included. Attention
    # is full, the head that of the published vocabulary; logs count the padded one.
    "megatron-2021": lambda job: equation_3(job, 4.0, job.model.vocabulary),
    "megatron-core": CONVENTIONS["megatron-core"].flop,  # model FLOP: full attention, no recompute
}


class MeasuredComponent(StrictModel):
    """Mean time of one component inside the best step, on one kind of stage.

    `component` is the profiler's name; profiler_components.py says what it covers.
    """

    component: str
    stage: Literal["first", "middle", "last"]
    measured_s: float = Field(gt=0)


class MeasuredRun(StrictModel):
    """The facts that a source prints about one run; other fields stay empty.

    A source gives seconds, or a rate and the formula behind it (`step_time_of_rate`).
    """

    step_time_s: float | None = Field(default=None, gt=0)
    best_step_time_s: float | None = Field(default=None, gt=0)
    mean_step_time_s: float | None = Field(default=None, gt=0)
    tflops_per_device: int | float | None = Field(default=None, gt=0)
    flop_formula: Formula | None = None
    resident_bytes: float | None = Field(
        default=None, gt=0, description="allocated between steps, first stage"
    )
    allocated_bytes: float | None = Field(default=None, gt=0, description="peak, first stage")

    @model_validator(mode="after")
    def _a_rate_needs_its_formula(self) -> "MeasuredRun":
        if (self.tflops_per_device is None) != (self.flop_formula is None):
            raise ValueError("tflops_per_device and flop_formula together, or neither")
        return self


class SuiteRow(StrictModel):
    """One run: the job that reproduces it, and what was measured.

    `assumptions` are values of the job that the source does not state; they are printed with the row.
    """

    id: str
    system: str
    job: Job
    measured: MeasuredRun
    update_skipped: bool = Field(
        default=False,
        description="the fastest step skipped its optimizer update, because gradients overflowed",
    )
    components: tuple[MeasuredComponent, ...] = ()
    assumptions: tuple[str, ...] = ()


class Suite(StrictModel):
    """Rows of one source and the protocol by which they are scored.

    `cross_fit_host`: the host's cost on one system is fitted on the rows of the others. `leave_out_jitter`:
    the jitter of a row's cluster is the mean over the other rows of that cluster. `published_as`: the
    source under which a table of published runs holds the same rows, if one does. `fitted` states what was
    fitted on these rows, `peers` the errors of other models on them, and `remarks` why some errors are
    large.
    """

    name: str
    source: str
    fitted: str
    published_as: str = ""
    peers: str = ""
    remarks: tuple[str, ...] = ()
    cross_fit_host: bool = False
    leave_out_jitter: bool = False
    rows: tuple[SuiteRow, ...] = Field(min_length=1)


def step_time_of_rate(job: Job, device_flop_per_s: float, formula: Formula = "megatron-2021") -> float:
    """Return the seconds of a step, given its FLOP/s per device and the formula of its FLOP count.

    A rate is a FLOP count over a time; papers differ in the count (recompute or not, full or causal
    attention, head or not), and a rate read by another's formula is wrong by up to a third. What was
    measured is the time, so it is recovered by the source's own formula.

    References
    ----------
    Narayanan et al., SC21, arXiv:2104.04473, equation 3.
    """
    return FORMULAS[formula](job) / (job.cluster.num_devices * device_flop_per_s)
