"""The rows of measured collectives as messages on a fabric.

Answers: which rows belong to which fabric and tier, which rows are broken, and in which unit is a size?
Elsewhere: the tables (collectives.yaml), expressions over columns (row_expressions.py), fitting
(curve_fit.py).

Every source defines a message's size differently. Here all sizes are converted to the definition of
operators/messages.py: the array on every rank (all-reduce), the gathered result (all-gather), the full
input of one rank (reduce-scatter), the sent data (send-receive). A size that is too large by a factor of
n appears as a bus bandwidth that no link has.

The all-reduce of vLLM alone takes up to three times as long from the size at which it runs another kernel
(`SWITCHING`), so its rows are not smoothed.
"""

from collections.abc import Callable, Mapping
from itertools import product
from typing import Any

import numpy as np

from flopcast.dtypes import Counts, Floats
from flopcast.files.package_table import read_table
from flopcast.lab.measure.row_expressions import Columns, evaluated
from flopcast.records import Record

# By ranks, the bytes from which vLLM's all-reduce runs another kernel: two stages instead of one that reads
# all parts (csrc/custom_all_reduce.cuh), and from 1 MiB on Blackwell, multicast memory
# (vllm/distributed/device_communicators/all_reduce_utils.py).
SWITCHING = {"custom_all_reduce": {4: (2**19,), 8: (2**18, 2**20)}}


class FabricFile(Record, eq=False, kw_only=False):
    """The rows of one file on one fabric; sizes follow the definition of operators/messages.py.

    The functions take the file's columns and return arrays of shape (rows,): `size_bytes` and `seconds`
    of each message, `inside` and `nodes` of its group, and `keep`, which marks rows of this tier and
    collective. `cluster` and `tier` identify the bandwidth and latency to which the efficiencies refer.
    """

    fabric: str
    cluster: str  # whose tier the fabric is
    tier: str
    collective: str
    path: str  # under the data folder
    keep: Callable[[Columns], np.ndarray]
    size_bytes: Callable[[Columns], Floats]
    inside: Callable[[Columns], Counts]
    nodes: Callable[[Columns], Counts]
    seconds: Callable[[Columns], Floats]


USUAL = {  # expressions over the columns of aiconfigurator's tables for one node
    "size_bytes": "num_elements * 2",  # dtype half
    "inside": "num_gpus",
    "nodes": "1",
    "seconds": "latency_ms * 1e-3",
}


def fabric_files(group: str) -> tuple[FabricFile, ...]:
    """Return the files of collectives.yaml in a group: "fabrics", "with_latency" or "without_latency".

    An entry stands for one file for each combination of the rows of its lists in `each`. A text in `each`
    is the name of a list. A row has keys that an entry needs, and words that replace their names in braces
    in the texts of the entry. The keys are those of FabricFile, with expressions for its functions. `rows`
    selects the rows. If `fastest` is true, only the shortest time counts for each size and number of ranks.
    """
    table = read_table(__package__, "collectives.yaml")
    return tuple(
        _file(USUAL | entry | {key: word for row in rows for key, word in row.items()})
        for entry in table[group]
        for rows in product(*(table[each] if isinstance(each, str) else each for each in entry["each"]))
    )


def _file(words: Mapping[str, Any]) -> FabricFile:
    def value(key: str) -> Callable[[Columns], Floats]:
        text = words[key].format_map(words) if isinstance(words[key], str) else str(words[key])
        return lambda r: np.broadcast_to(evaluated(text, r, {}), (len(next(iter(r.values()))),))

    belongs = value("rows")
    made: dict[str, Any] = {key: words[key] for key in ("fabric", "cluster", "tier", "collective")}
    made |= {key: value(key) for key in USUAL}
    keep = (lambda r: _fastest(r, belongs(r))) if words.get("fastest") else belongs
    return FabricFile(path=words["path"].format_map(words), keep=keep, **made)


def _fastest(r: Columns, mine: np.ndarray) -> np.ndarray:
    """Return those of some rows that are the fastest for their size and number of ranks."""
    cases = np.stack([r["num_gpus"], r["num_elements"]])
    _, case = np.unique(cases, axis=1, return_inverse=True)
    least_ms = np.full(case.max() + 1, np.inf)
    np.minimum.at(least_ms, case.ravel()[mine], r["latency_ms"][mine])
    return np.asarray(mine & (r["latency_ms"] <= least_ms[case.ravel()]))


FABRICS, WITH_LATENCY, WITHOUT_LATENCY = map(fabric_files, ("fabrics", "with_latency", "without_latency"))
