"""Prices of the kernels of exported graphs.

Answers: how long does each kernel of a graph take, and which factors scale it?
Elsewhere: the seconds (graph_kernels/), prices of all other items (price.py).
"""

import math

import numpy as np

from flopcast.cost.factors import FactorBook
from flopcast.cost.graph_kernels.operator_rows import (
    UNMEASURED_LOG_SIGMA,
    is_of_graphs_alone,
    unmeasured_family,
)
from flopcast.cost.graph_kernels.software import GraphSoftware, graph_software
from flopcast.cost.item_prices import Used
from flopcast.cost.kernels.curve import Curve, CurveEvidence
from flopcast.cost.kernels.curve_book import CurveBook
from flopcast.cost.pricing import Partly, PricedItem, Pricing, prices_of, with_evidence
from flopcast.layers.traced import is_graph
from flopcast.operators.item import Item
from flopcast.spec.cluster import Cluster
from flopcast.workload.program import Programs

MEAN_OF_SIGMA = math.sqrt(2.0 / math.pi)  # the mean absolute value of a normal distribution, in sigmas
PRIORS = "no step of this software was measured, so flopcast assumes the efficiencies of its kernels"


def software_of(
    programs: Programs, cluster: Cluster, book: CurveBook, factors: FactorBook
) -> GraphSoftware | None:
    """Return the numbers that price exported graphs; None if no part of the model is an exported graph.

    These numbers are constants, like the levels of factors: without levels, the priors are used.
    """
    items, whole = programs.items(), is_graph(programs.workload.model.blocks)
    if not (whole or any(map(is_of_graphs_alone, items))):
        return None
    known = book.graphs if factors.levels else {}
    generation, trains = programs.stack.attention_generation, not programs.workload.forward_only
    return graph_software(known, items, cluster.node.device, generation, trains=trains, whole=whole)


def price_graph(graph: GraphSoftware, items: list[Item], state: Pricing) -> list[PricedItem]:
    """Price all kernels of a graph together, with one factor that scales all of them.

    A kernel family that no table contains, such as sorts, has an additional factor.
    """
    device = state.cluster.node.device
    parts = graph.parts(items, device)
    seconds, shapes = parts.seconds, parts.shapes
    level = state.factors.get(f"graph_level[{device.name}]", graph.log_sigma_factor)
    sizes = [math.prod(shape) for shape in shapes]
    families = np.repeat([unmeasured_family(item) for item in items], sizes)
    partly = tuple(
        Partly(f"borrowed[{family}]", UNMEASURED_LOG_SIGMA, families == family)
        for family in dict.fromkeys(families.tolist())
        if family
    )
    scaled_s = seconds * state.ratio_of(level)
    prices = prices_of(items, shapes, scaled_s, np.zeros_like(scaled_s), (level.name,), partly, state)
    used = Used(curve=_evidence(graph, device.name), extrapolated=False, calibrated=graph.is_measured)
    return with_evidence(items, prices, [(used,)] * len(items), state)


def _evidence(graph: GraphSoftware, device: str) -> Curve:
    """Return what the report lists as the evidence of the kernels: the tables of the fit, and its error."""
    sigma = graph.log_sigma_factor
    return Curve(
        name="kernels of exported graphs",
        owner=device,
        axes=(),
        table=np.zeros(()),
        launch_s=0.0,
        evidence=CurveEvidence(
            source=", ".join(graph.sources) or PRIORS,
            rows=0,
            rejected=0,
            relative_error=math.expm1(MEAN_OF_SIGMA * sigma),
            log_sigma_factor=sigma,
        ),
    )
