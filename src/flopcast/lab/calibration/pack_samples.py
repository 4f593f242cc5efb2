"""Curves from a sample pack that `flopcast measure` wrote on the user's own device.

Answers: which operators do the rows of a pack measure, and which curves follow from them?
Elsewhere: the micro-benchmark (lab/measure/), packs as files (lab/samples/packs.py), the fit itself
(curve_fit.py).

A curve describes a kernel that runs alone on a cool device, as all published tables do. The additional
cost under load is the `gemm_level` of a site, which the pack also gives (lab/measure/site.py). One curve
never mixes the two. Kernels of other libraries, rows that no operator describes, and products that
accumulate in fp32 are left out.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping

import numpy as np

from flopcast.cost.kernels.curve import Curve
from flopcast.lab.calibration.curve_fit import fit_curve, predicted_s
from flopcast.lab.calibration.samples import Samples, joined_by_name, operator_samples
from flopcast.lab.measure.measured_operators import columns_of, operator_of
from flopcast.lab.measure.sample_pack import Sample
from flopcast.lab.measure.sampling_plan import COLD
from flopcast.lab.measure.site import OWN_FLAGS
from flopcast.operators.formats import FORMATS
from flopcast.records import replace
from flopcast.spec.cluster import Device

LAYOUTS = ("input_gradient", "weight_gradient")
LEAST_ROWS = 8  # of a class: fewer give no curve


def fit_pack(samples: Mapping[str, Samples], device: Device) -> dict[str, Curve]:
    """Return the curves, by class, of every class with enough rows in a pack.

    `samples` holds its rows by class, as `pack_samples` returns them, limited by the peaks of `device`.
    "gemm" is the curve of 16-bit GEMMs in training, and "narrow_gemm.fp8" is that of 8-bit GEMMs in
    training. Gradients of GEMMs are represented by the ratio of their time to that of the forward pass,
    the median over all shapes.
    """
    curves = {
        name: fit_curve(rows, device)
        for name, rows in samples.items()
        if len(rows.measured_s) >= LEAST_ROWS and not name.endswith(LAYOUTS)
    }
    for name in [name for name in curves if name.partition(".")[0] == "gemm"]:
        ratios = {
            layout: _ratio(curves[name], samples[f"{name}.{layout}"], device)
            for layout in LAYOUTS
            if f"{name}.{layout}" in samples
        }
        curves[name] = replace(curves[name], layout_ratio=ratios)
    return curves


def pack_samples(samples: Iterable[Sample], device: Device, source: str) -> dict[str, Samples]:
    """Return the rows of a pack by class. The gradient layouts of GEMMs are separate classes.

    Rows are left out if a curve does not describe their operator or condition. Rows that are faster than
    the device's peaks are rejected and counted.
    """
    groups: dict[tuple[str, str, str, tuple[str, ...]], list[Sample]] = defaultdict(list)
    for sample in samples:
        shape = sample.shape
        if sample.condition == COLD and set(shape.flags) <= OWN_FLAGS:
            groups[shape.kernel, shape.layout, shape.dtype, shape.flags].append(sample)
    measured: list[Samples] = []
    for (kernel, layout, dtype, _), rows in groups.items():
        operator = operator_of(rows[0].shape, columns_of([row.shape for row in rows]))
        if operator is None or dtype not in device.peak_flop_per_s:
            continue
        seconds = np.array([row.median_s for row in rows])
        keep = np.ones(len(rows), dtype=bool)
        name = f"narrow_{kernel}.{dtype}" if dtype in FORMATS else kernel
        name += f".{layout}" if layout in LAYOUTS else ""
        measured.append(replace(operator_samples(operator, seconds, keep, device, source), name=name))
    return joined_by_name(measured)


def _ratio(forward: Curve, gradient: Samples, device: Device) -> float:
    ratios = gradient.measured_s / predicted_s(forward, gradient, device)
    return round(float(np.median(ratios)), 4)
