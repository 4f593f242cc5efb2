"""Files and commands of serving engines as jobs, in all supported formats.

Answers: is this text a launch command, a manifest, or a file of settings, and which job does it start?
Elsewhere: each kind (launch.py, dynamo.py, aiconfigurator.py), job files of flopcast and of training
programs (requests/sources.py).
"""

from collections.abc import Mapping, Sequence

from flopcast.files.yaml_text import Document
from flopcast.interop.serving import aiconfigurator
from flopcast.interop.serving.containers import job_of_containers
from flopcast.interop.serving.dynamo import DESCRIPTION, NAME, is_manifest, job_of_manifest
from flopcast.interop.serving.kinds import KINDS, has_command, kind_of_settings
from flopcast.interop.serving.launch import LaunchText, ReadText, job_of_settings, launched

DESCRIPTIONS: Mapping[str, str] = {name: one.description for name, one in KINDS.items()} | {
    NAME: DESCRIPTION,
    aiconfigurator.NAME: aiconfigurator.DESCRIPTION,
}


def serving_command(
    text: LaunchText, read: ReadText, model: str | None = None, kind: str | None = None
) -> Document | None:
    """Return the job if a script or a command starts a serving engine; None for other scripts.

    Raises
    ------
    SpecError
        As for `launch.launched`.
    """
    if not has_command(text.raw.decode("utf-8", errors="replace").replace("\\\n", " ")):
        return None
    return launched(text, read, model, kind if kind in KINDS else None)


def serving_document(
    document: Document,
    read: ReadText,
    kind: str | None = None,
    model: str | None = None,
    environment: Sequence[str] = (),
) -> Document | None:
    """Return the job of a YAML file of a serving engine; None for other files.

    Parameters
    ----------
    kind : str or None
        A name of DESCRIPTIONS; None to recognise the file by its keys.
    environment : sequence of str
        Values of variables that containers take from outside.

    Raises
    ------
    SpecError
        The file has faults, which are all reported, or several engines fit it.
    """
    if is_manifest(document.data) or kind == NAME:
        return job_of_manifest(document, read, model)
    if kind == aiconfigurator.NAME or (kind is None and aiconfigurator.is_experiments(document.data)):
        return aiconfigurator.job_of_experiments(document, model)
    if kind is None and (found := job_of_containers(document, read, model, environment)):
        return found
    kind = kind or kind_of_settings(document)
    return job_of_settings(document, kind, model) if kind else None
