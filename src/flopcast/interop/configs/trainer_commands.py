"""Launch commands of trainers with settings as arguments, converted to documents for their readers.

Answers: which trainer does a script start, and with which settings?
Elsewhere: the expansion of a script (interop/shell/script.py), the meaning of settings (openrlhf.py,
ms_swift.py, verl.py), ranks of launchers (interop/megatron/training_command.py).

Settings are flags, `--lora_rank 8`, or overrides, `data.max_length=2048`. The lines of the document are
those of the values in the script. The key `launcher.ranks` is the number of ranks that the launcher starts.

Programs on top of the Trainer of transformers may have any name, so a flag of the Trainer identifies
them. MaxText is identified by the overrides of its base.yml.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from flopcast.errors import SpecError, spec_error
from flopcast.files.yaml_text import Document, Path, set_value
from flopcast.interop.configs.config_reader import LAUNCHER
from flopcast.interop.configs.unsupported_programs import program_of_command, refusal
from flopcast.interop.megatron.training_command import (
    TALKERS,
    TrainingCommand,
    acting,
    settings_of,
    visible_devices,
    world_size,
)
from flopcast.interop.shell.commands import Command
from flopcast.interop.shell.parameters import parsed_values
from flopcast.interop.shell.script import Script, read_script
from flopcast.interop.shell.text import script_text
from flopcast.interop.shell.variables import Word
from flopcast.interop.shell.written_files import written_document

OPENRLHF = ("train_sft", "train_dpo", "train_rm", "train_ppo_ray")
VERL = ("verl.trainer.fsdp_sft_trainer", "verl.trainer.sft_trainer", "verl.trainer.main_ppo")
STARTS: Mapping[str, Literal["flags", "overrides"]] = {  # words that start a trainer → its arguments
    **dict.fromkeys((f"openrlhf.cli.{name}" for name in OPENRLHF), "flags"),
    **dict.fromkeys(("swift sft", "swift pt", "swift rlhf", "trainer", "llama-factory"), "flags"),
    **dict.fromkeys((*VERL, "recipe.dapo.main_dapo", "maxtext"), "overrides"),
}
OF_TRAINER = "--per_device_train_batch_size"
OF_LAUNCHER = {  # flags of `accelerate launch` → sections of the document
    "config_file": LAUNCHER, "use_deepspeed": LAUNCHER, "use_fsdp": LAUNCHER,
    "mixed_precision": "accelerate",
}  # fmt: skip
OF_MEGATRON = {"--num-layers", "--micro-batch-size"}  # of commands in which a flag of the Trainer is wrong
OF_LLAMA_FACTORY = ("--finetuning_type", "--cutoff_len", "--lora_target")
OF_OPENRLHF, ITS_FLAG = re.compile(r"train_(?:sft|dpo|rm|ppo_ray)\.py"), "--micro_train_batch_size"
OF_MAXTEXT = ("per_device_batch_size=", "ici_fsdp_parallelism=")
BASE = re.compile(r"[/}]?base\.yml")  # of MaxText: the file that overrides change
GROUPS = ("engine", "optim", "model")  # of overrides: `engine=megatron` is the key `engine.group`
NUMBER = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]+)?")
WORDS = {"true": True, "false": False, "null": None, "none": None}


def trainer_document(
    raw: bytes, name: str, arguments: Sequence[str] = (), environment: Sequence[str] = ()
) -> Document | None:
    """Return the settings of the trainer that a script starts; None if it starts none of the commands in
    STARTS.

    Parameters
    ----------
    raw : the bytes of the script
    name : the script's name in error messages, usually the path
    arguments, environment : values from outside, as for `launch_document`

    Raises
    ------
    SpecError
        The script is not text, or starts several of these trainers.

    Examples
    --------
    >>> script = b"NPROC_PER_NODE=4 swift sft --model Qwen/Qwen2.5-7B --lora_rank 16 --packing"
    >>> trainer_document(script, "sft.sh").data["launcher"]
    {'command': 'swift sft', 'ranks': 4}
    """
    values = parsed_values(arguments, "--arg"), parsed_values(environment, "--env")
    script = read_script(script_text(raw, name), name, *values)
    found = [(command, *begun) for command in script.commands if (begun := _start(command))]
    if not found:
        return None
    if len(found) > 1:
        lines = ", ".join(str(command.line) for command, *_ in found)
        allowed, because = "one training command", "each command trains a job of its own"
        fix = "keep the command that you want to predict"
        where = f"{name}:{found[1][0].line}"
        raise spec_error("training command", f"lines {lines}", allowed, because, fix, where)
    ((command, start, end),) = found
    program = program_of_command(" ".join(word.text for word in command.words))
    if program and OF_TRAINER in (word.text.partition("=")[0] for word in command.words[end:]):
        raise SpecError([refusal(Document(name, None, {(): command.line}), program)])
    data: dict[str, object] = {}
    lines_of: dict[Path, int] = {(): command.line}
    words = command.words[end:]
    for key, value, line in _flags(words) if STARTS[start] == "flags" else _overrides(words):
        path = tuple(key.split("."))
        set_value(data, path, value)
        lines_of[path] = line
    set_value(data, (LAUNCHER, "command"), start)
    if start == "trainer":
        set_value(data, (LAUNCHER, "program"), command.words[end - 1].text)
        for key, value, line in _flags(command.words[: end - 1]):
            if key in OF_LAUNCHER and isinstance(value, (str, bool)):
                set_value(data, (OF_LAUNCHER[key], key), value)
                lines_of[OF_LAUNCHER[key], key] = line
    if start == "maxtext":
        data["base_config"] = "base.yml"
    if ranks := _ranks(script, command, start, end):
        set_value(data, (LAUNCHER, "ranks"), ranks)
    return Document(name, data, lines_of)


def written_settings(
    raw: bytes, name: str, arguments: Sequence[str] = (), environment: Sequence[str] = ()
) -> tuple[Document, int | None] | None:
    """Return the YAML that a script writes and then gives to its training command, and the ranks.

    The result is None if no command has settings that the script writes. The parameters are those of
    `trainer_document`.

    Examples
    --------
    >>> script = b"cat > a.yml << E\\nbase_model: gpt2\\nE\\naccelerate launch --num_processes 2 -m a a.yml"
    >>> document, ranks = written_settings(script, "run.sh")
    >>> document.data, document.where(("base_model",)), ranks
    ({'base_model': 'gpt2'}, 'run.sh:2', 2)
    """
    values = parsed_values(arguments, "--arg"), parsed_values(environment, "--env")
    script = read_script(script_text(raw, name), name, *values)
    for command in acting(script):
        for named in settings_of(command):
            if text := script.file(named.text):
                parts = TrainingCommand(command, command.words, (), ())
                ranks = world_size(script, parts)
                ranks = ranks if ranks != 1 else visible_devices(script, command.environment)
                return written_document(text, name), ranks
    return None


def _start(command: Command) -> tuple[str, int] | None:
    """Return the entry of STARTS with which a command begins, and the position after it."""
    names = [word.text.rpartition("/")[2] for word in command.words]
    if names[:1] and names[0] in TALKERS:
        return None
    for start in STARTS:
        parts = start.split()
        for at in range(len(names) - len(parts) + 1):
            if names[at : at + len(parts)] == parts:
                return start, at + len(parts)
    texts = [word.text for word in command.words]
    base = next((at for at, text in enumerate(texts) if BASE.search(text)), None)
    if base and any(text.startswith(OF_MAXTEXT) for text in texts) and "train" in names[base - 1]:
        return "maxtext", base + 1
    flags = {text.partition("=")[0] for text in texts}
    own = next((at for at, name in enumerate(names) if OF_OPENRLHF.fullmatch(name)), -1)
    if own >= 0 and ITS_FLAG in flags:  # old releases have files in place of modules
        return f"openrlhf.cli.{names[own].removesuffix('.py')}", own + 1
    programs = [at for at, text in enumerate(texts) if text.endswith(".py") or text == "train"]
    modules = [at + 1 for at, text in enumerate(texts[:-1]) if text == "-m"]
    if OF_TRAINER not in flags or not programs + modules or OF_MEGATRON & flags:
        return None
    return ("llama-factory" if flags.intersection(OF_LLAMA_FACTORY) else "trainer"), (programs + modules)[
        0
    ] + 1


def _ranks(script: Script, command: Command, start: str, end: int) -> int | None:
    """Return the ranks that a launcher or the environment of ms-swift starts, if the script states them.

    Without a launcher, `llamafactory-cli` uses all visible devices, and other programs use one if only one
    is visible.
    """
    number = [
        command.environment.get(name, script.variables.get(name)) for name in ("NPROC_PER_NODE", "NNODES")
    ]
    if number[0] is not None and not number[0].unknown and number[0].text.isdecimal():
        nodes = number[1].text if number[1] is not None and number[1].text.isdecimal() else "1"
        return int(number[0].text) * int(nodes)
    stated = world_size(script, TrainingCommand(command, command.words[:end], command.words[end:], ()))
    alone = len([word for word in command.words[:end] if word.text != "-m"]) <= 2  # `python train.py`
    if stated is None or not (stated == 1 and alone):
        return stated
    seen = visible_devices(script, command.environment)
    return seen if seen == 1 or start == "llama-factory" else None


def _flags(words: Sequence[Word]) -> Iterator[tuple[str, object, int]]:
    """Yield keys of flags with their values: one value, a list of several, or true without a value."""
    place = 0
    while place < len(words):
        key, equals, value = words[place].text.partition("=")
        line, given = words[place].line, [value] if equals else []
        place += 1
        while place < len(words) and not words[place].text.startswith("--"):
            given.append(words[place].text)
            place += 1
        if key.startswith("--"):
            found = [_scalar(text) for text in given]
            yield key[2:], found[0] if len(found) == 1 else found or True, line


def _overrides(words: Sequence[Word]) -> Iterator[tuple[str, object, int]]:
    """Yield keys of overrides with their values; `+key=value` adds a key, `engine=name` selects a group."""
    for word in words:
        key, equals, value = word.text.lstrip("+").partition("=")
        key = f"{key}.group" if key in GROUPS else key
        if equals and value.startswith("[") and value.endswith("]"):
            parts = value[1:-1].split(",")
            yield key, [_scalar(part.strip().strip("'\"")) for part in parts if part.strip()], word.line
        elif equals:
            yield key, _scalar(value), word.line


def _scalar(text: str) -> object:
    """Return a value as a trainer's parser would.

    >>> [_scalar(text) for text in ("8", "1e-4", "False", "all-linear")]
    [8, 0.0001, False, 'all-linear']
    """
    if NUMBER.fullmatch(text):
        return int(text) if re.fullmatch(r"[-+]?[0-9]+", text) else float(text)
    return WORDS.get(text.lower(), text)
