"""Plain scalars: a word stays a word, a number is what JSON says that it is, nothing else is guessed."""

import math

from all_cases import all_cases
from hypothesis import given, settings
from hypothesis import strategies as st

from flopcast.files.yaml_text import read_yaml, resolve


def read(text):
    return read_yaml(f"key: {text}".encode(), "job.yaml").data["key"]


@all_cases(
    ("text", "meaning"),
    [
        ("", None),
        ("~", None),
        ("null", None),
        ("Null", None),
        ("true", True),
        ("True", True),
        ("false", False),
        ("False", False),
        ("0", 0),
        ("-5", -5),
        ("+5", 5),
        ("1_000", 1000),
        ("40_000_000", 40_000_000),
        ("1.5", 1.5),
        ("-0.25", -0.25),
        (".5", 0.5),
        ("1.", 1.0),
        ("1e3", 1000.0),
        ("1E+3", 1000.0),
        ("1.5e-3", 0.0015),
        ("+.5e1", 5.0),
        ("1e-400", 0.0),
    ],
)
def test_null_truth_and_numbers_are_read_as_such(text, meaning):
    found = read(text)

    assert found == meaning
    assert type(found) is type(meaning)


@all_cases("word", ["no", "No", "NO", "yes", "on", "off", "Off", "y", "n"])
def test_the_truth_words_of_old_yaml_are_words(word):
    assert read(word) == word


@all_cases("word", ["12:30:45", "1:30", "190:20:30", "2024-09-01", "2001-12-14t21:59:43.10"])
def test_the_clocks_and_dates_of_old_yaml_are_words(word):
    assert read(word) == word


@all_cases("word", ["0x10", "0o17", "0b11", "0xFF", "1.5.2", "1,000", "5%", "1/2", "3 GB"])
def test_what_is_nearly_a_number_is_a_word(word):
    assert read(word) == word


def test_names_that_resemble_exponents_are_words():
    words = ["e5", "E5", "-e5", ".e5", "+e10", "e+1", "E-5", "_1", "1e", "e", ".", "+"]

    found = [resolve(word) for word in words]

    assert found == words


@all_cases(
    "word", [".nan", ".NaN", "nan", "NaN", ".inf", "-.inf", ".INF", "inf", "-inf", "Infinity", "-Infinity"]
)
def test_nothing_is_read_as_a_number_that_is_none(word):
    assert not isinstance(read(word), float)


@all_cases("text", ["0777", "007", "00", "-010"])
def test_leading_zeros_make_nothing_octal(text):
    assert read(text) == int(text, 10)


@all_cases("text", ["'12'", '"12"', "'null'", '"true"', "'~'", '"1e3"', "''", "|-\n  12"])
def test_what_is_quoted_is_text(text):
    assert isinstance(read(text), str)


@settings(max_examples=60, deadline=None)
@given(number=st.integers(-(10**37), 10**37))
def test_whole_numbers_are_read_exactly(number):
    assert resolve(str(number)) == number
    assert isinstance(resolve(str(number)), int)


@settings(max_examples=60, deadline=None)
@given(number=st.floats(allow_nan=False, allow_infinity=False))
def test_decimal_numbers_are_read_exactly(number):
    found = resolve(repr(number))

    assert found == number
    assert math.copysign(1, found) == math.copysign(1, number)


@settings(max_examples=60, deadline=None)
@given(number=st.integers(0, 10**12))
def test_underscores_between_digits_only_help_the_reader(number):
    assert resolve(f"{number:_}") == number


@settings(max_examples=60, deadline=None)
@given(text=st.text(alphabet="0123456789._+-eEnaif", max_size=8))
def test_any_scalar_is_null_truth_number_or_the_text_itself(text):
    found = resolve(text)

    assert found is None or isinstance(found, (bool, int, float)) or found == text
    if isinstance(found, float) and "_" not in text:
        assert found == float(text)
