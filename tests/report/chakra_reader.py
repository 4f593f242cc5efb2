"""Chakra execution traces read back and run: an oracle that shares no code with their writer.

Fields and enumerations: mlcommons/chakra, schema/protobuf/et_def.proto. Ranks run as ASTRA-sim's do: at
each moment one kernel, one host operation and one message, of those that are free the lowest number; a send
needs no receiver that waits, a collective needs all members of its group.
"""

import heapq
from dataclasses import dataclass, field
from functools import cache

from wire_reader import fields, varint

COMPUTE, SEND, RECEIVE, COLLECTIVE = 4, 5, 6, 7
VALUES = {7: int, 9: int, 13: int, 27: bool, 29: bytes.decode}


@dataclass(frozen=True)
class Read:
    id: int
    name: str
    type: int
    waits: tuple[int, ...]
    micros: int
    attributes: dict = field(default_factory=dict)


def messages(data):
    """Bodies of messages, each behind its length."""
    at = 0
    while at < len(data):
        size, at = varint(data, at)
        yield data[at : at + size]
        at += size
    assert at == len(data)


def numbers(body):
    at, found = 0, []
    while at < len(body):
        value, at = varint(body, at)
        found.append(value)
    return tuple(found)


@cache  # nodes of all ranks have many of the same
def attribute(body):
    read = fields(body)
    ((name,), (kind,)) = read.pop(1), read
    return name.decode(), VALUES[kind](read[kind][0])


def read_trace(data):
    """The version of the format, and the nodes."""
    first, *others = messages(data)
    nodes = []
    for body in others:
        read = fields(body)
        assert not set(read) - {1, 2, 3, 5, 7, 10}
        waits = numbers(read[5][0]) if 5 in read else ()
        told = dict(map(attribute, read[10]))
        nodes.append(Read(read[1][0], read[2][0].decode(), read[3][0], waits, read[7][0], told))
    return fields(first)[1][0].decode(), nodes


def lane(node):
    return "message" if node.type != COMPUTE else "host" if node.attributes["is_cpu_op"] else "kernel"


class Machine:
    """Every rank's nodes, run to the end."""

    def __init__(self, ranks, groups):
        self.ranks, self.groups = ranks, groups
        self.left = [{node.id: set(node.waits) for node in nodes} for nodes in ranks]
        self.next = [{node.id: [] for node in nodes} for nodes in ranks]
        for rank, nodes in enumerate(ranks):
            for node in nodes:
                for wait in node.waits:
                    self.next[rank][wait].append(node.id)
        self.node = [{node.id: node for node in nodes} for nodes in ranks]
        self.free = [{"kernel": [], "host": [], "message": []} for _ in ranks]
        self.busy = [set() for _ in ranks]
        self.events, self.arrived, self.waiting, self.met = [], {}, {}, {}
        self.order, self.now, self.done = 0, 0, 0

    def run(self):
        """Moment of the end in microseconds, and how many nodes ended."""
        for rank, nodes in enumerate(self.ranks):
            for node in nodes:
                if not node.waits:
                    self.release(rank, node.id)
        for rank in range(len(self.ranks)):
            self.issue(rank)
        while self.events:
            self.now, _, rank, number = heapq.heappop(self.events)
            self.finish(rank, number)
        return self.now, self.done

    def release(self, rank, number):
        heapq.heappush(self.free[rank][lane(self.node[rank][number])], number)

    def issue(self, rank):
        for name, ready in self.free[rank].items():
            if ready and name not in self.busy[rank]:
                self.busy[rank].add(name)
                self.start(rank, self.node[rank][heapq.heappop(ready)])

    def start(self, rank, node):
        told = node.attributes
        if node.type == COLLECTIVE:
            members = self.groups[told["pg_name"]]
            turn = self.met.setdefault((told["pg_name"], rank), 0)
            self.met[told["pg_name"], rank] += 1
            here = self.waiting.setdefault((told["pg_name"], turn), [])
            here.append((rank, node.id))
            if len(here) == len(members):
                for one, number in here:
                    self.end(one, number, node.micros)
        elif node.type == RECEIVE:
            key = told["comm_src"], rank, told["comm_tag"]
            if key in self.arrived:
                self.end(rank, node.id, 0)
            else:
                self.waiting[key] = node.id
        else:
            self.end(rank, node.id, node.micros)

    def end(self, rank, number, micros):
        self.order += 1
        heapq.heappush(self.events, (self.now + micros, self.order, rank, number))

    def finish(self, rank, number):
        node = self.node[rank][number]
        self.done += 1
        self.busy[rank].discard(lane(node))
        if node.type == SEND:
            to = node.attributes["comm_dst"]
            key = rank, to, node.attributes["comm_tag"]
            self.arrived[key] = True
            if key in self.waiting:
                self.end(to, self.waiting.pop(key), 0)
        for number_after in self.next[rank][number]:
            left = self.left[rank][number_after]
            left.discard(number)
            if not left:
                self.release(rank, number_after)
        self.issue(rank)
