"""The folders of flopcast's own files: the catalogue, tables, help, pages.

Answers: in which folder are the files of a package of flopcast?
Elsewhere: what these files contain (package_table.py, library/catalog.py).
"""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

ROOT = Path(__file__).parent.parent


def folder_of(package: str) -> "Traversable":
    """Return the folder of a package; inside a zipped installation, it is not a file system path.

    >>> folder_of("flopcast.cli").joinpath("help.json").is_file()
    True
    """
    folder = ROOT.joinpath(*package.split(".")[1:])
    if folder.is_dir():
        return folder
    from importlib.resources import files  # only a zipped installation needs it, and it takes 7 ms

    return files(package)
