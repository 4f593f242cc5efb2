"""Fields of protobuf messages, read from bytes without copying them as a whole.

Answers: which fields does a message have, by their numbers?
Elsewhere: the messages of ONNX (onnx_file.py). The wire format: protobuf.dev/programming-guides/encoding.

A field of bytes is returned as its position, so that weights of many gigabytes are skipped.
"""

from collections.abc import Iterator, Mapping

from flopcast.records import Record

Buffer = memoryview
MOST_FIELDS = 2**20  # of one message: a large model has some 100,000 nodes
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5  # wire types


class Message(Record, eq=False):
    """A message: a part of a buffer.

    Examples
    --------
    >>> message = Message(buffer=memoryview(bytes([8, 150, 1])), end=3)
    >>> [(number, value) for number, value in message.fields()]
    [(1, 150)]
    """

    buffer: Buffer
    start: int = 0
    end: int
    kind: int = BYTES  # or FIXED32, FIXED64

    def fields(self) -> "Iterator[tuple[int, int | Message]]":
        """Yield the number and the value of every field: a whole number, or a message for bytes.

        Raises
        ------
        ValueError
            The message ends inside a field, has a field of unknown type or with the number 0, or has more
            than MOST_FIELDS fields.
        """
        buffer, place, end = self.buffer, self.start, self.end
        for _ in range(MOST_FIELDS):
            if place >= end:
                return
            key, place = _varint(buffer, place, end)
            kind = key & 7
            if key < 8:
                raise ValueError(
                    f"the field whose tag ends at byte {place} has the number 0, but numbers begin with 1"
                )
            if kind == VARINT:
                value, place = _varint(buffer, place, end)
                yield key >> 3, value
                continue
            if kind == BYTES:
                size, place = _varint(buffer, place, end)
            elif kind in (FIXED32, FIXED64):
                size = 4 if kind == FIXED32 else 8
            else:
                raise ValueError(f"the field at byte {place} has the unknown type {kind}")
            if place + size > end:
                raise ValueError(f"the file ends inside of a field, at byte {len(buffer)}")
            yield key >> 3, Message(buffer=buffer, start=place, end=place + size, kind=kind)
            place += size
        if place < end:
            raise ValueError(f"the message at byte {place} has more than {MOST_FIELDS} fields")

    def grouped(self) -> "Fields":
        """Return all fields, by their numbers.

        >>> Message(buffer=memoryview(bytes([8, 150, 1])), end=3).grouped().integer(1, 0)
        150
        """
        values: dict[int, list[int | Message]] = {}
        for number, value in self.fields():
            values.setdefault(number, []).append(value)
        return Fields(values)

    def raw(self) -> bytes:
        """Return the bytes of the message."""
        return bytes(self.buffer[self.start : self.end])

    def text(self) -> str:
        """Return the bytes as text."""
        return str(self.buffer[self.start : self.end], "utf-8", "replace")

    def numbers(self) -> list[int]:
        """Return the bytes as packed whole numbers."""
        found, place = list[int](), self.start
        while place < self.end:
            value, place = _varint(self.buffer, place, self.end)
            found.append(value)
        return found


class Fields(Record, eq=False, kw_only=False):
    """The fields of a message by their numbers, in the order of the file."""

    values: Mapping[int, list[int | Message]]

    def messages(self, number: int) -> list[Message]:
        """Return the values of a field that consist of bytes."""
        return [value for value in self.values.get(number, ()) if isinstance(value, Message)]

    def texts(self, number: int) -> list[str]:
        """Return the values of a field of texts."""
        return [value.text() for value in self.messages(number)]

    def text(self, number: int) -> str:
        """Return the last value of a field of texts, or an empty text."""
        return "".join(self.texts(number)[-1:])

    def numbers(self, number: int) -> list[int]:
        """Return the whole numbers of a field, whether they are packed or not."""
        values = (v.numbers() if isinstance(v, Message) else [v] for v in self.values.get(number, ()))
        return [each for listed in values for each in listed]

    def integer(self, number: int, default: int) -> int:
        """Return the last whole number of a field, or the default."""
        given = [value for value in self.values.get(number, ()) if isinstance(value, int)]
        return given[-1] if given else default


def _varint(buffer: Buffer, place: int, end: int) -> tuple[int, int]:
    """Return a number of variable length, and the position after it."""
    value = shift = 0
    while place < end and shift < 70:
        byte = buffer[place]
        place += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, place
        shift += 7
    raise ValueError(f"the file ends inside a number, at byte {place}")


def signed(value: int) -> int:
    """Return a signed whole number of 64 bits.

    >>> signed(2**64 - 1), signed(7)
    (-1, 7)
    """
    return value - 2**64 if value >= 2**63 else value
