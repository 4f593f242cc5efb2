"""Comparison of the kernels of a traced step with the predicted ones.

Answers: which kinds of kernels take longer than predicted, and how long is the device idle?
Elsewhere: traces (lab/calibration/trace.py), predicted kinds (lab/validation/step_parts.py), timers of a
log (timer_suspects.py).

Predicted seconds belong to the busiest stage.
"""

from collections.abc import Mapping

from flopcast.cost.factors import HOST
from flopcast.lab.calibration.kernel_names import ATTENTION, COMMUNICATION, GEMM, MEMORY
from flopcast.lab.calibration.trace import Trace, busy_seconds_per_step, seconds_per_step
from flopcast.lab.diagnosis.excess import CLOCKS, LEAST_EXCESS, UNSURE, Found, compared, doubt_of, shown_by
from flopcast.lab.diagnosis.suspect import Suspect
from flopcast.lab.validation.step_parts import components
from flopcast.report.report import BUBBLE, Report

ALIKE_RATIO = 1.1  # kernels that are slower by ratios this close have one cause
SLOW_RATIO = 1.05
OF_THE_CORE = (GEMM, ATTENTION)
COMPUTE = (GEMM, ATTENTION, MEMORY)
SEEN = "the trace shows"
MOST_STEPS = 2.0  # of a trace without annotated steps that is one step
OF_TRACES = shown_by("trace")


def traced_suspects(report: Report, trace: Trace) -> Found:
    """Return the parts that take longer than predicted according to a trace, and sentences on the other
    parts.

    If GEMMs and attention are slower by about the same ratio, they form one suspect: the clock. A stage
    that computes less than the busiest stage waits longer for others, as predicted.
    """
    measured, predicted = seconds_per_step(trace), components(report)
    waits_s = report.breakdown.get(BUBBLE, 0.0)  # for other stages, inside of receives
    if report.job.plan.pipeline_parallel > 1:
        waits_s += sum(max(0.0, predicted.get(part, 0.0) - measured.get(part, 0.0)) for part in COMPUTE)
    predicted[COMMUNICATION] = predicted.get(COMMUNICATION, 0.0) + waits_s
    if trace.step_time_s is not None:
        measured[HOST] = max(0.0, trace.step_time_s - busy_seconds_per_step(trace))
    clocks = _clocks(report, measured, predicted)
    if clocks is not None:
        measured = {part: seconds for part, seconds in measured.items() if part not in OF_THE_CORE}
    suspects, cleared = compared(report, measured, predicted, OF_TRACES, SEEN)
    return [*suspects, *([clocks] if clocks is not None else [])], cleared


def _clocks(
    report: Report, measured: Mapping[str, float], predicted: Mapping[str, float]
) -> Suspect | None:
    """Return one suspect for equally slow products and attention, if together by LEAST_EXCESS."""
    if not all(measured.get(part) and predicted.get(part) for part in OF_THE_CORE):
        return None
    ratios = {part: measured[part] / predicted[part] for part in OF_THE_CORE}
    extra_s = sum(measured[part] - predicted[part] for part in OF_THE_CORE)
    alike = max(ratios.values()) < ALIKE_RATIO * min(ratios.values())
    if min(ratios.values()) < SLOW_RATIO or not alike or extra_s < LEAST_EXCESS * report.step_time_s:
        return None
    each = " and ".join(f"{OF_TRACES[part].part} × {ratio:.2f}" for part, ratio in ratios.items())
    doubt_s = sum(predicted[part] for part in OF_THE_CORE) * doubt_of(report)
    return Suspect(
        name="clocks",
        title="GEMMs and attention are slower than predicted by about the same ratio, as if the clocks"
        " were low",
        cost_s=extra_s,
        basis="measured" if extra_s >= doubt_s else "within doubt",
        evidence=(f"{SEEN} {each} of the predicted time",),
        against=() if extra_s >= doubt_s else (UNSURE,),
        change=f"{CLOCKS}, and with clocks and power of a device that is not slow",
    )


def is_one_step(trace: Trace, step_s: float) -> bool:
    """Return whether a trace has annotated steps, or is perhaps a single step of about `step_s`."""
    return trace.step_time_s is not None or trace.span_s < MOST_STEPS * step_s
