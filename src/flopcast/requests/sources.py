"""Files that describe a job: a job file, a launch script, another program's file, or a config.json.

Answers: which job or model does a file or command of any program describe?
Elsewhere: the meaning of each format (interop/hugging_face/config.py, interop/megatron/launch_script.py,
interop/configs/, interop/serving/, job_files.py).

The contents of a file determine its format, and not only its name. A mapping with `model_type` or
`architectures` is a Hugging Face config, unless it has the keys of a program that trains.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from flopcast.errors import Problem, SpecError, shown, spec_error
from flopcast.files.inputs import exists
from flopcast.files.named_files import read_file
from flopcast.files.yaml_text import COMMAND_LINE, Document, read_yaml
from flopcast.library.edits import placed
from flopcast.records import replace
from flopcast.requests.graph_models import graph_model, is_graph
from flopcast.requests.job_request import JobRequest, JobSource
from flopcast.requests.rl_files import lacking_part
from flopcast.requests.words import CONFIG, SCRIPTS, WEIGHTS, is_command, is_path, without_config

if TYPE_CHECKING:
    from flopcast.interop.configs.import_options import ImportOptions

SCRIPT = "megatron"  # the kind of a launch script
COMMAND = "command"  # the name of a command that stands in no file


def read_source(request: JobRequest) -> JobSource:
    """Return the document of a job from the files of a request, of any known format; empty without files.

    A file that begins with `#!`, or has the suffix of a script, is a launch script. Keys identify the files
    of other programs (interop/configs/formats.py): a job in YAML or JSON, a configuration of another
    program, a Hugging Face config.json or its folder.

    Returns
    -------
    JobSource
        `devices` is None if the file gives the devices in another way, or not at all.

    Raises
    ------
    SpecError
        A file cannot be read, or has an unknown format.
    """
    if not request.files:
        refuse_values(request)
        if request.kind:
            because, fix = "no file is given", f"remove --kind {request.kind}, or name a file"
            raise spec_error("--kind", request.kind, "no --kind, unless a file is given", because, fix)
        return JobSource(document=Document(COMMAND_LINE, {}, {}))
    commands = [word for word in request.files if is_command(word)]
    if commands and len(request.files) > 1:
        because, fix = "a command already describes the whole job", "write the commands into one script"
        raise spec_error("job", request.files[-1], "one command, without files", because, fix)
    if log := next((word for word in request.files if Path(word).suffix == ".log"), ""):
        because = "a log of a run does not describe the whole job"
        fix = f"write --log {log}, which flopcast predict and flopcast diagnose read"
        allowed = "a job file, a launch script, a configuration, or the name of a model"
        raise spec_error("job", log, allowed, because, fix, fault=f"{shown(log)} is a log")
    if is_graph(request.files[0]):
        empty = Document(COMMAND_LINE, {}, {})
        return JobSource(document=with_model(empty, request.files[0], request.size, request.autocast))
    if commands:
        return source_of(commands[0].encode(), COMMAND, request, reader_in(Path()))
    place, *further = map(Path, request.files)
    place = _in_folder(place)
    if further:
        from flopcast.interop.configs.formats import joined, parsed

        documents = [parsed(read_file(one), str(one)) for one in (place, *further)]
        document, kind = joined(documents, request.kind)
        return _read_foreign(document, replace(request, kind=kind))
    return source_of(read_file(place), str(place), request, reader_in(place.parent))


def reader_in(folder: Path) -> Callable[[str, str], bytes]:
    """Return a function that reads a file that a command names, in the folder of its script or in the
    current folder.
    """

    def read(path: str, where: str) -> bytes:
        beside = folder / path
        return read_file(beside if exists(str(beside)) else Path(path), where=where)

    return read


def _read_nothing(path: str, where: str) -> bytes:
    """Refuse a file that a command names: a text that was sent here names none that may be read."""
    allowed = "a command that contains its settings"
    because = "only the command line can read further files"
    raise spec_error("file", path, allowed, because, "write the settings as flags", where)


def is_script(raw: bytes, name: str) -> bool:
    """Return whether a file is a launch script, by its suffix or its first line."""
    return Path(name).suffix in SCRIPTS or raw.startswith(b"#!")


def refuse_values(request: JobRequest) -> None:
    """Check that values for a launch script are given only with a launch script.

    Raises
    ------
    SpecError
        Values are given, which would have no effect.
    """
    given = [("--arg", word) for word in request.arg] + [("--env", word) for word in request.env]
    allowed = "no value, because no launch script is given"
    because = "only launch scripts have arguments and environment variables"
    if given:
        raise SpecError(
            Problem(name, word, allowed, because, f"remove {name} {word}") for name, word in given
        )


def source_of(
    raw: bytes, name: str, request: JobRequest, read: Callable[[str, str], bytes] = _read_nothing
) -> JobSource:
    """Return the result of `read_source` for the bytes of a file with this name.

    No file is opened, unless the model of the request is a path, or `read` opens one that a command names.
    """
    ending = Path(name).suffix
    served = _served(raw, name, request, read)
    if served is not None:
        return JobSource(document=served)
    if request.kind != SCRIPT and is_script(raw, name) and (trained := _trained(raw, name, request)):
        return trained
    from flopcast.requests.own_files import is_foreign, is_model, job_keys, refuse_own_text

    if request.kind == SCRIPT or (not request.kind and is_script(raw, name)):
        from flopcast.interop.megatron.launch_script import launch_document, ranks_of

        if not is_script(raw, name):
            refuse_own_text(raw, name, SCRIPT)
        script = launch_document(raw, name, request.devices, request.arg, request.env)
        return JobSource(document=script, devices=ranks_of(script))
    refuse_values(request)
    if request.kind or ending in (".toml", ".py"):
        return _foreign(raw, name, request)
    from flopcast.requests.missing_parents import read_job

    document = read_job(raw, name)
    if isinstance(document.data, dict) and not job_keys(document):
        from flopcast.interop.configs.formats import kind_of, known_kind
        from flopcast.interop.configs.rl_formats import start_of

        kind = start_of(document.data) or kind_of(document)
        if kind:
            return _foreign(raw, name, replace(request, kind=kind))
        if lacking := lacking_part(document):
            raise SpecError([lacking])
        if not is_model(document) and is_foreign(document.data):
            known_kind(None, document)  # raises the error that lists the formats
    if is_model(document):
        document = with_described_model(Document(COMMAND_LINE, {}, {}), document)
    return JobSource(document=document)


def _trained(raw: bytes, name: str, request: JobRequest) -> JobSource | None:
    """Return the job of a script that starts a trainer; None if it starts none that has flags of its own.

    The settings may be flags, or a file that the script writes.
    """
    from flopcast.interop.configs.trainer_commands import trainer_document, written_settings

    if (started := trainer_document(raw, name, request.arg, request.env)) is not None:
        return _read_foreign(started, request)
    if (written := written_settings(raw, name, request.arg, request.env)) is None:
        return None
    document, ranks = written
    return _read_foreign(document, request if request.devices else replace(request, gpus=ranks))


def _served(
    raw: bytes, name: str, request: JobRequest, read: Callable[[str, str], bytes]
) -> Document | None:
    """Return the job of a serving engine's command or settings; None for any other file.

    Raises
    ------
    SpecError
        Every fault of the settings; or the named kind is not that of the file.
    """
    script = name == COMMAND or is_script(raw, name)
    if not script and Path(name).suffix in (".toml", ".py"):
        return None
    from flopcast.interop.serving.launch import LaunchText
    from flopcast.interop.serving.sources import DESCRIPTIONS, serving_command, serving_document

    if request.kind and request.kind not in DESCRIPTIONS:
        return None
    model = request.model if isinstance(request.model, str) else None
    if script:
        stated = request.traffic is not None or any(each.startswith("traffic.") for each in request.changes)
        text = LaunchText(
            raw=raw, name=name, arguments=request.arg, environment=request.env, has_lengths=stated
        )
        found = serving_command(text, read, model, request.kind)
        if found is None and request.kind:
            allowed, because = f"{DESCRIPTIONS[request.kind]}", "no command of the script starts the engine"
            raise spec_error("--kind", request.kind, allowed, because, "leave out --kind", name)
        return found
    from flopcast.interop.serving.containers import containers_of, mounted_files, one_manifest
    from flopcast.requests.missing_parents import read_job

    document = read_job(one_manifest(raw), name)

    def read_mounted(path: str, where: str) -> bytes:
        file = mounted_files(raw).get(Path(path).name)
        return read(path, where) if file is None else file

    if not containers_of(document.data) or request.arg:
        refuse_values(request)
    from flopcast.requests.own_files import OF_JOB, refuse_own_job

    if request.kind:
        refuse_own_job(document, request.kind)
    elif isinstance(document.data, dict) and OF_JOB & document.data.keys():
        return None
    return serving_document(document, read_mounted, request.kind, model, request.env)


def _foreign(raw: bytes, name: str, request: JobRequest) -> JobSource:
    """Return the job of another program's file; a model on the command line replaces its own.

    What is trained of a model (adapters) stays as the file has it.
    """
    from flopcast.interop.configs.formats import parsed

    return _read_foreign(parsed(raw, name), request)


def _read_foreign(document: Document, request: JobRequest) -> JobSource:
    """Return the source of another program's file whose text was read."""
    from flopcast.interop.configs.formats import known_kind, read_kind
    from flopcast.interop.configs.rl_formats import step_of
    from flopcast.interop.megatron.launch_script import ranks_of

    if step := step_of(document, import_options(request)):
        return JobSource(document=step)
    model = request.model if isinstance(request.model, str) else None
    kind = known_kind(request.kind, document)
    from flopcast.requests.own_files import refuse_own_job

    refuse_own_job(document, kind)
    document = read_kind(document, kind, import_options(request))
    devices = ranks_of(document)
    if model is None or not isinstance(document.data, dict):
        return JobSource(document=document, devices=devices)
    return JobSource(document=with_other_model(document, model), devices=devices, has_model=True)


