"""Latent attention with a cache of latents: absorbed while decoding, with heads written out for prompts.

Answers: which kernels run between the latents and the output projection of a layer of latent attention?

A decoding query is multiplied by the up-projection of keys, and the result of attention by that of values
("absorbed", arXiv:2405.04434, section 2.1.2), so that the kernel reads latents alone. For the tokens of
prompts the latents are projected up instead, which costs less for many queries.
"""

from dataclasses import replace

from flopcast.dtypes import constant
from flopcast.layers.block import Block
from flopcast.layers.latent_attention import LatentAttention
from flopcast.operators.item import Item, kernel
from flopcast.operators.latent_decode import LatentDecode
from flopcast.operators.matmul import Matmul
from flopcast.operators.memory_bound import MemoryBound
from flopcast.serving.rewrites.cached_attention import CORE_ENDS, prompt_attention
from flopcast.serving.seen import Seen

LEFT_OUT = (  # fused with their neighbours, or views
    "attention.split_latent",
    "attention.enter_q",
    "attention.enter_kv",
    "attention.enter_rotated",
    "attention.join_queries",
    "attention.join_keys",
)


def cached_latents(items: tuple[Item, ...], seen: Seen) -> tuple[Item, ...]:
    """Replace the core of latent attention, and project up the latents of prompts alone."""
    mixer = seen.layer.mixer if isinstance(seen.layer, Block) else None
    if not isinstance(mixer, LatentAttention):
        return items
    kept: list[Item] = []
    for item in items:
        if item.name == "attention.kv_up" and isinstance(item.work, Matmul):
            kept.append(replace(item, work=replace(item.work, m=seen.run.prompt_tokens)))
        elif item.name == CORE_ENDS:
            kept += _core(mixer, seen)
        elif item.group != "core_attention" and item.name not in LEFT_OUT:
            kept.append(item)
    return tuple(kept)


def _core(mixer: LatentAttention, seen: Seen) -> list[Item]:
    """Return the items between the projections down and the output projection.

    The absorbed products of all heads count the weights and the products of one product over all heads;
    what they read of each head apart is little beside the weights.
    """
    split, run = seen.split, seen.run
    heads = mixer.heads / split.tensor
    rank, dtype = mixer.kv_lora_rank, split.dtype
    latent = run.new_tokens * (rank + mixer.qk_rope_head_size)
    written = MemoryBound(kind="copy", elements=latent, dtype=dtype)
    absorb = Matmul(m=run.decoded_tokens, n=heads * rank, k=constant(mixer.qk_nope_head_size), dtype=dtype)
    raise_values = Matmul(
        m=run.decoded_tokens, n=heads * mixer.value_head_size, k=constant(rank), dtype=dtype
    )
    decode = LatentDecode(
        sequences=run.sequences,
        keys=run.cached_tokens,
        heads=heads * run.computed_tokens,  # all new tokens of a sequence read its cache together
        rank=constant(rank),
        rope_size=constant(mixer.qk_rope_head_size),
        dtype=dtype,
        cache=seen.cache,
    )
    sizes = constant(mixer.query_size), constant(mixer.value_head_size)
    return [
        kernel("attention.write_cache", written, ("attention.q_up",), component="attention"),
        prompt_attention(seen, heads, heads, *sizes),
        replace(kernel("attention.absorb", absorb, ("attention.q_up",), component="attention"), wide=True),
        kernel("attention.decode", decode, ("attention.absorb",), component="decode_attention"),
        replace(
            kernel("attention.values", raise_values, ("attention.decode",), component="attention"),
            wide=True,
            output="attention.joined",
        ),
    ]
