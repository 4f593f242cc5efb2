"""The prefix cache: KV blocks of earlier prompts, kept until their memory is needed.

Answers: how many tokens of a prompt are in the cache, which blocks do running requests share, what is
evicted?
Elsewhere: blocks of single requests (kv_blocks.py), the segments of prompts (requests.py).

Blocks in use are pinned. Idle blocks count as free memory. When other blocks need the memory, idle blocks
are evicted, the least recently used first, from the end of a segment. Blocks that no other prompt shares
also stay in the cache when their request ends, and displace older blocks, as in vLLM.
"""

from collections import OrderedDict

from flopcast.serving.requests import Requests


class PrefixCache:
    """Segments of prompts in whole blocks.

    Parameters
    ----------
    requests : Requests
    block_tokens : int
        Tokens of a KV block.
    """

    def __init__(self, requests: Requests, block_tokens: int) -> None:
        self._block_tokens = block_tokens
        self._starts = requests.segment_starts.tolist()
        self._ids = requests.segment_ids.tolist()
        self._tokens = requests.segment_tokens.tolist()
        self._blocks: dict[int, int] = {}  # of a segment that is in the cache
        self._users: dict[int, int] = {}  # running requests that have a segment, at least 1
        self._idle: OrderedDict[int, None] = OrderedDict()  # the least recently used first
        self._idle_blocks = 0
        self._pinned: set[int] = set()  # requests
        self._alone = -1  # the next key for blocks that no other prompt begins with

    def look(self, request: int) -> tuple[int, int]:
        """Return how many tokens of a prompt are in the cache, and how many of its blocks are in use.

        A prompt hits all segments up to the first one that is not complete in the cache. If the end of this
        segment was evicted, its remaining blocks also count. Only whole blocks count. Blocks in use belong
        to segments of running requests. All other hits are idle blocks, which the request uses again.
        """
        hit_tokens, pinned, broken = 0, 0, False
        for place in range(self._starts[request], self._starts[request + 1]):
            key, tokens = self._ids[place], self._tokens[place]
            whole = tokens // self._block_tokens
            blocks = min(self._blocks.get(key, 0), whole)
            if key in self._users:
                pinned += blocks
            if not broken:
                broken = blocks < whole
                hit_tokens += blocks * self._block_tokens if broken else tokens
        return hit_tokens // self._block_tokens * self._block_tokens, pinned

    def pin(self, request: int) -> int:
        """Reserve the segments of a prompt, and return their total number of blocks.

        Blocks of a segment that other running requests use are shared with them. The segment then counts as
        complete, because the request computes its missing part. `release` ends the reservation.
        """
        together = 0
        self._pinned.add(request)
        for place in range(self._starts[request], self._starts[request + 1]):
            key, whole = self._ids[place], self._tokens[place] // self._block_tokens
            if key in self._users:
                self._users[key] += 1
                self._blocks[key] = max(self._blocks[key], whole)
            else:
                if key in self._idle:
                    del self._idle[key]
                    self._idle_blocks -= self._blocks[key]
                self._users[key] = 1
                self._blocks[key] = whole
            together += whole
        return together

    def release(self, request: int, keep: int, own_blocks: int) -> int:
        """Release a request and return the number of shared blocks that are no longer in use.

        Parameters
        ----------
        request : int
        keep : int
            The segment to which `own_blocks` are added; -1 if no other prompt begins with them.
        own_blocks : int
            Blocks that only this request used.
        """
        freed = 0
        places = range(self._starts[request], self._starts[request + 1])
        for place in reversed(places if request in self._pinned else ()):
            key = self._ids[place]
            self._users[key] -= 1
            if not self._users[key]:
                del self._users[key]
                freed += self._blocks[key]
                self._rest(key, self._blocks[key])
        self._pinned.discard(request)
        if keep < 0:
            keep, self._alone = self._alone, self._alone - 1
        if own_blocks > 0 and keep not in self._users:
            before = self._blocks.get(keep, 0)
            if keep in self._idle:
                self._idle_blocks -= before
            self._blocks[keep] = before + own_blocks
            self._rest(keep, self._blocks[keep])
        return freed

    def trim(self, most_blocks: int) -> None:
        """Evict idle blocks until at most this number is left."""
        while self._idle_blocks > most_blocks:
            key = next(iter(self._idle))
            evicted = min(self._blocks[key], self._idle_blocks - most_blocks)
            self._idle_blocks -= evicted
            self._blocks[key] -= evicted
            if not self._blocks[key]:
                del self._blocks[key], self._idle[key]

    def _rest(self, key: int, blocks: int) -> None:
        """Make a segment the most recently used idle one."""
        self._idle[key] = None
        self._idle.move_to_end(key)
        self._idle_blocks += blocks
