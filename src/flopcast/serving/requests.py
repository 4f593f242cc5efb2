"""The requests of an engine as arrays, and the limits of its iterations.

Answers: when does each request arrive, how long is it, and which prefix does its prompt share? How many
sequences, tokens and KV blocks may an iteration have?
Elsewhere: where requests come from (arrivals.py, interop/request_traces/), how they are served
(scheduler.py).
"""

from typing import Literal

import numpy as np

from flopcast.dtypes import Floats, Integers
from flopcast.errors import Problem
from flopcast.fixes import set_to
from flopcast.records import Record, field, replace
from flopcast.units import counted

Preemption = Literal["recompute", "swap", "none"]
COLUMNS = (  # fields of Requests that have an entry for each request
    "arrival_s", "prompt_tokens", "output_tokens", "after", "cached_tokens", "keep_ids", "adapter_ids"
)  # fmt: skip


class Requests(Record, eq=False):
    """Requests in the order in which they arrive; arrays of shape (requests,) unless stated.

    A prompt may begin with segments that other prompts also contain: a shared system prompt, previous
    turns, or blocks that a trace identifies. Two prompts share their first segments as long as the ids of
    the segments are equal. Tokens after the last segment belong to only one request. The segments of
    request i are the entries from `segment_starts[i]` to `segment_starts[i + 1]`.
    """

    arrival_s: Floats  # where `after` is not -1: the time from the end of that request to this arrival
    prompt_tokens: Integers  # at least 1
    output_tokens: Integers  # at least 1; prefill yields the first
    after: Integers  # the request whose end this one awaits (the turn before); -1 if none
    cached_tokens: Integers  # of the prompt, already in the cache for certain; 0 in most traffic
    keep_ids: Integers  # the segment under which the whole context is kept afterwards; -1 if none
    segment_starts: Integers  # (requests + 1,)
    segment_ids: Integers  # (segments,), at least 0
    segment_tokens: Integers  # (segments,)
    adapter_ids: Integers = field(default_factory=lambda: np.zeros(0, dtype=np.intp))  # empty without any
    concurrency: int = 0  # closed loop: conversations that are open at any time; 0 if arrivals have times

    @property
    def size(self) -> int:
        """Return the number of requests."""
        return len(self.prompt_tokens)

    def first(self, number: int) -> "Requests":
        """Return the first `number` requests; all of them if there are no more.

        The turns of a conversation are in order, so the result contains the previous turn of each of its
        requests.
        """
        kept = min(number, self.size)
        segments = int(self.segment_starts[kept])
        return replace(
            self,
            **{name: getattr(self, name)[:kept] for name in COLUMNS},
            segment_starts=self.segment_starts[: kept + 1],
            segment_ids=self.segment_ids[:segments],
            segment_tokens=self.segment_tokens[:segments],
        )


def share_of(requests: Requests, parts: int) -> Requests:
    """Return the requests of one of n engines: every n-th conversation with all of its turns.

    >>> four = independent_requests(np.arange(4.0), np.array([10, 20, 30, 40]), np.array([1, 2, 3, 4]))
    >>> share_of(four, 2).prompt_tokens.tolist()
    [10, 30]
    """
    conversation = np.cumsum(requests.after < 0) - 1
    for request in np.flatnonzero(requests.after >= 0).tolist():
        conversation[request] = conversation[requests.after[request]]
    kept = conversation % parts == 0
    place = np.cumsum(kept) - 1
    segments = np.diff(requests.segment_starts)
    inside = np.repeat(kept, segments)
    after = np.where(requests.after >= 0, place[requests.after], -1)
    columns = {name: getattr(requests, name) for name in COLUMNS} | {"after": after}
    return replace(
        requests,
        **{name: column[kept] for name, column in columns.items() if len(column)},
        segment_starts=np.concatenate([[0], np.cumsum(segments[kept])]),
        segment_ids=requests.segment_ids[inside],
        segment_tokens=requests.segment_tokens[inside],
    )


def independent_requests(
    arrival_s: Floats, prompt_tokens: Integers, output_tokens: Integers, concurrency: int = 0
) -> Requests:
    """Return requests that share nothing and wait for no other request.

    Parameters
    ----------
    arrival_s, prompt_tokens, output_tokens : arrays of shape (requests,)
        Arrivals are ascending.
    concurrency : int
        As in Requests; arrival times are then not used.

    Examples
    --------
    >>> independent_requests(np.zeros(2), np.array([100, 200]), np.array([10, 20])).size
    2
    """
    size, none = len(prompt_tokens), np.zeros(0, dtype=np.intp)
    return Requests(
        arrival_s=arrival_s,
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        after=np.broadcast_to(np.intp(-1), (size,)),
        cached_tokens=np.broadcast_to(np.intp(0), (size,)),
        keep_ids=np.broadcast_to(np.intp(-1), (size,)),
        segment_starts=np.broadcast_to(np.intp(0), (size + 1,)),
        segment_ids=none,
        segment_tokens=none,
        concurrency=concurrency,
    )


