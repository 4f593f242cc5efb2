"""A timeline as a Perfetto trace (protobuf), to be opened in ui.perfetto.dev.

Answers: what does the trace file hold? A process per pipeline stage, a thread per stream, a slice per
task and operator, a counter of the memory that activations take.
Format: perfetto.protos.Trace, written by hand as it needs five message types (protobuf.py)
(https://perfetto.dev/docs/reference/trace-packet-proto). Times are nanoseconds.
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
    events : in any order of stages; on one thread in the order of time
    counters : by stage, (moment in s, bytes)
    names : by stage, the name of its process

    Returns
    -------
    bytes
        Packets one after the other: first the descriptions of all tracks, then a begin and an end for
        every event, then the counters. A viewer sorts them by time and, where times are equal, leaves them
        in this order; an end closes what began last on its thread.

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

    Process and thread numbers count from 1, as 0 means the idle process to a viewer.
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
    """Return the number of a track, unique in the file: a hundred for each stage; 99 is its process."""
    return 1 + stage * 100 + number


def _slice(moment_s: float, kind: int, track: int, name: str = "", category: str = "") -> bytes:
    """Return one edge of a slice. Field numbers of TrackEvent: type 9, track 11, category 22, name 23."""
    event = varint(9, kind) + varint(11, track)
    event += text(22, category) if category else b""
    event += text(23, name) if name else b""
    return _packet(moment_s, message(11, event))


def _counter(moment_s: float, size_bytes: float, track: int) -> bytes:
    """Return one value of a counter; a whole number of bytes, never below 0 (field 30 of TrackEvent)."""
    event = varint(9, COUNTER) + varint(11, track) + varint(30, max(0, round(size_bytes)))
    return _packet(moment_s, message(11, event))


def _packet(moment_s: float, body: bytes) -> bytes:
    """Return a TracePacket: timestamp in ns (8), the sequence of its writer (10), then the body."""
    return varint(8, round(moment_s * 1e9)) + varint(10, SEQUENCE_ID) + body
