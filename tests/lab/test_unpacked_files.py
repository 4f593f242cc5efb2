"""Files of others: plain or packed by their first bytes, whole or refused."""

import gzip
import tracemalloc

import pytest

from flopcast.files.unpacked import read_unpacked, unpacked
from flopcast.lab.logs.reader import read_log_file
from flopcast.lab.samples.columns import read_columns
from flopcast.lab.samples.nccl_tests import read_nccl_tests
from flopcast.lab.traces.json_stream import read_text

READERS = [read_log_file, read_columns, read_nccl_tests, lambda path: list(read_text(path))]


@pytest.mark.parametrize("name", ["a.log", "a.log.gz", "a.pack"])
def test_an_archive_is_known_by_its_first_bytes(tmp_path, name):
    (tmp_path / name).write_bytes(gzip.compress(b"step 1"))

    assert read_unpacked(tmp_path / name, 100) == b"step 1"


@pytest.mark.parametrize("content", [b"", b"\x1f", b"\x1f\x8a", b"step 1"])
def test_what_does_not_begin_as_an_archive_is_plain(tmp_path, content):
    (tmp_path / "a.log").write_bytes(content)

    assert read_unpacked(tmp_path / "a.log", 100) == content


def test_archives_one_behind_the_other_are_one_file(tmp_path):
    """RFC 1952, section 2.2: a file is a series of members."""
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"first, ") + gzip.compress(b"second"))

    assert read_unpacked(tmp_path / "a.gz", 100) == b"first, second"


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_file_that_holds_more_than_it_may_is_refused_and_not_cut(tmp_path, pack):
    (tmp_path / "a").write_bytes(pack(b"x" * 101))

    with pytest.raises(OSError, match="more than 100 bytes"):
        read_unpacked(tmp_path / "a", 100)


def test_a_name_that_promises_an_archive_is_held_to_it(tmp_path):
    (tmp_path / "a.gz").write_bytes(b"plain")

    with pytest.raises(OSError, match="gzip"), unpacked(tmp_path / "a.gz", 100):
        pass


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("name", ["missing.log", "\0.log", "."])
def test_every_reader_tells_a_path_that_is_no_file(tmp_path, reader, name):
    with pytest.raises(ValueError, match="fix: "):  # a SpecError is one
        reader(tmp_path / name)


def test_a_small_file_takes_little_memory_however_large_it_might_be(tmp_path):
    (tmp_path / "a").write_bytes(b"step 1")

    tracemalloc.start()
    read_unpacked(tmp_path / "a", 10**12)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak_bytes < 10_000_000