class Limits(Record):
    """The limits of an engine and of one iteration, and the policy by which it chooses requests.

    The names in brackets are vLLM's.
    """

    max_sequences: int  # that are in the engine at once (max_num_seqs)
    max_tokens: int  # new tokens of one iteration (max_num_batched_tokens)
    kv_blocks: int  # that fit into memory (num_gpu_blocks)
    block_tokens: int = 16  # tokens of one KV block (block_size)
    spare_blocks: int = 0  # kept free when a request is admitted beside others (watermark)
    chunked_prefill: bool = True  # whether a long prompt is split over iterations
    prefill_first: bool = False  # whether prompts run in iterations of their own while decoding waits
    static_batch: bool = False  # whether the next requests begin only when all of a batch have ended
    returns_together: bool = False  # whether requests of a static batch return when all of them have ended
    padding: bool = False  # whether prompts of a static batch are as long as the longest of them
    prefix_cache: bool = True  # whether equal beginnings of prompts share their KV blocks
    preemption: Preemption = "recompute"  # "none" reserves the blocks of the whole output on admission
    receive_interval: int = 1  # decoding passes after which the engine looks for new requests
    wait_passes: int = 0  # decoding passes for which prompts wait for others to fill a pass with
    wait_tokens: float = 0.0  # new tokens of a pass that is full enough for them not to wait
    adapter_slots: int = 0  # adapters in memory at once (max_loras); 0 without adapters
    adapter_load_s: float = 0.0  # seconds to load one from the host
    swap_s: float = 0.0  # seconds to move one KV block to or from the host, for preemption="swap"
    yielded_tokens: float = 1.0  # output tokens that a decoding sequence gains: more if tokens are drafted
    computed_tokens: int = 1  # new tokens that a decoding sequence computes: 1 and the drafted tokens

    @property
    def kv_tokens(self) -> int:
        """Return the number of tokens whose keys and values fit into memory."""
        return self.kv_blocks * self.block_tokens


def limit_problems(limits: Limits, requests: Requests) -> list[Problem]:
    """Return why an engine with these limits can never serve these requests; empty if it can.

    Fields have the names of `Limits`, which the caller converts to those of the user.
    """
    problems = []
    decoding = limits.max_sequences * limits.computed_tokens
    if decoding > limits.max_tokens:
        fix = f"set max_tokens to at least {decoding}, or max_sequences to {limits.max_tokens}"
        because = f"each of the {limits.max_sequences} decoding sequences (max_sequences) computes"
        because = f"{because} {counted(limits.computed_tokens, 'token')} in an iteration"
        problems.append(Problem("max_tokens", limits.max_tokens, f"at least {decoding}", because, fix))
    if limits.static_batch and limits.preemption != "none":
        because = (
            "a static batch reserves its KV cache when it begins, and its requests are never preempted"
        )
        fix = set_to({"preemption": "none"}, {"static_batch": False})
        problems.append(Problem("preemption", limits.preemption, "'none'", because, fix))
    if requests.size == 0:
        because, fix = "the traffic contains no request", "give at least one request"
        problems.append(Problem("requests", 0, "at least 1", because, fix))
        return problems
    overshoot = int(np.ceil(limits.yielded_tokens)) - 1  # drafted beyond the last token
    context = requests.prompt_tokens + requests.output_tokens - 1 + overshoot
    longest = int(context.argmax())
    if context[longest] > limits.kv_tokens:
        because = f"request {longest} keeps the keys and values of its prompt and output until it ends"
        fix = "serve shorter requests, or leave more memory to the KV cache"
        allowed = f"at most {limits.kv_tokens} (the number of tokens that fit in the KV cache)"
        problems.append(Problem("tokens of a request", int(context[longest]), allowed, because, fix))
    prompt = int(requests.prompt_tokens.max())
    if not limits.chunked_prefill and prompt > limits.max_tokens:
        because = (
            "without chunked prefill, a prompt is computed in one iteration, and the longest prompt has "
            f"{prompt} tokens"
        )
        fix = set_to({"max_tokens": prompt}, {"chunked_prefill": True})
        problems.append(Problem("max_tokens", limits.max_tokens, f"at least {prompt}", because, fix))
    return problems
