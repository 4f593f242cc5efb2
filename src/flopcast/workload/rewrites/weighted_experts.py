"""Rows of experts weighed inside their activation, and what that and a clamp cost in Megatron-Core.

Megatron-Core weighs so since its experts take the router's probabilities (`permuted_probs` of
megatron/core/transformer/moe/experts.py, core v0.12). The output of experts is then no longer kept: what
the gradients of the weights need, the input of the activation, is kept anyway.
"""

from flopcast.operators.grouped_matmul import GroupedMatmul
from flopcast.operators.item import Item
from flopcast.workload.rewrites.base import Items, change_kind, kind_of


def weighted_experts(items: Items) -> Items:
    """`unpermute` → `unpermute_sum`: rows are added at home, weighed before, by a number a row.

    So the second linear's bias must be weighed too, as nothing else weighs it: `bias_add` behind the last
    product → `weighed_bias`. It is done expert by expert, in PyTorch's operators and in fp32, which
    probabilities are: bias times probability (4 bytes an element), the sum (10), the parts joined (8), the
    cast (6); backward casts (12), parts joined (4), and a product and a sum for each of bias and
    probability (24). Transformer Engine adds the first linear's in its product: → `epilogue_bias`.

    References
    ----------
    megatron/core/transformer/moe/experts.py: `TEGroupedMLP._apply_bias`; linear_fc1 is built with
    skip_bias_add=False, linear_fc2 with True.
    """
    made = [item.output for item in items if isinstance(item.work, GroupedMatmul)]
    biased = tuple(_bias(item, made) if kind_of(item) == "bias_add" else item for item in items)
    return change_kind(biased, "unpermute", "unpermute_sum")


def _bias(item: Item, made: list[str]) -> Item:
    """The bias of a product of experts as Megatron-Core runs it; any other as it is."""
    if not made or item.inputs[0] not in made:
        return item
    kind = "weighed_bias" if item.inputs[0] == made[-1] else "epilogue_bias"
    return change_kind((item,), "bias_add", kind)[0]


def chunked_gate(items: Items) -> Items:
    """A clamped gate → `chunked_swiglu`, `chunked_geglu`: the clamp is not in the gate's kernel.

    Both halves are cut out, clamped and joined again by PyTorch (8 passes of a half), backward masked and
    joined (10); the fused gate then keeps what is clamped, beside what the clamp keeps.

    References
    ----------
    megatron/core/fusions/fused_bias_geglu.py: `weighted_bias_quick_geglu_impl`.
    """
    for gate in ("swiglu", "geglu"):
        items = change_kind(items, f"clamped_{gate}", f"chunked_{gate}")
    return items
