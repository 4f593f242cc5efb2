"""Selective recompute by operator (TorchTitan): cheap operators and every second product run again.

Answers: which fraction of each item of a block runs again in the backward pass?
Elsewhere: the order of recompute (recompute_order.py), the kept tensors (backward.py).

TorchTitan has a list of operators whose results are kept: linear layers, fused attention, and the
reduce-scatter of tensor parallelism. However, every second linear layer, counted from the start of a block,
runs again. Everything else runs again: norms, activation functions, the products of experts (`_grouped_mm`
is not in the list), their exchanges, the router's product, and linear layers in 4 bits (torchao calls
`torch.nn.functional.scaled_mm`; the list has the older `_scaled_mm`).

An item may combine several parallel linear layers: queries, keys and values, or the two halves of a gated
layer. A part of it then runs again.

References
----------
torchtitan/distributed/activation_checkpoint.py (the count of products) and `_op_sac_save_list` of
torchtitan/models/llama3/infra/parallelize.py. flopcast assumes that exchanges of experts run again, as in
2025; the list of 2026 keeps `all_to_all_single`. https://github.com/pytorch/torchtitan
"""

from flopcast.layers.attention import CORE
from flopcast.layers.modules import OPERATORS
from flopcast.layers.router import PARTS
from flopcast.operators.formats import FORMATS
from flopcast.operators.item import Item
from flopcast.operators.matmul import Matmul
from flopcast.operators.messages import ReduceScatter
from flopcast.records import replace
from flopcast.workload.rewrites.separate_projections import parts_of


def marked(forward: tuple[Item, ...], modules: frozenset[str]) -> tuple[Item, ...]:
    """Return the items; if modules name operators, items that run again at least in part get a group."""
    if OPERATORS not in modules:
        return forward
    shares = recomputed_shares(forward)
    return tuple(replace(item, group=OPERATORS) if shares[item.name] > 0 else item for item in forward)


def recomputed_shares(forward: tuple[Item, ...]) -> dict[str, float]:
    """Return the share of each item that runs again, by its name.

    Examples
    --------
    >>> from flopcast.dtypes import constant
    >>> from flopcast.operators.item import kernel
    >>> work = Matmul(m=constant(4), n=constant(4), k=constant(4), dtype="bf16")
    >>> linears = [kernel(name, work, (), name, component="mlp") for name in ("up", "down")]
    >>> recomputed_shares(tuple(linears))
    {'up': 0.0, 'down': 1.0}
    """
    shares: dict[str, float] = {}
    number = 0
    products = [item.work for item in forward if isinstance(item.work, Matmul)]
    for item in forward:
        shares[item.name] = 1.0
        scatters = isinstance(item.work, ReduceScatter) and item.work.axis == "tp"
        if scatters or item.group == CORE:
            shares[item.name] = 0.0
        elif isinstance(item.work, Matmul) and _is_listed(item.work, item.name):
            parts = parts_of(item, forward)
            widths = _widths(item, products[products.index(item.work) :], parts)
            again = [width for part, width in enumerate(widths, number) if part % 2]
            shares[item.name] = sum(again) / sum(widths)
            number += parts
    return shares


def _is_listed(work: Matmul, name: str) -> bool:
    """Return whether the list of operators has the product of a linear layer."""
    in_fewer_bits = work.narrow != "" and FORMATS[work.narrow].size_bytes < 1.0
    return not in_fewer_bits and not name.endswith(PARTS[0])


def _widths(item: Item, products: list[Matmul], parts: int) -> tuple[float, ...]:
    """Return the relative widths of the linear layers that an item stands for.

    Of queries, keys and values, the queries are as wide as the input of the next product, the output layer.
    """
    behind = [work for work in products if work is not item.work]
    if parts < 3 or not isinstance(item.work, Matmul) or not behind:
        return (1.0,) * parts
    ratio = float((behind[0].k / item.work.n).flat[0])
    return ratio, (1.0 - ratio) / 2, (1.0 - ratio) / 2
