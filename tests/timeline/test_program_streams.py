"""timeline/program.py against the longest path of an explicit graph, and against numbers worked by hand."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
import slow_program
from hypothesis import given, settings
from hypothesis import strategies as st
from workbench import any_priced

from flopcast.cost.item_prices import ItemPrice
from flopcast.dtypes import ZERO, constant
from flopcast.operators.item import HostWork, Item
from flopcast.timeline.max_plus import NEVER
from flopcast.timeline.program import simulate
from flopcast.timeline.program_items import lay_out
from flopcast.workload.program import POSITIONS, WHEN, Segment

LAWS = settings(max_examples=30, deadline=None)
STREAMS = ("compute", "tp", "dp", "host")


class Entry(NamedTuple):
    """One invented item."""

    stream: str = "compute"
    seconds: float = 1.0
    waits: tuple = ("compute", "tp", "host")
    when: str = "every"
    launch_s: float = 0.0
    count: float = 1.0


entries = st.builds(
    Entry,
    stream=st.sampled_from(STREAMS),
    seconds=st.floats(0, 2),
    waits=st.lists(st.sampled_from(STREAMS), max_size=3).map(tuple),
    when=st.sampled_from(sorted(WHEN)),
    launch_s=st.sampled_from([0.0, 0.01, 0.7]),
    count=st.sampled_from([1.0, 3.0]),
)
layers = st.lists(entries, min_size=1, max_size=6)


def built(*parts):
    """Segments of (entries, repeat), and prices for their items."""
    segments, prices = [], {}
    for part, (found, repeat) in enumerate(parts):
        items = tuple(item_of(entry, f"{part}.{number}") for number, entry in enumerate(found))
        segments.append(Segment(items=items, repeat=constant(repeat)))
        for item, entry in zip(items, found, strict=True):
            prices[item] = ItemPrice(
                alone_s=constant(entry.seconds), host_s=constant(entry.launch_s), wholly=()
            )
    return segments, replace(any_priced(), prices=prices)


def item_of(entry, name):
    return Item(
        name=name,
        work=HostWork(kind="synchronise"),
        component="invented",
        stream=entry.stream,
        waits=entry.waits,
        when=entry.when,
        count=constant(entry.count),
    )


def seconds_of(*parts, position="middle"):
    segments, priced = built(*parts)
    return float(simulate(segments, priced, attribute=False).duration_s[POSITIONS.index(position), 0, 0])


@LAWS
@given(found=layers, repeat=st.integers(1, 5))
def test_a_program_lasts_as_long_as_the_longest_path_of_its_graph(found, repeat):
    segments, priced = built((found, repeat))
    items = slow_program.written_out([(segments[0].items, repeat)])

    run = simulate(segments, priced, attribute=False)

    expected = [slow_program.duration(items, priced.of, position) for position in POSITIONS]
    assert run.duration_s[:, 0, 0].tolist() == pytest.approx(expected, abs=1e-9)


@LAWS
@given(first=layers, second=layers, repeats=st.tuples(st.integers(0, 4), st.integers(1, 4)))
def test_segments_follow_each_other_without_a_barrier(first, second, repeats):
    segments, priced = built((first, repeats[0]), (second, repeats[1]))
    rows = zip(segments, repeats, strict=True)
    items = slow_program.written_out([(segment.items, repeat) for segment, repeat in rows])

    run = simulate(segments, priced, attribute=False)

    expected = slow_program.duration(items, priced.of, "last")
    assert run.duration_s[POSITIONS.index("last"), 0, 0] == pytest.approx(expected, abs=1e-9)


@LAWS
@given(found=layers, repeat=st.integers(1, 6))
def test_a_program_simulated_and_laid_out_item_by_item_lasts_equally_long(found, repeat):
    segments, priced = built((found, repeat))

    run = simulate(segments, priced, attribute=False)

    unrolled = [lay_out(segments, priced, 0, 0, number).duration_s for number in range(len(POSITIONS))]
    assert run.duration_s[:, 0, 0].tolist() == pytest.approx(unrolled, abs=1e-9)


@pytest.mark.parametrize("repeat", [1, 2, 3, 7, 100])
@settings(max_examples=12, deadline=None)
@given(found=layers)
def test_repeated_layers_equal_the_same_layers_written_one_after_the_other(repeat, found):
    repeated, priced = built((found, repeat))
    segment = repeated[0]
    written = [Segment(items=segment.items * repeat, repeat=constant(1))]

    power = simulate(repeated, priced, attribute=True)
    unrolled = simulate(written, priced, attribute=False)

    assert power.duration_s == pytest.approx(unrolled.duration_s, rel=1e-9, abs=1e-12)
    assert power.tail_s == pytest.approx(unrolled.tail_s, rel=1e-9, abs=1e-9)
    assert power.reduction_s == pytest.approx(unrolled.reduction_s, rel=1e-9, abs=1e-12)


@LAWS
@given(first=layers, second=layers, repeats=st.tuples(st.integers(0, 9), st.integers(1, 9)))
def test_executions_on_the_critical_path_times_their_seconds_are_the_duration(first, second, repeats):
    segments, priced = built((first, repeats[0]), (second, repeats[1]))

    run = simulate(segments, priced, attribute=True)

    seconds = [float(priced.of(item).alone_s[0, 0]) for item in run.columns]
    told = run.counts[:, 0, 0] @ np.array([*seconds, 1.0, 1.0])  # the last columns are the host's seconds
    assert told.tolist() == pytest.approx(run.duration_s[:, 0, 0].tolist(), rel=1e-9, abs=1e-12)


@LAWS
@given(found=layers, repeat=st.integers(1, 9))
def test_no_item_stands_on_the_path_more_often_than_it_runs(found, repeat):
    segments, priced = built((found, repeat))

    run = simulate(segments, priced, attribute=True)

    for column, entry in enumerate(found):
        most = repeat * entry.count * np.array(WHEN[entry.when])
        assert (run.counts[:, 0, 0, column] <= most + 1e-12).all()


@LAWS
@given(found=layers, repeat=st.integers(1, 5))
def test_counting_does_not_change_the_times(found, repeat):
    segments, priced = built((found, repeat))

    counted = simulate(segments, priced, attribute=True)
    plain = simulate(segments, priced, attribute=False)

    assert (counted.duration_s == plain.duration_s).all()
    assert plain.counts.shape[-1] == 0


@LAWS
@given(found=layers, slower=st.integers(0, 5), repeat=st.integers(1, 4))
def test_a_slower_item_never_shortens_its_program(found, slower, repeat):
    slow = [
        entry._replace(seconds=entry.seconds + (number == slower)) for number, entry in enumerate(found)
    ]

    assert seconds_of((slow, repeat)) >= seconds_of((found, repeat)) - 1e-12


def test_each_chunk_class_repeats_its_layers_as_often_as_it_holds_them():
    first, second = [Entry(seconds=1.0)], [Entry(seconds=10.0)]
    segments, priced = built((first, 1), (second, 1))
    holds = [np.array([[3.0, 0.0, 5.0]]), np.array([[0.0, 2.0, 1.0]])]
    mixed = [replace(segment, repeat=repeat) for segment, repeat in zip(segments, holds, strict=True)]

    run = simulate(mixed, priced, attribute=True)

    assert run.duration_s[0, 0].tolist() == [3.0, 20.0, 15.0]
    assert run.counts[0, 0, :, :2].tolist() == [[3.0, 0.0], [0.0, 2.0], [5.0, 1.0]]


def test_plans_of_a_batch_are_simulated_as_if_alone():
    segments, priced = built(([Entry(waits=("host",)), Entry(stream="tp", waits=("compute",))], 1))
    compute, message = segments[0].items
    seconds = {compute: [1.0, 2.0, 0.5], message: [4.0, 0.0, 0.25]}
    prices = {
        key: ItemPrice(alone_s=np.array(column)[:, None], host_s=ZERO, wholly=())
        for key, column in seconds.items()
    }
    counts = replace(segments[0], repeat=np.array([[1.0], [7.0], [4.0]]))

    run = simulate([counts], replace(priced, prices=prices), attribute=False)

    # messages follow compute and do not hold it up
    assert run.duration_s[1, :, 0].tolist() == pytest.approx([1.0 + 4.0, 7 * 2.0, 4 * 0.5 + 0.25])


def test_streams_run_beside_each_other_unless_one_waits():
    free = [Entry("compute", 3.0, ("host",)), Entry("tp", 5.0, ("host",))]
    blocked = [Entry("compute", 3.0, ("host",)), Entry("tp", 5.0, ("compute",))]

    assert seconds_of((free, 1)) == pytest.approx(5.0)
    assert seconds_of((blocked, 1)) == pytest.approx(8.0)


def test_a_message_issued_beside_a_gemm_costs_only_what_sticks_out():
    # gather beside the input gradient, then the weight gradient waits for both (arXiv:2205.05198, 4.2.2)
    items = [
        Entry("tp", 4.0, ("compute", "host")),
        Entry("compute", 3.0, ("compute", "host")),
        Entry("compute", 2.0, ("compute", "tp", "host")),
    ]

    assert seconds_of((items, 1)) == pytest.approx(4.0 + 2.0)


def test_a_program_that_the_host_cannot_feed_lasts_as_long_as_its_launches():
    kernels = [Entry(seconds=1e-6, launch_s=20e-6)] * 5

    # 500 launches of 20 µs, then the last kernel
    assert seconds_of((kernels, 100)) == pytest.approx(500 * 20e-6 + 1e-6, rel=1e-12)


def test_a_busy_device_hides_all_launches_but_the_first():
    kernels = [Entry(seconds=100e-6, launch_s=20e-6)] * 5

    assert seconds_of((kernels, 100)) == pytest.approx(20e-6 + 500 * 100e-6, rel=1e-12)


def test_a_host_that_drains_the_device_first_waits_for_every_stream():
    items = [
        Entry("compute", 3.0, ("compute", "host")),
        Entry("tp", 5.0, ("host",)),
        Entry("host", 1.0, ("compute", "tp", "dp", "pp", "host")),
        Entry("compute", 2.0, ("compute", "host")),
    ]

    assert seconds_of((items, 1)) == pytest.approx(5.0 + 1.0 + 2.0)


@pytest.mark.parametrize(
    ("when", "runs"),
    [
        ("every", "first middle last only alone"),
        ("not_first", "middle last alone"),
        ("last", "last only"),
        ("forward_alone", "first only alone"),
        ("forward_beside_other", "middle last"),
        ("backward_alone", "last only alone"),
        ("backward_beside_other", "first middle"),
    ],
)
def test_items_run_at_the_positions_that_their_name_says(when, runs):
    # an accumulation adds to what an earlier micro-batch left; a reduction follows the last one
    found = [Entry(seconds=2.0, when=when, launch_s=0.5)]

    ran = [position for position in POSITIONS if seconds_of((found, 1), position=position) > 0]

    assert ran == runs.split()


def test_data_parallel_messages_run_on_behind_the_program():
    backward = [Entry("compute", 1.0), Entry("dp", 3.0, ("compute", "host"), "last")]
    segments, priced = built((backward, 4))

    run = simulate(segments, priced, attribute=False)

    # four layers: compute ends at 4; the first message starts at 1, the last ends at 1 + 4 · 3 = 13
    last = POSITIONS.index("last")
    assert run.duration_s[last, 0, 0] == pytest.approx(4.0)
    assert run.tail_s[last, 0, 0] == pytest.approx(13.0 - 4.0)
    assert run.reduction_s[last, 0, 0] == pytest.approx(12.0)
    assert run.reduction_s[POSITIONS.index("middle"), 0, 0] == 0.0


@LAWS
@given(found=layers, repeat=st.integers(1, 4))
def test_the_tail_is_what_the_data_parallel_stream_runs_on(found, repeat):
    found = [*found, Entry("dp", 1.0)]
    segments, priced = built((found, repeat))
    items = slow_program.written_out([(segments[0].items, repeat)])

    run = simulate(segments, priced, attribute=False)

    end = slow_program.data_parallel_end(items, priced.of, "last")
    found_s = run.duration_s[2, 0, 0] + run.tail_s[2, 0, 0]
    assert found_s == pytest.approx(end, abs=1e-9)


def test_a_program_without_data_parallel_messages_has_no_tail():
    segments, priced = built(([Entry()], 2))

    run = simulate(segments, priced, attribute=False)

    assert (run.tail_s == NEVER).all()
    assert (run.reduction_s == 0).all()


def test_a_layer_that_is_never_held_takes_no_time():
    assert seconds_of(([Entry(seconds=5.0)], 0)) == 0.0


def test_a_pass_without_segments_is_refused():
    with pytest.raises(ValueError, match="at least one segment"):
        simulate([], any_priced(), attribute=False)


@pytest.mark.parametrize("pass_name", ["forward", "backward"])
def test_the_passes_of_a_real_model_equal_their_graphs(pass_name):
    priced = any_priced()
    segments = getattr(priced.programs, pass_name)
    items = slow_program.written_out([(s.items, int(s.repeat[0, 0])) for s in segments])

    run = simulate(segments, priced, attribute=False)

    for number, position in enumerate(POSITIONS):
        expected = slow_program.duration(items, priced.of, position)
        assert run.duration_s[number, 0, 0] == pytest.approx(expected, rel=1e-9)
