"""Formats that describe a step of reinforcement learning, and the code that their readers share.

Answers: does this script or file describe such a step, and of which two jobs does it consist?
Elsewhere: the meaning of the keys (verl_rl.py, openrlhf_rl.py, trl_rl.py, nemo_rl.py), formats of one
training job (formats.py), the step itself (spec/rl_plan.py, rl/step.py).

A reader writes fields of the training job to their usual keys, fields of the rollout below "rollout", and
fields of the step below "step". `step_document` creates the two jobs from them.
"""

from collections.abc import Callable, Mapping

from flopcast.files.yaml_text import Document, Path
from flopcast.interop.configs import nemo_rl, openrlhf_rl, trl, trl_rl, verl_rl
from flopcast.interop.configs.config_reader import LAUNCHER
from flopcast.interop.configs.import_options import ImportOptions
from flopcast.interop.configs.job_reader import JobReader
from flopcast.interop.configs.unsupported_programs import has

READERS: Mapping[str, Callable[[Document, ImportOptions], JobReader]] = {
    verl_rl.START: verl_rl.read,
    verl_rl.DAPO: verl_rl.read,
    openrlhf_rl.START: openrlhf_rl.read,
    trl_rl.START: trl_rl.read,
    nemo_rl.START: nemo_rl.read_step,
}
MERGED = {trl_rl.START: trl.merged, nemo_rl.START: nemo_rl.merged}  # settings in several files
ROLLOUT, STEP, TRAINING = "rollout", "step", "training"


def step_of(document: Document, options: ImportOptions) -> Document | None:
    """Return the step that a command or a YAML file of a trainer describes; None for any other document.

    Parameters
    ----------
    document : the settings of a command (trainer_commands.py), or the content of a file
    options : the settings of the command line

    Returns
    -------
    Document
        It has the keys of a step file (docs/howto/rl.md), and `gpus`, the devices, in both jobs.

    Raises
    ------
    SpecError
        The file has faults, which are all reported.
    """
    start = start_of(document.data)
    return step_document(READERS[start](document, options)) if start else None


def start_of(data: object) -> str | None:
    """Return the program for such a step to which these settings belong; None if there is none.

    >>> start_of({"actor_rollout_ref": {"model": {"path": "Qwen/Qwen2.5-7B"}}})
    'verl.trainer.main_ppo'
    """
    launcher = data.get(LAUNCHER) if isinstance(data, dict) else None
    start = str(launcher.get("command")) if isinstance(launcher, dict) else ""
    if not start and has(data, verl_rl.MODEL):
        start = verl_rl.START
    if not start and has(data, "grpo") and any(has(data, sign) for sign in nemo_rl.SIGNS):
        start = nemo_rl.START
    if not start and has(data, "model_name_or_path") and any(has(data, sign) for sign in trl_rl.SIGNS):
        start = trl_rl.START
    return start if start in READERS else None


def step_document(reader: JobReader) -> Document:
    """Return the two jobs and the fields of the step that a reader collected.

    Raises
    ------
    SpecError
        The reader found faults, which are all reported.
    """
    made = reader.made()
    training = dict(made.data) if isinstance(made.data, dict) else {}
    rollout, step = training.pop(ROLLOUT, {}), training.pop(STEP, {})
    if isinstance(rollout, dict) and isinstance(model := training.get("model"), dict):
        rollout = {"model": {key: value for key, value in model.items() if key != "adapters"}} | rollout
    lines = {_moved(path): line for path, line in made.lines.items()}
    return Document(made.name, {ROLLOUT: rollout, TRAINING: training} | step, lines, made.places, made.keys)


def _moved(path: Path) -> Path:
    """Return the place in the step of a reader's value."""
    if path[:1] == (ROLLOUT,) or not path:
        return path
    return path[1:] if path[0] == STEP else (TRAINING, *path)
