"""A timeline as a Perfetto trace (protobuf), to be opened in ui.perfetto.dev.

Answers: what does the trace file hold? A process per pipeline stage, a thread per stream, a slice per
task and operator, a counter of the memory that activations take.
Format: perfetto.protos.Trace, written by hand as it needs five message types
(https://perfetto.dev/docs/reference/trace-packet-proto). Times are nanoseconds.
"""

from collections.abc import Iterable, Iterator

from flopcast.report.events import Event

SEQUENCE_ID = 1
SLICE_BEGIN, SLICE_END, COUNTER = 1, 2, 4
STREAMS = ("tasks", "compute", "tp", "dp", "pp", "host")
Track = tuple[float, float]


def perfetto(events: Iterable[Event], counters: dict[int, list[Track]], names: dict[int, str]) -> bytes:
    """The bytes of a trace file.

    Parameters
    ----------
    counters : by stage, (moment in s, bytes)
    names : by stage, the name of its process
    """
    packets = [*_descriptors(names, counters)]
    for event in events:
        track = _track(event.stage, STREAMS.index(event.stream))
        label = event.operator if event.layer < 0 else f"{event.operator} [{event.layer}]"
        packets.append(_slice(event.start_s, SLICE_BEGIN, track, label, event.phase))
        packets.append(_slice(event.end_s, SLICE_END, track))
    for stage, points in counters.items():
        packets += [_counter(moment, size, _track(stage, len(STREAMS))) for moment, size in points]
    return b"".join(_message(1, packet) for packet in packets)


def _descriptors(names: dict[int, str], counters: dict[int, list[Track]]) -> Iterator[bytes]:
    for stage, name in names.items():
        process = _varint(1, stage + 1) + _text(6, name)
        yield _packet(0, _message(60, _varint(1, _track(stage, 99)) + _message(3, process)))
        for number, stream in enumerate(STREAMS):
            thread = _varint(1, stage + 1) + _varint(2, number + 1) + _text(5, stream)
            described = _varint(1, _track(stage, number)) + _message(4, thread)
            yield _packet(0, _message(60, described))
        if stage in counters:
            counter = _varint(1, 0) + _varint(3, 3)  # unit: bytes
            described = _varint(1, _track(stage, len(STREAMS))) + _text(2, "allocated memory")
            described += _varint(5, _track(stage, 99)) + _message(8, counter)
            yield _packet(0, _message(60, described))


def _track(stage: int, number: int) -> int:
    return 1 + stage * 100 + number


def _slice(moment_s: float, kind: int, track: int, name: str = "", category: str = "") -> bytes:
    event = _varint(9, kind) + _varint(11, track)
    event += _text(22, category) if category else b""
    event += _text(23, name) if name else b""
    return _packet(moment_s, _message(11, event))


def _counter(moment_s: float, size_bytes: float, track: int) -> bytes:
    event = _varint(9, COUNTER) + _varint(11, track) + _varint(30, max(0, round(size_bytes)))
    return _packet(moment_s, _message(11, event))


def _packet(moment_s: float, body: bytes) -> bytes:
    return _varint(8, round(moment_s * 1e9)) + _varint(10, SEQUENCE_ID) + body


def _varint(field: int, value: int) -> bytes:
    return _raw_varint(field << 3) + _raw_varint(value)


def _message(field: int, body: bytes) -> bytes:
    return _raw_varint(field << 3 | 2) + _raw_varint(len(body)) + body


def _text(field: int, text: str) -> bytes:
    return _message(field, text.encode("utf-8"))


def _raw_varint(value: int) -> bytes:
    """Base-128, low groups first."""
    groups = []
    while value > 0x7F:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*groups, value])
