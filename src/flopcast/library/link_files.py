"""A measured matrix of links from a file: CSV, or YAML or JSON with a list of rows.

Answers: which bandwidths does this file contain, and which lines are wrong?
Elsewhere: the checks of a matrix (spec/link_matrix.py) and of its cluster (spec/rules_speeds.py).

A CSV file has one line for each node that sends and one number for each node that receives, without names.
"""

import csv
from collections.abc import Iterator

from flopcast.errors import Problem, SpecError, collected
from flopcast.files.named_files import ReadFile, read_named
from flopcast.files.yaml_text import Document, decoded, read_yaml
from flopcast.library.edits import merged
from flopcast.spec.cluster import Cluster
from flopcast.spec.link_matrix import MOST_FAULTS, matrix_faults

MOST_BYTES = 20_000_000
YAML_ENDINGS = (".yaml", ".yml", ".json")
FIELD = "links.file"
EXAMPLE = [[0.0, 1.0], [1.0, 0.0]]
Rows = list[list[float]]
Lines = list[int]  # of each row


def with_links(
    data: dict[str, object], document: Document, read: ReadFile
) -> tuple[dict[str, object], list[Problem]]:
    """Return a job with the measured links from the files that the tiers of its cluster name, and faults.

    Parameters
    ----------
    data : a job. If its cluster is not a mapping, the job is returned unchanged
    document : a relative path in a job file begins at the folder of the file, and one on the command line
        at the current folder
    read : returns the bytes of a file, given its path and a limit; at most one byte more than the limit

    Returns
    -------
    job, list of Problem
        A file that cannot be read, or that is no matrix of measured links, is replaced by an example, so
        that the other parts of the cluster are checked too. Every fault has its line.
    """
    problems: list[Problem] = []
    cluster = data.get("cluster")
    tiers = cluster.get("tiers") if isinstance(cluster, dict) else None
    if not isinstance(cluster, dict) or not isinstance(tiers, dict | list):
        return data, []
    numbered = list(enumerate(tiers) if isinstance(tiers, list) else tiers.items())
    for place, tier in numbered:
        links = tier.get("links") if isinstance(tier, dict) else None
        if isinstance(links, dict) and isinstance(links.get("file"), str):
            at = ("cluster", "tiers", int(place) if str(place).isdecimal() else str(place), "links", "file")
            kept: dict[str, object] = {key: links[key] for key in links if key != "file"}
            found: dict[str, object] = {"rows": EXAMPLE, **kept}
            with collected(problems):
                found = {"rows": _read(links["file"], document, at, read), **kept}
            tiers = merged(merged(tiers, {str(place): {"links": None}}), {str(place): {"links": found}})
            cluster = cluster | {"tiers": tiers}
    return data | {"cluster": cluster}, problems


def without_links(cluster: Cluster) -> Cluster:
    """Return a cluster without measured links, whose other parts can then be checked."""
    tiers = [tier.model_copy(update={"links": None}) for tier in cluster.tiers]
    return cluster.model_copy(update={"tiers": tuple(tiers)})


def _read(name: str, document: Document, at: tuple[str | int, ...], read: ReadFile) -> Rows:
    """Return the rows of one file."""
    path, raw = read_named(name, document, at, read, MOST_BYTES)
    rows, lines = _of_yaml(raw, str(path)) if path.suffix in YAML_ENDINGS else _of_csv(raw, str(path))
    problems = [
        Problem(
            FIELD if fault.column < 0 else f"{FIELD}[{fault.row}][{fault.column}]",
            fault.value,
            fault.allowed,
            fault.because,
            fault.fix,
            where=f"{path}:{lines[fault.row] if lines else 1}",
        )
        for _, fault in zip(range(MOST_FAULTS), matrix_faults(rows), strict=False)
    ]
    if problems:
        raise SpecError(problems)
    return rows


def _of_csv(raw: bytes, name: str) -> tuple[Rows, Lines]:
    """Return the rows of a CSV file with their lines; all faults of its cells are raised together."""
    rows, lines, problems = Rows(), Lines(), list[Problem]()
    text = decoded(raw, name).splitlines()
    from flopcast.files.tables import other_separator

    because, fix = other_separator("".join(text[:1]))
    if because:
        raise SpecError([Problem(FIELD, text[0], "numbers between commas", because, fix, f"{name}:1")])
    if text and text[0].strip() and not any(_is_number(cell) for cell in text[0].split(",")):
        because = "the matrix contains only bandwidths, without names of nodes"
        names = not any(_is_number(line.split(",")[0]) for line in text if line.strip())
        fix = "remove line 1 and the names in column 1" if names else "remove line 1"
        raise SpecError([Problem(FIELD, text[0], "numbers between commas", because, fix, f"{name}:1")])
    for line, cells in enumerate(csv.reader(text), 1):
        if any(cell.strip() for cell in cells):
            found = list(_numbers(cells, f"{name}:{line}"))
            problems += [each for each in found if isinstance(each, Problem)]
            rows.append([each for each in found if not isinstance(each, Problem)])
            lines.append(line)
    if problems:
        raise SpecError(problems[:MOST_FAULTS])
    return rows, lines


def _is_number(cell: str) -> bool:
    return any(sign.isdecimal() for sign in cell) and cell.strip()[:1] in "0123456789.+-"


def _numbers(cells: list[object] | list[str], where: str) -> Iterator[float | Problem]:
    """Yield each cell as a number, or the fault of a cell that is none."""
    for column, cell in enumerate(cells):
        try:
            yield float(str(cell))
        except ValueError:
            because = "the matrix has a measured bandwidth for each pair of nodes"
            fix = f"change column {column + 1} to a number"
            yield Problem(FIELD, cell, "a number", because, fix, where=where)


def _of_yaml(raw: bytes, name: str) -> tuple[Rows, Lines]:
    """Return the rows of a YAML or JSON file with their lines."""
    document = read_yaml(raw, name)
    data = document.data
    if not isinstance(data, list) or not all(isinstance(row, list) for row in data):
        allowed, because = "a list of rows, each a list of numbers", "the matrix has a row for each node"
        fix = "change the file to a list of lists"
        raise SpecError([Problem(FIELD, None, allowed, because, fix, f"{name}:1", "is not a matrix")])
    rows, lines, problems = [], [], list[Problem]()
    for number, row in enumerate(data):
        where = document.where((number,))
        found = list(_numbers(row, where))
        problems += [each for each in found if isinstance(each, Problem)]
        rows.append([each for each in found if not isinstance(each, Problem)])
        lines.append(document.lines.get((number,), 1))
    if problems:
        raise SpecError(problems[:MOST_FAULTS])
    return rows, lines
