"""What a fit that was broken off has done already.

Answers: which owners' curve files in this folder are finished, from these very measurements?
Elsewhere: the fit (fitting.py), the files (io/curves.py).

A fit takes minutes. Each owner's file is written as soon as its curves are fitted, and named in a ledger
beside them; a fit into the same folder goes on behind the last one named, and gives the same bytes as one
that was never broken off. The ledger belongs to one state of the measurements and of the program; where
either differs, nothing of it counts. A fit that ends takes it away.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path

import flopcast
from flopcast.cost.kernels.curve import Curve
from flopcast.io.curves import read_owner, write_owner
from flopcast.io.whole_files import write_whole

NAME = "unfinished-fit.json"


@dataclass(frozen=True, eq=False, slots=True)
class Ledger:
    """The finished owners of a folder: `digest` is that of the measurements."""

    folder: Path
    digest: str
    done: list[str] = field(default_factory=list)

    def finished(self, owner: str) -> dict[str, Curve] | None:
        """An owner's curves by class where its file is finished, else None."""
        if owner not in self.done:
            return None
        text = (self.folder / f"{owner}.json").read_text(encoding="utf-8")
        return {name: curve for (_, name), curve in read_owner(text, owner).items()}

    def write(self, owner: str, curves: dict[str, Curve]) -> dict[str, Curve]:
        """An owner's file, and then its name in the ledger; without curves there is no file.

        Returns
        -------
        dict
            The curves as the file has them, rounded: what follows is the same after a break and without.
        """
        if not curves:
            return {}
        write_owner(self.folder / f"{owner}.json", owner, list(curves.values()))
        self.done.append(owner)
        entries = {"digest": self.digest, "version": flopcast.__version__, "done": self.done}
        write_whole(self.folder / NAME, json.dumps(entries))
        return self.finished(owner) or {}

    def close(self) -> None:
        """The fit is whole: nothing is left to go on with."""
        (self.folder / NAME).unlink(missing_ok=True)


def open_ledger(folder: Path, digest: str) -> Ledger:
    """The ledger of a folder, which is made: empty where there is none, or one of other measurements."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        found = json.loads((folder / NAME).read_text(encoding="utf-8"))
        same = (found["digest"], found["version"]) == (digest, flopcast.__version__)
        done = [name for name in found["done"] if (folder / f"{name}.json").is_file()] if same else []
    except (OSError, ValueError, KeyError, TypeError):
        done = []
    return Ledger(folder, digest, done)
