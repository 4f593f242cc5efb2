"""A ledger keeps what is finished, of one question and one program, for one writer."""

import sqlite3

import pytest
from conftest import PACKAGE

from flopcast.errors import SpecError
from flopcast.workers import tasks
from flopcast.workers.ledger import open_ledger


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger.sqlite"


def test_what_was_kept_is_there_again(path):
    with open_ledger(path, "question", "program") as ledger:
        ledger.keep("0/screen/1", "one")
        ledger.keep("0/screen/2", "två")

    with open_ledger(path, "question", "program") as ledger:
        assert ledger.found == 2
        assert ledger.kept() == {"0/screen/1": "one", "0/screen/2": "två"}
        assert ledger.get("0/screen/2") == "två"
        assert ledger.get("0/screen/3") is None


@pytest.mark.parametrize(
    ("question", "program", "because"),
    [("another", "program", "another search"), ("question", "another", "another version of flopcast")],
)
def test_a_ledger_of_something_else_is_refused_and_stays(path, question, program, because):
    with open_ledger(path, "question", "program") as ledger:
        ledger.keep("0/screen/1", "one")

    with pytest.raises(SpecError, match=because), open_ledger(path, question, program):
        pass

    with open_ledger(path, "question", "program") as ledger:
        assert ledger.found == 1


def test_two_searches_do_not_share_a_ledger(path):
    with (
        open_ledger(path, "question", "program"),
        pytest.raises(SpecError, match="another search is writing to this ledger"),
        open_ledger(path, "question", "program"),
    ):
        pass


@pytest.mark.parametrize("content", [b"model: llama-3-8b\n" * 400, b"short"])
def test_a_file_of_another_kind_is_refused_and_stays(path, content):
    path.write_bytes(content)

    with pytest.raises(SpecError, match="--ledger"), open_ledger(path, "question", "program"):
        pass

    assert path.read_bytes() == content


def test_a_database_of_another_program_is_refused(path):
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE mine (name TEXT)")
    other.close()

    with (
        pytest.raises(SpecError, match="written by another program"),
        open_ledger(path, "question", "program"),
    ):
        pass


def test_a_folder_that_does_not_exist_is_told(tmp_path):
    with (
        pytest.raises(SpecError, match="--ledger"),
        open_ledger(tmp_path / "none" / "file", "question", "program"),
    ):
        pass


def test_the_digest_of_the_program_depends_on_every_file_that_decides_a_result(tmp_path, monkeypatch):
    files = {path.suffix for path in PACKAGE.rglob("*") if path.is_file()}
    shipped = files - {".pyc", ".css", ".js", ".typed"}
    monkeypatch.setattr(tasks.flopcast, "__file__", str(tmp_path / "__init__.py"))
    digest = tasks.program_digest.__wrapped__
    for suffix in shipped:
        before = digest()
        (tmp_path / f"new{suffix}").write_bytes(b"1")
        added = digest()
        (tmp_path / f"new{suffix}").write_bytes(b"2")
        assert len({before, added, digest()}) == 3, suffix
    before = digest()
    (tmp_path / "compiled.pyc").write_bytes(b"1")
    assert digest() == before
    assert {".py", ".yaml", ".json", ".gz"} <= shipped
