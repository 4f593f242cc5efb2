"""Files of containers that start an engine: of Docker Compose, and manifests of Kubernetes.

Answers: which commands do the containers of a file run, with which variables, and how many of each?
Elsewhere: what the commands start (launch.py), manifests of Dynamo (dynamo.py).

The containers become one shell script, because both formats expand variables: `${NAME:-value}` in Compose,
`$(NAME)` in Kubernetes. An image of an engine starts it without a command.

References
----------
Compose specification (https://docs.docker.com/reference/compose-file/): services, `entrypoint`, `command`,
`environment`, `deploy.replicas`. Kubernetes, "Define a Command and Arguments for a Container": `command`,
`args`, `env`; `replicas` of a Deployment or StatefulSet.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

from flopcast.files.yaml_text import Document, Path, line_in
from flopcast.interop.serving.kinds import has_command
from flopcast.interop.serving.launch import ReadText, instance_of, job_of_instances, started_by
from flopcast.interop.shell.parameters import parsed_values
from flopcast.interop.shell.script import read_script
from flopcast.interop.shell.variables import Word
from flopcast.records import dataclass, replace

WORDS = ("entrypoint", "command", "args")
NAME = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Container:
    """A container: its entry in the file, the path of it, and how many of it run."""

    entry: Mapping[str, object]
    path: Path
    replicas: int = 1


def one_manifest(raw: bytes) -> bytes:
    """Return the only part of a file of several YAML documents that starts an engine, on its lines.

    >>> one_manifest(b"kind: Secret\\n---\\nimage: vllm/vllm-openai\\n")
    b'\\n\\nimage: vllm/vllm-openai\\n'
    """
    text = raw.decode("utf-8", errors="replace")
    parts = re.split(r"(?m)^---[ \t]*$", text)
    if len([part for part in parts if has_command(part)]) != 1:
        return raw
    return "".join(part if has_command(part) else "\n" * part.count("\n") for part in parts).encode()


def containers_of(data: object) -> list[Container]:
    """Return the containers of a file of Compose or Kubernetes; none of any other file."""
    services = data.get("services") if isinstance(data, dict) else None
    if isinstance(services, dict):
        return [
            Container(entry=entry, path=("services", name), replicas=_replicas(entry))
            for name, entry in services.items()
            if isinstance(entry, dict) and entry.keys() & {"image", "build", *WORDS}
        ]
    return list(_listed(data, (), 1)) if isinstance(data, dict) and "apiVersion" in data else []


def _replicas(service: Mapping[str, object]) -> int:
    deploy = service.get("deploy")
    stated = deploy.get("replicas") if isinstance(deploy, dict) else service.get("scale")
    return stated if isinstance(stated, int) and stated > 0 else 1


def _listed(value: object, path: Path, replicas: int) -> Iterator[Container]:
    """Yield the containers of all lists `containers` inside a manifest."""
    if isinstance(value, list):
        for place, inner in enumerate(value):
            yield from _listed(inner, (*path, place), replicas)
    elif isinstance(value, dict):
        stated = value.get("replicas")
        replicas = stated if isinstance(stated, int) and stated > 0 else replicas
        for key, inner in value.items():
            entries = inner if key == "containers" and isinstance(inner, list) else ()
            for place, entry in enumerate(entries):
                if isinstance(entry, dict):
                    yield Container(entry=entry, path=(*path, key, place), replicas=replicas)
            yield from _listed(inner, (*path, key), replicas) if not entries else ()


def job_of_containers(
    document: Document, read: ReadText, model: str | None = None, environment: Sequence[str] = ()
) -> Document | None:
    """Return the job of the containers that start an engine; None if none does.

    Parameters
    ----------
    environment : values of variables that the file takes from outside, "MODEL=llama-3-8b"

    Raises
    ------
    SpecError
        Every fault of the settings, each with its line; or the containers are not those of one job.
    """
    lines: list[tuple[str, int, Container]] = []
    for container in containers_of(document.data):
        lines += [(text, line, container) for text, line in _script(container, document)]
    text = "\n".join(line for line, *_ in lines)
    if not has_command(text):
        return None
    script = read_script(text, document.name, {}, parsed_values(environment, "--env"))

    def moved(word: Word) -> Word:
        return replace(word, line=lines[min(word.line, len(lines)) - 1][1])

    instances = []
    for command in script.commands:
        words = tuple(map(moved, command.words))
        started = started_by(replace(command, words=words, line=words[0].line))
        if started is not None:
            count = lines[min(command.line, len(lines)) - 1][2].replicas
            started = replace(started, replicas=count)
            instances.append(instance_of(started, document.name, script.file, read, model))
    return job_of_instances(instances, document.name) if instances else None


def _script(container: Container, document: Document) -> Iterator[tuple[str, int]]:
    """Yield the lines of a script that runs a container, each with its line in the file."""
    entry, path = container.entry, container.path

    def line_of(*keys: str | int) -> int:
        return line_in(document.where((*path, *keys))) or 1

    pairs = list(_variables(entry))
    for name, stated in pairs:
        yield f"export {name}={_quoted(stated)}", line_of(name)
    before = " ".join(f"{name}={_quoted(stated)}" for name, stated in pairs)
    yield f"{before} {_quoted(str(entry.get('image', 'container')))} \\", line_of("image")
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
