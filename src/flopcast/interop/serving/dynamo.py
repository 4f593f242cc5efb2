"""Manifests of Dynamo: a DynamoGraphDeployment for Kubernetes, as AIConfigurator also writes it.

Answers: which commands do the workers of a manifest run, and how many of each are there?
Elsewhere: the jobs that the commands start (launch.py).

Source: Dynamo documentation, Kubernetes deployment guide
(https://docs.nvidia.com/dynamo/latest/kubernetes-deployment/deployment-guide): each entry of
spec.services has `replicas` and, in extraPodSpec.mainContainer, a `command` with `args`. The flags of a
worker, or its subComponentType, state whether it computes prompts or decodes.
"""

from collections.abc import Iterator

from flopcast.errors import spec_error
from flopcast.files.yaml_text import Document, line_in
from flopcast.interop.serving.deployments import inside
from flopcast.interop.serving.launch import Instance, ReadText, instance_of, job_of_instances, started_by
from flopcast.interop.shell.commands import Command, shell_of
from flopcast.interop.shell.script import read_script
from flopcast.interop.shell.variables import Piece, Word
from flopcast.records import replace

NAME = "dynamo"
DESCRIPTION = "a DynamoGraphDeployment of NVIDIA Dynamo (YAML)"
MANIFEST = "DynamoGraphDeployment"
ROLES = {"prefill": "prefill", "decode": "decode"}


def is_manifest(data: object) -> bool:
    """Return whether plain data is a manifest of Dynamo.

    >>> is_manifest({"kind": "DynamoGraphDeployment", "spec": {"services": {}}})
    True
    """
    return isinstance(data, dict) and data.get("kind") == MANIFEST


def job_of_manifest(document: Document, read: ReadText, model: str | None = None) -> Document:
    """Return the job of a manifest.

    Raises
    ------
    SpecError
        No worker starts a known engine, or the workers' flags have faults, which are all reported with
        their lines.
    """
    instances = list(_instances(document, read, model))
    if not instances:
        allowed = "a service whose command starts vLLM, SGLang or TensorRT-LLM"
        because = "flopcast reads the engine and its settings from the commands of the workers"
        fix = "give a manifest that contains the commands of the workers"
        where = document.where(("spec", "services"))
        raise spec_error("spec.services", None, allowed, because, fix, where, fault="has no engine")
    return job_of_instances(instances, document.name)


def _instances(document: Document, read: ReadText, model: str | None) -> Iterator[Instance]:
    data = document.data if isinstance(document.data, dict) else {}
    services = inside(data, "spec", "services")
    for name, service in services.items() if isinstance(services, dict) else ():
        path = ("spec", "services", name)
        container = inside(service, "extraPodSpec", "mainContainer")
        for command in _commands(container, document, path):
            started = started_by(command)
            if started is None:
                continue
            count = inside(service, "replicas")
            role = ROLES.get(str(inside(service, "subComponentType")), "")
            own = replace(started, replicas=count if isinstance(count, int) else 1, role=role)
            yield instance_of(own, document.name, lambda _: None, read, model)


def _commands(container: object, document: Document, path: tuple[str, ...]) -> Iterator[Command]:
    """Yield the commands of a container; those that a shell runs are read as a script."""
    words: list[Word] = []
    for key in ("command", "args"):
        listed = inside(container, key)
        for place, text in enumerate(listed if isinstance(listed, list) else []):
            where = document.where((*path, "extraPodSpec", "mainContainer", key, place))
            words.append(Word(str(text), line_in(where)))
    if not words:
        return
    line = words[0].line
    if shell_of([(Piece(word.text, word.line),) for word in words]) < 0:
        yield Command(tuple(words), {}, line)
        return
    last = words[-1]
    for command in read_script(last.text, document.name).commands:
        moved = tuple(replace(word, line=word.line + last.line - 1) for word in command.words)
        yield Command(moved, command.environment, command.line + last.line - 1)
