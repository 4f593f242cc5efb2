"""The head, which runs on the last token of each sequence or on the tokens to verify, and sampling instead
of a loss.
"""

from flopcast.dtypes import ELEMENT_BYTES
from flopcast.layers.head import Head
from flopcast.operators.item import Item, blocking, kernel
from flopcast.operators.matmul import Matmul
from flopcast.operators.memory_bound import MemoryBound
from flopcast.operators.messages import AllGather
from flopcast.operators.row_sort import RowSort
from flopcast.records import replace
from flopcast.serving.seen import Seen


def last_tokens(items: tuple[Item, ...], seen: Seen) -> tuple[Item, ...]:
    """Compute and gather the logits of one token, or of all drafted tokens, for each sequence, and sample.

    To sample, every rank casts all logits of the vocabulary to fp32 and reads them once more to find the
    largest. Some engines sort the logits first.
    """
    if not isinstance(seen.layer, Head):
        return items
    product = next(item for item in items if item.name == "head.logits")
    if not isinstance(product.work, Matmul):
        return items
    rows, dtype = seen.run.decoded_tokens, seen.split.dtype
    logits = rows * product.work.n * seen.split.tensor
    cast = MemoryBound(kind="cast_to_fp32", elements=logits, dtype=dtype)
    best = MemoryBound(
        kind="top_k", elements=logits, width=product.work.n * seen.split.tensor, dtype="fp32"
    )
    sort = RowSort(rows=rows, columns=product.work.n * seen.split.tensor, dtype="fp32")
    ordered = kernel("head.sort", sort, ("logits.fp32",), "logits.fp32", component="head")
    gathered = AllGather(axis="tp", message_bytes=logits * ELEMENT_BYTES[dtype])
    return (
        replace(product, work=replace(product.work, m=rows)),
        blocking("head.gather", gathered, "logits", "logits.full"),
        kernel("head.cast", cast, ("logits.full",), "logits.fp32", component="head"),
        *([ordered] if seen.engine.sampling == "sorted" else []),
        kernel("head.sample", best, ("logits.fp32",), "token", component="head"),
    )
