"""Explanation of the seconds of one kernel.

Answers: from which shape, peak rates, curve and factors is the time of this operator computed?
Elsewhere: the computation itself (cost/price.py), whose functions this module calls again for the item.
"""

from collections.abc import Sequence
from dataclasses import fields

import numpy as np

from flopcast.cost.item_prices import Priced
from flopcast.cost.kernels.classes import class_of
from flopcast.cost.kernels.curve import Curve, outside
from flopcast.cost.kernels.curve_book import CurveBook, CurveMatch
from flopcast.cost.kernels.roofline import bound_seconds, cached_bytes, engine_seconds
from flopcast.cost.kernels.unscaled import kernel_log_efficiency, no_narrower, unscaled_times
from flopcast.dtypes import Counts
from flopcast.operators.base import AbstractOperator
from flopcast.operators.item import Item
from flopcast.operators.matmul import GroupedMatmul
from flopcast.report.explain.explanation import Input
from flopcast.spec.cluster import Device
from flopcast.spec.source import Source
from flopcast.units import show, show_seconds

# Terms of the formula, where a kernel has them
CACHED = "bytes in the cache"
ADDED = ("results in 16 bits", "launches in turn", "sum", "instructions")


def kernel_formula(inputs: Sequence[Input]) -> str:
    """Return the formula of one execution, with the terms that its inputs list.

    Parameters
    ----------
    inputs : sequence of Input
        Terms that are zero for this kernel are not among them and do not appear in the formula.
    """
    names = [each.name for each in inputs]
    moving = "bytes / bandwidth"
    if CACHED in names:
        moving = f"(bytes - {CACHED}) / bandwidth + {CACHED} / rate of the cache"
    time = f"(launch + max(FLOP / peak, {moving}) / efficiency) × layout"
    time += " × busy device" if "busy device" in names else ""
    added = [name for name in ADDED if name in names]
    whole = f"({' + '.join([time, *added])})" if added else time
    return f"{whole} × factors; at least the bound"


def element_at(value: Counts, row: int, column: int) -> float:
    """Return one number of an array over rows and columns, either of which may have size 1."""
    return float(value[min(row, value.shape[0] - 1), min(column, value.shape[1] - 1)])


def source_of(sources: tuple[Source, ...], *words: str) -> str:
    """Return the titles of sources for one of these fields or, if there are none, of the sources for all
    fields.
    """
    named = [source.title for source in sources if any(word in source.covers for word in words)]
    return "; ".join(named or [source.title for source in sources if source.covers == "all"])


def run_as(item: Item, row: int) -> AbstractOperator:
    """Return the operator whose price is used. If each rank has one expert, it is a dense GEMM."""
    work = item.work
    if isinstance(work, GroupedMatmul) and element_at(work.groups, row, 0) <= 1:
        return work.as_one_product()
    return work  # type: ignore[return-value]


def curve_of(work: AbstractOperator, priced: Priced, book: CurveBook) -> CurveMatch:
    """Return the curve that prices an operator."""
    device = priced.cluster.node.device
    owner = device.curves or device.name
    ratio = device.engine_ratio(work.work().unit)
    name = class_of(work.kernel).curve
    return book.find(owner, name, device.kernel_launch_s, device.relatives, ratio)


