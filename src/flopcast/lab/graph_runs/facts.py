"""Facts about models that are not decoders: the kernels of a sample, counted from their code.

Answers: which operators, and of which sizes, does a model run for one sample?
Elsewhere: how software runs them (kernels.py), the script that counts them (tests/timm_facts.py).

A file lists each distinct operator once, in tables by kind; models refer to them by position, with a count.
"""

import gzip
import json
from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np

from flopcast.dtypes import Counts, Integers
from flopcast.files.package_table import read_table
from flopcast.library.catalog import folder
from flopcast.records import Record
from flopcast.units import Number

TIMM = "timm.json.gz"
KINDS: Mapping[str, Sequence[str]] = {  # columns of each kind
    kind: columns.split() for kind, columns in read_table(__package__, "names.yaml")["columns"].items()
}


class ModelFacts(Record, eq=False):
    """One model at one size of images: its parameters, its tensors of weights, and its operators.

    `eager` and `fused` hold positions and counts of operators: each operator is one kernel (eager), or a
    compiler fused several operators to a kernel (fused).
    """

    parameters: Number
    weights: int
    eager: tuple[Integers, Counts]
    fused: tuple[Integers, Counts]


class GraphFacts(Record, eq=False):
    """All facts of a file: tables by kind, the position of each table's first row, models by name."""

    tables: Mapping[str, Counts]
    first: Mapping[str, int]
    operators: tuple[str, ...]  # of passes
    models: Mapping[str, ModelFacts]

    def own(self, kind: str, positions: Integers) -> Integers:
        """Return which of the positions are of one kind."""
        first = self.first[kind]
        return np.flatnonzero((positions >= first) & (positions < first + len(self.tables[kind])))


def facts_of(data: Mapping[str, object]) -> GraphFacts:
    """Return the facts of a file's JSON.

    Parameters
    ----------
    data : mapping
        One list of rows for each kind of operator, names of memory-bound operators, and for each model its
        counts and pairs of (row, number of calls), for eager and for fused execution.
    """
    tables: dict[str, Counts] = {}
    first: dict[str, int] = {}
    position = 0
    for kind, columns in KINDS.items():
        rows = np.array(data[kind], dtype=float).reshape(-1, len(columns))
        tables[kind], first[kind] = rows, position
        position += len(rows)
    listed: Mapping[str, list[list[float]]] = data["models"]  # type: ignore[assignment]
    models = {
        name: ModelFacts(
            parameters=counts[0], weights=int(counts[1]), eager=_pairs(eager), fused=_pairs(fused)
        )
        for name, (counts, eager, fused) in listed.items()
    }
    operators: list[str] = data["operators"]  # type: ignore[assignment]
    return GraphFacts(tables=tables, first=first, operators=tuple(operators), models=models)


def _pairs(flat: list[float]) -> tuple[Integers, Counts]:
    return np.array(flat[::2], dtype=np.intp), np.array(flat[1::2], dtype=float)


@lru_cache(maxsize=1)
def timm_facts() -> GraphFacts:
    """Return the facts of timm's models, by name and size: "resnet50@224"."""
    return facts_of(json.loads(gzip.decompress((folder("graphs") / TIMM).read_bytes())))
