"""Launch scripts of Megatron-LM as jobs.

Answers: which job does this script train?
Elsewhere: the expansion of the script (interop/shell/script.py), the known flags (flags.py), how they are
read and refused (arguments.py), ranks (training_command.py), their meaning for a model (model.py), a plan
(plan.py) and a stack (stack.py).

requests.job_files.job_of reads the resulting document, which has no cluster, because no script names one.
The lines of the document are those of the flags' values, so that an error names the line of the script that
breaks a rule. Defaults are Megatron-LM's own; those that decide how long a step takes become assumptions.
"""

import re
from collections.abc import Sequence
from math import prod

from flopcast.errors import Problem, SpecError, spec_error
from flopcast.files.yaml_text import Document, line_in
from flopcast.interop.megatron.encoder import PROGRAM
from flopcast.interop.megatron.job_builder import JobBuilder
from flopcast.interop.megatron.model import read_model
from flopcast.interop.megatron.plan import read_plan
from flopcast.interop.megatron.programs import other_model
from flopcast.interop.megatron.stack import stack_of
from flopcast.interop.megatron.training_command import (
    TrainingCommand,
    training_command,
    unset_size,
    world_size,
)
from flopcast.interop.shell.parameters import parsed_values
from flopcast.interop.shell.script import Script, read_script
from flopcast.interop.shell.text import script_text
from flopcast.interop.shell.variables import Word
from flopcast.spec.plan_fields import DEGREES

_WIDE = re.compile(r'"grad_accum_dtype"\s*:\s*"(fp32|float32)"')


def launch_document(
    text: str | bytes,
    name: str,
    devices: int | None = None,
    arguments: Sequence[str] = (),
    environment: Sequence[str] = (),
) -> Document:
    """Return the job that a launch script trains, without its cluster.

    Parameters
    ----------
    text : str or bytes
        The script, or the bytes of its file.
    name : str
        The name in error messages, usually the path; its last part names the model.
    devices : int or None
        Number of ranks; None for the number that the script starts.
    arguments, environment : sequences of str
        Values that the script takes from outside: "1=8" for `$1`, "NNODES=4" for a variable.

    Returns
    -------
    Document
        `model`, `plan`, `batch`, `stack` and `assumptions`, with the lines of their values.

    Raises
    ------
    SpecError
        There is no training command, or its flags have faults, which are all reported with their lines.

    Examples
    --------
    >>> document = launch_document(
    ...     "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 24 --hidden-size 2048 "
    ...     "--num-attention-heads 16 --seq-length 2048 --max-position-embeddings 2048 "
    ...     "--micro-batch-size 4 --global-batch-size 64 --bf16 --vocab-size 50257", "gpt.sh")
    >>> ranks_of(document), document.data["stack"], document.data["batch"]
    (8, 'megatron-core', {'sequence_length': 2048})
    """
    values = parsed_values(arguments, "--arg"), parsed_values(environment, "--env")
    script = read_script(text if isinstance(text, str) else script_text(text, name), name, *values)
    training = training_command(script)
    line = training.command.line
    _refuse_other_programs(training.launcher[-1:], f"{name}:{line}")
    flags = _flags(training, script)
    stated_ranks = world_size(script, training)
    if devices is not None and stated_ranks not in (None, devices):
        flags.assume(f"{devices} devices as requested, instead of {stated_ranks} ranks in the script")
    ranks = stated_ranks if devices is None else devices
    if ranks is None:
        flags.problems.append(_unknown_ranks(f"{name}:{line}", unset_size(training)))
    read_model(flags)
    read_plan(flags, ranks)
    flags.put(("stack",), stack_of(flags))
    if flags.problems:
        raise SpecError(sorted(flags.problems, key=lambda each: line_in(each.where)))
    flags.data["assumptions"] = [*flags.assumptions, *script.notes]
    return Document(name, flags.data, flags.lines, keys=flags.flags)


def _flags(training: TrainingCommand, script: Script) -> JobBuilder:
    name, line = script.name, training.command.line
    flags = JobBuilder(name, training.arguments, line)
    written = script.file(flags.text("--deepspeed_config"))
    flags.wide_gradients = written is not None and bool(_WIDE.search(written.text))
    if training.others:
        others = ", ".join(map(str, training.others))
        text = f"flopcast reads the training command in {name}:{line}, and ignores those in line {others}"
        flags.assume(text)
    return flags


def _refuse_other_programs(program: Sequence[Word], where: str) -> None:
    """Check that the program trains a GPT-like model.

    Raises
    ------
    SpecError
        It trains another kind of model, whose flags would be read as those of a decoder.
    """
    for word in program:
        if (trained := other_model(word.text)) and not word.text.endswith(PROGRAM):
            allowed = "a program that trains a GPT-like model: pretrain_gpt.py"
            because = f"this program trains {trained}, but flopcast reads only scripts of GPT-like models"
            fix = (
                "to predict a decoder with layers of the same sizes, replace the program by pretrain_gpt.py"
            )
            raise spec_error("training program", word.text, allowed, because, fix, where=where)


def ranks_of(document: Document) -> int:
    """Return ranks of a launch script's document: the devices that its cluster must have."""
    plan = document.data.get("plan") if isinstance(document.data, dict) else None
    return prod(plan.get(name, 1) for name in DEGREES) if isinstance(plan, dict) else 1


def _unknown_ranks(where: str, variable: str) -> Problem:
    """Return the fault of a script that does not state its number of ranks, or leaves it to a variable."""
    allowed = "numbers of nodes and of processes per node, or #SBATCH --nodes and --gpus-per-node"
    because = "flopcast needs the number of ranks to compute the data-parallel degree"
    fix = "add the number of devices, such as --gpus 16"
    if variable:
        because, fix = f"the script does not set {variable}", f"add --env {variable}=2, with its value"
    fault = "is not stated in the script"
    return Problem("world size", None, allowed, because, fix, where=where, fault=fault)
