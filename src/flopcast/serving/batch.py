"""The sequences in an engine: prompts in progress, decoding sequences, and their KV blocks.

Answers: which sequences are in the engine, how far are they, and which of them end in a pass?
Elsewhere: which request is admitted and how long passes take (scheduler.py), counts of blocks
(kv_blocks.py).

All decoding sequences gain the same number of tokens in a pass. The clock counts these tokens, so that the
end of a sequence is known when it joins. With drafted tokens, the mean gain is not a whole number. After p
passes, the clock is p times the gain, rounded down.
"""

import math
from collections import deque
from collections.abc import Iterable
from heapq import heappop, heappush

from flopcast.records import Record
from flopcast.serving.adapter_cache import AdapterCache
from flopcast.serving.kv_blocks import KvBlocks
from flopcast.serving.prefix_cache import PrefixCache
from flopcast.serving.requests import Limits, Requests


class Wanted(Record, kw_only=False):
    """The blocks and slots that a request needs for its admission."""

    new_tokens: int  # of its prompt; 0 if its blocks come back from the host
    cached: int  # tokens of its prompt in the cache
    blocks: int  # that are not in use yet


class Chunk(Record, kw_only=False):
    """The tokens of prompts that one pass computes."""

    tokens: int
    sequences: int
    contexts: int  # sum of the contexts after the pass
    pairs: int  # sum over new tokens of the tokens that each attends to
    finished: list[int]  # requests whose prompt is then computed


