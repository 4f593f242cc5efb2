"""Configurations of other programs: files of the folder tests/interop/foreign/, small texts, faults made in
them."""

from dataclasses import replace
from pathlib import Path

from flopcast.errors import problems_of
from flopcast.requests.job_files import job_of
from flopcast.requests.job_request import JobRequest
from flopcast.requests.resolve import resolve
from flopcast.requests.sources import source_of

FOREIGN = Path(__file__).parent / "foreign"


def files():
    """Every file as "format/name"."""
    return sorted(f"{path.parent.name}/{path.name}" for path in FOREIGN.glob("*/*"))


def job_in(path, cluster="dgx-h100:1", **said):
    """The checked job of a file on a cluster."""
    return resolve(JobRequest(files=(str(path),), **{"cluster": cluster} | said))


def faults_in(path, **said):
    """Line and field of every fault of a file, or of what the command line says beside it."""
    found = problems_of(lambda: job_in(path, **said))
    return [(int(p.where.rpartition(":")[2]), p.field) for p in found]


def data_of(text, name, devices=8, **said):
    """What a text says of a job, without its cluster."""
    return source_of(text.encode(), name, JobRequest(gpus=devices, **said)).document.data


def job_from_text(text, name, devices=8, cluster="dgx-h100"):
    """The checked job of a text on a cluster with as many devices."""
    document = source_of(text.encode(), name, JobRequest(gpus=devices)).document
    named = document.data | {"cluster": f"{cluster}:{max(devices // 8, 1)}"}
    return job_of(replace(document, data=named))


def told(text, name, devices=8, **said):
    """Every fault of a text by itself."""
    return tuple(problems_of(lambda: source_of(text.encode(), name, JobRequest(gpus=devices, **said))))


def rows(table):
    """Lines of a text as tuples, their parts between "->"."""
    return [tuple(part.strip() for part in line.split("->")) for line in table.strip().splitlines()]


def replaced(text, old, new):
    """The text with its one `old` replaced, and the line where that stands."""
    assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times"
    return text.replace(old, new), text[: text.index(old)].count("\n") + 1
