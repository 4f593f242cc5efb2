"""Commands of serving engines and benchmarks as jobs: scripts, pasted commands, and YAML files of settings.

Answers: which serving job do these commands start, and which requests does it serve?
Elsewhere: the known engines (kinds.py), the settings of one command (vllm.py and the other files here), the
expansion of a script (interop/shell/script.py), manifests of Dynamo (dynamo.py).

A command starts one instance. Equal commands are replicas; prefill commands and decode commands become
the two pools of the plan. A command for a further node of the same instance is not counted again. The
command of a benchmark states the traffic, and also the model if no command starts an engine. The resulting
document has no cluster, because no command names it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from flopcast.errors import Problem, SpecError, spec_error
from flopcast.files.yaml_text import Document, Path, line_in, read_yaml
from flopcast.interop.megatron.training_command import TALKERS, visible_devices
from flopcast.interop.serving.clients import missing_lengths, other_loads, read_benchmarked, with_load
from flopcast.interop.serving.kinds import KINDS, program_of
from flopcast.interop.serving.launch_reader import LaunchReader
from flopcast.interop.serving.settings import (
    Setting,
    keys_of_engine,
    settings_of_document,
    settings_of_environment,
    settings_of_words,
)
from flopcast.interop.shell.commands import Command
from flopcast.interop.shell.parameters import parsed_values
from flopcast.interop.shell.script import Script, read_script
from flopcast.interop.shell.text import script_text
from flopcast.interop.shell.variables import Word
from flopcast.interop.shell.written_files import written_document
from flopcast.records import Record, field, replace
from flopcast.spec.deployment import Pool

FURTHER_NODES = ("node-rank", "headless", "data-parallel-start-rank")  # another part of the same instance
ReadText = Callable[[str, str], bytes]  # of a file that a command names, and where it does
WrittenText = Callable[[str], Word | None]  # that a script writes to a path


class Instance(Record, eq=False):
    """The equal instances of an engine that one command starts, or one benchmark, with its settings.

    `role` is "prefill" or "decode" in a pool, and `line` is the line of the command.
    """

    kind: str
    reader: LaunchReader
    replicas: int = 1
    role: str = ""
    line: int = 1


class Started(Record, eq=False):
    """A command that starts an engine: the words after the program, those before it, its variables."""

    kind: str
    arguments: Sequence[Word]
    before: Sequence[Word]
    variables: Mapping[str, Word] = field(default_factory=dict)
    line: int = 1
    replicas: int = 1
    role: str = ""


class LaunchText(Record):
    """A script or a command: its bytes, its name in error messages, and values from outside.

    `arguments` and `environment` are values such as "1=8" for `$1` and "TP=4" for a variable. `has_lengths`
    states whether another source states the lengths of requests.
    """

    raw: bytes
    name: str
    arguments: Sequence[str] = ()
    environment: Sequence[str] = ()
    has_lengths: bool = False

    def script(self) -> Script:
        """Return the commands of the script, and the files that it writes.

        Raises
        ------
        SpecError
            The text cannot be read, or a value from outside has no name.
        """
        values = parsed_values(self.arguments, "--arg"), parsed_values(self.environment, "--env")
        return read_script(script_text(self.raw, self.name), self.name, *values)


def launched(
    text: LaunchText, read: ReadText, model: str | None = None, kind: str | None = None
) -> Document | None:
    """Return the job if a script or a command starts an engine or a benchmark; None if it starts neither.

    Parameters
    ----------
    text : LaunchText
        The script or the command.
    read : callable
        Returns the bytes of a YAML file that a command names, unless the script writes it.
    model : str or None
        The model that the user names instead of the command's.
    kind : str or None
        The engine whose commands are read; None for any engine.

    Raises
    ------
    SpecError
        The settings have faults, which are all reported with their lines.

    Examples
    --------
    >>> text = LaunchText(raw=b"vllm serve meta-llama/Llama-3.1-8B-Instruct -tp 2", name="serve.sh")
    >>> made = launched(text, lambda *_: b"")
    >>> made.data["model"], made.data["engine"], made.data["plan"]
    ('llama-3.1-8b', 'vllm', {'tensor_parallel': 2, 'replicas': 1})
    """
    script, name = text.script(), text.name
    every = [each for command in script.commands if (each := started_by(command))]
    pinned = tuple(word for command in script.commands for word in command.words if "==" in word.text)
    started = [replace(each, before=(*pinned, *each.before)) for each in every if kind in (None, each.kind)]
    if not started:
        return None
    instances = [instance_of(each, name, script.file, read, model) for each in started]
    for each, instance in zip(started, instances, strict=True):
        if seen := visible_devices(script, each.variables):
            instance.reader.check_visible(seen)
    document = job_of_instances(instances, name, script.notes)
    if not text.has_lengths and (lacking := missing_lengths(document)):
        raise SpecError(lacking)
    return document


def started_by(command: Command) -> Started | None:
    """Return the engine that a command of a script starts, None if it starts none."""
    texts = [word.text for word in command.words]
    if texts[0].rpartition("/")[2] in TALKERS:
        return None
    kind, end = program_of(texts)
    if not kind:
        return None
    before, after = command.words[:end], command.words[end:]
    own, line = command.environment, command.line
    return Started(kind=kind, arguments=after, before=before, variables=own, line=line)


def instance_of(
    started: Started, name: str, written: WrittenText, read: ReadText, model: str | None
) -> Instance:
    """Return the instances that a command starts.

    Parameters
    ----------
    written : a function that returns the text which the script writes to a path
    """
    keys, kind = keys_of_engine(started.kind), KINDS[started.kind]
    own = settings_of_words(started.arguments, keys, name, kind.model)
    outside = settings_of_environment(started.before, started.variables, keys, name)
    further: list[Setting] = []
    for setting in own:
        if setting.key in keys.files.split() and isinstance(setting.value, str):
            further += settings_of_document(_file(setting, name, written, read), keys)
    merged = (*own, *further) if keys.file_wins else (*outside, *further, *own)
    reader = LaunchReader(merged, keys, name, started.line, model)
    reader.program = next((word.text for word in started.before[-1:]), "").rpartition("/")[2]
    if release := kind.release_in(word.text for word in started.before):
        reader.put(("engine", "release"), release)
    return _read(started.kind, reader, started)


def _read(kind: str, reader: LaunchReader, started: Started) -> Instance:
    KINDS[kind].read(reader)
    return Instance(
        kind=kind,
        reader=reader,
        replicas=reader.replicas * started.replicas,
        role=reader.role or started.role,
        line=started.line,
    )


def _file(setting: Setting, name: str, written: WrittenText, read: ReadText) -> Document:
    """Return the YAML file that a setting names: a file that the script writes, or a file on disk."""
    path = str(setting.value)
    text = written(path)
    if text is None:
        return read_yaml(read(path, setting.place), path)
    return written_document(text, name)


def job_of_settings(document: Document, kind: str, model: str | None = None) -> Document:
    """Return the job of a YAML file with the settings of one engine.

    Raises
    ------
    SpecError
        The file is not a mapping, or its settings have faults, which are all reported.
    """
    if not isinstance(document.data, dict) or not document.data:
        because = f"flopcast reads this file as {KINDS[kind].description}, but the file has no keys"
        fix = "give the file of the engine"
        where = document.where(())
        raise spec_error("document", document.data, "keys with values", because, fix, where, "has no keys")
    keys = keys_of_engine(kind)
    line = document.lines.get((), 1)
    reader = LaunchReader(settings_of_document(document, keys), keys, document.name, line, model)
    started = Started(kind=kind, arguments=(), before=(), line=line)
    return job_of_instances([_read(kind, reader, started)], document.name)


def job_of_instances(instances: Sequence[Instance], name: str, notes: Iterable[str] = ()) -> Document:
    """Return the job of all instances together.

    Raises
    ------
    SpecError
        The commands have faults, which are all reported; or the commands do not belong to one job.
    """
    engines = [each for each in instances if not KINDS[each.kind].sends]
    first = [each for each in engines if not any(each.reader.raw(key) for key in FURTHER_NODES)]
    counted = first or engines[:1]
    loads = [each.reader for each in instances if each.reader.part("traffic")]
    if not engines:
        read_benchmarked(loads[0])
    problems = [*(fault for each in instances for fault in each.reader.faults())]
    problems = problems or _together(counted, name) + other_loads(loads)
    if problems:
        raise SpecError(sorted(problems, key=_place))
    by_role: dict[str, list[Instance]] = {}
    for each in counted:
        by_role.setdefault(each.role, []).append(each)
    assumed = dict.fromkeys(note for each in counted for note in each.reader.assumptions)
    if not engines:
        document = Document(name, dict(loads[0].data), dict(loads[0].document.lines))
    elif any(by_role):
        document = _of_pools(by_role["prefill"], by_role["decode"], name, (*assumed, *notes))
    else:
        document = _of_equal(by_role[""], name, (*assumed, *notes))
    return with_load(document, loads) if loads else document


def _place(problem: Problem) -> tuple[str, int]:
    return problem.where.rpartition(":")[0], line_in(problem.where)


def _together(instances: Sequence[Instance], name: str) -> list[Problem]:
    """Return why instances do not belong to one job."""
    problems: list[Problem] = []
    if not instances:  # the command of a benchmark alone
        return problems
    first = instances[0]
    for other in instances[1:]:
        where = f"{name}:{other.line}"
        for field_name, mine, theirs in (
            ("engine", first.kind, other.kind),
            ("model", first.reader.entry_or_name, other.reader.entry_or_name),
        ):
            if mine != theirs:
                because = "a prediction is for one engine and one model"
                fix = f"keep the commands with {mine}"
                problems.append(Problem(field_name, theirs, str(mine), because, fix, where=where))
        same = other.role != first.role or _plan(other) == _plan(first)
        if not problems and not same:
            because = "flopcast supports only equal instances"
            allowed = f"the settings of the command in line {first.line}"
            fix = "keep one of the commands, or make their settings equal"
            problems.append(Problem("command", where, allowed, because, fix, where=where, fault="differs"))
    roles = {each.role for each in instances}
    if not problems and len(roles) != (2 if roles & {"prefill", "decode"} else 1):
        where = f"{name}:{first.line}"
        because = "prefill instances compute prompts, and decode instances generate tokens"
        allowed = "commands of prefill instances and of decode instances"
        fix = "give the commands of both kinds in one script"
        fault = "has no counterpart"
        problems.append(Problem("command", "", allowed, because, fix, where=where, fault=fault))
    return problems


def _plan(instance: Instance) -> tuple[object, object]:
    engine = instance.reader.part("engine")
    return instance.reader.part("plan"), {key: engine[key] for key in engine if key != "holds_context"}


def _of_equal(instances: Sequence[Instance], name: str, notes: Sequence[str]) -> Document:
    reader = instances[0].reader
    plan = reader.part("plan") | {"replicas": sum(each.replicas for each in instances)}
    return _document(reader, plan, dict(reader.places), name, notes)


def _of_pools(
    prompts: Sequence[Instance], decoding: Sequence[Instance], name: str, notes: Sequence[str]
) -> Document:
    """Return the job with separate prefill and decoding instances; the latter determine number formats."""
    plan: dict[str, object] = {}
    places: dict[Path, str] = dict(decoding[0].reader.places)
    for role, instances in (("prefill", prompts), ("decode", decoding)):
        reader = instances[0].reader
        own = {key: value for key, value in reader.part("plan").items() if key in Pool.model_fields}
        plan[role] = own | {"replicas": sum(each.replicas for each in instances)}
        places |= {
            ("plan", role, path[1]): place
            for path, place in reader.places.items()
            if len(path) > 1 and path[0] == "plan"
        }
    shared, theirs = (
        {key: value for key, value in one.reader.part("plan").items() if key not in Pool.model_fields}
        for one in (decoding[0], prompts[0])
    )
    same = "all instances are predicted with the settings of the decode instances"
    lost = [
        f"the prefill instances have {key} {theirs.get(key, 'by default')}, which is ignored: {same}"
        for key in sorted({*theirs, *shared})
        if theirs.get(key) != shared.get(key)
    ]
    if prompts[0].reader.part("engine") != decoding[0].reader.part("engine"):
        lost.append(same)
    return _document(decoding[0].reader, plan | shared, places, name, (*notes, *lost))


def _document(
    reader: LaunchReader,
    plan: Mapping[str, object],
    places: dict[Path, str],
    name: str,
    notes: Sequence[str],
) -> Document:
    engine, base = reader.part("engine"), reader.launch_keys.engine
    data: dict[str, object] = {
        **{name: value for name, value in reader.data.items() if name == "model"},
        "engine": {"base": base, **engine} if engine else base,
        "plan": plan,
        "assumptions": list(notes),
    }
    keys = {path: reader.shown(key) for path, key in reader.names.items()}
    return Document(name, data, dict(reader.document.lines), places, keys)