def with_other_model(document: Document, model: str) -> Document:
    """Return the document of a job with a model by its name or its path. Adapters do not change."""
    own = document.mapping.get("model")
    kept = {"adapters": own["adapters"]} if isinstance(own, dict) and "adapters" in own else {}
    named: object = {"base": model}
    if is_path(model):
        document = with_model(document, model)
        named = document.mapping.get("model", {})
    return document.with_part("model", named | kept if isinstance(named, dict) else named)


def import_options(request: JobRequest) -> "ImportOptions":
    """Return the settings of a request that complete a file of another program."""
    from flopcast.interop.configs.import_options import ImportOptions

    return ImportOptions(
        devices=request.devices,
        whole=request.whole_cluster,
        model=isinstance(request.model, str) or any(each.startswith("model=") for each in request.changes),
        lengths=request.traffic is not None and request.seq is not None,
        samples=request.samples is not None and request.epochs is None,
    )


def read_model_file(path: str, where: str = "") -> Document:
    """Return the document of a model: a config.json, its folder, or a model in flopcast's YAML.

    `where` is the line of another file that names this one.

    Raises
    ------
    SpecError
        The file holds weights, or a folder has no config.json; or the file cannot be read.
    """
    place = _in_folder(Path(path))
    if place.is_dir() or WEIGHTS.search(path):
        raise SpecError([without_config(path, place, where)])
    return read_yaml(read_file(place, where=where), str(place))


