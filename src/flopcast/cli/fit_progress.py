"""The ledger that lets an interrupted fit of curves resume.

Answers: which curve files of this folder are already finished, from the same measurements?
Elsewhere: the fit (calibrate_fit.py), the files (library/curves.py).

A fit takes minutes. The file of each owner (a device or a fabric) is written as soon as its curves are
fitted, and the ledger in the same folder then lists the owner. A later fit into that folder skips the
listed owners and gives the same bytes as an uninterrupted fit. The ledger is valid for one state of the
measurements and one version of the program; otherwise it is ignored. A fit that completes deletes it.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path

import flopcast
from flopcast.cost.kernels.curve import Curve
from flopcast.files.atomic_write import write_whole
from flopcast.library.curves import read_owner, write_owner

NAME = "unfinished-fit.json"


@dataclass(frozen=True, eq=False, slots=True)
class FitProgress:
    """The finished owners (devices and fabrics) of a folder; `digest` identifies the measurements."""

    folder: Path
    digest: str
    done: list[str] = field(default_factory=list)

    def finished(self, owner: str) -> dict[str, Curve] | None:
        """Return the curves of an owner by class, or None if its file is not finished."""
        if owner not in self.done:
            return None
        text = (self.folder / f"{owner}.json").read_text(encoding="utf-8")
        return {name: curve for (_, name), curve in read_owner(text, owner).items()}

    def write(self, owner: str, curves: dict[str, Curve]) -> dict[str, Curve]:
        """Write the file of an owner, then its name in the ledger; without curves, write nothing.

        Returns
        -------
        dict
            The curves as rounded in the file, so that a resumed fit and an uninterrupted one agree.
        """
        if not curves:
            return {}
        write_owner(self.folder / f"{owner}.json", owner, list(curves.values()))
        self.done.append(owner)
        entries = {"digest": self.digest, "version": flopcast.__version__, "done": self.done}
        write_whole(self.folder / NAME, json.dumps(entries))
        return self.finished(owner) or {}

    def close(self) -> None:
        """Delete the ledger at the end of a complete fit."""
        (self.folder / NAME).unlink(missing_ok=True)


def open_fit_progress(folder: Path, digest: str) -> FitProgress:
    """Return the ledger of a folder, empty if it is missing or of other measurements; make the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        found = json.loads((folder / NAME).read_text(encoding="utf-8"))
        same = (found["digest"], found["version"]) == (digest, flopcast.__version__)
        done = [name for name in found["done"] if (folder / f"{name}.json").is_file()] if same else []
    except (OSError, ValueError, KeyError, TypeError):
        done = []
    return FitProgress(folder, digest, done)
