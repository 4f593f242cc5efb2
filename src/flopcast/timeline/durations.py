"""Durations of programs for whole batches of plans; equal layers are computed once.

Answers: how long does a program of each position, plan and chunk class take, and when do its last
reductions end?
Elsewhere: the simulation of one plan with the items on its critical path (program.py), the step
(closed_form.py).

Plans of a search differ in degrees, and a layer depends on few of them. Its matrix is computed once for all
plans whose items have equal times, and its powers once for equal numbers of layers. Between layers, two
rows of the matrix suffice: the free times of all streams if all streams except the data-parallel stream
start free, and if only the data-parallel stream does. Chunks share these rows until their layers differ.
"""

from collections.abc import Sequence

import numpy as np

from flopcast.cost.item_prices import Priced
from flopcast.dtypes import Floats, Integers, any_of, distinct
from flopcast.operators.item import Item
from flopcast.records import Record, replace
from flopcast.spec.rows import EqualRows, equal_rows, of_equal_split, of_rows, rows_of
from flopcast.timeline.layer import BLOCKING, SLOWED, layer_paths, streams_of
from flopcast.timeline.max_plus import NEVER
from flopcast.timeline.program import Simulated, waits_for_gathers
from flopcast.timeline.shared_links import may_share
from flopcast.workload.program import POSITIONS, Segment

ROWS_TOGETHER = 512  # of a product, whose arrays are then in the processor's cache


class _States(Record, eq=False, kw_only=False):
    """Free times of streams after the layers of each chunk so far; chunks may share a state.

    A chunk is a chunk class of a plan: number plan · classes + class.
    """

    free_s: Floats  # (starts, streams, positions, states)
    of_chunk: Integers  # (chunks,)


