"""Diagnosis of an error: the factor that is most likely wrong, and the main component of the step.

Answers: which single factor would make the prediction right, and how much longer or shorter would it have
to be?
Elsewhere: factors and their effect on the step (timeline/uncertainty.py). The diagnosis is a first guess
from the prediction's own factors: it cannot find effects that no factor describes.
"""

import math

from flopcast.records import Record
from flopcast.report.labels import component_label
from flopcast.report.report import Report
from flopcast.spec.factor_kinds import kind_of
from flopcast.timeline.uncertainty import log_sigmas


class Diagnosis(Record):
    """The first suspect of one row.

    `factor` has the largest product of step share and sigma; `share` and `log_sigma_factor` belong to this
    factor. `needed_ratio` is the ratio by which the factor would have to change for the step to equal the
    measurement, with all else unchanged; it is None if no ratio makes the step short enough. `component` is
    the largest component of the step time. `surprise_ratio` is the error divided by one standard deviation
    of the prediction, positive if the prediction is too slow. `extrapolated` lists curves that were used
    outside of their measured range.
    """

    factor: str
    share: float
    log_sigma_factor: float
    needed_ratio: float | None
    component: str
    component_share: float
    surprise_ratio: float
    extrapolated: tuple[str, ...]

    def phrase(self) -> str:
        """Return the suspect in one line."""
        enough = (
            f"The prediction would be right if this factor were {self.needed_ratio:.2f} times as large."
            if self.needed_ratio is not None
            else "This factor alone cannot explain the error."
        )
        return (
            f'the factor "{kind_of(self.factor).label}" ({self.factor}) affects {self.share:.0%} of the'
            f" step, and its uncertainty is {self.log_sigma_factor:.0%}. {enough}"
            f" The error is {self.surprise_ratio:+.1f} standard deviations of the prediction. The largest"
            f" component is {component_label(self.component)} ({self.component_share:.0%} of the step)"
        )


def first_suspect(report: Report, measured_step_time_s: float) -> Diagnosis:
    """Return the first suspect of a prediction's error.

    Parameters
    ----------
    report : Report
        Its factors are sorted by share times sigma; "unexplained" factors are skipped.
    measured_step_time_s : float

    Returns
    -------
    Diagnosis
        `needed_ratio` is the ratio of the factor with which the prediction would be right, to first order
        in its share; None if no positive ratio is.
    """
    named = (factor for factor in report.factors if not factor.name.startswith("unexplained"))
    first = next(named, report.factors[0])
    component = max(report.breakdown, key=lambda name: report.breakdown[name])
    log_error = math.log(report.step_time_s / measured_step_time_s)
    needed_ratio = 1.0 + (measured_step_time_s / report.step_time_s - 1.0) / first.share
    return Diagnosis(
        factor=first.name,
        share=first.share,
        log_sigma_factor=first.log_sigma_factor,
        needed_ratio=needed_ratio if needed_ratio > 0.0 else None,
        component=component,
        component_share=report.breakdown[component] / report.step_time_s,
        surprise_ratio=log_error / log_sigmas(report.factors)[log_error < 0.0],
        extrapolated=tuple(curve.curve for curve in report.evidence if curve.extrapolated),
    )
