"""The YAML reader: which text it reads, on which line each value stands, and what it refuses, quickly."""

import json
from textwrap import dedent

import pytest
from all_cases import all_cases
from hypothesis import example, given, settings
from hypothesis import strategies as st

from flopcast.errors import SpecError, problems_of
from flopcast.files.yaml_text import MAX_BYTES, MAX_DEPTH, read_yaml

JOB = """\
# a job
model: gpt3-175b   # by name

cluster:
  base: selene
  jitter: {ratio: 1.02,
           log_sigma_factor: 0.01}
plan:
  tp: 8

  pp:
    16
notes: >
  several
  lines
rows:
- first
-
  second
- - nested
  - {a: [1,
         2]}
"silent":
last: "quoted"
"""
LINES = {
    (): 2,
    ("model",): 2,
    ("cluster",): 4,
    ("cluster", "base"): 5,
    ("cluster", "jitter"): 6,
    ("cluster", "jitter", "ratio"): 6,
    ("cluster", "jitter", "log_sigma_factor"): 7,
    ("plan",): 8,
    ("plan", "tp"): 9,
    ("plan", "pp"): 12,
    ("notes",): 13,
    ("rows",): 16,
    ("rows", 0): 17,
    ("rows", 1): 19,
    ("rows", 2): 20,
    ("rows", 2, 0): 20,
    ("rows", 2, 1): 21,
    ("rows", 2, 1, "a"): 21,
    ("rows", 2, 1, "a", 0): 21,
    ("rows", 2, 1, "a", 1): 22,
    ("silent",): 23,
    ("last",): 24,
}
CONTROLS = [chr(code) for code in (*range(0x7F, 0xA0), 0xFEFF)]  # unprintable, or a break of lines
ESCAPED = st.characters(max_codepoint=0xFFFF, exclude_categories=("Cs",), exclude_characters="\x7f")


def read(text):
    return read_yaml(text if isinstance(text, bytes) else text.encode(), "job.yaml")


def faults(text):
    """What a text is told; nothing where it is read."""
    return tuple(problems_of(lambda: read(text)))


def refused(text):
    """The one fault that a text is told."""
    with pytest.raises(SpecError) as told:
        read(text)
    (problem,) = told.value.problems
    return problem


def test_every_value_knows_the_line_on_which_it_begins():
    assert read(JOB).lines == LINES


def test_a_value_without_a_line_is_sought_where_its_parent_stands():
    document = read(JOB)

    assert document.where(("plan", "tp")) == "job.yaml:9"
    assert document.where(("plan", "dp")) == "job.yaml:8"
    assert document.where(("cluster", "jitter", "ratio", "deeper")) == "job.yaml:6"
    assert document.where(("nothing",)) == "job.yaml:2"


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_lines_are_counted_alike_whatever_ends_them(newline):
    assert read(JOB.replace("\n", newline)).lines == LINES


def test_a_byte_order_mark_changes_nothing():
    assert read(b"\xef\xbb\xbf" + JOB.encode()).lines == LINES


@settings(max_examples=60, deadline=None)
@given(
    blanks=st.lists(st.integers(0, 3), min_size=1, max_size=12),
    indent=st.integers(1, 6),
    comment=st.sampled_from(["", "  # why"]),
)
def test_blank_lines_and_comments_move_values_by_as_many_lines(blanks, indent, comment):
    lines, expected = [f"top:{comment}"], {}
    for number, blank in enumerate(blanks):
        lines += ["# nothing"] * blank + [f"{' ' * indent}key{number}: {number}{comment}"]
        expected["top", f"key{number}"] = len(lines)

    found = read("\n".join(lines)).lines

    assert {path: line for path, line in found.items() if len(path) == 2} == expected


@all_cases("text", ["", "\n\n", "# only a comment\n", "---\n", "---\n...\n"])
def test_an_empty_text_says_nothing(text):
    assert read(text).data is None


PRINTABLE = st.characters(codec="utf-8", exclude_categories=("Cn", "Zl", "Zp"), exclude_characters=CONTROLS)
SHORT = st.text(alphabet=PRINTABLE | st.sampled_from('\t\n\r\b"\\/'), max_size=20)
PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | SHORT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(SHORT, inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=60, deadline=None)
@given(data=PLAIN, indent=st.sampled_from([None, 0, 1, 2, "\t"]))
@example(data={"yes": "no", "~": "null", "1": "0777", "": " "}, indent=1)
@example(data={"emoji": "\U0001f600", "cjk": "\u6a21\u578b"}, indent=None)
def test_what_json_writes_is_read_as_it_was(data, indent):
    found = read(json.dumps(data, indent=indent, ensure_ascii=False)).data

    assert found == data
    assert json.dumps(found, sort_keys=True) == json.dumps(data, sort_keys=True)  # True is not 1


