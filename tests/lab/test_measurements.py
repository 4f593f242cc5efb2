"""Reading measured tables: good rows are kept, bad ones are told with their line."""

import csv
import gzip

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flopcast.errors import SpecError
from flopcast.lab.samples.columns import read_columns, read_rows

GOOD = "nodes,fwd_us\n1,10.5\n2,20\n"


@pytest.fixture
def write(tmp_path):
    """A function that writes a file, text or bytes, and gives its path."""

    def file(content, name="times.csv"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return file


def refused(path):
    """The one fault for which a whole file is refused."""
    with pytest.raises(SpecError) as caught:
        read_columns(path)
    (problem,) = caught.value.problems
    return problem


def test_columns_are_arrays_of_numbers(write):
    columns = read_columns(write(GOOD)).columns

    assert {name: values.tolist() for name, values in columns.items()} == {
        "nodes": [1.0, 2.0],
        "fwd_us": [10.5, 20.0],
    }
    assert all(values.dtype == np.float64 for values in columns.values())


def test_a_gzipped_file_says_the_same_as_a_plain_one(write):
    plain = read_columns(write(GOOD))

    zipped = read_columns(write(gzip.compress(GOOD.encode()), "times.csv.gz"))

    assert zipped.columns.keys() == plain.columns.keys()
    for name, values in plain.columns.items():
        np.testing.assert_array_equal(zipped.columns[name], values)


@given(st.lists(st.tuples(st.integers(1, 10**9), st.floats(1e-9, 1e9)), min_size=1, max_size=20))
@settings(max_examples=40, deadline=None)
def test_numbers_written_with_all_their_digits_are_read_back_exactly(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("written") / "times.csv"
    with path.open("w", newline="", encoding="utf-8") as text:
        csv.writer(text).writerows([("size", "time_s"), *((size, repr(time)) for size, time in rows)])

    columns = read_columns(path).columns

    assert list(zip(columns["size"], columns["time_s"], strict=True)) == rows


def test_words_become_one_column_for_each(write):
    columns = read_columns(write("op,time_us\nall_reduce,1\nall_gather,2\nall_reduce,3\n")).columns

    assert columns["op=all_reduce"].tolist() == [1.0, 0.0, 1.0]
    assert columns["op=all_gather"].tolist() == [0.0, 1.0, 0.0]
    assert "op" not in columns


def test_rows_carry_the_line_on_which_they_stand(write):
    rows = list(read_rows(write(GOOD)))

    assert rows == [(2, {"nodes": "1", "fwd_us": "10.5"}), (3, {"nodes": "2", "fwd_us": "20"})]


@pytest.mark.parametrize("bad", ["2,-20", "2,0", "2,nan", "2,inf", "2,text", "2,", "two,20", "2"])
def test_a_bad_row_is_left_out_and_told_with_its_line_and_the_good_rows_are_kept(write, bad):
    path = write(f"nodes,fwd_us\n1,10\n{bad}\n3,30\n")

    measured = read_columns(path)

    assert measured.columns["nodes"].tolist() == [1.0, 3.0]
    assert measured.columns["fwd_us"].tolist() == [10.0, 30.0]
    (problem,) = measured.problems
    assert problem.where == f"{path}:3"
    assert problem.field == "row"
    assert problem.value.startswith(bad.rstrip(","))
    assert problem.allowed
    assert problem.fix


@pytest.mark.parametrize("name", ["fwd_us", "latency_ms", "time_s"])
def test_a_time_of_zero_is_refused_whatever_its_unit(write, name):
    measured = read_columns(write(f"nodes,{name}\n1,1\n2,0\n"))

    assert measured.columns[name].tolist() == [1.0]
    assert "times above 0" in measured.problems[0].allowed


def test_every_bad_row_is_told(write):
    path = write("nodes,fwd_us\n1,1\n2,-1\n3,x\n4,4\n5,0\n")

    problems = read_columns(path).problems

    assert [problem.where for problem in problems] == [f"{path}:{line}" for line in (3, 4, 6)]


def test_text_for_a_time_in_the_first_row_is_a_bad_row_too(write):
    """A time is a number in every row; a word there does not make the column one of words."""
    path = write("nodes,fwd_us\n1,failed\n2,20\n3,30\n")

    measured = read_columns(path)

    assert measured.columns["fwd_us"].tolist() == [20.0, 30.0]
    assert [problem.where for problem in measured.problems] == [f"{path}:2"]


@pytest.mark.parametrize("bad", ["nan", "inf", "-inf"])
def test_a_shape_that_is_no_number_is_a_bad_row(write, bad):
    """One NaN among the coordinates would make every node of the fitted table NaN."""
    measured = read_columns(write(f"nodes,fwd_us\n1,10\n{bad},20\n"))

    assert measured.columns["nodes"].tolist() == [1.0]
    assert len(measured.problems) == 1


def test_a_row_with_too_many_values_is_a_bad_row(write):
    path = write("nodes,fwd_us\n1,10\n2,20,30\n3,30\n")

    measured = read_columns(path)

    assert measured.columns["nodes"].tolist() == [1.0, 3.0]
    assert [problem.where for problem in measured.problems] == [f"{path}:3"]


def test_a_header_alone_gives_no_columns_and_no_faults(write):
    measured = read_columns(write("nodes,fwd_us\n"))

    assert measured.columns == {}
    assert measured.problems == ()


@pytest.mark.parametrize("keep", [0.3, 0.6, 0.95])
def test_a_truncated_archive_is_refused(write, keep):
    whole = gzip.compress("".join(f"{n},{n * n + 7}\n" for n in range(500)).encode())

    problem = refused(write(whole[: int(keep * len(whole))], "times.csv.gz"))

    assert problem.field == "file"
    assert "times.csv.gz" in problem.value
    assert "end" in problem.because


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_an_archive_with_flipped_bytes_is_refused(write, share):
    whole = bytearray(gzip.compress("".join(f"{n},{n * n + 7}\n" for n in range(500)).encode()))
    middle = int(share * len(whole))
    whole[middle : middle + 4] = bytes(byte ^ 0xFF for byte in whole[middle : middle + 4])

    assert refused(write(bytes(whole), "times.csv.gz")).field == "file"


@pytest.mark.parametrize(
    ("content", "name", "because"),
    [
        (b"", "times.csv", "no header"),
        (b"nodes,fwd_us\n\xff\xfe,1\n", "times.csv", "decode"),
        (GOOD.encode(), "times.csv.gz", "gzip"),
    ],
)
def test_a_file_that_is_no_table_is_refused_with_the_reason(write, content, name, because):
    assert because in refused(write(content, name)).because


def test_a_file_that_does_not_exist_is_refused(tmp_path):
    assert refused(tmp_path / "absent.csv").value.endswith("absent.csv")


def test_a_field_longer_than_a_table_ever_has_is_refused(write):
    """An unclosed quote swallows the rest of a file."""
    assert refused(write('nodes,fwd_us\n"' + "1,2\n" * 60_000)).field == "file"
