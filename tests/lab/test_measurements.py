"""Reading measured tables: good rows are kept, bad ones are told with their line."""

import gzip

import pytest

from flopcast.errors import SpecError
from flopcast.lab.samples.columns import read_columns


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


def test_a_field_longer_than_a_table_ever_has_is_refused(write):
    """An unclosed quote swallows the rest of a file."""
    assert refused(write('nodes,fwd_us\n"' + "1,2\n" * 60_000)).field == "file"
