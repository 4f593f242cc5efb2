"""Numbers of the catalogue that were fitted on whole runs, by their sources.

Answers: which numbers of stacks, engines, devices, hosts, clusters and sites were fitted, on which runs?
Elsewhere: constants, which can be fitted again without the predicted runs
(lab/calibration/constant_fit.py).
"""

from collections.abc import Iterator

from flopcast.library import catalog
from flopcast.records import Record

KINDS = ("stacks", "engines", "devices", "hosts", "clusters", "sites")


class Origin(Record):
    """A source of the catalogue.

    Attributes
    ----------
    where : str
        Kind and name of the entry, such as "engines/vllm".
    covers : str
        Fields for which it is the source; "all" for a whole entry.
    title : str
    fitted_on : tuple of str
        Names of the runs on which these numbers were fitted; empty for data sheets and measurements.
    """

    where: str
    covers: str
    title: str
    fitted_on: tuple[str, ...]


def origins() -> Iterator[Origin]:
    """Yield every source of the numbers of these kinds."""
    for kind in KINDS:
        for name in catalog.names(kind):
            data = catalog.document(kind, name).mapping
            base = data.get("base", "") if kind in catalog.ENTRIES_WITH_BASES else ""
            inherited = catalog.document(kind, base).mapping["source"] if base else []
            for entry in data.get("source", []):
                if entry in inherited:
                    continue
                yield Origin(
                    where=f"{kind}/{name}",
                    covers=entry.get("covers", "all"),
                    title=entry["title"],
                    fitted_on=tuple(entry.get("fitted_on", ())),
                )


def fitted_numbers() -> tuple[Origin, ...]:
    """Return the sources that name whole runs."""
    return tuple(origin for origin in origins() if origin.fitted_on)
