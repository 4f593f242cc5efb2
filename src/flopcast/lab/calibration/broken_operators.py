"""Replacements of operators whose measurements are unusable, and their checks.

Answers: from which curve is each replacement derived, and which trace sets its level? The forward pass
was measured on the device itself. The ratio of backward to forward efficiency comes from a related device
at equal coordinates. If a training trace of the same system contains the operator once (data/README.md,
defects 0 and 1), the curve is shifted to go through that point.

The trace sets only the level, because one point cannot determine the shape of a curve. operator_files.py
states how broken rows are detected.
"""

import math
from collections.abc import Mapping

import numpy as np

from flopcast.cost.kernels.curve import Curve, CurveEvidence, log_efficiency
from flopcast.cost.kernels.features import features_of
from flopcast.cost.kernels.roofline import bound_seconds
from flopcast.dtypes import constant
from flopcast.files.package_table import read_table
from flopcast.lab.calibration.efficiency_table import monotone
from flopcast.lab.calibration.operator_files import MeasuredFile
from flopcast.operators.base import AbstractOperator
from flopcast.records import Record, replace
from flopcast.spec.cluster import Device


class Replacement(Record, eq=False):
    """Backward class `name`, derived from the forward class `forward` through one traced operator.

    `traced` is this operator in the shape of the trace, and `traced_s` is its time in the trace, summed
    over its kernels; `why` names the defect that makes the replacement necessary.
    """

    name: str
    forward: str
    traced: AbstractOperator
    traced_s: float
    why: str


REPLACEMENTS: Mapping[str, tuple[Replacement, ...]] = {
    system: tuple(
        Replacement(
            **entry
            | {"traced": MeasuredFile(**entry["traced"]).forward({"rows": constant(1)})}
            | {"traced_s": sum(entry["traced_s"])}
        )
        for entry in entries
    )
    for system, entries in read_table(__package__, "operator_files.yaml")["replacements"].items()
}


def replacements(
    system: str, device: Device, own: Mapping[str, Curve], relative: Mapping[str, Curve]
) -> dict[str, Curve]:
    """Return derived curves for a system's broken classes, by class.

    `own` holds the curves fitted to the system's own files, and `relative` those of related devices; both
    have the forward and backward pass of each class. The result is empty for a system without broken
    classes. A class is left out if its own forward pass or that of the related device was not measured.
    """
    return {
        entry.name: _derive(entry, device, own[entry.forward], relative)
        for entry in REPLACEMENTS.get(system, ())
        if entry.forward in own and {entry.name, entry.forward} <= relative.keys()
    }


def _derive(entry: Replacement, device: Device, forward: Curve, relative: Mapping[str, Curve]) -> Curve:
    """Return the product of the device's own forward pass and the fallback device's backward/forward
    ratio, shifted to the trace.

    The axes are those of the forward pass. The evidence counts one row, the traced one, and its error is
    at least that of the related device.
    """
    mesh = np.meshgrid(*forward.axes, indexing="ij")
    points = tuple(2.0 ** axis.ravel() for axis in mesh)
    ratio = log_efficiency(relative[entry.name], points) - log_efficiency(relative[entry.forward], points)
    table = forward.table + ratio.reshape(forward.table.shape)
    rises = features_of(entry.name).rises(len(forward.axes), forward.terms)
    made = replace(forward, name=entry.name, table=monotone(table, forward.axes, rises))
    bound_s = bound_seconds(entry.traced.work(), device).item()
    seen = float(np.log(bound_s / (entry.traced_s - made.launch_s)))
    at = tuple(coordinate.ravel() for coordinate in entry.traced.coordinates())
    shift = seen - float(log_efficiency(made, at, device.multiprocessors)[0])
    return replace(
        made,
        table=made.table + shift,
        evidence=CurveEvidence(
            source=f"{entry.why}: the forward curve of this device, multiplied by the ratio of backward"
            f" to forward efficiency of {relative[entry.name].owner}, and by {math.exp(shift):.2f} to match"
            " one training trace",
            rows=1,
            rejected=0,
            relative_error=max(0.1, relative[entry.name].evidence.relative_error),
            log_sigma_factor=max(0.1, relative[entry.name].evidence.log_sigma_factor),
        ),
    )
