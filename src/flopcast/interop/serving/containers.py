"""Container files that start an engine: Docker Compose files, and manifests of Kubernetes.

Answers: which commands do the containers of a file run, with which variables, and how many of each are
there?
Elsewhere: the jobs that the commands start (launch.py), manifests of Dynamo (dynamo.py).

The containers become one shell script, because both formats expand variables: `${NAME:-value}` in
Compose, `$(NAME)` in Kubernetes. The image of an engine starts it even without a command. Several pods
that form one instance (`--nnodes`, a LeaderWorkerSet) are one replica.

References
----------
Compose specification (https://docs.docker.com/reference/compose-file/): services, `entrypoint`, `command`,
`environment`, `deploy.replicas`. Kubernetes, "Define a Command and Arguments for a Container": `command`,
`args`, `env`; `replicas` of a Deployment or StatefulSet. LeaderWorkerSet (https://lws.sigs.k8s.io/docs/reference/):
`replicas` groups of `size` pods, which all run the workerTemplate if there is no leaderTemplate, and whose
variable LWS_GROUP_SIZE is `size`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from flopcast.errors import SpecError
from flopcast.files.yaml_text import Document, Path, line_in, read_yaml
from flopcast.interop.configs.keys import whole_number
from flopcast.interop.serving.deployments import IMAGE, Container, inside, stated_containers
from flopcast.interop.serving.kinds import has_command
from flopcast.interop.serving.launch import ReadText, instance_of, job_of_instances, started_by
from flopcast.interop.shell.parameters import parsed_values
from flopcast.interop.shell.script import read_script
from flopcast.interop.shell.variables import Word
from flopcast.records import replace

WORDS = ("entrypoint", "command", "args")
NAME = re.compile(r"[A-Za-z_]\w*")
DERIVED = (  # names of images that somebody built; the engine's own image, flag and variable of the model
    (re.compile(r"vllm(?!.*/)"), IMAGE, "--model", ""),
    (re.compile(r"(?:tgi|text-generation)(?!.*/)"), "text-generation-inference", "--model-id", "MODEL_ID"),
)


def one_manifest(raw: bytes) -> bytes:
    """Return the only document of a multi-document YAML file that starts an engine; it keeps its line
    numbers.

    >>> one_manifest(b"kind: Secret\\n---\\nimage: vllm/vllm-openai\\n")
    b'\\n\\nimage: vllm/vllm-openai\\n'
    """
    parts = _documents(raw)
    if len([part for part in parts if has_command(part)]) != 1:
        return raw
    return "".join(part if has_command(part) else "\n" * part.count("\n") for part in parts).encode()


def mounted_files(raw: bytes) -> dict[str, bytes]:
    """Return the files of the ConfigMaps in a text of several YAML documents, by their names.

    Files with equal names are left out, because only their volumes distinguish them.

    >>> mounted_files(b"{kind: ConfigMap, data: {a.yaml: 'max_num_seqs: 8'}}\\n---\\nkind: Pod")
    {'a.yaml': b'max_num_seqs: 8'}
    """
    files: list[tuple[str, str]] = []
    for part in _documents(raw):
        if "ConfigMap" not in part:
            continue
        with suppress(SpecError):  # of a template, whose files nothing may need
            one = read_yaml(part.encode(), "").data
            data = inside(one, "data") if inside(one, "kind") == "ConfigMap" else None
            if isinstance(data, dict):
                files += [(str(name), str(text)) for name, text in data.items()]
    names = [name for name, _ in files]
    return {name: text.encode() for name, text in files if names.count(name) == 1}


def _documents(raw: bytes) -> list[str]:
    """Return the texts of the documents of a YAML file."""
    return re.split(r"(?m)^---[ \t]*$", raw.decode("utf-8", errors="replace"))


def containers_of(data: object) -> list[Container]:
    """Return the containers of Compose, Kubernetes, or Helm values; none for any other file."""
    services = data.get("services") if isinstance(data, dict) else None
    if isinstance(services, dict):
        return [
            Container(entry=entry, path=("services", name), replicas=_replicas(entry))
            for name, entry in services.items()
            if isinstance(entry, dict) and entry.keys() & {"image", "build", *WORDS}
        ]
    if not isinstance(data, dict):
        return []
    return stated_containers(data) or (list(_listed(data, (), 1, 0)) if "apiVersion" in data else [])


def _replicas(service: Mapping[str, object]) -> int:
    deploy = service.get("deploy")
    stated = deploy.get("replicas") if isinstance(deploy, dict) else service.get("scale")
    return stated if isinstance(stated, int) and stated > 0 else 1


def _listed(value: object, path: Path, replicas: int, group: int) -> Iterator[Container]:
    """Yield the containers in all `containers` lists of a manifest."""
    if isinstance(value, list):
        for place, inner in enumerate(value):
            yield from _listed(inner, (*path, place), replicas, group)
    elif isinstance(value, dict):
        stated, size = value.get("replicas"), value.get("size")
        replicas = stated if isinstance(stated, int) and stated > 0 else replicas
        if "workerTemplate" in value:
            group = size if isinstance(size, int) else 1
        for key, inner in value.items():
            if key == "workerTemplate" and "leaderTemplate" in value:
                continue  # further nodes of the instance that the leader starts
            entries = inner if key == "containers" and isinstance(inner, list) else ()
            for place, entry in enumerate(entries):
                if isinstance(entry, dict):
                    yield Container(entry=entry, path=(*path, key, place), replicas=replicas, group=group)
            yield from _listed(inner, (*path, key), replicas, group) if not entries else ()


def job_of_containers(
    document: Document, read: ReadText, model: str | None = None, environment: Sequence[str] = ()
) -> Document | None:
    """Return the job of the containers that start an engine; None if no container does.

    Parameters
    ----------
    environment : values of variables that the file takes from outside, "MODEL=llama-3-8b"

    Raises
    ------
    SpecError
        The settings have faults, which are all reported with their lines; or the containers belong to
        several jobs.
    """
    lines: list[tuple[str, int, Container]] = []
    for container in containers_of(document.data):
        lines += [(text, line, container) for text, line in _script(container, document)]
    text = "\n".join(line for line, *_ in lines)
    if not has_command(re.sub(r'["\\\s]+', " ", text)):
        return None
    script = read_script(text, document.name, {}, parsed_values(environment, "--env"))

    def moved(word: Word) -> Word:
        return replace(word, line=lines[min(word.line, len(lines)) - 1][1])

    instances, notes = [], []
    for command in script.commands:
        words = tuple(map(moved, command.words))
        started = started_by(replace(command, words=words, line=words[0].line))
        if started is not None:
            container = lines[min(command.line, len(lines)) - 1][2]
            count = container.replicas
            notes += [container.note] * bool(container.note)
            instance = instance_of(started, document.name, script.file, read, model)
            nodes = whole_number(instance.reader.raw("nnodes")) or 1
            instances.append(replace(instance, replicas=instance.replicas * max(count // max(nodes, 1), 1)))
    return job_of_instances(instances, document.name, notes) if instances else None


def _script(container: Container, document: Document) -> Iterator[tuple[str, int]]:
    """Yield the lines of a script that runs a container, each with its line in the file."""
    entry, path = container.entry, container.path

    def line_of(*keys: str | int) -> int:
        return line_in(document.where((*path, *keys))) or 1

    pairs = [("LWS_GROUP_SIZE", str(container.group))] * (container.group > 0) + list(_variables(entry))
    for name, stated in pairs:
        yield f"export {name}={_quoted(stated)}", line_of(name)
    before = " ".join(f"{name}={_quoted(stated)}" for name, stated in pairs)
    yield f"{before} {_quoted(_image(entry))} \\", line_of("image")
    for key in WORDS:
        value = entry.get(key)
        if isinstance(value, str):
            text = value.replace("\\\n", " ").replace("\n", " ").replace("$$", "$")
            yield f"{text} \\", line_of(key)
        words: Sequence[object] = value if isinstance(value, list) else ()
        for place, word in enumerate(words):
            for number, part in enumerate(f"{_quoted(str(word))} \\".split("\n")):
                yield part, line_of(key, place) + number
    yield "", line_of()


def _image(entry: Mapping[str, object]) -> str:
    """Return a container's image; an image that is derived from an engine's counts as that engine's.

    The name of a derived image contains that of the engine, and the container has the flag or the variable
    that names the engine's model.
    """
    image = str(entry.get("image", "container"))
    words = [word for key in WORDS for word in _listed_words(entry.get(key))]
    if has_command(image):
        return image
    for name, own, flag, variable in DERIVED:
        flags = bool(words) and words[0].startswith("--") and any(word.startswith(flag) for word in words)
        named = not words and variable in dict(_variables(entry))
        if name.search(image) and (flags or named):
            return own
    return image


def _listed_words(value: object) -> list[str]:
    """Return the words of a command, which is a list or a text."""
    return [str(word) for word in value] if isinstance(value, list) else str(value or "").split()


def _variables(entry: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Yield the variables of a container, which are a mapping, or a list of pairs."""
    stated = entry.get("environment", entry.get("env"))
    pairs: list[tuple[object, object]] = list(stated.items()) if isinstance(stated, dict) else []
    listed: Sequence[object] = stated if isinstance(stated, list) else ()
    for one in listed:
        if isinstance(one, str) and "=" in one:
            name, _, value = one.partition("=")
            pairs.append((name, value))
        elif isinstance(one, dict) and one.get("value") is not None:
            pairs.append((one.get("name"), one["value"]))
    for key, stated_value in pairs:
        if NAME.fullmatch(str(key)) and stated_value is not None:
            yield str(key), str(stated_value)


def _quoted(text: str) -> str:
    """Return a word in double quotes, in which variables are expanded."""
    text = re.sub(r"\$\(([A-Za-z_]\w*)\)", r"${\1}", text.replace("$$", "$"))
    return '"' + re.sub(r'([\\"`])', r"\\\1", text) + '"'
