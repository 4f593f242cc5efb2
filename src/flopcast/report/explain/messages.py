"""Explanation of the seconds of one message.

Answers: from which ranks, links, bandwidths and factors is the time of this collective computed?
Elsewhere: the computation itself (cost/collectives), whose terms this module computes again.
"""

import numpy as np

from flopcast.cost.collectives.collective_time import message_terms, two_steps
from flopcast.cost.collectives.formulas import FORMULAS
from flopcast.cost.item_prices import Priced
from flopcast.cost.kernels.curve import Curve, outside
from flopcast.cost.kernels.curve_book import CurveBook
from flopcast.cost.placement import Group, group_on
from flopcast.operators.base import AbstractMessage
from flopcast.report.explain.explanation import Input
from flopcast.report.explain.kernels import element_at, lasting, rate, source_of
from flopcast.spec.tier import Tier
from flopcast.units import show, show_seconds

FORMULA = "(latency + share × bytes / bus bandwidth / efficiency) × factors"
TWO_STEPS = "(all-to-all inside each domain + all-to-all of the partial sums between domains) × factors"
EXCHANGE = (
    "max(latency + bytes to other domains / bandwidth / efficiency, all copies inside a domain) × factors"
)


def formula_of(work: AbstractMessage, priced: Priced, row: int) -> str:
    """Return the formula of a message's time. Exchanges between domains have a different formula."""
    nodes = element_at(group_of(work, priced).nodes, row, 0)
    formula = FORMULAS.get(work.collective)
    if nodes <= 1 or formula is None:
        return FORMULA
    return TWO_STEPS if formula.in_two_steps else EXCHANGE if formula.one_copy_a_domain else FORMULA


def group_of(work: AbstractMessage, priced: Priced) -> Group:
    """Return the ranks of a message."""
    return group_on(priced.cluster, work.axis, priced.programs.plans)


def message_inputs(
    work: AbstractMessage, priced: Priced, book: CurveBook, row: int, column: int
) -> tuple[Input, ...]:
    """Return everything that determines the seconds of one execution, with its sources.

    Parameters
    ----------
    work : AbstractMessage
    priced : Priced
    book : CurveBook
    row : int
        Plan, or kind of micro-batch.
    column : int
        Stage class.

    Returns
    -------
    tuple of Input
        One line that states why nothing is sent, or the inputs of the collective's formula. An all-to-all
        over several nodes that runs in two steps is described as two messages.
    """
    whole = group_of(work, priced)
    group = Group(
        inside=np.array([element_at(whole.inside, row, 0)]),
        nodes=np.array([element_at(whole.nodes, row, 0)]),
        depth=np.array([element_at(whole.depth, row, 0)]),
    )
    size_bytes = np.array([element_at(work.message_bytes, row, column)])
    if not work.collective or element_at(whole.ranks, row, 0) <= 1 or not size_bytes[0]:
        because = "one rank" if element_at(whole.ranks, row, 0) <= 1 else "nothing is sent"
        return (Input(name="collective", text=f"none along {work.axis}: {because}"),)
    name = work.collective
    if FORMULAS[name].in_two_steps and group.nodes[0] > 1:
        steps = two_steps(size_bytes, group)
        return tuple(each for part in steps for each in _step("all_to_all", work.axis, part, priced, book))
    return _step(name, work.axis, (size_bytes, group), priced, book)


def _step(
    name: str, axis: str, sent: tuple[np.ndarray, Group], priced: Priced, book: CurveBook
) -> tuple[Input, ...]:
    """Return what determines the seconds of one collective; `sent` has bytes and ranks."""
    size_bytes, group = sent
    link, terms, curve = message_terms(name, size_bytes, group, priced.cluster, book)
    inside, nodes = float(group.inside[0]), float(group.nodes[0])
    source = source_of(link.source or priced.cluster.source, link.name, "tiers", "bytes_per_s")
    least_bytes = float(terms.sent_bytes[0])
    counted = [rate("counted as", least_bytes, "B", "the smallest measured size")]
    domains = [Input(name="domains", text=f"{nodes:g}, {inside:g} ranks in each")] if nodes > 1 else []
    share, reached = float(terms.share[0]), float(terms.efficiency[0])
    efficiency = f"{reached:.4g}{_beyond(curve, size_bytes, group)}"
    return (
        Input(name="collective", text=f"{name} along {axis}"),
        rate("bytes", float(size_bytes[0]), "B"),
        *(counted if least_bytes > size_bytes[0] else []),
        Input(name="ranks", text=f"{inside * nodes:g}", number=inside * nodes),
        *domains,
        Input(name="tier", text=f"{link.name}: {show(link.bytes_per_s, 'B/s')} a device", source=source),
        lasting("latency", float(terms.latency_s[0]), source=_latency(link, curve)),
        Input(
            name="share of the bytes", text=f"{share:.4g} of them cross the link of a rank", number=share
        ),
        rate("bus bandwidth", float(terms.bus_bytes_per_s[0]), "B/s"),
        Input(name="efficiency", text=efficiency, source=_evidence(name, link, curve), number=reached),
        lasting("without factors", float(terms.alone_s[0])),
    )


def _latency(link: Tier, curve: Curve | None) -> str:
    """Return the source of the latency: measured small messages, or hops of the tier."""
    if curve is not None and curve.launch_s > 0:
        return f"the smallest messages of {curve.owner}/{curve.name}"
    return f"hops of {show_seconds(link.latency_s)} on {link.name}"


def _beyond(curve: Curve | None, size_bytes: np.ndarray, group: Group) -> str:
    if curve is None or not outside(curve, (size_bytes, group.inside, group.nodes))[0]:
        return ""
    return ", outside the measured range"


def _evidence(name: str, link: Tier, curve: Curve | None) -> str:
    """Return the source of the attained share of the bandwidth."""
    if curve is None:
        library = (
            "measurements by the authors of the library" if name in link.library_fraction else "no curve"
        )
        return f"{library}: the fraction in the entry of {link.name}"
    lent = "" if curve.name == name else f", from the curve of its {curve.name}"
    evidence = curve.evidence
    return f"{curve.owner}{lent}: {evidence.source}, mean error {evidence.relative_error:.1%}"
