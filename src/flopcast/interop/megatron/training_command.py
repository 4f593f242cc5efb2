"""The training command of a launch script, and the number of ranks that it starts.

Answers: which words are flags of the training program, and what is the world size?
Elsewhere: the commands of a script (interop/shell/script.py), the meaning of the flags (launch_script.py).

Launchers count ranks differently: torchrun and `torch.distributed.launch` start nodes × processes per
node, DeepSpeed's launcher starts nodes × GPUs, accelerate and mpirun state all processes, and srun states
all tasks. A program without a launcher is one rank, unless WORLD_SIZE states another number. Inside srun,
the inner launcher counts.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise

from flopcast.errors import VARIABLE, Problem, SpecError
from flopcast.files.yaml_text import Document
from flopcast.interop.configs.unsupported_programs import BY_HAND, program_of_command, refusal
from flopcast.interop.megatron.flags import MODELLED, is_known
from flopcast.interop.shell.commands import Command
from flopcast.interop.shell.script import Script
from flopcast.interop.shell.variables import Word
from flopcast.records import Record, replace

FEWEST_FLAGS = 3  # modelled ones; a command with fewer trains nothing that could be forecast
TORCH = ("torchrun", "torch.distributed.launch", "torch.distributed.run")
LAUNCHERS = (*TORCH, "deepspeed", "accelerate", "mpirun", "mpiexec", "srun")
TALKERS = ("echo", "printf", "cat", "log", "logger")
NODES = ("--nnodes", "--num-nodes", "--num_nodes", "--num_machines", "--nodes", "-N")
PROCESSES = ("--nproc_per_node", "--nproc-per-node", "--num_gpus", "--num-gpus")
ALL_PROCESSES = ("--num_processes", "-np", "-n", "--np", "--ntasks", "--n")
TASKS_OF_A_NODE = ("--ntasks-per-node", "--gpus-per-node", "--npernode", "-ppn", "--ppn")

SIZES = (*NODES, *PROCESSES, *ALL_PROCESSES, *TASKS_OF_A_NODE)
DETECTED = ("auto", "cpu", "gpu")  # torchrun then counts the devices of a node

_VISIBLE = "CUDA_VISIBLE_DEVICES"
_OVERRIDDEN = "/base.yml"  # MaxText's defaults, which do not describe a job
_OF_LAUNCHER = "--config_file"  # of accelerate launch
_HYDRA = "--config-name"  # names a file of settings without its ending

Options = Mapping[str, Word]


class TrainingCommand(Record, kw_only=False):
    """A training command and its parts.

    `launcher` starts the ranks, and `arguments` are read by the program; the first Python file separates
    the two. `others` holds the lines of further training commands.
    """

    command: Command
    launcher: tuple[Word, ...]
    arguments: tuple[Word, ...]
    others: tuple[int, ...]


def training_command(script: Script) -> TrainingCommand:
    """Return the command with the most flags of Megatron-LM, the first one if several have equally many.

    Raises
    ------
    SpecError
        No command has flags of Megatron-LM, or they belong to a program without a reader.
    """
    training = [command for command in acting(script) if _flags(command) >= FEWEST_FLAGS]
    if not training:
        raise SpecError([_no_training(script)])
    best = max(training, key=_flags)
    flags = " ".join(word.text for word in best.words if word.text.startswith("--"))
    if program := program_of_command(flags):  # it adds flags to those of Megatron-LM
        raise SpecError([refusal(Document(script.name, None, {(): best.line}), program)])
    at = next((i for i, word in enumerate(best.words) if word.text.endswith(".py")), -1)
    if at < 0:  # a module, or a program that a variable names
        at = next(i for i, word in enumerate(best.words) if is_known(_name(word))) - 1
    others = tuple(sorted({command.line for command in training} - {best.line}))
    return TrainingCommand(best, best.words[: at + 1], best.words[at + 1 :], others)


def _no_training(script: Script) -> Problem:
    """Return the fault of a script that trains nothing, or that starts another script for training."""
    number = f"{len(script.commands)} command{'s' * (len(script.commands) != 1)}"
    elsewhere = [note for note in script.notes if note.endswith("flopcast does not read other files")]
    unread = f" ({'; '.join(elsewhere)})" if elsewhere else ""
    for command in script.commands:
        program = program_of_command(" ".join(word.text for word in command.words))
        if program:
            return refusal(Document(script.name, None, {(): command.line}), program)
    settings = [named for command in acting(script) for named in settings_of(command)]
    if settings := [named for named in settings if not named.text.endswith(_OVERRIDDEN)]:
        named = settings[-1]  # an earlier one is the launcher's
        return Problem(
            where=f"{script.name}:{named.line}",
            field="training command",
            value=named.text,
            fault=f"has its settings in {named.text}",
            allowed="a command that contains its settings, or the file of settings itself",
            because="flopcast does not open files that a script names",
            fix=f"give this file instead of the script: flopcast predict {named.text}",
        )
    program = _program(script)
    starts = f"; the script starts {program}, whose arguments flopcast does not know" if program else ""
    return Problem(
        where=script.name,
        field="training command",
        value=number,
        fault="was not found in the file",
        allowed="a command of Megatron-LM, of another trainer, or of an engine, such as vllm serve",
        because=f"flopcast reads the job from the flags of the training command{starts}{unread}",
        fix=BY_HAND if program else "give the script that contains the training command",
    )


def _program(script: Script) -> str:
    """Return the first Python program that a script starts, "" if it starts none."""
    for command in acting(script):
        words = [word.text for word in command.words]
        for before, word in zip(["", *words], words, strict=False):
            if word.endswith(".py") or (before == "-m" and "." in word):
                return word
    return ""


def acting(script: Script) -> list[Command]:
    """Return the commands that do more than print their arguments."""
    return [each for each in script.commands if each.words[0].text.rpartition("/")[2] not in TALKERS]


def settings_of(command: Command) -> list[Word]:
    """Return the settings files that a command names; Hydra's `--config-name` omits the ending.

    A file of accelerate does not count, because it states only how ranks are started.
    """
    named = []
    for before, word in pairwise([command.words[0], *command.environment.values(), *command.words]):
        if before.text == _OF_LAUNCHER or word.text.startswith(f"{_OF_LAUNCHER}="):
            continue
        text = word.text.removeprefix(f"{_HYDRA}=")
        if text != word.text or before.text == _HYDRA:
            text = text.removesuffix(".yaml") + ".yaml"
        if text.endswith((".yaml", ".yml", ".toml")) and not re.search(r"[$`=]", text.rpartition("/")[2]):
            named.append(replace(word, text=text))
    return named


def _name(word: Word) -> str:
    return word.text.partition("=")[0]


def _flags(command: Command) -> int:
    """Return the number of different modelled flags in a command."""
    return len({_name(word) for word in command.words} & MODELLED)


def world_size(script: Script, training: TrainingCommand) -> int | None:
    """Return the number of ranks that the script starts; None if it does not state them.

    The last launcher of the command counts, because it is the innermost. Without a launcher, variables
    with the usual names are used.
    """
    options, program = _options(training.launcher)
    _check_sizes(options, script)
    nodes = _first(options, NODES, default=None)
    if program in TORCH:
        return _product(nodes if _given(options, NODES) else 1, _first(options, PROCESSES, default=1))
    if program == "deepspeed":
        slots = _first(options, PROCESSES, default=None) or _included(options)
        slots = slots or visible_devices(script, training.command.environment)
        listed = "--hostfile" in options or "-H" in options
        return _product(nodes if listed or _given(options, NODES) else 1, slots)
    if program == "accelerate" and not _given(options, (*ALL_PROCESSES, _OF_LAUNCHER)):
        return visible_devices(script, training.command.environment)
    if program in ("accelerate", "mpirun", "mpiexec"):
        return _first(options, ALL_PROCESSES, default=None)
    if program == "srun":
        return _tasks(options, script.directives)
    stated = training.command.environment.get("WORLD_SIZE") or script.variables.get("WORLD_SIZE")
    return 1 if stated is None else _number(stated)


def _check_sizes(options: Options, script: Script) -> None:
    """Raise SpecError for each number of nodes or processes of a launcher that is a word."""
    problems = [
        Problem(
            name,
            word.text,
            "a whole number of at least 1",
            "the launcher starts this number of nodes or processes",
            f"write {name} 8",
            where=f"{script.name}:{word.line}",
        )
        for name, word in options.items()
        if name in SIZES and re.fullmatch(r"[A-Za-z]\w*|-?0|-\d+", word.text) and word.text not in DETECTED
    ]
    if problems:
        raise SpecError(problems)


def visible_devices(script: Script, environment: Mapping[str, Word]) -> int | None:
    """Return how many devices `CUDA_VISIBLE_DEVICES=0,1` names, None if the script does not list them."""
    word = environment.get(_VISIBLE, script.variables.get(_VISIBLE))
    listed = re.fullmatch(r"[\"']?([0-9]+(?:,\s*[0-9]+)*),?[\"']?", word.text) if word else None
    return len(listed[1].split(",")) if listed else None


def unset_size(training: TrainingCommand) -> str:
    """Return the variable that the script does not set and that is the number of nodes or ranks; or ""."""
    given = (word.text for name, word in _options(training.launcher)[0].items() if name in SIZES)
    return next((found[1] or found[2] for found in map(VARIABLE.search, given) if found), "")


def _options(words: Sequence[Word]) -> tuple[dict[str, Word], str]:
    """Return options of the innermost launcher by name, with its name; "" if no launcher is known.

    >>> _options([Word("srun", 1), Word("torchrun", 1), Word("--nnodes=2", 1), Word("train.py", 1)])[1]
    'torchrun'
    """
    program, options = "", dict[str, Word]()
    for word, after in zip(words, [*words, Word("", 0)][1:], strict=True):
        name = word.text.rpartition("/")[2]
        if name in LAUNCHERS:
            program, options = name, {}
        key, equals, value = word.text.partition("=")
        if key.startswith("-"):
            options[key] = Word(value, word.line, word.unknown) if equals else after
    return options, program


def _given(options: Options, names: Sequence[str]) -> bool:
    """Return whether any of these options is given, with a known or an unknown value."""
    return any(name in options for name in names)


def _first(options: Options, names: Sequence[str], default: int | None) -> int | None:
    """Return the number of the first given option; None if it is not a number."""
    return next((_number(options[name]) for name in names if name in options), default)


def _number(word: Word) -> int | None:
    """Return a count of ranks or nodes; for an elastic range such as "4:8", the first number."""
    text = word.text.strip("'\"").partition(":")[0]
    return int(text) if not word.unknown and re.fullmatch(r"[1-9][0-9]{0,8}", text) else None


def _product(nodes: int | None, processes: int | None) -> int | None:
    """Return the number of ranks on all nodes."""
    return None if nodes is None or processes is None else nodes * processes


def _included(options: Options) -> int | None:
    """Return the number of slots that DeepSpeed's `--include localhost:0,1,2,3` names on one host."""
    included = options.get("--include", options.get("-i"))
    if included is None or included.unknown or "@" in included.text:
        return None
    slots = included.text.partition(":")[2]
    return len(slots.split(",")) if slots else None


def _tasks(options: Options, directives: Options) -> int | None:
    """Return the number of tasks of an srun: from its own options, or from those of its job."""
    of_job = {key.lstrip("-"): word for key, word in directives.items()}
    total = _first(options, ALL_PROCESSES, default=None) or _first(of_job, ("ntasks",), default=None)
    if total is not None:
        return total
    nodes = _first(options, NODES, default=None) or _first(of_job, ("nodes",), default=None)
    per_node = _first(options, TASKS_OF_A_NODE, default=None)
    per_node = per_node or _first(of_job, ("ntasks-per-node", "gpus-per-node"), default=None)
    return _product(nodes, per_node)
