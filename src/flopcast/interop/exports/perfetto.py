"""A timeline as a Perfetto trace (protobuf) for ui.perfetto.dev.

Answers: what does the trace file contain? It has a process per pipeline stage, a thread per stream, a
slice per task and operator, and a counter of the memory that activations take. The format is
perfetto.protos.Trace (https://perfetto.dev/docs/reference/trace-packet-proto). The encoder (protobuf.py)
is written by hand, because only five message types are needed. Times are in nanoseconds.
"""

from collections.abc import Iterable, Iterator

from flopcast.interop.exports.protobuf import message, text, varint
from flopcast.report.events import Event

SEQUENCE_ID = 1
SLICE_BEGIN, SLICE_END, COUNTER = 1, 2, 4
STREAMS = ("tasks", "compute", "tp", "dp", "pp", "host", "ep", "cp")
Track = tuple[float, float]


def perfetto(events: Iterable[Event], counters: dict[int, list[Track]], names: dict[int, str]) -> bytes:
    """Return the bytes of a trace file.

    Parameters
    ----------
    events : events in any order of stages, and ordered by time on each thread
    counters : by stage, pairs of a moment in s and a number of bytes
    names : by stage, the name of its process

    Returns
    -------
    bytes
        The packets are the descriptions of all tracks, then a begin and an end for every event, then the
        counters. A viewer sorts them by time and keeps this order for equal times; an end closes the last
        event that began on its thread.

    References
    ----------
    https://perfetto.dev/docs/reference/synthetic-track-event (which fields a viewer needs)
    """
    packets = [*_descriptors(names, counters)]
    for event in events:
        track = _track(event.stage, STREAMS.index(event.stream))
        label = event.operator if event.layer < 0 else f"{event.operator} [{event.layer}]"
        packets.append(_slice(event.start_s, SLICE_BEGIN, track, label, event.phase))
        packets.append(_slice(event.end_s, SLICE_END, track))
    for stage, points in counters.items():
        packets += [_counter(moment, size, _track(stage, len(STREAMS))) for moment, size in points]
    return b"".join(message(1, packet) for packet in packets)


def _descriptors(names: dict[int, str], counters: dict[int, list[Track]]) -> Iterator[bytes]:
    """Yield names of processes, threads and counters; without them, a viewer shows only numbers.

    Process and thread numbers begin with 1, because 0 means the idle process.
    """
    for stage, name in names.items():
        process = varint(1, stage + 1) + text(6, name)
        yield _packet(0, message(60, varint(1, _track(stage, 99)) + message(3, process)))
        for number, stream in enumerate(STREAMS):
            thread = varint(1, stage + 1) + varint(2, number + 1) + text(5, stream)
            described = varint(1, _track(stage, number)) + message(4, thread)
            yield _packet(0, message(60, described))
        if stage in counters:
            counter = varint(1, 0) + varint(3, 3)  # unit: bytes
            described = varint(1, _track(stage, len(STREAMS))) + text(2, "allocated memory")
            described += varint(5, _track(stage, 99)) + message(8, counter)
            yield _packet(0, message(60, described))


def _track(stage: int, number: int) -> int:
    """Return the unique number of a track: each stage has a hundred numbers, and 99 is its process."""
    return 1 + stage * 100 + number


def _slice(moment_s: float, kind: int, track: int, name: str = "", category: str = "") -> bytes:
    """Return one edge of a slice. Field numbers of TrackEvent: type 9, track 11, category 22, name 23."""
    event = varint(9, kind) + varint(11, track)
    event += text(22, category) if category else b""
    event += text(23, name) if name else b""
    return _packet(moment_s, message(11, event))


def _counter(moment_s: float, size_bytes: float, track: int) -> bytes:
    """Return one value of a counter, a whole number of bytes of at least 0 (field 30 of TrackEvent)."""
    event = varint(9, COUNTER) + varint(11, track) + varint(30, max(0, round(size_bytes)))
    return _packet(moment_s, message(11, event))


def _packet(moment_s: float, body: bytes) -> bytes:
    """Return a TracePacket: timestamp in ns (8), the sequence of its writer (10), then the body."""
    return varint(8, round(moment_s * 1e9)) + varint(10, SEQUENCE_ID) + body
