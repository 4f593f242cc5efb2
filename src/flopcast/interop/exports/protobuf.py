"""The part of protobuf's wire format that traces need.

Answers: which bytes encode a field of a message?
Elsewhere: the messages (perfetto.py, chakra.py).

References
----------
https://protobuf.dev/programming-guides/encoding/
"""

from collections.abc import Iterable

ONE_GROUP = tuple(bytes([value]) for value in range(0x80))  # as most numbers have


def varint(field: int, value: int) -> bytes:
    """Return a field of wire type 0: its number and type, then a non-negative number."""
    return raw_varint(field << 3) + raw_varint(value)


def message(field: int, body: bytes) -> bytes:
    """Return a field of wire type 2, which has a length: a nested message, or text."""
    return raw_varint(field << 3 | 2) + raw_varint(len(body)) + body


def text(field: int, content: str) -> bytes:
    """Return a text field, UTF-8."""
    return message(field, content.encode("utf-8"))


def packed(field: int, values: Iterable[int]) -> bytes:
    """Return a packed repeated number, as proto3 writes it; empty if there is none.

    >>> packed(5, [1, 300]).hex()
    '2a0301ac02'
    """
    body = b"".join(map(raw_varint, values))
    return message(field, body) if body else b""


def delimited(body: bytes) -> bytes:
    """Return a message preceded by its length, as in files of several messages."""
    return raw_varint(len(body)) + body


def raw_varint(value: int) -> bytes:
    """Return groups of seven bits, the low ones first; the high bit of a byte means that more groups
    follow.

    >>> raw_varint(300).hex()
    'ac02'
    """
    if 0 <= value <= 0x7F:
        return ONE_GROUP[value]
    groups = []
    while value > 0x7F:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*groups, value])
