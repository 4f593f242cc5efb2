"""Experts in a serving engine: one call for all experts of a rank, and one sum over ranks.

Answers: which kernels and messages do the experts of a layer need in one pass, on one rank?

Ranks of one group hold the same tokens. Each rank multiplies the rows of its experts, or of its share of
each expert. One all-reduce adds the results of all ranks, including shared experts. Groups that share
experts gather the tokens of all groups before, and scatter the sums after. If experts are distributed over
more than the eight ranks of a node, engines send a token only to the ranks of its experts (DeepEP; the
all-to-all over NVLink of TensorRT-LLM), whose kernels sort and add only these tokens.
"""

import numpy as np

from flopcast.dtypes import Counts, constant
from flopcast.layers.base import leave_tensor_parallel
from flopcast.layers.block import Block
from flopcast.layers.expert_load import RankLoad, fullest_rank_load
from flopcast.layers.experts import Experts
from flopcast.layers.latent_experts import ENTERED, LEFT
from flopcast.operators.formats import SERVED_FORMATS
from flopcast.operators.fused_experts import FusedExperts, padded_rows
from flopcast.operators.item import Item, blocking, kernel
from flopcast.operators.memory_bound import KINDS
from flopcast.operators.messages import AllGather, ReduceScatter
from flopcast.records import replace
from flopcast.serving.seen import Seen
from flopcast.spec.deployment import served_format

NODE_RANKS = 8
ROUTER = ("experts.router", "experts.pick")  # one kernel makes scores of logits, limits groups, and picks
KEPT = (*ROUTER, "experts.latent_in", "experts.latent_out")


def served_experts(items: tuple[Item, ...], seen: Seen) -> tuple[Item, ...]:
    """Replace the exchange of rows and the products of experts by one call on each rank.

    Training permutes rows and sends each to its experts; an engine runs one kernel over the tokens that the
    rank already holds. The items of the router stay. Groups of ranks that share experts add an all-gather
    before and a reduce-scatter after the call, or the exchange of single tokens. At the end, one all-reduce
    adds the results of routed and shared experts over the ranks of a group.
    """
    experts = seen.layer.feed_forward if isinstance(seen.layer, Block) else None
    if not isinstance(experts, Experts):
        return items
    kept: list[Item] = []
    for item in items:
        name = item.name
        if name == "experts.unpermute":
            kept += _among_groups("gather", AllGather, experts, seen)
            kept.append(_experts(experts, seen))
            kept += _among_groups("scatter", ReduceScatter, experts, seen)
        elif (name.startswith("experts.") and name not in KEPT) or name == "shared.leave":
            continue
        else:
            kept.append(item)
        if name == ("shared.join" if experts.shared_width else "experts.unpermute"):
            leave = leave_tensor_parallel("mlp.partial", "mlp.sum", "mlp.leave", seen.hidden, seen.split)
            kept.append(leave)
    return tuple(kept)


def _among_groups(
    name: str, message: type[AllGather] | type[ReduceScatter], experts: Experts, seen: Seen
) -> list[Item]:
    """Return the message between groups of ranks that share the experts; none of a single group."""
    groups = seen.deployment.data_parallel
    if groups == 1:
        return []
    reached = reached_share(seen.deployment.expert_parallel, experts.top_k)
    size_bytes = seen.split.element_bytes if message is ReduceScatter else gathered_bytes(seen)
    sent = reached * seen.run.new_tokens * groups * experts.inner_hidden(seen.hidden)
    work = message(axis="dp", message_bytes=sent * size_bytes)
    held = ENTERED if experts.latent_hidden else "mlp.in"
    return [blocking(f"experts.{name}", work, held, held)]


def gathered_bytes(seen: Seen) -> float:
    """Return the bytes of an element of a token that is sent to its experts.

    If the engine quantises tokens before it sends them, they have the format of the experts' weights, with
    scales. Results return in 16 bits.
    """
    name = seen.deployment.format_of_experts
    wide = seen.split.element_bytes
    return SERVED_FORMATS[name].bytes_of_input("bf16") if name in seen.engine.sent_formats else wide


def reached_share(ranks: int, top_k: int) -> float:
    """Return the expected share of the ranks to which a token is sent.

    >>> reached_share(8, 8), round(reached_share(32, 8), 3)
    (1.0, 0.224)
    """
    return 1.0 if ranks <= NODE_RANKS else 1.0 - (1.0 - 1.0 / ranks) ** top_k


def _experts(experts: Experts, seen: Seen) -> Item:
    split = seen.split
    tokens = seen.run.new_tokens * seen.deployment.data_parallel
    load = _load(experts, tokens, seen)
    padded = seen.deployment.format_of_experts in seen.engine.padded_experts
    if padded:
        held = experts.num_experts / seen.split.expert
        rows = padded_rows(tokens * experts.top_k, held)
        load = RankLoad(rows=rows, touched=held * np.ones_like(rows), imbalance=np.ones_like(rows))
    work = FusedExperts(
        tokens=tokens * reached_share(seen.deployment.expert_parallel, experts.top_k),
        rows=load.rows,
        hidden=constant(experts.inner_hidden(seen.hidden)),
        inner=experts.expert_hidden / split.expert_tensor,
        touched=load.touched,
        imbalance=load.imbalance,
        dtype=split.dtype,
        weights=served_format(seen.deployment.format_of_experts),
        gated=KINDS[experts.activation].is_gated,
        padded=padded,
    )
    source, output = (ENTERED, LEFT) if experts.latent_hidden else ("mlp.in", "experts.sum")
    return kernel("experts.fused", work, (source, "experts.picks"), output, component="experts")


def _load(experts: Experts, tokens: Counts, seen: Seen) -> RankLoad:
    """Return the load of the fullest rank: of chance, or of the fullest expert that the model states."""
    ranks = seen.split.expert
    by_chance = fullest_rank_load(tokens, experts.top_k, experts.num_experts, int(ranks.item()))
    if experts.loads.fullest_ratio is None:
        return by_chance
    own = replace(seen.split, length=tokens / ranks, expert_tensor=constant(1.0))
    of_rank, of_expert = experts.loads.imbalance(own)
    rows = np.maximum(by_chance.rows, tokens * experts.top_k / ranks * of_rank)
    return RankLoad(rows=rows, touched=np.minimum(by_chance.touched, rows), imbalance=of_expert)