class EngineBatch:
    """The sequences in the batch of an engine, and the state of each request.

    Parameters
    ----------
    requests : Requests
    limits : Limits
    computed_elsewhere : bool
        Whether prompts and first tokens are computed elsewhere, before requests arrive.
    """

    def __init__(self, requests: Requests, limits: Limits, computed_elsewhere: bool = False) -> None:
        size = requests.size
        self.limits: Limits = limits
        self.blocks: KvBlocks = KvBlocks(limits.kv_blocks, limits.block_tokens)
        self.begun_s: list[float] = [math.nan] * size
        self.first_token_s: list[float] = [math.nan] * size
        self.last_token_s: list[float] = [math.nan] * size
        self.preemptions: list[int] = [0] * size
        self.hit_tokens: list[int] = [0] * size
        self.running: int = 0
        self.decoding: int = 0  # sequences that have tokens to yield
        self.padded: int = 0  # sequences of a decoding pass; a static batch computes those that have ended
        self.kv_tokens: int = 0  # in the caches of sequences of a decoding pass
        self.prefilling: deque[list[int]] = deque()  # request, computed tokens, tokens in all
        self._prompts: list[int] = requests.prompt_tokens.tolist()
        self._own: list[int] = list(self._prompts)  # without padding
        self._outputs: list[int] = requests.output_tokens.tolist()
        self._certain: list[int] = requests.cached_tokens.tolist()
        self._keep: list[int] = requests.keep_ids.tolist()
        shares = limits.prefix_cache and (len(requests.segment_ids) > 0 or max(self._keep) >= 0)
        self._cache = PrefixCache(requests, limits.block_tokens) if shares else None
        ids = requests.adapter_ids
        self.adapters: AdapterCache | None = (
            AdapterCache(ids, limits.adapter_slots) if limits.adapter_slots and len(ids) else None
        )
        self._reserves = limits.preemption == "none"
        self._clock = 0
        self._pass = 0
        self._ends: list[tuple[int, int, int]] = []  # heap: clock, request, life
        self._admitted: list[tuple[int, int]] = []  # stack: request, life
        self._life = [0] * size  # counts admissions, so that entries of earlier ones are known
        # output tokens before the last preemption
        self._generated = [int(computed_elsewhere)] * size
        self._end_clock = [0] * size
        self._base = [0] * size  # context of a decoding sequence, less the clock
        self._shared = [0] * size  # blocks that the prefix cache holds for a request
        self._reserved = [0] * size
        # tokens whose blocks come from the host, or from another engine
        self._swapped = list(self._prompts) if computed_elsewhere else [0] * size
        self._static: list[int] = []  # requests of a static batch that have ended

    # admission

    def pad(self, requests: Iterable[int]) -> None:
        """Pad the prompts of the requests that may join a static batch to the longest of them."""
        joining = list(requests)
        longest = max((self._own[request] for request in joining), default=0)
        for request in joining:
            self._prompts[request] = longest

    def wanted(self, request: int) -> Wanted:
        """Return the needs of a waiting request."""
        blocks, context = self.blocks, self._swapped[request]
        if context:
            held = self._whole(request) if self._reserves else context + self._gain(1)
            return Wanted(0, context, blocks.blocks(held))
        prompt = self._prompts[request] + self._generated[request]
        cached, in_use = self._certain[request] if self.limits.prefix_cache else 0, 0
        if self._cache:
            self._cache.trim(blocks.capacity - blocks.used)
            found, in_use = self._cache.look(request)
            whole = (prompt - 1) // blocks.block_tokens * blocks.block_tokens
            cached = max(cached, min(found, whole))
        # One token has to be computed. A second one distinguishes a pass of prompts from decoding.
        cached = min(cached, max(prompt - 1 - self.limits.prefill_first, 0))
        held = self._whole(request) if self._reserves else prompt
        return Wanted(prompt - cached, cached, blocks.blocks(held) - in_use)

    def has_room(self, wanted: Wanted) -> bool:
        """Return whether there are blocks for a request and for the next pass of all others."""
        blocks = self.blocks
        taken = blocks.used + blocks.needed(self._clock, self._gain(1)) + wanted.blocks
        spare = self.limits.spare_blocks if self.running else 0
        return taken + spare <= blocks.capacity

    def has_slot(self, request: int) -> bool:
        """Return whether there is a slot for the adapter of a request."""
        return self.adapters is None or self.adapters.has_room(request)

    def admit(self, request: int, wanted: Wanted, now_s: float) -> float:
        """Start a request and return the seconds in which its blocks and its adapter are loaded."""
        loads = self.adapters is not None and self.adapters.begin(request)
        moved = self._start(request, wanted, now_s)
        return moved * self.limits.swap_s + loads * self.limits.adapter_load_s

    def _start(self, request: int, wanted: Wanted, now_s: float) -> int:
        """Start a request and return how many blocks come back from the host for it."""
        blocks = self.blocks
        self.running += 1
        self._life[request] += 1
        self._admitted.append((request, self._life[request]))
        if self.begun_s[request] != self.begun_s[request]:
            self.begun_s[request] = now_s
            self.hit_tokens[request] = wanted.cached
        if self._swapped[request]:
            context, self._swapped[request] = self._swapped[request], 0
            moved = blocks.blocks(context)
            self._reserved[request] = wanted.blocks if self._reserves else 0
            blocks.used += self._reserved[request] or moved
            self._decode_from(request, context)
            return moved
        blocks.used += wanted.blocks
        if self._reserves:
            self._reserved[request] = blocks.blocks(self._whole(request))
        if self._cache:
            self._shared[request] = self._cache.pin(request)
            self._cache.trim(blocks.capacity - blocks.used)
        self.prefilling.append([request, wanted.cached, wanted.cached + wanted.new_tokens])
        return 0

    def _whole(self, request: int) -> int:
        """Return the largest context of a request, with tokens drafted beyond its end."""
        overshoot = math.ceil(self.limits.yielded_tokens) - 1
        return self._prompts[request] + self._outputs[request] - 1 + overshoot

    # prompts

    def prompt_tokens_left(self) -> int:
        """Return the number of tokens of admitted prompts that are not computed yet."""
        return sum(target - done for _, done, target in self.prefilling)

    def equal_chunks(self, budget: int, beside_decoding: bool) -> tuple[int, int]:
        """Return the number of passes that one prompt fills without other events, and its tokens in these
        passes.

        The prompt does not end in these passes, no request can be admitted, and sequences end only in the
        last pass.
        """
        _, done, target = self.prefilling[0]
        passes = (target - done - 1) // budget if self.limits.chunked_prefill else 0
        if passes > 1 and beside_decoding:
            passes = min(passes, self.passes_until_change())
        return passes, done

    def chunk_equally(self, tokens: int) -> None:
        """Compute the next tokens of the first prompt."""
        self.prefilling[0][1] += tokens

    def chunk(self, budget: int) -> Chunk:
        """Compute the next tokens of prompts, at most `budget`, in order of admission."""
        tokens, sequences, contexts, pairs, finished = 0, 0, 0, 0, list[int]()
        for entry in self.prefilling:
            request, done, target = entry
            new = target - done
            if new > budget - tokens:
                new = budget - tokens if self.limits.chunked_prefill else 0
            if new <= 0:
                break
            tokens, sequences, contexts = tokens + new, sequences + 1, contexts + done + new
            pairs += new * done + new * (new + 1) // 2
            entry[1] += new
            if entry[1] == target:
                finished.append(request)
        for _ in finished:
            self.prefilling.popleft()
        return Chunk(tokens, sequences, contexts, pairs, finished)

    def finish_prompts(self, requests: list[int], now_s: float) -> tuple[int, list[int]]:
        """Record the first token of each prompt; return the number of tokens and the ended requests."""
        ended = []
        for request in requests:
            generated = self._generated[request]
            if not generated:
                self.first_token_s[request] = now_s
            context = self._prompts[request] + generated
            self._generated[request] = generated + 1
            self._decode_from(request, context)
            if generated + 1 == self._outputs[request]:
                self._end(request, now_s)
                ended.append(request)
        return len(requests), ended

    def _decode_from(self, request: int, context: int) -> None:
        """Let a request decode, with so many tokens in its cache."""
        self.decoding += 1
        self.padded += 1
        self.kv_tokens += context
        self._base[request] = context - self._clock
        self._end_clock[request] = self._clock + self._outputs[request] - self._generated[request]
        if not self._reserves:
            self.blocks.join(self._base[request])
        heappush(self._ends, (self._end_clock[request], request, self._life[request]))

    # decoding

    def fits_next_pass(self) -> bool:
        """Return whether there are blocks for the tokens that decoding sequences gain in a pass."""
        gain = self._gain(1)
        return self.blocks.enough_for(self._clock, gain) == gain

    def passes_until_change(self) -> int:
        """Return the number of passes, at least 1, until the first sequence ends or blocks run out."""
        ends, gain = self._ends, self.limits.yielded_tokens
        while self._life[ends[0][1]] != ends[0][2]:
            heappop(ends)
        passes = max(math.ceil(ends[0][0] / gain - 1e-9) - self._pass, 1)
        while self._clock + self._gain(passes) < ends[0][0]:
            passes += 1
        tokens = self._gain(passes)
        if (enough := self.blocks.enough_for(self._clock, tokens)) < tokens:
            passes = max(math.floor((self._clock + enough + 1) / gain + 1e-9) - self._pass, 1)
            while passes > 1 and self._gain(passes) > enough:
                passes -= 1
        return passes

    def advance(self, passes: int, now_s: float) -> tuple[int, list[int]]:
        """Let all sequences decode; return the number of their tokens and the ended requests."""
        gain = self._gain(passes)
        self.blocks.used += self.blocks.needed(self._clock, gain)
        self.kv_tokens += self.padded * gain
        yielded = self.decoding * gain
        self._clock += gain
        self._pass += passes
        ended, ends = [], self._ends
        while ends and ends[0][0] <= self._clock:
            clock, request, life = heappop(ends)
            if life == self._life[request]:
                yielded -= self._clock - clock
                self._end(request, now_s)
                ended.append(request)
        return yielded, ended

    def _gain(self, passes: int) -> int:
        """Return the tokens that each decoding sequence gains in the next passes."""
        gain = self.limits.yielded_tokens
        return passes if gain == 1.0 else math.floor((self._pass + passes) * gain + 1e-9) - self._clock

    def _end(self, request: int, now_s: float) -> None:
        """Note the end of a request."""
        self.last_token_s[request] = now_s
        self.decoding -= 1
        self._life[request] += 1

    # departure

    def free(self, ended: list[int], now_s: float) -> list[int]:
        """Free the blocks of requests that have ended, or of a static batch after all its requests have
        ended.

        Return the requests whose answers are then complete for their senders.
        """
        together, returned = self.limits.returns_together, ended
        if self.limits.static_batch:
            self._static += ended
            if self.decoding or self.prefilling:
                return [] if together else returned
            ended, self._static = self._static, []
        for request in ended:
            self._leave(request, self._keep[request])
            self.last_token_s[request] = now_s if together else self.last_token_s[request]
        return ended if together else returned

    def preempt_last(self) -> tuple[int, int]:
        """Preempt the request admitted last; return it and the number of blocks that move to the host."""
        request, life = self._admitted.pop()
        while life != self._life[request]:
            request, life = self._admitted.pop()
        self.preemptions[request] += 1
        if self.prefilling and self.prefilling[-1][0] == request:
            self.prefilling.pop()
            self._life[request] += 1
            self._free_blocks(request, self._prompts[request] + self._generated[request], -1)
            self.running -= 1
            return request, 0
        self._generated[request] = self._outputs[request] - (self._end_clock[request] - self._clock)
        self._life[request] += 1
        self.decoding -= 1
        context = self._base[request] + self._clock
        self._leave(request, -1)
        if self.limits.preemption == "swap":
            self._swapped[request] = context
            return request, self.blocks.blocks(context)
        return request, 0

    def _leave(self, request: int, keep: int) -> None:
        """Take a decoding sequence out of the engine."""
        context = self._base[request] + self._clock
        self.running -= 1
        self.padded -= 1
        self.kv_tokens -= context
        if not self._reserves:
            self.blocks.leave(self._base[request])
        self._free_blocks(request, context, keep)

    def _free_blocks(self, request: int, context: int, keep: int) -> None:
        """Free the blocks of a sequence; what others may begin with stays in the prefix cache."""
        if self.adapters is not None:
            self.adapters.end(request)
        blocks = self.blocks
        own = (self._reserved[request] or blocks.blocks(context)) - self._shared[request]
        self._shared[request] = 0
        freed = own
        if self._cache:
            self._cache.trim(blocks.capacity - blocks.used)
            freed += self._cache.release(request, keep, own)
        blocks.used -= freed
