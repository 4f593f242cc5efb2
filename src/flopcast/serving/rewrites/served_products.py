"""GEMMs by serving kernels, with weights in the deployment's format."""

from flopcast.operators.formats import WIDEST
from flopcast.operators.item import Item
from flopcast.operators.matmul import Matmul
from flopcast.operators.served_matmul import ServedMatmul
from flopcast.records import replace
from flopcast.serving.seen import Seen
from flopcast.spec.deployment import served_format
from flopcast.workload.rewrites.base import kind_of

HEAD = "head.logits"
ACTIVATIONS = "bf16"  # routers that train in fp32 are served in 16 bits too


def served_products(items: tuple[Item, ...], seen: Seen) -> tuple[Item, ...]:
    """Replace every product.

    Routers, absorbed projections and the heads of most engines stay in 16 bits.

    The GEMM adds its bias. If a sum over ranks follows, the norm adds the bias.
    """
    narrow = served_format(seen.deployment.weights)

    def weights_of(item: Item) -> str:
        wide = item.wide and not (seen.engine.narrow_tables and item.name == HEAD)
        return "" if wide and narrow != WIDEST else narrow

    def served(item: Item) -> Item:
        work, weights = item.work, weights_of(item)
        if not isinstance(work, Matmul):
            return item
        is_cast = weights in seen.engine.fused_casts
        made = ServedMatmul(
            m=work.m, n=work.n, k=work.k, dtype=ACTIVATIONS, weights=weights, is_cast=is_cast
        )
        return replace(item, work=made)

    return tuple(served(item) for item in items if kind_of(item) != "bias_add")