def kernel_inputs(item: Item, priced: Priced, book: CurveBook, row: int, column: int) -> tuple[Input, ...]:
    """Return everything that determines the seconds of one execution, with its sources.

    The time of one execution is the kernel's own seconds (the last line before the factors) times the
    product of the factors.
    """
    work, device = run_as(item, row), priced.cluster.node.device
    need, match, kind = work.work(), curve_of(work, priced, book), class_of(work.kernel)
    curve = match.curve
    flop, size = element_at(need.flop, row, column), element_at(need.moved_bytes, row, column)
    bound_s = element_at(bound_seconds(need, device), row, column)
    cached = cached_bytes(need, device)
    places = _coordinates(work, row, column)
    ratio = curve.ratio_of(kind.layout, need.unit)
    times = unscaled_times([work], curve, device)
    (shape,) = times.shapes
    parts = (times.least_s, times.alone_s, times.busy_ratio, times.results_s, times.waits_s, times.after_s)
    least_s, alone_s, slower, results_s, waits_s, after_s, loops_s = (
        element_at(part.reshape(shape), row, column) for part in (*parts, times.loops_s)
    )
    compute_s = element_at(engine_seconds(need, device), row, column)
    memory_s = size / device.memory_bytes_per_s
    limit = "compute" if compute_s >= memory_s else "memory"
    peaks = source_of(device.source, "peak")
    memory = source_of(device.source, "memory and", "memory_bytes_per_s", "bandwidth")
    efficiency, beyond = _efficiency(curve, places, device, kind.curve)
    by_layout = Input(name="layout's ratio", text=f"× {ratio:.4g}, {kind.layout}", number=ratio)
    return (
        Input(name="what", text=_first_line(type(work).__doc__)),
        *_shape(work, row, column),
        Input(name="FLOP", text=show(flop, "FLOP"), number=flop),
        Input(name="bytes", text=show(size, "B"), number=size),
        rate(f"peak, {need.unit}", device.peak(need.unit), "FLOP/s", peaks),
        rate("bandwidth", device.memory_bytes_per_s, "B/s", memory),
        *([] if cached is None else _of_cache(element_at(cached, row, column), device)),
        lasting("bound", bound_s, f", by {limit}"),
        lasting("least", least_s, ", at the sustained memory bandwidth"),
        Input(
            name="efficiency", text=f"{efficiency:.4g}{beyond}", number=efficiency, source=_evidence(match)
        ),
        lasting("launch", curve.launch_s, source=source_of(device.source, "launch")),
        *([by_layout] if kind.layout else []),
        *([_busy(slower, source_of(device.source, "sustained"))] if slower > 1.0 else []),
        *([lasting(ADDED[0], results_s, ", written after the GEMM is complete")] if results_s else []),
        *([lasting(ADDED[1], waits_s)] if waits_s else []),
        *([lasting(ADDED[2], after_s, ", read and written after the GEMM is complete")] if after_s else []),
        *(
            [lasting(ADDED[3], loops_s, ", the time that they take longer than the curve")]
            if loops_s
            else []
        ),
        lasting("without factors", alone_s),
    )


def _of_cache(size_bytes: float, device: Device) -> tuple[Input, Input]:
    """Return the bytes that a kernel moves to and from the last-level cache, and the rate of the cache."""
    source = source_of(device.source, "cache_bytes_per_s")
    cached = Input(name=CACHED, text=show(size_bytes, "B"), number=size_bytes)
    return cached, rate("rate of the cache", device.cache_bytes_per_s, "B/s", source)


def _busy(ratio: float, source: str) -> Input:
    """Return the ratio by which a GEMM takes longer on a busy device than its curve says."""
    return Input(name="busy device", text=f"× {ratio:.4g}", number=ratio, source=source)


def rate(name: str, amount: float | int, unit: str, source: str = "") -> Input:
    """Return a rate, or an amount of bytes, with its unit."""
    return Input(name=name, text=show(amount, unit), source=source, number=amount)


def lasting(name: str, amount: float | int, more: str = "", source: str = "") -> Input:
    """Return seconds as an input."""
    return Input(name=name, text=show_seconds(amount) + more, source=source, number=amount)


def _shape(work: AbstractOperator, row: int, column: int) -> tuple[Input, ...]:
    """Return the operator's own fields: sizes and types; switches that are off are omitted."""
    inputs = []
    for each in fields(work):
        value = getattr(work, each.name)
        if isinstance(value, np.ndarray):
            number = element_at(value, row, column)
            inputs.append(Input(name=each.name, text=f"{number:,.6g}", number=number))
        elif isinstance(value, str | int) and value not in (False, ""):
            inputs.append(Input(name=each.name, text=str(value)))
    return tuple(inputs)


def _coordinates(work: AbstractOperator, row: int, column: int) -> tuple[Counts, ...]:
    return tuple(np.maximum([element_at(value, row, column)], 1.0) for value in work.coordinates())


def _efficiency(curve: Curve, places: tuple[Counts, ...], device: Device, kernel: str) -> tuple[float, str]:
    """Return the fraction of the bound, and where it was not measured."""
    if not curve.axes:
        return float(np.exp(curve.table)), " everywhere"
    shape = no_narrower(places, curve)
    efficiency = float(np.exp(kernel_log_efficiency(curve, shape, device, kernel))[0])
    return efficiency, ", outside the measured range" if outside(curve, places)[0] else ""


def _evidence(match: CurveMatch) -> str:
    curve, evidence = match.curve, match.curve.evidence
    return f"{curve.owner}/{curve.name}: {evidence.source}, mean error {evidence.relative_error:.1%}"


def _first_line(text: str | None) -> str:
    return (text or "").strip().partition("\n")[0].rstrip(".")
