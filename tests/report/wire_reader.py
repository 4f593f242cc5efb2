"""Protobuf's wire format read back, and a Perfetto trace from it: an oracle that shares no code.

https://protobuf.dev/programming-guides/encoding/ and
https://perfetto.dev/docs/reference/trace-packet-proto for the numbers of the fields.
"""

from collections import defaultdict
from typing import NamedTuple

VARINT, LENGTH = 0, 2
PACKET = 1
TIMESTAMP, SEQUENCE, EVENT, DESCRIPTOR = 8, 10, 11, 60
BEGIN, END, COUNTER = 1, 2, 4


class BrokenError(Exception):
    """The bytes are no protobuf message."""


class Slice(NamedTuple):
    track: int
    name: str
    category: str
    begin_ns: int
    end_ns: int


def varint(data, at):
    if at < len(data) and data[at] < 0x80:  # as most numbers
        return data[at], at + 1
    value = shift = 0
    while True:
        if at >= len(data):
            raise BrokenError("the bytes end inside a number")
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if not data[at - 1] & 0x80:
            return value, at


def fields(data):
    """Field number → values (numbers, or bytes of what has a length)."""
    found, at = defaultdict(list), 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == VARINT:
            value, at = varint(data, at)
        elif key & 7 == LENGTH:
            size, at = varint(data, at)
            value, at = data[at : at + size], at + size
            if len(value) != size:
                raise BrokenError("the bytes end inside a field")
        else:
            raise BrokenError(f"wire type {key & 7} is not used by traces")
        found[key >> 3].append(value)
    return dict(found)


class Trace:
    """Tracks, slices and counters of a trace file, events sorted by time as the viewer sorts them."""

    def __init__(self, data):
        top = fields(data)
        if set(top) - {PACKET}:
            raise BrokenError("a trace holds packets only")
        self.packets = [fields(packet) for packet in top.get(PACKET, [])]
        self.processes, self.threads, self.counters = {}, {}, {}
        for packet in self.packets:
            for descriptor in packet.get(DESCRIPTOR, []):
                self.describe(fields(descriptor))
        events = [(p[TIMESTAMP][0], fields(p[EVENT][0])) for p in self.packets if EVENT in p]
        events.sort(key=lambda event: event[0])  # stable, as in the viewer
        self.events = [(moment, event[9][0], event[11][0], event) for moment, event in events]

    def describe(self, descriptor):
        track = descriptor[1][0]
        if 3 in descriptor:
            process = fields(descriptor[3][0])
            self.processes[track] = (process[1][0], process[6][0].decode())
        elif 4 in descriptor:
            thread = fields(descriptor[4][0])
            self.threads[track] = (thread[1][0], thread[2][0], thread[5][0].decode())
        elif 8 in descriptor:
            self.counters[track] = (descriptor[2][0].decode(), descriptor[5][0], fields(descriptor[8][0]))

    def slices(self):
        """Slices as a viewer nests them: an end closes what began last on its track."""
        open_slices, found = defaultdict(list), []
        for moment, kind, track, event in self.events:
            if kind == BEGIN:
                name, category = event[23][0].decode(), event[22][0].decode()
                open_slices[track].append((name, category, moment))
            elif kind == END:
                if not open_slices[track]:
                    raise BrokenError("an end without a begin")
                name, category, begin_ns = open_slices[track].pop()
                found.append(Slice(track, name, category, begin_ns, moment))
        if any(open_slices.values()):
            raise BrokenError("a begin without an end")
        return found

    def values(self):
        """Points of every counter: track → [(ns, value)]."""
        found = defaultdict(list)
        for moment, kind, track, event in self.events:
            if kind == COUNTER:
                found[track].append((moment, event[30][0]))
        return dict(found)
