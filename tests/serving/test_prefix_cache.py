"""The prefix cache against a textbook LRU list of blocks, and what runs beside it."""

from collections import OrderedDict

import numpy as np
import pytest
from all_cases import all_cases

from flopcast.serving.requests import Limits, Requests
from flopcast.serving.scheduler import run

BLOCK = 16


def seconds(new, sequences, kv, pairs):
    return 0.005 + 1e-5 * new


def shared(chains, own=20, output=8, gap_s=1000.0, block=BLOCK):
    """Prompts that begin with chains of segments of one block each, and end with tokens of their own."""
    size = len(chains)
    lengths = np.array([len(chain) for chain in chains])
    return Requests(
        arrival_s=gap_s * np.arange(size),
        prompt_tokens=lengths * block + own,
        output_tokens=np.full(size, output),
        after=np.full(size, -1),
        cached_tokens=np.zeros(size, int),
        keep_ids=np.full(size, -1),
        segment_starts=np.concatenate([[0], np.cumsum(lengths)]),
        segment_ids=np.concatenate([np.array(chain, int) for chain in chains]),
        segment_tokens=np.full(lengths.sum(), block),
    )


def least_recently_used(chains, capacity, own_blocks):
    """Hits of requests one after the other, by a list of single blocks."""
    blocks, hits, alone = OrderedDict(), [], -1
    for chain in chains:
        hit = 0
        while hit < len(chain) and chain[hit] in blocks:
            hit += 1
        hits.append(hit)
        own = list(range(alone, alone - own_blocks, -1))
        alone -= own_blocks
        for block in (*chain, *own):
            blocks.pop(block, None)
        while len(blocks) > capacity - len(chain) - own_blocks:
            blocks.popitem(last=False)
        blocks.update(dict.fromkeys([*reversed(chain), *own]))
    return hits


@all_cases("capacity", [12, 30, 60, 200])
def test_requests_in_turn_hit_what_a_list_of_blocks_has(capacity):
    rng = np.random.default_rng(0)
    chains = []
    for _ in range(400):
        root = int(rng.zipf(1.5)) % 40
        chains.append([root * 100 + depth for depth in range(rng.integers(1, 9))])
    limits = Limits(max_sequences=4, max_tokens=512, kv_blocks=capacity)

    served = run(shared(chains), limits, seconds)

    own = -(-(20 + 8 - 1) // BLOCK)
    assert (served.hit_tokens / BLOCK).tolist() == least_recently_used(chains, capacity, own)


def test_a_shared_prefix_is_computed_and_stored_once():
    chains = [list(range(50))] * 40
    limits = Limits(max_sequences=64, max_tokens=100_000, kv_blocks=1000)

    served = run(shared(chains, gap_s=0.0), limits, seconds)

    assert served.hit_tokens.tolist() == [0] + [50 * BLOCK] * 39
    table = served.iterations
    assert table.new_tokens[0] == 50 * BLOCK + 40 * 20
    assert table.kv_blocks.max() == 50 + 40 * 2
    assert table.kv_tokens[0] == 40 * (50 * BLOCK + 20)  # every sequence reads the prefix


def test_without_the_cache_nothing_is_shared():
    limits = Limits(max_sequences=8, max_tokens=512, kv_blocks=1000, prefix_cache=False)

    served = run(shared([[1, 2, 3]] * 10), limits, seconds)

    assert not served.hit_tokens.any()


def test_a_prompt_that_is_cached_whole_computes_its_last_block():
    limits = Limits(max_sequences=8, max_tokens=512, kv_blocks=1000)

    served = run(shared([[1, 2, 3]] * 3, own=0), limits, seconds)

    assert served.hit_tokens.tolist() == [0, 2 * BLOCK, 2 * BLOCK]


def test_the_turns_of_a_conversation_find_the_turns_before():
    size = 5
    prompt = 100 + 150 * np.arange(size)  # the turns before, their answers, and 100 tokens
    kept = prompt[1:] - 101  # the last token of an answer has not been computed
    turns = Requests(
        arrival_s=np.zeros(size),
        prompt_tokens=prompt,
        output_tokens=np.full(size, 50),
        after=np.arange(-1, size - 1),
        cached_tokens=np.zeros(size, int),
        keep_ids=np.zeros(size, int),
        segment_starts=np.array([0, 0, 1, 2, 3, 4]),
        segment_ids=np.zeros(size - 1, int),
        segment_tokens=kept,
    )

    served = run(turns, Limits(max_sequences=8, max_tokens=512, kv_blocks=100), seconds)

    assert served.hit_tokens.tolist() == [0, *(kept // BLOCK * BLOCK)]
    assert served.arrival_s[1:].tolist() == served.last_token_s[:-1].tolist()


@all_cases("preemption", ["recompute", "swap", "none"])
@all_cases("capacity", [90, 130, 400])
def test_crowded_caches_keep_count_of_their_blocks(capacity, preemption):
    rng = np.random.default_rng(1)
    chains = [
        [root * 100 + d for d in range(rng.integers(1, 12))] for root in rng.integers(0, 12, 300).tolist()
    ]
    requests = shared(chains, own=50, output=300, gap_s=0.05)
    limits = Limits(max_sequences=12, max_tokens=512, kv_blocks=capacity, preemption=preemption)

    served = run(requests, limits, seconds)

    table = served.iterations
    assert table.output_tokens.sum() == requests.output_tokens.sum()
    assert table.kv_blocks.max() <= capacity
    longest = -(-(requests.prompt_tokens + requests.output_tokens - 1) // BLOCK)
    last = int(np.argmax(served.last_token_s))
    if table.running[-1] == 1:
        assert table.kv_blocks[-1] == longest[last]  # nothing of the requests before is still counted
    assert served.preemptions.any() == (preemption != "none" and capacity < 400)


def test_cached_tokens_that_are_given_are_not_computed():
    plain = shared([[]] * 4, own=100)
    fields = {name: getattr(plain, name) for name in Requests.__slots__}
    given = Requests(**fields | {"cached_tokens": np.full(4, 60)})

    served = run(given, Limits(max_sequences=8, max_tokens=512, kv_blocks=100), seconds)

    assert served.hit_tokens.tolist() == [60] * 4
    table = served.iterations
    assert (table.new_tokens - table.decoding).sum() == pytest.approx(4 * 40)
