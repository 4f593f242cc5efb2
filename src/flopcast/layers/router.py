"""The router of a mixture of experts, which scores all experts for each token and chooses the best.

Answers: which kernels choose a token's experts, and how large are they?
Elsewhere: the fields that select them, and the experts (layers/experts.py).

Scores are computed in fp32, whatever the precision of the product (arXiv:2101.03961, section 2.4). All
passes are small compared with the experts. Most of their cost is their launches.
"""

from flopcast.dtypes import constant
from flopcast.layers.base import Split
from flopcast.operators.item import Item, kernel
from flopcast.operators.matmul import Matmul
from flopcast.operators.memory_bound import MemoryBound
from flopcast.records import replace

PARTS = ("router", "scores", "pick", "loss", "selection_bias", "group_limit")  # names of its items


def router_items(
    hidden: int, split: Split, *, experts: int, scores: str, dtype: str, before: tuple[str, ...], loss: bool
) -> tuple[Item, ...]:
    """Return items from "mlp.in", this rank's own tokens, to "experts.picks".

    Parameters
    ----------
    experts : number of scores of a token
    scores : kind of the pass that computes scores from logits: "softmax" or "sigmoid"
    dtype : of the product
    before : kinds of passes over scores before experts are chosen; no gradient goes through them
    loss : whether a pass over the scores computes the load-balancing loss

    Returns
    -------
    tuple of Item
        The product, the scores, the passes of `before`, the choice, and the loss.
    """
    work = Matmul(m=split.own_tokens, n=constant(experts), k=constant(hidden), dtype=dtype)
    steps = [
        ("scores", scores, "logits", "scores"),
        *((kind, kind, "scores", "scores") for kind in before),
        ("pick", "top_k", "scores", "picks"),
        *((("loss", "router_loss", "scores", "loss"),) if loss else ()),
    ]
    elements, width = split.own_tokens * experts, constant(experts)
    passes = (
        kernel(
            f"experts.{name}",
            MemoryBound(kind=kind, elements=elements, width=width, dtype="fp32"),
            (f"experts.{source}",),
            f"experts.{output}",
            component="experts",
        )
        for name, kind, source, output in steps
    )
    product = kernel("experts.router", work, ("mlp.in",), "experts.logits", component="experts")
    return (replace(product, wide=True), *passes)
