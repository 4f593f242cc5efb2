"""The addition of the residual in the following norm kernel, or in the preceding GEMM."""

from flopcast.layers.block import Block
from flopcast.operators.item import Item
from flopcast.operators.memory_bound import MemoryBound
from flopcast.records import replace
from flopcast.serving.seen import Seen
from flopcast.workload.rewrites.base import kind_of

NORMS = ("layernorm", "rmsnorm")
ACTIVATION = "mlp.activation"


def fused_norms(items: tuple[Item, ...], seen: Seen) -> tuple[Item, ...]:
    """Move the addition into the next norm, which then also reads and writes the residual stream.

    The last addition of a block belongs to the first norm of the next block, or to the final norm, so all
    norms that read the residual stream are fused. With `fused_epilogues`, the products add the residual
    instead, so that norms are plain, and apply the activation function.
    """
    layer, engine = seen.layer, seen.engine
    if not isinstance(layer, Block) or layer.norm_placement == "after":
        return items
    if not (engine.fused_norms or (engine.fused_epilogues and layer.norm_placement == "before")):
        return items
    kept: list[Item] = []
    for item in items:
        kind, work = kind_of(item), item.work
        if kind == "residual_add" and item.name.endswith("residual"):
            continue
        if engine.fused_epilogues and item.name == ACTIVATION:
            continue
        before = item.inputs[:1] in (("x",), ("middle",)) and not engine.fused_epilogues
        if kind in NORMS and before and isinstance(work, MemoryBound):
            kept.append(replace(item, work=replace(work, kind=f"add_{kind}")))
        else:
            kept.append(item)
    return tuple(kept)
