"""The messages of context parallelism: how a rank gets the keys of other ranks.

Answers: what is sent before and after the core of an attention layer under context parallelism?
Elsewhere: the core itself, whose size follows from `Split.queries`, `.keys` and `.head_shards`
(layers/attention.py); the steps of a ring (workload/rewrites/ring_attention.py); the rules of plans
(spec/rules_context.py). All other parts of a model process each token separately and need no message.

Every mixer passes on the queries, keys and values of its own tokens ("q", "k", "v") and gets "context":

    ring         keys and values travel round; a rank's queries meet one rank's keys at a time
    all_gather   keys and values are gathered before, and gathered again for the gradients
    all_to_all   each rank gets all tokens of its share of the heads, and gives the results back

References
----------
Ring: arXiv:2310.01889. All-gather: Llama 3, arXiv:2407.21783, section 3.3.2. All-to-all: Ulysses,
arXiv:2309.14509. All three: Transformer Engine, `pytorch/attention/dot_product_attention/
context_parallel.py`.
"""

from flopcast.dtypes import Counts
from flopcast.layers.base import Split, memory_pass
from flopcast.operators.item import Item, blocking, kernel
from flopcast.operators.messages import AllGather, AllToAll, RingPass
from flopcast.records import Record

BEFORE = 3  # copies of a tensor around an all-to-all: cut by heads; joined by tokens; in their order
BEHIND = 2  # of the result, likewise: the mixer itself joins heads


class Handed(Record, eq=False):
    """The widths of queries, keys and values: elements per token on this rank, summed over its heads.

    Key/value heads that serve several query heads count once: fewer of them make messages smaller.
    """

    queries: Counts
    keys: Counts
    values: Counts
    output: Counts


def enter_core(
    part: str, handed: Handed, split: Split, group: str, source: Split | None = None
) -> list[Item]:
    """Return items between q, k, v of a rank's own tokens and its attention core.

    Parameters
    ----------
    part : prefix of the mixer's tensors and items, "attention"
    group : the core's recompute group
        The messages of a ring belong to this group, because they run during the core. Tensors that were
        gathered or exchanged before the core are not sent again when the core is recomputed.
    source : the division of the tokens of keys and values, if they belong to another sequence than the
        queries
    """
    keys = split if source is None else source
    if split.context_exchange == "ring":
        return [_ring(part, handed, split, group)]
    if split.context_exchange == "all_gather":
        return [
            gather_over_ranks(part, "k", handed.keys, keys),
            gather_over_ranks(part, "v", handed.values, keys),
        ]
    if split.context_exchange == "all_to_all":
        sent = (("q", handed.queries, split), ("k", handed.keys, keys), ("v", handed.values, keys))
        return [item for each in sent for item in _exchange(part, each[0], each[1], BEFORE, each[2])]
    return []


def leave_core(part: str, handed: Handed, split: Split) -> list[Item]:
    """Return the all-to-all that gives a rank the "context" of its own tokens, if ranks exchanged heads."""
    if split.context_exchange == "all_to_all":
        return _exchange(part, "context", handed.output, BEHIND, split)
    return []


def _ring(part: str, handed: Handed, split: Split, group: str) -> Item:
    """Return transfers of keys and values around the ring: one less than ranks."""
    hop_bytes = split.tokens * (handed.keys + handed.values) * split.element_bytes
    return Item(
        name=f"{part}.pass_on",
        work=RingPass(axis="cp", message_bytes=hop_bytes, order=split.context_order),
        component="cp_communication",
        inputs=(f"{part}.k",),
        output=f"{part}.passing",
        group=group,
        stream="cp",
        count=split.context - 1.0,
        kept_bytes=split.tokens * handed.keys * split.element_bytes,
    )


def gather_over_ranks(part: str, tensor: str, width: Counts, split: Split) -> Item:
    """Return the all-gather of keys or values. Only the rank's own part is saved for the backward pass."""
    own_bytes = split.tokens * width * split.element_bytes
    message = AllGather(axis="cp", message_bytes=own_bytes * split.context)
    return blocking(f"{part}.gather_{tensor}", message, f"{part}.{tensor}", f"{part}.{tensor}", own_bytes)


def _exchange(part: str, tensor: str, width: Counts, times: int, split: Split) -> list[Item]:
    """Return items that cut one tensor by heads instead of tokens, or back, with this many copies."""
    size, name = split.tokens * width, f"{part}.{tensor}"
    copies = memory_pass("copy", times * size, split)
    message = AllToAll(axis="cp", message_bytes=size * split.element_bytes)
    return [
        kernel(f"{part}.order_{tensor}", copies, (name,), name, component=part),
        blocking(f"{part}.exchange_{tensor}", message, name, name),
    ]
