"""Protobuf's wire format: whatever is written is read by a reader that shares no code."""

from all_cases import all_cases
from hypothesis import given, settings
from hypothesis import strategies as st
from wire_reader import fields
from wire_reader import varint as read_varint

from flopcast.interop.exports.protobuf import delimited, message, packed, raw_varint, text, varint

LAWS = settings(max_examples=80)
numbers = st.integers(0, 2**64 - 1)
places = st.integers(1, 2**29 - 1)  # numbers that a field may have


@LAWS
@given(value=numbers)
def test_a_number_takes_a_byte_for_seven_bits_and_comes_back(value):
    written = raw_varint(value)

    assert read_varint(written, 0) == (value, len(written))
    assert len(written) == max(1, -(-value.bit_length() // 7))
    assert [byte >> 7 for byte in written] == [1] * (len(written) - 1) + [0]


@all_cases(
    ("value", "written"),
    [(0, "00"), (1, "01"), (127, "7f"), (128, "8001"), (150, "9601"), (16384, "808001")],
)
def test_numbers_are_written_as_the_published_encoding_has_them(value, written):
    assert raw_varint(value).hex() == written


@LAWS
@given(field=places, value=numbers, body=st.binary(max_size=300), words=st.text(max_size=60))
def test_fields_of_a_message_come_back_by_their_number(field, value, body, words):
    assert fields(varint(field, value)) == {field: [value]}
    assert fields(message(field, body)) == {field: [body]}
    assert fields(text(field, words))[field][0].decode() == words


@LAWS
@given(values=st.lists(numbers, max_size=20), field=places)
def test_a_repeated_number_is_one_piece_and_nothing_where_there_is_none(values, field):
    written = packed(field, values)

    if not values:
        assert written == b""
        return
    (body,) = fields(written)[field]
    found, at = [], 0
    while at < len(body):
        value, at = read_varint(body, at)
        found.append(value)
    assert found == values


@LAWS
@given(bodies=st.lists(st.binary(max_size=200), max_size=6))
def test_messages_behind_their_lengths_are_told_apart(bodies):
    file, found, at = b"".join(map(delimited, bodies)), [], 0

    while at < len(file):
        size, at = read_varint(file, at)
        found.append(file[at : at + size])
        at += size

    assert found == bodies


@LAWS
@given(parts=st.lists(st.tuples(places, numbers), max_size=8))
def test_messages_one_after_the_other_are_one_message_of_all_their_fields(parts):
    expected = {}
    for field, value in parts:
        expected.setdefault(field, []).append(value)

    assert fields(b"".join(varint(field, value) for field, value in parts)) == expected
    nested = fields(message(1, b"".join(varint(field, value) for field, value in parts)))
    assert fields(nested[1][0]) == expected