def with_model(
    document: Document, path: str, sizes: Sequence[str] = (), autocast: bool = False
) -> Document:
    """Return the document with the model of a file. An exported graph has these sizes."""
    named = document.mapping.get("model")
    places = {str(named): ("model",)} | (
        {str(named.get("graph")): ("model", "graph")} if isinstance(named, dict) else {}
    )
    where = document.where(places[path]) if path in places else ""
    if is_graph(path):
        model, notes = graph_model(path, sizes, where, autocast)
        return assuming(with_described_model(document, model), notes)
    return with_described_model(document, read_model_file(path, where))


def with_described_model(document: Document, model: Document) -> Document:
    """Return the document with this model. Notes of its import become assumptions."""
    notes: tuple[str, ...] = ()
    content = model.data
    from flopcast.requests.own_files import is_config

    if is_config(model):
        from flopcast.interop.hugging_face.config import model_from_config

        content, notes = model_from_config(model)
    return assuming(placed(document.with_part("model", content), ("model",), model.name, model), notes)


def assuming(document: Document, notes: tuple[str, ...]) -> Document:
    """Return the document with further assumptions at the end.

    Readers of foreign files use it for defaults of the program that wrote the file. If the value is not a
    list, it is not changed, and is reported when the job is validated.
    """
    if not notes or not isinstance(document.data, dict):
        return document
    stated = document.data.get("assumptions")
    return document.with_part("assumptions", [*(stated if isinstance(stated, list) else []), *notes])


def _in_folder(path: Path) -> Path:
    """Return the config.json of a folder that has one: models are published as folders."""
    return path / CONFIG if exists(str(path / CONFIG)) else path
