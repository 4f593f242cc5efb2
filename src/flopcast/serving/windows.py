"""Caches of layers with a window: the number of tokens that they store, and their memory.

Elsewhere: the memory of a device (memory.py), attention with a window (layers/attention.py).

Engines give blocks to such layers as a request grows, and take back the blocks before its window (vLLM's
design of its hybrid KV cache manager, docs.vllm.ai/en/latest/design/hybrid_kv_cache_manager).
"""

from flopcast.layers.attention import Attention
from flopcast.layers.block import Block
from flopcast.serving.tier_memory import UNLIMITED
from flopcast.spec.serving_job import ServingJob

STATE_SHARE = 0.9 / 1.9  # of the room for caches, at most: SGLang's mamba-full-memory-ratio of 0.9


def window_of(block: Block) -> int | None:
    """Return the largest number of tokens to which a token of a block attends; None without a window."""
    return block.mixer.window if isinstance(block.mixer, Attention) else None


def tokens_in_window(job: ServingJob, window: int | None) -> float:
    """Return the tokens of a mean request in a layer with a window. For a trace, this is a whole window."""
    return min(window or 0, sum(_lengths(job)) or UNLIMITED)


def share_of_windows(job: ServingJob, window_bytes: float, token_bytes: float) -> float:
    """Return the share of layers with a window in the caches of a request that is halfway in its output.

    Parameters
    ----------
    window_bytes : bytes of a request in layers with a window
    token_bytes : bytes of each of its tokens in layers without a window
    """
    prompt, output = _lengths(job)
    taken = window_bytes + token_bytes * (prompt + output / 2)
    return window_bytes / taken if prompt and taken else STATE_SHARE


def _lengths(job: ServingJob) -> tuple[float, float]:
    """Return the mean tokens of prompts, with images and turns before, and of outputs; 0 for a trace."""
    prompt, output = job.traffic.prompt_tokens, job.traffic.output_tokens
    if prompt is None or output is None:
        return 0.0, 0.0
    before = (job.traffic.turns - 1) * (prompt.mean + output.mean)
    return before + prompt.mean + job.image_tokens, output.mean
