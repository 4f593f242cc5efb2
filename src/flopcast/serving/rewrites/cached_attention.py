"""Attention with a cache of keys and values: prompts by one kernel, decoding sequences by another.

Answers: which kernels of a pass read and write the cache of a layer with heads of keys and values?
Elsewhere: latent attention (cached_latents.py).
"""

import numpy as np

from flopcast.dtypes import Counts, constant
from flopcast.layers.attention import Attention
from flopcast.layers.block import Block
from flopcast.operators.decode_attention import DecodeAttention
from flopcast.operators.flash_attention import FlashAttention
from flopcast.operators.item import Item, kernel
from flopcast.operators.memory_bound import MemoryBound
from flopcast.records import replace
from flopcast.serving.seen import Seen

CORE_ENDS = "attention.join_heads"  # kernels write heads side by side: the copy that joins them is left out
VIEWS = ("attention.split_heads",)  # cost nothing forward


def cached_attention(items: tuple[Item, ...], seen: Seen) -> tuple[Item, ...]:
    """Replace the core of attention by the write to the cache and the two kernels that read it.

    One kernel computes the queries of prompts, the other those of decoding sequences. Items that only move
    heads in training (`VIEWS`) are removed, because engines write the cache in the layout that the kernels
    read. Other layers are returned unchanged.
    """
    mixer = seen.layer.mixer if isinstance(seen.layer, Block) else None
    if not isinstance(mixer, Attention):
        return items
    kept: list[Item] = []
    for item in items:
        if item.name == CORE_ENDS:
            kept += _core(mixer, seen)
        elif item.group != "core_attention" and item.name not in VIEWS:
            kept.append(item)
    return tuple(kept)


def _core(mixer: Attention, seen: Seen) -> list[Item]:
    """Return the items between the projections of a layer."""
    split, run = seen.split, seen.run
    heads, groups = mixer.local_heads(split)
    size = constant(mixer.size(seen.hidden))
    written = MemoryBound(kind="copy", elements=run.new_tokens * groups * size * 2.0, dtype=split.dtype)
    decode = DecodeAttention(
        sequences=run.sequences,
        keys=_read_keys(mixer, run.cached_tokens, run.sequences),
        heads=heads * run.computed_tokens,  # all new tokens of a sequence read its cache together
        kv_heads=groups,
        head_size=size,
        dtype=split.dtype,
        cache=seen.cache,
        windowed=mixer.window is not None,
    )
    return [
        kernel("attention.write_cache", written, ("attention.q",), component="attention"),
        prompt_attention(seen, heads, groups, size, window=mixer.window),
        replace(
            kernel("attention.decode", decode, ("attention.q",), component="decode_attention"),
            output="attention.joined",
        ),
    ]


def _read_keys(mixer: Attention, cached: Counts, sequences: Counts) -> Counts:
    """Return the tokens that decoding sequences read: those of the window, if there is one."""
    if mixer.window is None:
        return cached
    keys: Counts = np.minimum(cached, sequences * mixer.window)
    return keys


def prompt_attention(
    seen: Seen,
    heads: Counts,
    groups: Counts,
    size: Counts,
    value_size: Counts | None = None,
    window: int | None = None,
) -> Item:
    """Return the kernel over the prompts of a pass, whose pairs are those of one causal square.

    Several prompts in a pass are replaced by one shape with the same pairs and tokens. This shape is a
    rectangle of all queries of the pass, with the number of keys that gives the same pairs.
    """
    run = seen.run
    queries = run.prompt_tokens
    pairs = run.prompt_pairs if window is None else np.minimum(run.prompt_pairs, queries * window)
    work = FlashAttention(
        batch=heads,
        kv_batch=groups,
        queries=queries,
        keys=2.0 * pairs / np.maximum(queries, 1.0),
        head_size=size,
        value_head_size=value_size,
        causal=True,
        dtype=seen.split.dtype,
    )
    return kernel("attention.prompt", work, ("attention.q",), component="prompt_attention")
