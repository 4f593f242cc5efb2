"""TOML with lines: values are those of the standard library, lines those where keys were written."""

import tomllib

import pytest
from all_cases import all_cases
from hypothesis import given, settings
from hypothesis import strategies as st

from flopcast.errors import SpecError
from flopcast.files.yaml_text import MAX_BYTES, MAX_DEPTH
from flopcast.interop.configs.toml_text import read_toml

LAWS = settings(max_examples=60)
names = st.text("abcdefgh_-019", min_size=1, max_size=6)
VALUES = {
    "8192": 8192,
    "1e-4": 1e-4,
    '"bf16"': "bf16",
    "'a # b'": "a # b",
    '"a = [1"': "a = [1",
    "true": True,
    "[1, 2]": [1, 2],
    "[\n  1, # one\n  2,\n]": [1, 2],
    '"""\nx = 1\n[y]\n"""': "x = 1\n[y]\n",
    "'''\nz = \"\"\n'''": 'z = ""\n',
    "{ inner = 3 }": {"inner": 3},
    "2026-01-31": "2026-01-31",
}
tables = st.dictionaries(
    names,
    st.dictionaries(names, st.sampled_from(sorted(VALUES)), min_size=1, max_size=4),
    min_size=1,
    max_size=4,
)


def read(text):
    return read_toml(text.encode(), "train.toml")


def told(raw):
    """The one fault of a text."""
    with pytest.raises(SpecError) as error:
        read_toml(raw if isinstance(raw, bytes) else raw.encode(), "train.toml")
    (problem,) = error.value.problems
    return problem


@LAWS
@given(sections=tables, gap=st.sampled_from(["", "\n", "# note = 1\n", "\n# [no.table]\n\n"]))
def test_every_key_stands_on_the_line_on_which_it_was_written(sections, gap):
    text, lines = "", {}
    for section, keys in sections.items():
        text += gap + f"[{section}]\n"
        lines[section,] = text.count("\n")
        for key, value in keys.items():
            lines[section, key] = text.count("\n") + 1
            text += f"{key} = {value} # why\n"

    document = read(text)

    assert document.data == {
        section: {key: VALUES[value] for key, value in keys.items()} for section, keys in sections.items()
    }
    assert {path: int(document.where(path).rpartition(":")[2]) for path in lines} == lines


@LAWS
@given(sections=tables)
def test_line_ends_of_windows_change_neither_values_nor_lines(sections):
    text = "".join(
        f"[{section}]\n" + "".join(f"{key} = {value}\n" for key, value in keys.items())
        for section, keys in sections.items()
    )

    unix, windows = read(text), read(text.replace("\n", "\r\n"))

    assert windows.data == unix.data
    assert windows.lines == unix.lines


@all_cases(
    ("text", "path", "line"),
    [
        ("a.b.c = 1", ("a", "b", "c"), 1),
        ('\n"a b" = 1', ("a b",), 2),
        ("\n\n[ a . 'b.c' ]\nd = 1", ("a", "b.c", "d"), 4),
        ("[[runs]]\nx = 1\n[[runs]]\nx = 2", ("runs", 0, "x"), 2),
        ("[[runs]]\nx = 1\n[[runs]]\nx = 2", ("runs", 1, "x"), 4),
        ("[[runs]]\n[runs.inner]\ny = 1\n[[runs]]\n[runs.inner]\ny = 2", ("runs", 1, "inner", "y"), 6),
        ("a = { b = { c = 1 } }\nd = 2", ("a", "b", "c"), 1),
        ("a = [\n  { b = 1 },\n  { b = 2 },\n]\nd = 2", ("d",), 5),
        ('s = """a \\\n  b"""\nd = 2', ("d",), 3),
        ("s = 'it''s' # x\nd = 2".replace("''", ""), ("d",), 2),
    ],
)
def test_lines_are_those_of_the_nearest_key(text, path, line):
    document = read(text)

    value = document.data
    for part in path:
        value = value[part]
    assert document.where(path) == f"train.toml:{line}"
    assert document.data == tomllib.loads(text)


@pytest.mark.parametrize("word", ["inf", "-inf", "nan"])
def test_a_number_that_is_not_finite_is_refused_on_its_line(word):
    problem = told(f"[training]\nsteps = 10\nlr = {word}\n")

    assert (problem.where, problem.field) == ("train.toml:3", "number")
    assert problem.allowed == "a finite number"


@all_cases(
    ("text", "line"),
    [("a = 1\na = 2\n", 2), ("a = 1\n\nb = = 2\n", 3), ("[a\nb = 1\n", 1), ("a = 1 2\n", 1)],
)
def test_what_is_not_toml_is_told_with_its_line(text, line):
    problem = told(text)

    assert (problem.where, problem.field) == (f"train.toml:{line}", "text")
    assert "at line" not in problem.because
    assert problem.message == "text is not well-formed"


def test_bytes_that_are_no_text_are_refused():
    assert "UTF-8" in f"{told(b'a = 1 # ' + bytes([0xFF]))}"


def test_a_file_that_is_too_large_is_refused_before_it_is_parsed():
    assert f"{MAX_BYTES}" in f"{told('# ' + 'x' * MAX_BYTES)}".replace(" ", "").replace(",", "")


@all_cases(
    "text",
    [
        f"a = {'[' * (MAX_DEPTH + 1)}{']' * (MAX_DEPTH + 1)}",
        f"[{'.'.join('a' * (MAX_DEPTH + 1))}]\nb = 1",
        f"{'.'.join('a' * (MAX_DEPTH + 1))} = 1",
        f"a = {'{ b = ' * (MAX_DEPTH + 1)}1{' }' * (MAX_DEPTH + 1)}",
    ],
)
def test_nesting_is_bounded_before_the_parser_recurses(text):
    problem = told("x = 1\n" + text)

    assert (problem.where, problem.field) == ("train.toml:2", "depth")
    assert problem.value > MAX_DEPTH


def test_nesting_up_to_the_bound_is_read():
    text = f"a = {'[' * MAX_DEPTH}{']' * MAX_DEPTH}"

    assert read(text).data == tomllib.loads(text)
