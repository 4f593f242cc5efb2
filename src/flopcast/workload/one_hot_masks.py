"""GEMMs with one-hot masks that send tokens to experts of limited capacity, and return the results.

Answers: which products select the tokens of each place of an expert, and add up the results of a token?
Elsewhere: the rows of an expert (layers/expert_load.py), the exchanges between them (expert_items.py).

An expert has `capacity` places for each sequence. A mask with an element for every token and place selects
the token of each place: out[place, hidden] = mask[place, token] @ x[token, hidden]. The FLOP are therefore
quadratic in the length of a sequence. Results return by a mask of weights, which has a gradient; the mask
of the selection has none.

References
----------
MaxText, layers/moe.py, `dense_matmul` with a capacity_factor: "BSM,BSEC -> EBCM" and "EBCM,BSEC -> BSM".
The same products: arXiv:2006.16668 (GShard), algorithm 1.
"""

from flopcast.dtypes import Counts
from flopcast.layers.base import Split
from flopcast.operators.exchanges import Dispatch
from flopcast.operators.item import Item
from flopcast.operators.matmul import GroupedMatmul, Matmul
from flopcast.operators.memory_bound import MemoryBound
from flopcast.records import replace
from flopcast.spec.stack import Stack
from flopcast.workload.program import Layer


def with_one_hot_masks(layer: Layer, stack: Stack) -> Layer:
    """Return a layer with these products instead of the passes that permute rows around exchanges.

    Only experts that are padded to their capacity, whose exchanges send every place, have masks.
    """
    exchanges = [item.work for item in layer.forward if isinstance(item.work, Dispatch)]
    if not stack.experts.one_hot_masks or not exchanges or exchanges[0].routing is not None:
        return layer
    hidden = next(item.work.k for item in layer.forward if isinstance(item.work, GroupedMatmul))
    split = layer.logical.split
    return replace(layer, forward=tuple(_product(item, hidden, split) for item in layer.forward))


def _product(item: Item, hidden: Counts, split: Split) -> Item:
    """Return the product that replaces `permute` or `unpermute`; any other item unchanged."""
    work = item.work
    if not isinstance(work, MemoryBound) or item.name not in ("experts.permute", "experts.unpermute"):
        return item
    rows, tokens = work.elements / hidden, split.own_tokens
    if item.name == "experts.permute":
        product = Matmul(m=rows, n=hidden, k=split.length, dtype=work.dtype, reads_data=True)
        return replace(
            item, work=product, inputs=item.inputs[::-1], wide=True
        )  # a mask is kept, not tokens
    places = rows * split.length / tokens  # of all experts, for one sequence
    return replace(item, work=Matmul(m=tokens, n=hidden, k=places, dtype=work.dtype), wide=True)
