"""Linear attention with a state for each sequence: prompts chunk by chunk, decoding token by token.

Answers: which kernels of a pass read and write the states of linear attention?
Elsewhere: how much memory states take (serving/memory.py), attention with a cache (cached_attention.py).

The convolution and the core run once over the prompts of a pass and once over its decoding sequences; the
projections and the norm run over all new tokens together.
"""

import numpy as np

from flopcast.layers.block import Block
from flopcast.layers.mixer import AbstractRecurrentMixer
from flopcast.operators.gated_delta import DeltaDecode, GatedDelta
from flopcast.operators.item import Item, kernel
from flopcast.operators.memory_bound import MemoryBound
from flopcast.records import replace
from flopcast.serving.engine_pass import EnginePass
from flopcast.serving.seen import Seen


def cached_states(items: tuple[Item, ...], seen: Seen) -> tuple[Item, ...]:
    """Replace the convolution and the core by separate kernels for prompts and for decoding sequences.

    Both kinds of kernel read and write the state of each sequence: that of prompts once for a chunk, that
    of decoding sequences once for each token. Other layers are returned unchanged.
    """
    mixer = seen.layer.mixer if isinstance(seen.layer, Block) else None
    if not isinstance(mixer, AbstractRecurrentMixer):
        return items
    kept: list[Item] = []
    for item in items:
        if item.name == "attention.convolve":
            kept += _convolutions(mixer, seen)
        elif isinstance(item.work, GatedDelta):
            kept += _cores(item.work, seen)
        else:
            kept.append(item)
    return tuple(kept)


def prompts_of(run: EnginePass) -> EnginePass:
    """Return the prompts of passes as prompts of equal length, with their number as `sequences` and their
    length as `new_tokens`.

    In a whole prompt, the number of pairs per token is half of the number of tokens. Chunks have more
    pairs, but no more tokens than the pass.

    >>> from flopcast.dtypes import constant
    >>> whole = EnginePass(new_tokens=constant(2048), sequences=constant(0), cached_tokens=constant(0),
    ...                    pairs=constant(2 * 1024**2 / 2))
    >>> found = prompts_of(whole)
    >>> found.sequences.item(), found.new_tokens.item()
    (2.0, 1024.0)
    """
    tokens = run.prompt_tokens
    length = np.clip(2.0 * run.prompt_pairs / np.maximum(tokens, 1.0), 1.0, np.maximum(tokens, 1.0))
    return replace(run, new_tokens=length, sequences=tokens / length)


def _convolutions(mixer: AbstractRecurrentMixer, seen: Seen) -> list[Item]:
    """Return the convolution of prompts, and that of new tokens with the last ones of their sequences.

    A decoding sequence reads and writes the last tokens of each channel beside its new token.
    """
    run, channels, dtype = seen.run, mixer.local_channels(seen.split), seen.split.dtype
    kind = "causal_convolution"
    prompts = MemoryBound(kind=kind, elements=run.prompt_tokens * channels, dtype=dtype)
    each = mixer.last_tokens + run.computed_tokens
    steps = MemoryBound(kind=kind, elements=run.sequences * channels * each, dtype=dtype)
    return [
        _item("prompt_convolution", prompts, "mixed", "convolved", "prompt_attention"),
        _item("decode_convolution", steps, "mixed", "convolved", "decode_attention"),
    ]


def _cores(core: GatedDelta, seen: Seen) -> list[Item]:
    """Return the delta rule over prompts, and over the new tokens of decoding sequences."""
    run = seen.run
    whole = prompts_of(run)
    served = core.rule == "delta"  # engines run the kernels of Mamba-2 that training runs too
    prompts = replace(core, sequences=whole.sequences, tokens=whole.new_tokens, is_served=served)
    step = DeltaDecode(
        sequences=run.sequences,
        heads=core.heads,
        key_heads=core.key_heads,
        key_size=core.key_size,
        value_size=core.value_size,
        dtype=core.dtype,
        computed_tokens=run.computed_tokens,
        rule=core.rule,
    )
    return [
        _item("prompt", prompts, "convolved", "states", "prompt_attention"),
        _item("decode", step, "convolved", "states", "decode_attention"),
    ]


def _item(
    name: str, work: GatedDelta | DeltaDecode | MemoryBound, source: str, output: str, component: str
) -> Item:
    tensors = f"attention.{source}", f"attention.{output}"
    return replace(kernel(f"attention.{name}", work, tensors[:1], component=component), output=tensors[1])
