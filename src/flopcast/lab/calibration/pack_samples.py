"""A sample pack of one's own device as curves: what `flopcast measure` wrote, in the terms of a fit.

Answers: which operators do a pack's rows measure, which curves do they give?
Elsewhere: the micro-benchmark (lab/measure/), packs as files (lab/samples/packs.py), the fit itself
(curve_fit.py).

A curve is that of a kernel alone and cold, as all published tables are. What load costs on top is the
`gemm_level` of a site, which the pack gives too (lab/measure/site.py): the two are never mixed in one
curve. Kernels of other libraries, rows that no operator describes and fp32-accumulating products are left
out.
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
    """Return curves of every class that a pack has enough rows of, by class.

    `samples` are its rows by class, as `pack_samples` gives them, bounded by the peaks of `device`. "gemm"
    is the curve of 16-bit GEMMs in training, and "narrow_gemm.fp8" that of 8-bit GEMMs in training.
    Gradients of GEMMs become ratios of their time to that of the forward pass, the median over all shapes.
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
    """Return rows of a pack by class; gradient layouts of products are separate classes here.

    Rows whose operator or condition a curve does not describe are not in it; rows faster than the
    device's peaks are rejected and counted.
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