def durations(segments: Sequence[Segment], priced: Priced) -> Simulated:
    """Simulate the segments of one pass of many plans, like `program.simulate`, without counting
    executions.

    Parameters
    ----------
    segments : layers in the order of the pass, each with its repeats (plans, chunk classes)
    priced : Priced
        Seconds and launches of their items.

    Returns
    -------
    Simulated
        The result has no columns, and its times equal those of `simulate` up to rounding.
    """
    size, classes = np.broadcast_shapes(
        (priced.programs.plans.size, 1), *(s.repeat.shape for s in segments)
    )
    items = tuple(item for segment in segments for item in segment.items)
    streams = streams_of(items, priced.programs.plans)
    candidates = _candidates(priced)
    states = _start(streams, size * classes)
    for segment in segments:
        repeat = np.broadcast_to(segment.repeat, (size, classes)).ravel().astype(np.intp)
        held = np.flatnonzero(repeat)
        if len(held):
            rows = _rows(candidates, segment.items, priced)
            layer_s = _layer(segment.items, streams, priced, rows)
            states = _behind(states, layer_s, held, rows.group[held // classes], repeat[held])
    gathers = np.broadcast_to(waits_for_gathers(segments), (size, classes)).ravel()
    return _ends(states, streams, gathers, (size, classes))


def _candidates(priced: Priced) -> tuple[EqualRows, EqualRows, EqualRows]:
    """Return groupings of plans in which layers may cost the same, the coarsest first.

    Plans of equal split; those that differ in how many stages and chunks hold their layers alone; and each
    plan by itself, which always holds.
    """
    plans = priced.programs.plans
    ranks = (plans.data_parallel * plans.pipeline_parallel, plans.data_parallel, plans.data_shard)
    split = of_equal_split(plans)
    columns = (*ranks, plans.pipeline_parallel > 1)
    sharing = equal_rows([split.group, *(column[:, 0] for column in columns)])
    every = np.arange(plans.size)
    return split, sharing, EqualRows(every, every)


def _rows(candidates: Sequence[EqualRows], items: tuple[Item, ...], priced: Priced) -> EqualRows:
    """Return the coarsest grouping in which a layer's items cost the same and contend equally.

    What compute loses to messages, and which links these share, depend on more than the split.
    """
    met = any(item.overlapped for item in items) or may_share(items)
    prices = [(priced.of(item), item.count) for item in items]
    values = [each for price, count in prices for each in (price.alone_s, price.host_s, count)]
    return next(rows for rows in candidates[met:] if all(rows.holds(each) for each in values))


def _layer(items: tuple[Item, ...], streams: tuple[str, ...], priced: Priced, rows: EqualRows) -> Floats:
    """Return the matrix of one layer for one plan of each group, (streams, streams, positions, groups)."""
    if np.array_equal(rows.group, np.arange(rows.size)):
        matrix_s = layer_paths(items, streams, priced).longest_s
    else:
        chosen = [replace(item, count=of_rows(item.count, rows.first)) for item in items]
        prices = {new: priced.of(item).of_rows(rows.first) for new, item in zip(chosen, items, strict=True)}
        workload = priced.programs.workload
        workload = replace(workload, plans=rows_of(workload.plans, rows.first))
        programs = replace(priced.programs, workload=workload)
        some = replace(priced, programs=programs, prices=prices)
        matrix_s = layer_paths(tuple(chosen), streams, some).longest_s
    return np.broadcast_to(matrix_s[..., 0], (*matrix_s.shape[:3], rows.size))


def _start(streams: tuple[str, ...], chunks: int) -> _States:
    """Return two starts: all streams but the data-parallel one are free; if it is used, only that one."""
    reduces = np.array([name == "dp" for name in streams])
    starts = np.where(reduces, NEVER, 0.0)[None]
    if reduces.any():
        starts = np.concatenate([starts, np.where(reduces, 0.0, NEVER)[None]])
    return _States(starts[:, :, None, None], np.zeros(chunks, dtype=np.intp))


def _behind(states: _States, layer_s: Floats, held: Integers, row: Integers, repeat: Integers) -> _States:
    """Return the states after `repeat` more layers in the chunks `held`, whose layer is that of `row`."""
    layers, before = equal_rows([row, repeat]), states.of_chunk[held]
    power_s = _powers(layer_s, row[layers.first], repeat[layers.first])
    pairs = equal_rows([before, layers.group])
    new_s = _joined(states.free_s, power_s, before[pairs.first], layers.group[pairs.first])
    if len(held) == len(states.of_chunk):
        return _States(new_s, pairs.group)
    waiting = np.ones(len(states.of_chunk), dtype=bool)
    waiting[held] = False
    old = equal_rows([states.of_chunk[waiting]])
    of_chunk = states.of_chunk.copy()
    of_chunk[waiting], of_chunk[held] = old.group, old.size + pairs.group
    old_s = states.free_s[..., states.of_chunk[waiting][old.first]]
    old_s = np.broadcast_to(old_s, (*new_s.shape[:-1], old.size))
    return _States(np.concatenate([old_s, new_s], axis=-1), of_chunk)


def _powers(layer_s: Floats, row: Integers, repeat: Integers) -> Floats:
    """Return the matrices of `repeat` equal layers, those of `row`, by squaring: (.., positions, pairs)."""
    layers = np.array(distinct(row))
    square_s, row = layer_s[..., layers], np.searchsorted(layers, row)
    found_s = np.empty((*layer_s.shape[:-1], len(repeat)))
    done = np.zeros(len(repeat), dtype=bool)
    every = np.arange(len(layers))
    for bit in range(int(repeat.max()).bit_length()):
        wanted = ((repeat >> bit) & 1).astype(bool)
        first, more = wanted & ~done, np.flatnonzero(wanted & done)
        found_s[..., first] = square_s[..., row[first]]
        if len(more):
            found_s[..., more] = _joined(found_s, square_s, more, row[more])
        done |= wanted
        if any_of(repeat >> (bit + 1)):
            square_s = _joined(square_s, square_s, every, every)
    return found_s


def _joined(first_s: Floats, second_s: Floats, of_first: Integers, of_second: Integers) -> Floats:
    """Return the max-plus product over the streams between two parts, for some rows of both."""
    positions = max(first_s.shape[2], second_s.shape[2])
    total_s = np.empty((len(first_s), second_s.shape[1], positions, len(of_first)))
    for low in range(0, len(of_first), ROWS_TOGETHER):
        rows = slice(low, low + ROWS_TOGETHER)
        before_s, behind_s = first_s.take(of_first[rows], axis=-1), second_s.take(of_second[rows], axis=-1)
        found_s = np.add(before_s[:, 0, None], behind_s[0], out=total_s[..., rows])
        through_s = np.empty(found_s.shape)
        for between in range(1, len(behind_s)):
            np.add(before_s[:, between, None], behind_s[between], out=through_s)
            np.maximum(found_s, through_s, out=found_s)
    return total_s


def _ends(
    states: _States, streams: tuple[str, ...], gathers: np.ndarray, shape: tuple[int, int]
) -> Simulated:
    """Return the ends and tails of every chunk, as in `program.simulate`; `shape` is (plans, classes)."""
    own = streams.index("dp") if "dp" in streams else -1
    blocking = [index for index, name in enumerate(streams) if name in BLOCKING]
    free_s = states.free_s
    end_s, reduced_s = free_s[:, blocking].max(axis=(0, 1)), np.zeros((1, 1))
    tail_s = np.full((1, 1), NEVER)
    chosen = states.of_chunk
    duration_s = end_s[:, chosen]
    if own >= 0:
        waiting_s = np.maximum(end_s, free_s[:, own].max(axis=0))[:, chosen]
        duration_s = np.where(gathers, waiting_s, duration_s)
        tail_s = np.where(gathers, NEVER, (free_s[0, own] - end_s)[:, chosen])
        reduced_s = np.where(gathers, 0.0, np.maximum(free_s[1, own], 0.0)[:, chosen])
    lost_s = np.zeros((1, duration_s.shape[-1]))
    if SLOWED in streams:
        slowed_s = free_s[:, streams.index(SLOWED)].max(axis=0)[:, chosen]
        lost_s = np.maximum(slowed_s - duration_s, 0.0)
    whole = (len(POSITIONS), *shape)
    none = np.zeros((*whole, 0))

    def of_plans(values_s: Floats) -> Floats:
        """Return the values of chunks by position, plan and class."""
        each = np.broadcast_to(values_s, (values_s.shape[0], shape[0] * shape[1]))
        return np.broadcast_to(each.reshape(-1, *shape), whole)

    return Simulated(
        duration_s=of_plans(duration_s),
        tail_s=of_plans(tail_s),
        reduction_s=of_plans(reduced_s),
        tail_counts=none,
        reduction_counts=none,
        lost_s=of_plans(lost_s),
        lost_counts=none,
        columns=(),
        counts=none,
    )
