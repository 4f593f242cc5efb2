"""Suite files of the catalogue: measured runs with their jobs."""

from flopcast.errors import SpecError
from flopcast.io.catalog import document, names, unknown_name
from flopcast.io.jobs import job_of, load_catalog_job
from flopcast.io.validate import build
from flopcast.io.yaml_text import Document
from flopcast.validation.suite import Suite


def load_suite(name: str) -> Suite:
    """A suite by name, its jobs loaded and checked.

    Raises
    ------
    SpecError
        No such suite, or a fault in its file.
    """
    if name not in names("suites"):
        raise SpecError([unknown_name("suites", name, "--suite")])
    found = document("suites", name)
    data = dict(found.data) if isinstance(found.data, dict) else {}
    rows = []
    for row in data.get("rows", []):
        job = row["job"]
        made = load_catalog_job(job) if isinstance(job, str) else job_of(Document(row["id"], job, {}))
        rows.append(row | {"job": made})
    return build(Suite, found, data | {"rows": rows})
