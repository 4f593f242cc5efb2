"""Suites: measured runs that stand in the catalogue, each with the job that reproduces it.

Answers: what was measured, by whom, under which protocol is it compared?
Elsewhere: reading suite files (lab/published/suite_files.py), predicting and comparing (compare.py).
"""

from typing import Literal

from pydantic import Field, model_validator

from flopcast.lab.validation.conventions import Formula
from flopcast.spec.job import Job
from flopcast.strict_model import StrictModel


class MeasuredComponent(StrictModel):
    """Mean time of one component inside the best step, on one kind of stage.

    `component` is the profiler's name; profiler_components.py says what it covers.
    """

    component: str
    stage: Literal["first", "middle", "last"]
    measured_s: float = Field(gt=0)


class MeasuredRun(StrictModel):
    """The facts that a source prints about one run; other fields stay empty.

    A source gives seconds, or a rate and the formula behind it (conventions.py).
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

    `assumptions` are what the source leaves open and the job decides; they are printed with the row.
    """

    id: str
    system: str
    job: Job
    measured: MeasuredRun
    update_skipped: bool = Field(
        default=False, description="the best step made no update: its gradients overflowed"
    )
    components: tuple[MeasuredComponent, ...] = ()
    assumptions: tuple[str, ...] = ()


class Suite(StrictModel):
    """Rows of one source and the protocol by which they are judged.

    `cross_fit_host`: the host's cost on one system is fitted on the rows of the others.
    `leave_out_jitter`: the jitter of a row's cluster is the mean over the other rows of that cluster.
    `published_as`: the source under which a table of published runs holds the same rows, if one does.
    `fitted` says what was fitted on these very rows, `peers` what other models reach on them, `remarks` why
    some of them are far off.
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
