"""Suite files of the catalogue: measured runs with their jobs."""

from flopcast.errors import SpecError
from flopcast.files.validate import build
from flopcast.files.yaml_text import Document
from flopcast.lab.validation.memory import MemorySuite
from flopcast.lab.validation.suite import Suite
from flopcast.library.catalog import document, names, unknown_name
from flopcast.requests.job_files import job_of, load_catalog_job


def load_memory_suite(name: str) -> MemorySuite:
    """Return a suite of measured memory by name, as `load_suite` does."""
    return build(MemorySuite, *_described(name))


def load_suite(name: str) -> Suite:
    """Return a suite by name, its jobs loaded and checked.

    Raises
    ------
    SpecError
        The suite does not exist, or its file has a fault.
    """
    return build(Suite, *_described(name))


def _described(name: str) -> tuple[Document, dict[str, object]]:
    """Return the document of a suite, and its data with jobs instead of their descriptions."""
    if name not in names("suites"):
        raise SpecError([unknown_name("suites", name)])
    suite = document("suites", name)
    data = dict(suite.data) if isinstance(suite.data, dict) else {}
    rows = []
    for row in data.get("rows", []):
        job = row["job"]
        made = load_catalog_job(job) if isinstance(job, str) else job_of(Document(row["id"], job, {}))
        rows.append(row | {"job": made})
    return suite, data | {"rows": rows}
