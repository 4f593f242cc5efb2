"""Rows as files: what is read back is what was written."""

import csv
import sys
from types import SimpleNamespace

import pytest

from flopcast.files import tables

ROWS = [{"name": "a, b", "step_s": 1.5, "fits": True}, {"name": 'c"d', "step_s": 0.1, "fits": False}]


def test_a_csv_file_gives_its_rows_back(tmp_path):
    path = tmp_path / "rows.csv"

    tables.write_csv(path, ROWS)

    with path.open(newline="", encoding="utf-8") as file:
        assert list(csv.DictReader(file)) == [{k: str(v) for k, v in row.items()} for row in ROWS]
    assert b"\r" not in path.read_bytes()


def test_no_rows_are_an_empty_table(tmp_path):
    path = tmp_path / "rows.csv"

    tables.write_csv(path, [])

    assert path.read_text(encoding="utf-8").strip() == ""


def test_parquet_without_a_library_is_refused_with_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setattr(tables, "find_spec", lambda name: None)

    (problem,) = tables.parquet_problem(tmp_path / "rows.parquet")

    assert problem.field == "--parquet"
    assert "polars or pyarrow" in problem.allowed


@pytest.mark.parametrize("library", tables.LIBRARIES)
def test_parquet_is_written_column_by_column_by_the_library_that_is_there(library, monkeypatch, tmp_path):
    """The libraries themselves are no part of the tests: what they are handed is."""
    written = {}
    frame = SimpleNamespace(write_parquet=lambda path: written.update(path=path))

    def made(columns):
        written.update(columns=columns)
        return frame

    monkeypatch.setattr(tables, "find_spec", lambda name: name == library)
    monkeypatch.setitem(sys.modules, "polars", SimpleNamespace(DataFrame=made))
    monkeypatch.setitem(sys.modules, "pyarrow", SimpleNamespace(table=made))
    parquet = SimpleNamespace(write_table=lambda table, path: table.write_parquet(path))
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", parquet)
    path = tmp_path / "rows.parquet"

    assert tables.parquet_problem(path) == []
    tables.write_parquet(path, ROWS)

    assert written["path"] == path
    assert written["columns"] == {"name": ["a, b", 'c"d'], "step_s": [1.5, 0.1], "fits": [True, False]}
