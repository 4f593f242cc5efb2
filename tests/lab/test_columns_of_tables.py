"""Measured tables as columns: what is written is read, one broken row costs itself alone."""

import csv
import gzip

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flopcast.errors import SpecError
from flopcast.files.tables import SEPARATORS
from flopcast.lab.samples.columns import read_columns, read_rows
from flopcast.lab.samples.files import write_csv

LAWS = settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
times = st.floats(1e-9, 1e6)
rows = st.lists(
    st.tuples(st.floats(-1e9, 1e9), times, st.sampled_from(["a100", "h100"])), min_size=1, max_size=12
)
HEADER = ("m", "time_us", "gpu")


def written(path, table, header=HEADER):
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *table])
    return path


def refused(path):
    with pytest.raises(SpecError) as error:
        list(read_rows(path))
    (problem,) = error.value.problems
    return problem.because


@LAWS
@given(table=rows)
def test_numbers_come_back_and_words_become_columns_of_nought_and_one(table, tmp_path):
    found = read_columns(written(tmp_path / "t.csv", table))

    words = {word for *_, word in table}
    assert found.problems == ()
    assert set(found.columns) == {"m", "time_us", *(f"gpu={word}" for word in words)}
    assert found.columns["m"].tolist() == [row[0] for row in table]
    for word in words:
        assert found.columns[f"gpu={word}"].tolist() == [float(row[2] == word) for row in table]


@LAWS
@given(table=rows)
def test_every_row_has_exactly_one_word_of_a_column(table, tmp_path):
    columns = read_columns(written(tmp_path / "t.csv", table)).columns

    assert (sum(values for name, values in columns.items() if name.startswith("gpu=")) == 1.0).all()


@pytest.mark.parametrize("cell", ["", "x", "nan", "inf", "-inf", "0", "-1", "1,5"])
@LAWS
@given(table=rows, place=st.integers(0, 12))
def test_a_row_whose_time_is_none_is_left_out_and_told_with_its_line(cell, table, place, tmp_path):
    place = min(place, len(table))
    broken = [*table[:place], (1.0, cell, "a100"), *table[place:]]
    broken = broken if place else [table[0], *broken]

    found = read_columns(written(tmp_path / "t.csv", broken))

    kept = [row[1] for row in broken if row[1] != cell]
    assert found.columns["time_us"].tolist() == kept
    assert [problem.where.rpartition(":")[2] for problem in found.problems] == [
        str(2 + broken.index((1.0, cell, "a100")))
    ]


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [("bytes", "0", True), ("bytes", "-3", True), ("time_s", "0", False), ("time_ms", "-1", False),
     ("wait_notify_us", "0", True), ("wait_notify_us", "-1", False), ("time_us", "1e-30", True)],
)  # fmt: skip
def test_times_are_above_nothing_but_for_what_comes_on_top(name, value, kept, tmp_path):
    found = read_columns(written(tmp_path / "t.csv", [("1", value)], ("m", name)))

    assert len(found.problems) == (not kept)
    assert ("m" in found.columns) is kept


def test_a_row_that_is_too_long_or_too_short_is_left_out(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("m,time_us\n1,2\n1,2,3\n1\n4,5\n", encoding="utf-8")

    found = read_columns(path)

    assert found.columns["m"].tolist() == [1.0, 4.0]
    assert [problem.where.rpartition(":")[2] for problem in found.problems] == ["3", "4"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no header"),
        (",,\n", "no header"),
        ("m,n,m\n1,2,3\n", "contains these columns twice: m"),
        ("a,b,b,a\n", "contains these columns twice: a, b"),
        *((f"m{sign}n\n1{sign}2\n", word) for sign, word in SEPARATORS.items()),
    ],
)
def test_a_header_that_is_none_is_refused_with_what_is_wrong(text, why, tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(text, encoding="utf-8")

    assert why in refused(path)


def test_what_is_no_text_or_no_file_is_refused(tmp_path):
    (tmp_path / "t.csv").write_bytes(b"m,n\n\xff\xfe,1\n")
    (tmp_path / "cut.csv.gz").write_bytes(gzip.compress(b"m,n\n" + b"1,2\n" * 1000)[:40])

    assert "utf-8" in refused(tmp_path / "t.csv")
    assert refused(tmp_path / "cut.csv.gz")
    assert "No such file" in refused(tmp_path / "missing.csv")


@LAWS
@given(table=rows)
def test_a_packed_table_and_one_with_a_mark_before_it_say_the_same(table, tmp_path):
    plain = written(tmp_path / "t.csv", table)
    raw = plain.read_bytes()
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(raw))
    (tmp_path / "marked.csv").write_bytes(b"\xef\xbb\xbf" + raw)

    expected = read_columns(plain).columns

    for name in ("t.csv.gz", "marked.csv"):
        found = read_columns(tmp_path / name).columns
        assert {key: values.tolist() for key, values in found.items()} == {
            key: values.tolist() for key, values in expected.items()
        }


@LAWS
@given(values=st.lists(st.floats(1e-12, 1e12), min_size=1, max_size=20))
def test_a_table_that_we_write_is_read_back_to_nine_digits(values, tmp_path):
    path = tmp_path / "out.csv"

    count = write_csv(path, ("n", "time_s"), [(number, value) for number, value in enumerate(values)])

    found = read_columns(path).columns
    assert count == len(values)
    assert found["n"].tolist() == list(range(len(values)))
    np.testing.assert_allclose(found["time_s"], values, rtol=5e-9)


def test_a_table_without_rows_has_its_header_and_no_columns(tmp_path):
    assert write_csv(tmp_path / "out.csv", ("n", "time_s"), []) == 0
    assert (tmp_path / "out.csv").read_text() == "n,time_s\n"
    assert read_columns(tmp_path / "out.csv").columns == {}


def test_lines_are_those_of_the_file(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text('m,n\n1,"a\nb"\n2,c\n', encoding="utf-8")

    assert [line for line, _ in read_rows(path)] == [3, 4]


def test_faults_of_a_file_name_the_line_that_shows_them(tmp_path):
    path = tmp_path / "t.csv"
    for raw, line in (
        (b"m,m\n1,2\n", 1),
        (b"m,n\n1,2\n\xff,4\n", 3),
        (b"m,n\n1,2\n1," + b"x" * 200_000, 3),
    ):
        path.write_bytes(raw)
        with pytest.raises(SpecError) as error:
            list(read_rows(path))

        assert error.value.problems[0].where == f"{path}:{line}"


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_any_end_of_lines_gives_the_same_rows(tmp_path, end):
    path = tmp_path / "t.csv"
    path.write_bytes(end.join(["m,n", "1,2", "3,4", ""]).encode())

    assert [row for _, row in read_rows(path)] == [{"m": "1", "n": "2"}, {"m": "3", "n": "4"}]
