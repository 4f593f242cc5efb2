"""The finished parts of a long search, in one SQLite file.

Answers: which chunks of a question are finished, and what are their results?
Elsewhere: the meaning of the texts (search/chunk_text.py), the caller that requests chunks (run.py).

Each finished chunk is one row, which is written in a separate transaction. If a search is killed, finished
chunks are kept, and no chunk is stored in part. The file belongs to one question and one version of the
program; all others are refused. Only one process writes the file. Its lock ends with the process.
"""

import hashlib
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from flopcast.errors import SpecError, spec_error
from flopcast.records import Record

APPLICATION = 0x666C6F70  # "flop": what tells a ledger from other SQLite files
QUESTION, PROGRAM = "question", "program"
TABLES = """
CREATE TABLE digests (name TEXT PRIMARY KEY, digest TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE chunks (name TEXT PRIMARY KEY, result TEXT NOT NULL) WITHOUT ROWID;
"""
BECAUSE = {
    QUESTION: "the ledger has results of another search, whose job, space, objectives or limits differ",
    PROGRAM: "the results in the ledger come from another version of flopcast, whose code, catalogue or"
    " curves differ",
}


class Ledger(Record, eq=False, kw_only=False):
    """Finished chunks of one search in an SQLite file.

    Attributes
    ----------
    path : Path
    found : int
        Number of chunks that were finished when the file was opened, by an earlier run of the same search.
    """

    path: Path
    found: int
    _file: sqlite3.Connection

    def kept(self) -> Mapping[str, str]:
        """Return the results of all finished chunks."""
        return dict(self._file.execute("SELECT name, result FROM chunks"))

    def get(self, name: str) -> str | None:
        """Return the result of one chunk, None if it is not finished."""
        row = self._file.execute("SELECT result FROM chunks WHERE name = ?", (name,)).fetchone()
        return None if row is None else str(row[0])

    def keep(self, name: str, result: str) -> None:
        """Store the result of one more chunk."""
        self._file.execute("INSERT OR REPLACE INTO chunks VALUES (?, ?)", (name, result))


@contextmanager
def open_ledger(path: Path, question: str, program: str) -> Iterator[Ledger]:
    """Yield the ledger of a question, which is created if it is missing.

    Parameters
    ----------
    question : the whole question as text
    program : a digest of the code and data on which results depend

    Raises
    ------
    SpecError
        The file is not a ledger, cannot be written, or belongs to another question, to another version of
        the program, or to a running search.
    """
    digests = {QUESTION: hashlib.sha256(question.encode()).hexdigest(), PROGRAM: program}
    try:
        file = sqlite3.connect(path, isolation_level=None, timeout=1.0)
    except sqlite3.Error as error:
        raise _refused(path, str(error), "name a file in a folder that exists") from None
    try:
        found = _claimed(file, path, digests)
        yield Ledger(path, found, file)
    finally:
        with suppress(sqlite3.Error):  # what was kept is kept
            file.close()


def _claimed(file: sqlite3.Connection, path: Path, digests: Mapping[str, str]) -> int:
    """Lock the file, make or check its tables; how many chunks it has."""
    try:
        file.execute("PRAGMA locking_mode = EXCLUSIVE")
        file.execute("PRAGMA journal_mode = WAL")
        file.execute("PRAGMA synchronous = NORMAL")
        file.execute("BEGIN IMMEDIATE")
        (application,) = file.execute("PRAGMA application_id").fetchone()
        (tables,) = file.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if application == 0 and not tables:
            _make(file, digests)
        elif application != APPLICATION:
            raise _refused(
                path, "the file was written by another program", "name a file that does not exist yet"
            )
        there = dict(file.execute("SELECT name, digest FROM digests"))
        (found,) = file.execute("SELECT count(*) FROM chunks").fetchone()
        file.execute("COMMIT")
    except sqlite3.OperationalError as error:
        raise _refused(
            path, _of_lock(error), "wait until the other search has ended, or name another file"
        ) from None
    except sqlite3.DatabaseError as error:
        raise _refused(path, str(error), "name a file that does not exist yet") from None
    for name, digest in digests.items():
        if there.get(name) != digest:
            raise _refused(path, BECAUSE[name], "name another file, or remove this file to start again")
    return int(found)


def _make(file: sqlite3.Connection, digests: Mapping[str, str]) -> None:
    """Create the tables of a new ledger."""
    file.execute(f"PRAGMA application_id = {APPLICATION}")
    for statement in filter(str.strip, TABLES.split(";")):
        file.execute(statement)
    file.executemany("INSERT INTO digests VALUES (?, ?)", digests.items())


def _of_lock(error: sqlite3.OperationalError) -> str:
    """Return why a file cannot be locked."""
    return "another search is writing to this ledger" if "locked" in str(error) else str(error)


def _refused(path: Path, because: str, fix: str) -> SpecError:
    """Return the fault of a file that cannot be the ledger of this search."""
    allowed = "a ledger of the same search, or a file that does not exist yet"
    return spec_error("--ledger", str(path), allowed, because, fix)
