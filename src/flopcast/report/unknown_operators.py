"""The part of a step in operators that are unknown, or that were not measured on the device.

Answers: how large is this part, and is the prediction still useful?
Elsewhere: the prices of such operators (graph/canonical.py), the breakdown (report.py).
"""

from collections import defaultdict
from collections.abc import Mapping

from flopcast.cost.evidence_warnings import warnings_of
from flopcast.cost.item_prices import Priced
from flopcast.cost.kernels.classes import class_of
from flopcast.errors import SpecError, spec_error
from flopcast.operators.base import AbstractOperator
from flopcast.timeline.step import Timeline
from flopcast.units import Number

KEY = "unknown_operators"  # of the breakdown
WARNED_SHARE, REFUSED_SHARE = 0.05, 0.2  # of the step


def unknown_warnings(breakdown_s: Mapping[str, Number], step_time_s: Number) -> list[str]:
    """Return a warning if unknown operators take a large part of the step.

    >>> unknown_warnings({"unknown_operators": 0.1, "linears": 0.9}, 1.0)
    ['unknown operators take 10% of the step; flopcast estimates their time only from their bytes']
    >>> unknown_warnings({"unknown_operators": 0.01, "linears": 0.99}, 1.0)
    []
    """
    share = breakdown_s.get(KEY, 0.0) / step_time_s
    if share <= WARNED_SHARE:
        return []
    return [
        f"unknown operators take {share:.0%} of the step; flopcast estimates their time only from their"
        f" bytes"
    ]


def warnings_of_prices(priced: Priced, timeline: Timeline) -> list[str]:
    """Return the warnings of prices. Warnings about curves state the affected share of the step."""
    if not priced.warnings:
        return []
    shares: dict[str, float] = defaultdict(float)
    for each in timeline.bottleneck_attribution:
        work = None if each.item is None else each.item.work
        if isinstance(work, AbstractOperator):
            shares[class_of(work.kernel).curve] += each.path_s / timeline.step_time_s
    used = [(each.curve, each.calibrated) for each in priced.used]
    device = priced.cluster.node.device
    stated = dict(zip(warnings_of(used, device), warnings_of(used, device, shares), strict=True))
    return [stated.get(text, text) for text in priced.warnings]


def unknown_fault(breakdown_s: Mapping[str, Number], step_time_s: Number) -> SpecError | None:
    """Return the error if unknown operators take more than a fifth of the step, otherwise None.

    >>> [unknown_fault({KEY: seconds}, 1.0) is None for seconds in (0.1, 0.3)]
    [True, False]
    """
    share = breakdown_s.get(KEY, 0.0) / step_time_s
    if share <= REFUSED_SHARE:
        return None
    return spec_error(
        field="model.blocks",
        value=f"unknown operators for {share:.0%} of the step",
        allowed=f"at most {REFUSED_SHARE:.0%}",
        because="flopcast estimates the time of unknown operators only from their bytes",
        fix="add --allow-unknown to see the prediction, or export the model without custom operators",
    )


def needless_option_note(breakdown_s: Mapping[str, Number], step_time_s: Number) -> str:
    """Return the line that states why --allow-unknown was not needed. Call it if there is no fault.

    >>> needless_option_note({"linears": 1.0}, 1.0)
    'note: --allow-unknown was not needed: the job has no unknown operators'
    """
    share = breakdown_s.get(KEY, 0.0) / step_time_s
    part = f"unknown operators take {share:.1%} of the step, and {REFUSED_SHARE:.0%} are allowed"
    return f"note: --allow-unknown was not needed: {part if share else 'the job has no unknown operators'}"