@settings(max_examples=60, deadline=None)
@given(data=st.dictionaries(st.text(max_size=10, alphabet=ESCAPED), st.text(max_size=20, alphabet=ESCAPED)))
def test_json_that_escapes_all_but_ascii_is_read_as_it_was(data):
    assert read(json.dumps(data)).data == data


def test_json_escapes_of_characters_beyond_sixteen_bits_are_read():
    data = {"name": "\U0001f600"}  # json.dumps writes a pair of surrogates, as RFC 8259, section 7, says

    assert read(json.dumps(data)).data == data


def test_json_written_without_spaces_is_read_as_it_was():
    data = {"a": [1, {"b": None, "c": "d"}, []], "e": {}, "f": True}

    assert read(json.dumps(data, separators=(",", ":"))).data == data


def test_each_line_of_indented_json_is_the_line_of_its_value():
    text = json.dumps({"plan": {"tp": 8, "pp": [1, 2]}, "seq": 1}, indent=2)

    assert read(text).lines == {
        (): 1,
        ("plan",): 2,
        ("plan", "tp"): 3,
        ("plan", "pp"): 4,
        ("plan", "pp", 0): 5,
        ("plan", "pp", 1): 6,
        ("seq",): 9,
    }


@all_cases(
    ("text", "line", "field", "value"),
    [
        ("a: 1\nb: 2\na: 3", 3, "a", "given twice"),
        ("a:\n  x: 1\n  'x': 2", 3, "x", "given twice"),
        ('{"a": 1,\n "b": {"c": 1,\n "c": 2}}', 3, "c", "given twice"),
        ("a: 1\nb: &anchor 2", 2, "anchor", "anchor"),
        ("a: 1\nb: *anchor", 2, "anchor", "anchor"),
        ("&top\na: 1", 1, "anchor", "top"),
        ("a: !!python/object/apply:os.system [true]", 1, "tag", "tag:yaml.org,2002:python/object/apply"),
        ("a:\n - !!int 3", 2, "tag", "tag:yaml.org,2002:int"),
        ("a: !secret x", 1, "tag", "!secret"),
        ("!!set\n? a", 1, "tag", "tag:yaml.org,2002:set"),
        ("a: 1\n---\nb: 2", 2, "document", "---"),
        ("a: 1\n...\n---\n", 3, "document", "---"),
        ("a: 1\nb: 1e400", 2, "number", "1e400"),
        ("a: [1,\n -1e999]", 2, "number", "-1e999"),
        ("a: " + "9" * 400, 1, "number", "999"),
        ("a: 1\n? [b, c]\n: 2", 2, "key", "a list or mapping"),
        ("{{a: 1}: 2}", 1, "key", "a list or mapping"),
    ],
)
def test_yaml_that_is_more_than_plain_data_is_refused_with_its_line(text, line, field, value):
    problem = refused(text)

    assert problem.where == f"job.yaml:{line}"
    assert problem.field == field
    assert value in str(problem.value)
    assert problem.fix


@all_cases(
    ("text", "line"),
    [
        ("a: 1\n  b: 2\n", 2),
        ("a: 1\nb: [1, 2\nc: 3\n", 2),
        ("a: }\n", 1),
        ("a: 1\nb: @x\n", 2),
        ("a: `x`\n", 1),
        ("a: x: y\n", 1),
        ("a:\n\tb: 1\n", 2),
        ("a: 1\n\tb: 2\n", 2),
        ("- a\nb: 1\n", 2),
        ("a: 1\n- b\n", 2),
        ("%YAML 9.1\n---\na: 1\n", 1),
        ('a: "\\q"\n', 1),
        ('a: "\\ud800"\n', 1),
        ("]\n", 1),
        ("a: 'x\n", None),  # the end of the text is where the quote is missed
        ("a: {b: 1\n", None),
    ],
)
def test_what_is_not_yaml_is_refused_on_its_line(text, line):
    problem = refused(text)

    place, _, told = problem.where.rpartition(":")
    assert place == "job.yaml"
    assert int(told) in ((line,) if line else (1, 2))
    assert problem.allowed == "well-formed YAML or JSON"


def test_a_line_that_mixes_yaml_and_json_is_mended_for_json():
    bare = refused('{\n "a": {\n  "b": 1,\n  max_steps: x\n  "c": 2\n }\n}\n')
    unopened = refused('a: 1\n"b": 2,\n"c": "d",\n')

    assert bare.fix == 'write "max_steps": "x", in line 4'
    assert (unopened.where, unopened.fix[:21]) == ("job.yaml:2", "add { above line 2, o")


