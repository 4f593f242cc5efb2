"""Latent attention with a cache of latents: absorbed while decoding, with heads written out for prompts.

Answers: which kernels run between the latents and the output projection of latent attention?

A decoding query is multiplied by the up-projection of keys, and the result of attention by the
up-projection of values ("absorbed", arXiv:2405.04434, section 2.1.2), so that the kernel reads only
latents. For the tokens of prompts the latents are projected up instead, which costs less for many queries.

If ranks split the latents (TPLA), each rank has the queries and the outputs of all heads for a decoding
token. The sum over ranks after the output projection combines their results. Prompts are computed with the
heads of the rank, as without the split.
"""

import numpy as np

from flopcast.dtypes import Counts, constant
from flopcast.layers.block import Block
from flopcast.layers.latent_attention import LatentAttention
from flopcast.operators.item import Item, kernel
from flopcast.operators.latent_decode import LatentDecode
from flopcast.operators.matmul import Matmul
from flopcast.operators.memory_bound import MemoryBound
from flopcast.records import replace
from flopcast.serving.latents import cached_latents_of
from flopcast.serving.rewrites.cached_attention import CORE_ENDS, prompt_attention
from flopcast.serving.rewrites.sparse_tokens import chosen_tokens, is_sparse, read_keys
from flopcast.serving.seen import Seen

OF_HEADS = {"attention.q": "n", "attention.q_up": "n", "attention.out": "k"}  # the side that heads cut
LEFT_OUT = (  # fused with their neighbours, or views
    "attention.split_latent",
    "attention.enter_q",
    "attention.enter_kv",
    "attention.enter_rotated",
    "attention.join_queries",
    "attention.join_keys",
)


def cached_latents(items: tuple[Item, ...], seen: Seen) -> tuple[Item, ...]:
    """Replace the core of latent attention, and project up only the latents of prompts.

    Decoding queries are absorbed: two products of one matrix for each head, and a kernel that reads
    latents. With split latents, the products of queries and outputs have all heads on each rank. With
    `fused_latents`, one product computes the latents of queries and those of keys and values. Other layers
    are returned unchanged.
    """
    mixer = seen.layer.mixer if isinstance(seen.layer, Block) else None
    if not isinstance(mixer, LatentAttention):
        return items
    is_joined = seen.engine.fused_latents and mixer.q_lora_rank is not None
    columns = constant((mixer.q_lora_rank or 0) + mixer.latent_elements + mixer.qk_rope_head_size)
    kept: list[Item] = []
    for item in items:
        if is_joined and item.name == "attention.kv_down":
            continue
        if is_joined and item.name == "attention.q_down" and isinstance(item.work, Matmul):
            kept.append(replace(item, work=replace(item.work, n=columns)))
        elif item.name == "attention.kv_up" and isinstance(item.work, Matmul):
            kept.append(_of_prompts(item, item.work, seen))
        elif item.name in OF_HEADS and isinstance(item.work, Matmul) and seen.deployment.latents == "split":
            kept += _with_all_heads(item, item.work, seen)
        elif item.name == CORE_ENDS:
            kept += _core(mixer, seen)
        elif item.group != "core_attention" and item.name not in LEFT_OUT:
            kept.append(item)
    return tuple(kept)


def _with_all_heads(item: Item, work: Matmul, seen: Seen) -> list[Item]:
    """Return a product over the heads of a rank for prompts, and over all heads for decoding tokens."""
    side = OF_HEADS[item.name]
    every = replace(work, m=seen.run.decoded_tokens, **{side: getattr(work, side) * seen.split.tensor})
    everywhere = replace(item, name=f"{item.name}.all_heads", work=every, component="decode_attention")
    return [_of_prompts(item, work, seen), everywhere]


def _of_prompts(item: Item, work: Matmul, seen: Seen) -> Item:
    """Return a product over the tokens of prompts alone, with their attention."""
    return replace(item, work=replace(work, m=seen.run.prompt_tokens), component="prompt_attention")


def _core(mixer: LatentAttention, seen: Seen) -> list[Item]:
    """Return the items between the projections down and the output projection.

    The absorbed products of all heads count the weights and the products of one product over all heads;
    what they read of each head apart is little beside the weights.
    """
    split, run = seen.split, seen.run
    heads = mixer.heads / split.tensor
    cached, dtype = cached_latents_of(mixer, seen.deployment), split.dtype
    written = MemoryBound(kind="copy", elements=run.new_tokens * cached.elements, dtype=dtype)
    rank, decoding = constant(cached.rank), constant(cached.groups * cached.heads)
    absorb = Matmul(
        m=run.decoded_tokens, n=decoding * rank, k=constant(mixer.qk_nope_head_size), dtype=dtype
    )
    raise_values = Matmul(m=run.decoded_tokens, n=decoding * mixer.value_head_size, k=rank, dtype=dtype)
    decode = LatentDecode(
        sequences=run.sequences * cached.groups,
        keys=read_keys(mixer.index, run.cached_tokens, run.sequences) * cached.groups,
        heads=constant(cached.heads) * run.computed_tokens,  # new tokens of a sequence read it together
        rank=rank,
        rope_size=constant(cached.rope_size),
        dtype=dtype,
        cache=seen.cache,
    )
    return [
        kernel("attention.write_cache", written, ("attention.q_up",), component="attention"),
        *(chosen_tokens(mixer.index, seen) if mixer.index else ()),
        _prompts(mixer, heads, seen),
        replace(
            kernel("attention.absorb", absorb, ("attention.q_up",), component="decode_attention"), wide=True
        ),
        kernel("attention.decode", decode, ("attention.absorb",), component="decode_attention"),
        replace(
            kernel("attention.values", raise_values, ("attention.decode",), component="decode_attention"),
            wide=True,
            output="attention.joined",
        ),
    ]


def _prompts(mixer: LatentAttention, heads: Counts, seen: Seen) -> Item:
    """Return the kernel over prompts: with heads written out, or absorbed over the chosen tokens.

    Kernels of sparse attention read latents, because each query attends to a different choice of tokens.
    """
    query, value = constant(mixer.query_size), constant(mixer.value_head_size)
    if mixer.index is None:
        return prompt_attention(seen, heads, heads, query, value)
    sparse = is_sparse(mixer.index, seen.run)
    rank, rope = mixer.kv_lora_rank, mixer.qk_rope_head_size
    sizes = np.where(sparse, rank + rope, query), np.where(sparse, rank, value)
    return prompt_attention(seen, heads, heads, *sizes, window=mixer.index.top_k)
