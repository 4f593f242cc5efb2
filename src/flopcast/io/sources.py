"""What a path may hold: a job file, a launch script, a model's config.json, a folder with one.

Answers: which job, or which model, does this file describe, whoever wrote it?
Elsewhere: what each format means (hugging_face/config.py, megatron/document.py, jobs.py).

A file is told by what is in it, not by its name alone: a mapping with `model_type` or `architectures` is
a Hugging Face config, wherever it stands.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from flopcast.io.edits import placed
from flopcast.io.jobs import read_file
from flopcast.io.yaml_text import Document, read_yaml

SCRIPTS = (".sh", ".bash", ".slurm", ".sbatch", ".job")
CONFIG = "config.json"


def is_path(text: str) -> bool:
    """Whether a text that could name a catalogue entry is meant as a path: it has a folder or an ending.

    >>> is_path("./config.json"), is_path("qwen2.5-7b")
    (True, False)
    """
    return "/" in text or Path(text).suffix in (".json", ".yaml", ".yml", *SCRIPTS) or exists(text)


def exists(text: str) -> bool:
    """Whether a file or folder of this name exists; what can be no name at all does not."""
    try:
        return Path(text).exists()
    except (OSError, ValueError):  # too long for a name, or with a zero byte
        return False


def read_source(path: str, devices: int | None) -> tuple[Document, int | None]:
    """The document of a job, from a file of any known format.

    What begins with `#!`, or has the ending of one, is a launch script.

    Parameters
    ----------
    path : str
        A job in YAML or JSON; a launch script of Megatron-LM; a Hugging Face config.json or its folder.
    devices : int or None
        What the command line says of the number of devices: a launch script may leave it open.

    Returns
    -------
    document : Document
    devices : int or None
        How many devices a launch script trains on; None for files that say it otherwise, or nothing.

    Raises
    ------
    SpecError
        The file cannot be read, or is none of these.
    """
    place = _in_folder(Path(path))
    return source_of(read_file(place), str(place), devices)


def source_of(raw: bytes, name: str, devices: int | None) -> tuple[Document, int | None]:
    """As `read_source`, of a file's bytes; its name tells the ending, and is told in faults."""
    if name.endswith(SCRIPTS) or raw.startswith(b"#!"):
        from flopcast.io.megatron.document import launch_document, ranks_of

        script = launch_document(raw, name, devices)
        return script, ranks_of(script)
    document = read_yaml(raw, name)
    if _is_config(document):
        document = _with_model(Document("command line", {}, {}), document)
    return document, None


def read_model_file(path: str) -> Document:
    """The document of a model: a config.json, its folder, or a model in our own YAML."""
    place = _in_folder(Path(path))
    return read_yaml(read_file(place), str(place))


def with_model(document: Document, path: str) -> Document:
    """The document with the model of a file that `read_model_file` reads."""
    return _with_model(document, read_model_file(path))


def _with_model(document: Document, model: Document) -> Document:
    """The document with this model; what the import has to tell is an assumption."""
    notes: tuple[str, ...] = ()
    content = model.data
    if _is_config(model):
        from flopcast.io.hugging_face.config import model_from_config

        content, notes = model_from_config(model)
    data = dict(document.data) if isinstance(document.data, Mapping) else {}
    data["model"] = content
    return assuming(placed(replace(document, data=data), ("model",), model.name, model), notes)


def assuming(document: Document, notes: tuple[str, ...]) -> Document:
    """The document with more assumptions behind its own; one that is no list is told elsewhere."""
    if not notes or not isinstance(document.data, dict):
        return document
    told = document.data.get("assumptions")
    return replace(
        document, data=document.data | {"assumptions": [*(told if isinstance(told, list) else []), *notes]}
    )


def _in_folder(path: Path) -> Path:
    """The config.json of a folder that has one: models are published as folders."""
    return path / CONFIG if exists(str(path / CONFIG)) else path


def _is_config(document: Document) -> bool:
    """Whether this is a Hugging Face config: no job and no model of ours has these keys."""
    data = document.data
    return isinstance(data, dict) and ("model_type" in data or "architectures" in data)
