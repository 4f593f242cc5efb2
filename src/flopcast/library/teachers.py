"""Teachers of models: a name of the catalogue, or a base with changes, instead of a description.

Elsewhere: the fields of a teacher (spec/model.py), all other names of a job (requests/job_files.py).
"""

from flopcast.errors import SpecError
from flopcast.files.yaml_text import Document, Path
from flopcast.library import catalog
from flopcast.library.edits import merged


def with_teacher(document: Document, data: object, path: Path) -> object:
    """Return the mapping of a model with the description of its teacher in place of a name.

    Parameters
    ----------
    document, path : the document, and the path of the mapping in it

    Raises
    ------
    SpecError
        The catalogue has no such model.

    Examples
    --------
    >>> made = with_teacher(Document("job.yaml", {}, {}), {"teacher": "llama-3-70b"}, ("model",))
    >>> made["teacher"]["hidden"]
    8192
    """
    if not isinstance(data, dict):
        return data
    written = data.get("teacher")
    name = written.get("base") if isinstance(written, dict) else written
    if not isinstance(name, str):
        return data
    known, at = catalog.known("models", name), (*path, "teacher")
    if known is None:
        raise SpecError([catalog.unknown_name("models", name, ".".join(map(str, at)), document.where(at))])
    described = catalog.document("models", known).data
    if isinstance(written, dict):
        described = merged(described, {key: value for key, value in written.items() if key != "base"})
    return data | {"teacher": {"name": known} | (described if isinstance(described, dict) else {})}
