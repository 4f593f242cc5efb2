"""Explanation of the seconds of one kernel of an exported graph.

Answers: with which class, rates and efficiencies is the time of a kernel computed?
Elsewhere: the computation itself (cost/graph_kernels/), whose functions this module calls again for the
item.
"""

import numpy as np

from flopcast.cost.factors import FactorBook
from flopcast.cost.graph_kernels.software import GraphSoftware
from flopcast.cost.graph_prices import software_of
from flopcast.cost.item_prices import Priced
from flopcast.cost.kernels.curve_book import CurveBook
from flopcast.operators.item import Item
from flopcast.report.explain.explanation import Input
from flopcast.report.explain.kernels import element_at, lasting, rate, source_of
from flopcast.spec.cluster import Device
from flopcast.units import Number, show, show_seconds

VECTOR_FORMULA = "(launch + FLOP / rate / efficiency + bytes / bandwidth / efficiency) × factors"
PRODUCT_FORMULA = (
    "(launch + the 4th root of (FLOP / rate / efficiency)⁴ + (bytes / bandwidth / efficiency)⁴) × factors"
)


def graph_inputs(
    item: Item, priced: Priced, book: CurveBook, row: int, column: int
) -> tuple[str, tuple[Input, ...]] | None:
    """Return the formula of a kernel of a graph, and all of its inputs.

    Parameters
    ----------
    item : Item
    priced : Priced
    book : CurveBook
    row, column : int
        Kind of micro-batch, and stage class, of the execution.

    Returns
    -------
    tuple or None
        None for an item that is not priced by the efficiencies of graphs.
    """
    factors = FactorBook(priced.site, priced.levels)
    graph = software_of(priced.programs, priced.cluster, book, factors)
    if graph is None or not graph.prices(item):
        return None
    device = priced.cluster.node.device
    parts = graph.parts([item], device)
    (shape,) = parts.shapes

    def one(values: np.ndarray) -> float:
        return element_at(values.reshape(shape), row, column)

    flop, moved_bytes = one(parts.rows.flop), one(parts.rows.moved_bytes)
    bounds = tuple(np.full(shape, value) for value in (parts.flop_per_s, parts.bytes_per_s))
    peaks, memory = source_of(device.source, "peak"), source_of(device.source, "memory and", "bandwidth")
    formula = VECTOR_FORMULA if parts.is_vector else PRODUCT_FORMULA
    inputs = (
        Input(name="class", text=parts.name),
        Input(name="FLOP", text=show(flop, "FLOP"), number=flop),
        Input(name="bytes", text=show(moved_bytes, "B"), number=moved_bytes),
        rate("rate under load", one(bounds[0]), "FLOP/s", peaks),
        rate("bandwidth", one(bounds[1]), "B/s", memory),
        *(_efficiency(name, one(values), graph) for name, values in parts.efficiencies.items()),
        lasting("launch", device.kernel_launch_s + graph.call_s, source=_source_of_launch(device, graph)),
        lasting("without factors", one(parts.seconds)),
    )
    return formula, inputs


def _source_of_launch(device: Device, graph: GraphSoftware) -> str:
    """Return where the launch comes from: the device, and the time of calls if the software states one."""
    own = source_of(device.source, "launch")
    if not graph.call_s:
        return own
    chosen = f"a value that was chosen with {', '.join(graph.sources)} in view"
    return f"{own}; {show_seconds(graph.call_s)} for a call, {chosen}"


def _efficiency(name: str, value: Number, graph: GraphSoftware) -> Input:
    source = ", ".join(graph.sources) or "priors"
    return Input(name=f"efficiency of {name}", text=f"{value:.4g}", number=value, source=source)
