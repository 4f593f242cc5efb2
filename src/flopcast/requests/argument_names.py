"""Errors about options of the command line, in the names of Python's arguments and of fields of requests.

Answers: how does an error name --seq to someone who wrote seq=4096?
Elsewhere: the places of values (problem_places.py), fields of a form (ui/error_responses.py).
"""

import re

from flopcast.errors import Problem
from flopcast.files.yaml_text import COMMAND_LINE
from flopcast.fixes import Fix
from flopcast.records import replace

OPTION = re.compile(r"--([a-z]+|power-limit)\b(?!-)")  # of the command line
WITH_VALUE = re.compile(rf'{OPTION.pattern} ("[^"]*"|[A-Z]+\b|(?=\S*[\d.])[\w.:/-]*\w)')
LOG = re.compile(r'write log="(.+)", which .*')  # of a log that was given as a job


def without_options(problem: Problem) -> Problem:
    """Return a fault in terms of arguments of Python or fields of a request, instead of options.

    The place is omitted if the field already states it.

    >>> problem = without_options(
    ...     Problem(where="--seq", field="batch.seq", value=0, allowed="", because="", fix="see --seq"))
    >>> problem.where, problem.fix
    ('argument seq', 'see seq')
    """
    option = OPTION.fullmatch(problem.where)
    named = option is not None and problem.field.partition(".")[0] == option[1]
    where = OPTION.sub(lambda found: f"argument {_name(found)}", problem.where)
    where = where.replace(COMMAND_LINE, "arguments")
    words = {
        name: OPTION.sub(_name, WITH_VALUE.sub(_as_argument, getattr(problem, name)))
        for name in ("field", "allowed", "because", "fix")
    }
    text = LOG.sub(r'write flopcast.diagnose(job, log="\1")', words["fix"])
    edits = [{OPTION.sub(_name, name): new for name, new in edit.items()} for edit in problem.edits]
    words["fix"] = Fix(
        text, edits, getattr(problem.fix, "part", ""), getattr(problem.fix, "is_example", False)
    )
    words["field"] = "changes" if problem.field == "argument" else words["field"]
    words["field"] = words["field"].removesuffix(".base") if named else words["field"]
    return replace(problem, where="" if named else where, **words)


def _name(option: re.Match[str]) -> str:
    return option[1].replace("-", "_")


def _as_argument(option: re.Match[str]) -> str:
    """Return an option with a value as an argument of Python: seq=4096 for --seq 4096."""
    name, value = _name(option), option[2]
    is_plain = value[0] == '"' or value.isupper() or re.fullmatch(r"\d+(\.\d+)?(e\d+)?", value)
    return f"{name}={value}" if is_plain else f'{name}="{value}"'
