"""Measured products that are fused with a gather or a scatter, compared with their predictions.

Answers: how long is a product whose tiles wait for gathered rows, or are sent as soon as they are computed?
Elsewhere: the formula in a whole layer (workload/tensor_overlap.py), prices of single items
(cost/price.py), statistics and their text (lab/scores.py, render/measured_scores.py).

Source: data/overlap/flux_gemm_comm.yaml (bytedance/flux on GitHub, docs/performance.md): one dense shape
on eight L20, and a layer of experts on eight L20 and on eight H800. The PyTorch columns are the times of
a product followed by its message, which the source calls not well optimised; they are not scored.

An L20 is described as an L40, but with the peaks and the multiprocessors of the L20's data sheet. One value
was chosen by hand: copies between devices on PCIe reach 0.8 of the link.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from flopcast.cost.deduplicate import PricedOnce
from flopcast.cost.factors import FactorBook
from flopcast.cost.placement import group_on
from flopcast.cost.price import price_all
from flopcast.cost.pricing import Pricing
from flopcast.dtypes import ONE, constant
from flopcast.kept_results import NOTHING_KEPT
from flopcast.lab.run_tables import RunBlocks
from flopcast.lab.scores import Compared, MeasuredNumber, MeasuredRun, Scores
from flopcast.library import catalog
from flopcast.library.curves import load_book
from flopcast.operators.base import AbstractOperator
from flopcast.operators.item import Item, blocking, kernel
from flopcast.operators.matmul import GroupedMatmul, Matmul
from flopcast.operators.messages import AllGather, ReduceScatter
from flopcast.serving.serving_report import Estimate
from flopcast.spec.cluster import Cluster
from flopcast.spec.plan import Plan, one_plan
from flopcast.spec.rows import of_equal_split
from flopcast.spec.site import Site
from flopcast.spec.stack import Stack
from flopcast.strict_model import FrozenMapping
from flopcast.units import Number
from flopcast.workload.tensor_overlap import TILE_ROWS

RANKS, BF16_BYTES, MILLISECONDS = 8, 2.0, 1e3
DENSE, EXPERTS = "dense", "moe"  # blocks of a file
L20 = {
    "name": "l20-48gb",
    "multiprocessors": 92,
    "peak_flop_per_s": FrozenMapping({"fp16": 119.5e12, "bf16": 119.5e12, "fp8": 239e12, "fp32": 59.8e12}),
}
PEER_COPIES = 0.8  # of the rate of PCIe
CONSTANTS = "Data sheets and curves of the catalogue; nothing was fitted on these rows."


class FusedRun(MeasuredRun[MeasuredNumber], slots=False):
    """One row: a GEMM, the message that is fused with it, and the device; `rows` counts tokens."""

    device: str
    product: AbstractOperator
    message: AllGather | ReduceScatter
    rows: Number


def score_fused_products(
    runs: Sequence[FusedRun], _constants: str = ""
) -> Scores[FusedRun, MeasuredNumber]:
    """Predict every row."""
    rows = (Compared(run=run, measured=run.measured[0], predicted=_fused(run)) for run in runs)
    return Scores(rows=tuple(rows), constants=CONSTANTS)


def _blocks(data: object) -> Sequence[Mapping[str, Any]]:
    """Return the blocks of dense products and of experts in a file; none for a missing block."""
    tables = [data.get(name) for name in (DENSE, EXPERTS)] if isinstance(data, dict) else []
    whole = [table for table in tables if isinstance(table, dict) and {"columns", "rows"} <= table.keys()]
    return whole if len(whole) == len(tables) else ()


def _runs(blocks: Sequence[Mapping[str, Any]]) -> Iterator[FusedRun]:
    """Yield the rows of a file, the dense ones first."""
    for make, block in zip((_dense, _experts), blocks, strict=True):
        for row in block["rows"]:
            yield make(dict(zip(block["columns"], row, strict=True)))


def _run(
    name: str,
    device: str,
    product: AbstractOperator,
    message: AllGather | ReduceScatter,
    rows: Number,
    fused_ms: Number,
) -> FusedRun:
    kind = "experts" if isinstance(product, GroupedMatmul) else "dense"
    return FusedRun(
        id=name,
        source="bytedance/flux",
        device=device,
        product=product,
        message=message,
        rows=rows,
        measured=(MeasuredNumber(quantity="fused_ms", unit="ms", value=float(fused_ms)),),
        groups={"device": device, "product": kind, "message": message.collective},
    )


def _dense(values: Mapping[str, Any]) -> FusedRun:
    """Return one of the two products of a feed-forward layer: the first gathers and the second scatters."""
    rows, hidden, wide = 4096.0, 12288.0, 49152.0  # the block's shape: M, K and N, over eight ranks
    gathers = values["op"].startswith("all_gather")
    n, k = (wide / RANKS, hidden) if gathers else (hidden, wide / RANKS)
    size = constant(rows * hidden * BF16_BYTES)
    product = Matmul(m=constant(rows), n=constant(n), k=constant(k), dtype="bf16")
    message = (AllGather if gathers else ReduceScatter)(axis="tp", message_bytes=size)
    return _run(f"flux-l20-{values['op']}", "L20", product, message, rows, values["flux_total"])


def _experts(values: Mapping[str, Any]) -> FusedRun:
    """Return a layer of experts: layer 0 gathers tokens, layer 1 scatters the sums of their results."""
    tokens, hidden = 8192.0, 8192.0  # the block's shape: M, K and N
    cut, spread, gathers = values["tp"], values["ep"], values["layer"] == 0
    n, k = (hidden / cut, hidden) if gathers else (hidden, hidden / cut)
    product = GroupedMatmul(
        groups=constant(values["experts"] / spread),
        rows=constant(tokens * values["topk"] / spread),
        n=constant(n),
        k=constant(k),
        imbalance=ONE,
        dtype="bf16",
    )
    size = constant(tokens * hidden * BF16_BYTES)
    message = (AllGather if gathers else ReduceScatter)(axis="tp", message_bytes=size)
    name = f"flux-{values['gpu'].lower()}-tp{cut}-ep{spread}-layer{values['layer']}"
    return _run(name, str(values["gpu"]), product, message, tokens, values["flux"])


def _cluster(device: str) -> Cluster:
    """Return one node of eight devices."""
    known = catalog.cluster("l40-8" if device == "L20" else "hgx-h800")
    group = known.groups[0].model_copy(update={"count": 1})
    if device != "L20":
        return known.model_copy(update={"groups": (group,)})
    node = group.node.with_part("device", **L20)
    link = known.tiers[0].model_copy(update={"attained_fraction": PEER_COPIES})
    return known.model_copy(
        update={"groups": (group.model_copy(update={"node": node}),), "tiers": (link, *known.tiers[1:])}
    )


def _fused(run: FusedRun) -> Estimate:
    """Return the milliseconds of a fused kernel, in which all but a band of tiles overlaps the message."""
    product = kernel("product", run.product, ("x",), component="mlp")
    message = blocking("message", run.message, "x", "y")
    pricing = _priced((product, message), run.device)
    product_s, message_s = (pricing.prices[item].alone_s.item() for item in (product, message))
    band = min(TILE_ROWS / run.rows, 1.0)
    rest_s = (1.0 - band) * product_s
    longer = product if rest_s > message_s else message
    names = (*pricing.prices[product].names(), *pricing.prices[longer].names())
    sigma = math.hypot(*(pricing.found[name].log_sigma_factor for name in dict.fromkeys(names)))
    return Estimate.log_normal(MILLISECONDS * (band * product_s + max(rest_s, message_s)), sigma)


def _priced(items: tuple[Item, Item], device: str) -> Pricing:
    """Return the separate prices of a product and of its message."""
    cluster, plans = _cluster(device), one_plan(Plan(tp=RANKS))
    book, stack = load_book(cluster), Stack(name="fused", host={"graphs": ("iteration",)})
    pricing = Pricing(cluster, stack, book, FactorBook(Site(), book.levels), NOTHING_KEPT, None)
    groups = {("tp", False): group_on(cluster, "tp", plans)}
    price_all(PricedOnce(items, (False,) * len(items), of_equal_split(plans), groups), pricing)
    return pricing


TABLE = RunBlocks(blocks_of=_blocks, runs_of=_runs)
