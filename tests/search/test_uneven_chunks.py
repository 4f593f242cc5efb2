"""Blocks dealt out to stages of several chunks: every division of small models, tried one by one."""

from itertools import combinations

import numpy as np
import pytest
from conftest import make_job
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from single_calls import screen_each

from flopcast.library.curves import load_book
from flopcast.search.stage_chunks import INNER, LAST, Chunks, tracks_of
from flopcast.search.uneven_chunks import MOST_TRACKS, WORTH_RATIO, best_chunks
from flopcast.search.uneven_stages import balanced_stages

TWO_KINDS = {
    "hidden": 1024,
    "vocabulary": 128256,
    "blocks": [
        {"count": 2, "mixer": {"heads": 16}, "feed_forward": {"ffn_hidden": 16384}},
        {"count": 6, "mixer": {"heads": 16}, "feed_forward": {"ffn_hidden": 4096}},
    ],
}


def every_list(blocks, chunks):
    """Blocks of every chunk, all ways; none is empty but the ends."""
    for inner in combinations(range(blocks + chunks - 1), chunks - 1):
        cuts = (0, *(place - number for number, place in enumerate(inner)), blocks)
        layers = tuple(np.diff(cuts).tolist())
        if 0 not in layers[1:-1]:
            yield layers


@st.composite
def models(draw):
    """Runs of blocks of some seconds each, with ends, as chunks take them; most of stages' blocks."""
    stages, virtual = draw(st.integers(2, 3)), draw(st.integers(2, 3))
    seconds = st.integers(2, 9)
    runs = draw(st.lists(st.tuples(st.integers(1, 5), seconds), min_size=1, max_size=3))
    block_s = np.repeat([float(each) for _, each in runs], [count for count, _ in runs])
    assume(stages * virtual <= len(block_s) <= 10)
    before_s = np.concatenate([[0.0], np.cumsum(block_s)])
    low, high = np.meshgrid(*[np.arange(len(block_s) + 1)] * 2, indexing="ij")
    ends_s = np.array([draw(seconds), 0, draw(seconds)])[:, None, None]
    may = np.stack([(low == 0) & (low <= high), low < high, (high == len(block_s)) & (low <= high)])
    chunk_s = np.where(may, before_s[high] - before_s[low] + ends_s + 0.25, np.inf)
    most = sorted(draw(st.lists(st.integers(2, 10), min_size=stages, max_size=stages)))
    counts = tuple(count for count, _ in runs)
    assume(tracks_of(counts, stages, virtual).alone <= MOST_TRACKS)
    return Chunks(chunk_s=chunk_s, runs=counts, stages=stages, virtual=virtual), np.array(most)


def seconds_of(chunks, layers):
    """Seconds of every chunk of a list, (stages, chunks)."""
    stops = np.cumsum(layers)
    roles = np.array([0, *[INNER] * (len(layers) - 2), LAST])
    each_s = chunks.chunk_s[roles, stops - layers, stops]
    return each_s.reshape(chunks.virtual, chunks.stages).T


@settings(max_examples=50)
@given(given_model=models(), micro_batches=st.integers(2, 9))
def test_no_division_has_a_faster_stage_nor_of_those_a_shorter_longest_chunk(given_model, micro_batches):
    chunks, most = given_model
    every = []
    for layers in every_list(chunks.blocks, chunks.stages * chunks.virtual):
        each_s = seconds_of(chunks, np.array(layers))
        held = np.array(layers).reshape(chunks.virtual, chunks.stages).sum(axis=0)
        slowest_s, sum_s = each_s.sum(axis=1).max(), each_s.sum()
        step_s = micro_batches * slowest_s + (sum_s - slowest_s) / chunks.virtual
        every += [(step_s, slowest_s, each_s.max())] if (held <= most).all() else []

    found = best_chunks(
        chunks, micro_batches, lambda stage, start, stop: (stop - start).sum(axis=1) <= most[stage]
    )

    steps_s, slowest_s, longest_s = np.array(every).reshape(-1, 3).T
    if found is None:
        assert not len(every) or slowest_s.min() > 2 * chunks.least_s() / chunks.stages
        return
    best_s = slowest_s[steps_s <= steps_s.min() * (1 + 1e-5)].min()
    layers = found.held.T.ravel()
    assert layers.sum() == chunks.blocks
    assert seconds_of(chunks, layers).sum(axis=1).max() == pytest.approx(found.slowest_s)
    assert found.slowest_s <= best_s * WORTH_RATIO * (1 + 1e-9)
    assert found.longest_s == pytest.approx(longest_s[slowest_s <= best_s * WORTH_RATIO].min())


def test_chunks_of_unlike_blocks_are_dealt_out_as_well_as_any_list_of_blocks():
    plan, lists = "dp=2 pp=4 vpp=2 gbs=48 precision=fp16", list(every_list(8, 8))
    job = make_job(model=TWO_KINDS, plan=f"{plan} stage_layers={','.join(map(str, lists[0]))}")
    book = load_book(job.cluster)

    def screened(lists):
        plans = [job.plan.model_copy(update={"stage_layers": one}) for one in lists]
        return screen_each(job, plans, book).step_time_s

    ours = balanced_stages(job, book)

    assert screened([ours])[0] <= np.nanmin(screened(lists)) * WORTH_RATIO * 1.002


def test_an_early_stage_holds_fewer_blocks_of_all_its_chunks_where_memory_is_short():
    """Of all lists that fit, screened one by one, none is faster than what more even chunks are worth."""
    wide = {"count": 5, "mixer": {"heads": 64}, "feed_forward": {"ffn_hidden": 32768}}
    narrow = {"count": 2, "mixer": {"heads": 64}, "feed_forward": {"ffn_hidden": 16384}}
    job = make_job(
        model={"hidden": 8192, "vocabulary": 50257, "blocks": [narrow, wide]},
        stack="megatron-core",
        batch={"sequence_length": 24576},
        plan="dp=4 pp=2 vpp=2 gbs=32 precision=fp16 zero=1 stage_layers=1,2,2,2",
    )
    book, lists = load_book(job.cluster), list(every_list(7, 4))
    every = screen_each(job, [job.plan.model_copy(update={"stage_layers": one}) for one in lists], book)
    assert not every.fits[every.step_time_s.argmin()]

    ours = lists.index(balanced_stages(job, book))

    assert every.fits[ours]
    assert every.step_time_s[ours] <= every.step_time_s[every.fits].min() * WORTH_RATIO * 1.002
    assert balanced_stages(job, book, headroom_fraction=0.1) is None


def test_blocks_that_alternate_in_many_chunks_keep_the_division_they_have():
    kinds = [block | {"count": 4} for block in TWO_KINDS["blocks"]]
    model = TWO_KINDS | {"blocks": kinds, "pattern": [0, 1]}
    job = make_job(model=model, plan="dp=4 pp=2 vpp=4 gbs=32 precision=fp16")

    assert balanced_stages(job, load_book(job.cluster)) is None
