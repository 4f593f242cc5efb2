"""Types of options that name files, which refuse wrong paths before a command does any work.

Answers: does an input file exist, and can an output file be written?
Elsewhere: which options name files (options.py), how files are written (output_files.py).
"""

import os
from errno import ENOENT
from pathlib import Path
from typing import Any

import click

from flopcast.errors import Problem
from flopcast.files.inputs import is_missing
from flopcast.records import replace


class RefusedValueError(click.BadParameter):
    """A value that the type of an option refuses, with the error that describes it."""

    def __init__(self, problem: Problem, context: click.Context | None, param: click.Parameter) -> None:
        """Keep the error."""
        super().__init__(problem.message, context, param)
        self.problem: Problem = problem


class OutputFile(click.Path):
    """Type of an option that names a file to write. Click reports all wrong options before any work.

    Parameters
    ----------
    endings : of the names of such files, of which the first is proposed; by default, any ending
    because : why other endings are refused
    or_folder : whether the option may also name a folder that exists
    """

    def __init__(self, *endings: str, because: str = "", or_folder: bool = False) -> None:
        """Keep the rules."""
        super().__init__(path_type=Path)
        self.endings: tuple[str, ...] = endings
        self.because: str = because
        self.or_folder: bool = or_folder

    def convert(
        self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None
    ) -> Path:
        """Return the path; fail if its folder is missing, if it is a folder, or if its ending is wrong."""
        path = Path(value)
        named = dict.fromkeys(each for each in self.endings if each)
        if param is None or (self.or_folder and path.is_dir()):
            return path
        if path.is_dir():
            because, fix = "the path is a folder", "add the name of a file to the path"
        elif not path.parent.is_dir():
            because = f"the folder {path.parent} does not exist"
            fix = f"run mkdir -p {path.parent}, or choose another path"
        elif self.endings and path.suffix.lower() not in self.endings:
            because, fix = self.because, f"write {name_of(param)} {path.with_suffix(self.endings[0])}"
            allowed = f"a file name that ends in {' or '.join(named)}"
            raise RefusedValueError(Problem(name_of(param), str(path), allowed, because, fix), ctx, param)
        else:
            return path
        allowed = "a file in a folder that exists"
        raise RefusedValueError(Problem(name_of(param), str(path), allowed, because, fix), ctx, param)


class InputFile(click.Path):
    """Type of an option that names a file to read, which must exist."""

    def convert(
        self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None
    ) -> Any:  # noqa: ANN401 - a path or a text, as its maker asks
        """Return the path; fail if no file has this name."""
        if param is not None and is_missing(str(value)):
            from flopcast.files.named_files import unreadable  # only this error needs it

            problem = unreadable(Path(value), FileNotFoundError(ENOENT, os.strerror(ENOENT)))
            raise RefusedValueError(replace(problem, field=name_of(param)), ctx, param)
        return self.coerce_path_result(value)


def name_of(parameter: click.Parameter) -> str:
    """Return the first long name of an option, or the name of an argument as the help shows it."""
    if isinstance(parameter, click.Argument):
        return parameter.human_readable_name
    return next((name for name in parameter.opts if name[:2] == "--"), parameter.opts[0])
