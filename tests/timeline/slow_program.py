"""A program run slowly, as an oracle: an explicit graph of items, and its longest path by search.

Streams are in-order queues: an item waits for what was put before it on its own stream, on the host and
on every stream that it names. The host launches items one after the other, each for some seconds.
"""

from functools import cache

from flopcast.operators.item import EVERY_STREAM
from flopcast.timeline.layer import layer_links
from flopcast.workload.program import POSITIONS, WHEN

BLOCKING = ("compute", "tp", "host")


def blocking(items):
    """Streams that a program ends with: where parameters are gathered, that of data parallelism too."""
    gathers = any(item.stream == "gathered" for item in items)
    return (*BLOCKING, "dp") if gathers else BLOCKING


def written_out(segments):
    """The items of (items, repeat) pairs, one after the other."""
    return [item for items, repeat in segments for _ in range(repeat) for item in items]


def graph_of(items, price_of, position):
    """Nodes (seconds, edges to earlier nodes), and the last node of every stream."""
    nodes, last = [], {}

    def add(seconds, streams):
        nodes.append((seconds, tuple(last[s] for s in streams if s in last)))
        return len(nodes) - 1

    for item in items:
        runs = WHEN[item.when][POSITIONS.index(position)]
        price = price_of(item)
        last["host"] = add(price.host_s.flat[0] * item.count[0, 0] * runs, ("host",))
        seconds = float(price.alone_s[0, 0] * item.count[0, 0]) * runs
        last[item.stream] = add(seconds, {item.stream, "host", *item.waits})
    return nodes, last


def longest_path(nodes, node):
    """Seconds of the longest path that ends with a node."""

    @cache
    def ends(number):
        seconds, edges = nodes[number]
        return seconds + max((ends(edge) for edge in edges), default=0.0)

    for number in range(node):  # from the front, so that the search stays shallow
        ends(number)
    return ends(node)


def duration(items, price_of, position):
    """Seconds until the last of the blocking streams is free."""
    nodes, last = graph_of(items, price_of, position)
    return max((longest_path(nodes, last[s]) for s in blocking(items) if s in last), default=0.0)


def data_parallel_end(items, price_of, position):
    """When the data-parallel stream is free."""
    nodes, last = graph_of(items, price_of, position)
    return longest_path(nodes, last["dp"])


def links_of(segments, chunk_class, priced):
    """What messages lose to others on their link, item by item as `written_out` has them.

    Taken as given here: test_shared_links.py tests them.
    """
    rows = [(layer_links(s.items, priced), int(s.repeat[0, chunk_class])) for s in segments]
    return written_out(rows)


def _at(fraction, position):
    """A fraction at one position; one stands for all of them where the layer does the same in each."""
    return fraction[position % len(fraction), 0, 0]


def run_on(items, price_of, position, start_s, reduced_s, links):
    """Run a program from a moment, behind earlier reductions; when it ends, and its reductions end."""
    at = POSITIONS.index(position)
    free = dict.fromkeys(EVERY_STREAM, start_s)
    free["dp"] = max(start_s, reduced_s)
    for item, link in zip(items, links, strict=True):
        runs = WHEN[item.when][at]
        price = price_of(item)
        free["host"] += price.host_s.flat[0] * item.count[0, 0] * runs
        begin = max(free[stream] for stream in {item.stream, "host", *item.waits})
        alone_s = float(price.alone_s[0, 0] * item.count[0, 0]) * runs
        free[item.stream] = begin + alone_s * (1 + (_at(link.own.fraction, at) if link else 0))
        for queue, fraction in link.held_fraction.items() if link else ():
            free[queue] += _at(fraction, at) * alone_s
    return max(free[stream] for stream in blocking(items)), free["dp"]
