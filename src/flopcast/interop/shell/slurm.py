"""The `#SBATCH` lines of a script, and the variables that Slurm sets for the job.

Answers: how many nodes, tasks and GPUs does this script request?
Elsewhere: the ranks that a launcher starts with them (interop/megatron/training_command.py). Options:
sbatch(1), Slurm 24.05.
"""

import re
from collections.abc import Mapping, Sequence

from flopcast.interop.shell.variables import Piece, Value, Word

_SBATCH = re.compile(r"^#SBATCH[ \t]+(.*)$", re.MULTILINE)
_SET_BY_SLURM = {  # what Slurm sets for a job, by the option that asks for it
    "SLURM_NNODES": "nodes",
    "SLURM_JOB_NUM_NODES": "nodes",
    "SLURM_NTASKS": "ntasks",
    "SLURM_NPROCS": "ntasks",
    "SLURM_NTASKS_PER_NODE": "ntasks-per-node",
    "SLURM_GPUS_PER_NODE": "gpus-per-node",
    "SLURM_GPUS_ON_NODE": "gpus-per-node",
}
_SHORT_DIRECTIVES = {
    "-N": "nodes",
    "-n": "ntasks",
    "-G": "gpus",
    "-J": "job-name",
    "-A": "account",
    "-t": "time",
}


def slurm_options(text: str) -> dict[str, Word]:
    """Return the options of `#SBATCH` lines by their long names; if an option occurs twice, the last
    counts, as in sbatch.

    Returns
    -------
    dict of Word
        The value is the text after `=` or a blank; "" without a value. Types of GPUs are ignored:
        `--gres=gpu:a100:8` is the same as `--gpus-per-node=8`.

    Examples
    --------
    >>> found = slurm_options("#SBATCH -N 4 --gres=gpu:a100:8 # two racks")
    >>> found["nodes"].text, found["gpus-per-node"].text
    ('4', '8')
    """
    by_long_name = {}
    for match in _SBATCH.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        options = f" {match.group(1)}".partition(" #")[0].split()
        for option, after in zip(options, [*options, ""][1:], strict=True):
            key, equals, value = option.partition("=")
            if key.startswith("--"):
                by_long_name[key[2:]] = Word(value if equals else after, line)
            elif key[:2] in _SHORT_DIRECTIVES:
                by_long_name[_SHORT_DIRECTIVES[key[:2]]] = Word(key[2:] or after, line)
    if "gres" in by_long_name and "gpus-per-node" not in by_long_name:
        by_long_name["gpus-per-node"] = by_long_name["gres"]
    for key in ("gpus-per-node", "gpus", "ntasks-per-node"):  # "gpu:a100:8", "a100:4", "8(x4)"
        if key in by_long_name:
            count = by_long_name[key].text.partition("(")[0].split(":")[-1]
            by_long_name[key] = Word(count, by_long_name[key].line)
    return by_long_name


def slurm_variables(options: Mapping[str, Word]) -> dict[str, Value]:
    """Return the variables that Slurm sets for the job, as far as the script determines them, and the
    user's folder.

    >>> {name: value[0].text for name, value in slurm_variables({"nodes": Word("4", 2)}).items()}
    {'HOME': '~', 'SLURM_NNODES': '4', 'SLURM_JOB_NUM_NODES': '4'}
    """
    home: dict[str, Value] = {"HOME": (Piece("~", 1),)}
    return home | {
        variable: (Piece(options[option].text, options[option].line),)
        for variable, option in _SET_BY_SLURM.items()
        if option in options
    }


def submitted_options(text: str, command: Sequence[Word]) -> dict[str, Word]:
    """Return the Slurm options of a script that a command runs.

    Options of the sbatch command override the `#SBATCH` lines of the script.

    >>> found = submitted_options("#SBATCH -N 4", [Word("sbatch", 3), Word("--nodes=2", 3)])
    >>> found["nodes"].text, found["nodes"].line
    ('2', 3)
    """
    by_sbatch = command[0].text.rpartition("/")[2] == "sbatch"
    given = " ".join(word.text for word in command[1:] if "\n" not in word.text) if by_sbatch else ""
    options = slurm_options(f"{text}\n#SBATCH {given}" if given else text)
    return {key: Word(word.text, command[0].line, word.unknown) for key, word in options.items()}
