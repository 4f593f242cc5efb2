"""What a user names is a regular file of a bounded size, whichever reader it is for."""

import ast
import io
import os
import re
import sys
from pathlib import Path

import pytest
from conftest import PACKAGE

from flopcast.errors import SpecError
from flopcast.files.inputs import opened
from flopcast.files.named_files import read_file
from flopcast.interop.graphs.protobuf import MOST_FIELDS, Message
from flopcast.lab.logs import reader as reading
from flopcast.lab.logs.reader import read_log_file
from flopcast.lab.measured_tables import KINDS
from flopcast.lab.published.functional_tests import is_of_functional_tests
from flopcast.lab.samples import columns, nccl_tests
from flopcast.lab.samples.columns import read_columns
from flopcast.lab.samples.nccl_tests import read_nccl_tests
from flopcast.lab.traces import json_stream, nsys
from flopcast.lab.traces.json_stream import read_text
from flopcast.lab.traces.nsys import read_nsys

READERS = {  # reader → the module that holds its limit
    read_log_file: reading,
    read_columns: columns,
    read_nccl_tests: nccl_tests,
    lambda path: list(read_text(path)): json_stream,
    read_nsys: nsys,
}
OPENS = {
    "files/inputs.py",
    "files/atomic_write.py",
    "lab/samples/packs.py",
}  # and no other file of the package
SPARSE_BYTES = 2_000_000_000


def refusal(reader, path):
    with pytest.raises(SpecError) as caught:
        reader(path)
    (problem,) = caught.value.problems
    assert problem.fix
    assert problem.value == str(path)
    assert path.name in str(problem)
    return problem.because


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_pipes_and_devices_are_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")

    for reader in (*READERS, read_file):
        assert "a pipe instead of a regular file" in refusal(reader, tmp_path / "pipe")
        assert "a device instead of a regular file" in refusal(reader, Path("/dev/zero"))


def test_every_reader_has_a_limit_and_names_it(tmp_path, monkeypatch):
    place = tmp_path / "long.txt"
    place.write_bytes(b"line\n" * 100)

    for reader, module in READERS.items():
        monkeypatch.setattr(module, "MOST_BYTES", 499)
        assert "more than 499 bytes" in refusal(reader, place)


def test_a_log_of_two_gigabytes_without_an_end_of_a_line_is_refused_early(tmp_path):
    place = tmp_path / "sparse.log"
    with place.open("wb") as file:
        file.truncate(SPARSE_BYTES)  # a hole: it takes no room on the disk

    assert f"longer than {reading.MOST_UNBROKEN_BYTES} bytes" in refusal(read_log_file, place)


def test_standard_input_is_read_where_it_is_named_and_not_beyond_its_limit(monkeypatch):
    monkeypatch.setattr("flopcast.files.inputs.MOST_PIPED_BYTES", 10)
    contents = []
    for piped in (b"0123456789", b"0123456789 and more"):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(piped)))
        try:
            with opened(Path("-")) as file:
                contents.append(file.read())
        except OSError as error:
            contents.append(str(error))

    assert contents[0] == b"0123456789"
    assert "more than 10 bytes" in contents[1]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
@pytest.mark.parametrize("name", ["pipe", "pipe.csv", "pipe.yaml", "pipe.csv.gz"])
def test_no_table_of_runs_waits_for_a_pipe_or_reads_a_device(tmp_path, name):
    os.mkfifo(tmp_path / name)

    for path in (tmp_path / name, Path("/dev/zero")):
        assert [kind.name for kind in KINDS if kind.holds(path)] == []
        with pytest.raises(SpecError):
            is_of_functional_tests(path)


def test_a_table_of_one_endless_line_has_no_columns(tmp_path):
    (tmp_path / "long.csv").write_bytes(b"0" * 200_000)

    assert not is_of_functional_tests(tmp_path / "long.csv")


@pytest.mark.parametrize("raw", [bytes(64), b"\x08\x01" * (MOST_FIELDS + 1)], ids=["zeros", "fields"])
def test_an_onnx_file_of_fields_that_no_model_has_is_refused_early(raw):
    with pytest.raises(ValueError, match=r"number 0|more than"):
        for _ in Message(buffer=memoryview(raw), end=len(raw)).fields():
            pass


def test_files_are_opened_and_written_by_one_function_each():
    bare = [
        f"{path.relative_to(PACKAGE)}:{node.lineno}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if str(path.relative_to(PACKAGE)) not in OPENS
        if re.search(r"open|write_", text := path.read_text(encoding="utf-8"))  # else there is none to find
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call)
        if (isinstance(node.func, ast.Name) and node.func.id == "open")
        or (isinstance(node.func, ast.Attribute) and node.func.attr in ("write_text", "write_bytes"))
        or (
            isinstance(node.func, ast.Attribute)
            and node.func.attr == "open"
            and not (isinstance(node.func.value, ast.Name) and node.func.value.id in ("os", "archive"))
        )
    ]

    assert bare == []
