"""Programs whose configurations are recognised, but which have no reader.

Answers: which program does this file belong to, and what can the user do instead?
Elsewhere: formats with a reader (formats.py). To support one, write its reader and move its entry there.

The programs are in tables/unsupported_programs.yaml.
"""

from collections.abc import Mapping, Sequence

from flopcast.errors import Problem
from flopcast.files.package_table import read_table
from flopcast.files.yaml_text import Document
from flopcast.records import Record

FEWEST_SIGNS = 2
BY_HAND = "describe the job with --model NAME --stack STACK --plan 'dp=8 mbs=1 gbs=64', or in a job file"


class UnsupportedProgram(Record):
    """A program: the keys of its files, its commands, the reason why it has no reader, an alternative."""

    signs: str = ""
    commands: Sequence[str] = ()
    because: str = "flopcast has no importer for this program"
    way: str = BY_HAND
    fault: str = "is the format of {}, and flopcast cannot read it"


UNREAD: Mapping[str, UnsupportedProgram] = {
    name: UnsupportedProgram(**row)
    for name, row in read_table(__package__, "tables/unsupported_programs.yaml").items()
}


def unread_program(data: object) -> str | None:
    """Return the program without a reader to which a file belongs, or None.

    >>> unread_program({"work_group": "amd", "exp_name": "a", "modules": {}})
    'Primus'
    >>> unread_program({"model": "llama-2-7b", "plan": "dp=8"}) is None
    True
    """
    counts = {name: sum(has(data, sign) for sign in one.signs.split()) for name, one in UNREAD.items()}
    best = max(counts, key=lambda name: counts[name])
    return best if counts[best] >= FEWEST_SIGNS else None


def program_of_command(text: str) -> str | None:
    """Return the program without a reader that a command starts, or None.

    >>> program_of_command("python -m openrlhf.cli.train_ppo_ray --max_len 2048")
    'OpenRLHF'
    """
    words = f" {text} "
    for name, one in UNREAD.items():
        if any(f" {start}" in words or f"/{start}" in words for start in one.commands):
            return name
    return None


def refusal(document: Document, program: str) -> Problem:
    """Return the error for a file of a program without a reader."""
    return Problem(
        where=document.where(()),
        field="format",
        value=program,
        fault=UNREAD[program].fault.format(program),
        allowed="a job file, or a file of Megatron-LM, NeMo, Axolotl or another supported program",
        because=UNREAD[program].because,
        fix=UNREAD[program].way.format(document.name),
    )


def has(data: object, key: str) -> bool:
    """Return whether a dotted key is in plain data."""
    for part in key.split("."):
        if not isinstance(data, dict) or part not in data:
            return False
        data = data[part]
    return True
