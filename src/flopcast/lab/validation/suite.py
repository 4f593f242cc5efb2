"""Suites of measured runs in the catalogue, each with the job that reproduces it.

Answers: what was measured by whom, by which protocol is it compared, and which FLOP formula did a source
divide by the step time?
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
    """Mean time of one component in the best step, on one kind of stage.

    `component` is the profiler's name; profiler_components.py states what it includes.
    """

    component: str
    stage: Literal["first", "middle", "last"]
    measured_s: float = Field(gt=0)


class MeasuredRun(StrictModel):
    """The facts that a source prints about one run; other fields stay empty.

    A source states seconds, or a rate and its formula (`step_time_of_rate`).
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
    """One run: the job that reproduces it, and its measurements.

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

    `cross_fit_host`: the host's cost on one system is fitted to the rows of the other systems.
    `leave_out_jitter`: the jitter of a row's cluster is the mean over the other rows of that cluster.
    `published_as`: the source under which a table of published runs contains the same rows, if any.
    `fitted` states what was fitted to these rows, `peers` the errors of other models on them, and
    `remarks` why some errors are large.
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
    """Return the seconds of a step from its FLOP/s per device and its FLOP formula.

    A rate is a number of FLOP divided by a time. Papers count FLOP differently (with recompute or not,
    full or causal attention, with the head or not). With the wrong formula, the time is wrong by up to a
    third. The measured quantity is the time, so the formula of the source is used to recover it.

    References
    ----------
    Narayanan et al., SC21, arXiv:2104.04473, equation 3.
    """
    return FORMULAS[formula](job) / (job.cluster.num_devices * device_flop_per_s)