@all_cases(
    ("raw", "line", "field"),
    [
        ("a: 1\nb: é".encode("latin-1"), 2, "encoding"),
        ("a: 1\n".encode("utf-16"), 1, "encoding"),
        ("a: 1\n".encode("utf-16-le"), 1, "character"),  # every other byte is a zero
        ("a: 1\n".encode("utf-32-be"), 1, "character"),
        (b"a: 1\nb: \xed\xa0\x80", 2, "encoding"),  # half of a pair of surrogates
        (b"a: 1\nb: \xc0\x80", 2, "encoding"),  # a zero, written too long
        (bytes(range(256)), 2, "encoding"),
        (b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR", 1, "encoding"),
        (b"\x1f\x8b\x08\x00\x00\x00\x00\x00", 1, "encoding"),  # gzip
        (b"PK\x03\x04\x14\x00", 1, "character"),  # zip
        (b"\x7fELF\x02\x01\x01", 1, "character"),
        (b"a: 1\nb: \x00", 2, "character"),
        (b"a: 1\n\nb: \x1b[31mred", 3, "character"),
        (b"a: 1\x08", 1, "character"),
        ("a: \ufffe".encode(), 1, "character"),
    ],
)
def test_what_is_no_text_is_refused_on_its_line(raw, line, field):
    problem = refused(raw)

    assert problem.where == f"job.yaml:{line}"
    assert problem.field == field
    assert problem.value not in (None, "")


@settings(max_examples=60, deadline=None)
@given(raw=st.binary(max_size=200))
@example(raw=b"? ")
@example(raw=b"- ? - :")
@example(raw=b'"\\U0011ffff"')
def test_rubbish_is_read_or_refused_but_never_crashes(raw):
    told = faults(raw)

    assert len(told) <= 1
    assert all(problem.where.startswith("job.yaml:") and problem.fix for problem in told)


@settings(max_examples=60, deadline=None)
@given(text=st.text(alphabet="ab1e.:-?,[]{}#&*!|>'\"%@~ \n\t", max_size=40))
def test_rubbish_of_yaml_signs_is_read_or_refused_but_never_crashes(text):
    assert len(faults(text)) <= 1


DEEP = {
    "lists": "[" * 100_000,
    "mappings": '{"a":' * 100_000,
    "mappings as keys": "{" * 100_000,
    "keys": "? " * 100_000,
    "dashes": "- " * 100_000,
    "flow in flow": "[{a: " * 100_000,
    "indentation": "\n".join(" " * i + "a:" for i in range(1300)),
    "closed lists": "[" * 100_000 + "]" * 100_000,
}


@all_cases("name", DEEP)
def test_nesting_without_end_is_refused(name):
    problem = refused(DEEP[name])

    assert problem.field in ("depth", "key")
    assert int(problem.where.rpartition(":")[2]) <= MAX_DEPTH + 1


def test_the_deepest_nesting_allowed_is_read_and_one_more_is_not():
    deepest = "[" * MAX_DEPTH + "]" * MAX_DEPTH

    assert json.dumps(read(deepest).data) == deepest
    assert refused(f"[{deepest}]").value == MAX_DEPTH + 1


def test_a_large_text_is_read_and_a_larger_one_refused():
    comment = b"#" * (MAX_BYTES - 5) + b"\na: 1"

    assert read(comment).data == {"a": 1}
    assert refused(comment + b" ").field == "size"
    assert str(len(comment) + 1) in str(refused(comment + b" ").value)


def test_a_key_may_stand_in_every_mapping_once():
    assert read("a: {a: {a: 1}}\nb: {a: 1}\nc: [{a: 1}, {a: 2}]").data == {
        "a": {"a": {"a": 1}},
        "b": {"a": 1},
        "c": [{"a": 1}, {"a": 2}],
    }


def test_keys_are_words_however_they_look():
    found = read("1: a\ntrue: b\nnull: c\n2024-09-01: d\n1.5: e\n<<: f\n")

    assert list(found.data) == ["1", "true", "null", "2024-09-01", "1.5", "<<"]


def test_text_over_several_lines_is_folded_or_kept_as_yaml_says():
    text = dedent("""\
        folded: >
          one
          two
        kept: |
          one
          two
        stripped: >-
          one
        plain: one
          two
    """)

    assert read(text).data == {
        "folded": "one two\n",
        "kept": "one\ntwo\n",
        "stripped": "one",
        "plain": "one two",
    }


@pytest.mark.parametrize("raw", [b"", b"# nothing\n", b"\n\xc2\x85"])
def test_a_text_without_a_value_has_a_first_line(raw):
    document = read_yaml(raw, "a.yaml")

    assert (document.data, document.where(())) == (None, "a.yaml:1")
