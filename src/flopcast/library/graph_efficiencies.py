"""Fitted efficiencies of kernels of graphs: `catalog/graphs/efficiencies.json`.

Answers: which numbers does each kind of software use, and on which tables were they fitted?
Elsewhere: what a number is (cost/graph_kernels/), the fit (lab/graph_runs/fit.py). Every number was fitted
on whole steps, so all of them are constants: `--no-constants` uses priors in their place.
"""

import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

import numpy as np

from flopcast.cost.graph_kernels.efficiencies import Efficiencies
from flopcast.cost.graph_kernels.efficiency import number_names, prior_numbers
from flopcast.files.atomic_write import write_whole
from flopcast.library.catalog import folder

NAME = "efficiencies.json"
FORMAT_VERSION = 1
SMALLEST = 0.0005  # of a logarithm: smaller differences from the prior are not written


@lru_cache(maxsize=1)
def shipped_efficiencies() -> Mapping[str, Efficiencies]:
    """Return the numbers of the catalogue, by kind of software."""
    place = folder("graphs") / NAME
    return read(place.read_text(encoding="utf-8")) if place.is_file() else {}


def read(text: str) -> dict[str, Efficiencies]:
    """Return the numbers of a file's text; those that it does not list have their prior.

    Returns
    -------
    dict of Efficiencies
        By kind of software, such as eager or compiled PyTorch. Numbers are logarithms of efficiencies in
        the order of `number_names`.
    """
    places = {name: place for place, name in enumerate(number_names())}
    found: dict[str, Efficiencies] = {}
    for kind, entry in json.loads(text)["efficiencies"].items():
        numbers = prior_numbers().copy()
        for name, value in entry["numbers"].items():
            numbers[places[name]] = value
        found[kind] = Efficiencies(
            numbers=numbers,
            levels={name: (compute, memory) for name, (compute, memory) in entry["levels"].items()},
            log_sigma_factor=entry["log_sigma_factor"],
            other_device_log_sigma_factor=entry["other_device_log_sigma_factor"],
            sources=tuple(entry["sources"]),
            rows=entry["rows"],
            host_s=entry.get("host_s", 0.0),
            hop_s=entry.get("hop_s", 0.0),
            call_s=entry.get("call_s", 0.0),
        )
    return found


def write(path: Path, found: Mapping[str, Efficiencies]) -> None:
    """Write all numbers that differ from their prior, one kind of software a line.

    Numbers are rounded to three decimals, which is 0.1 % of a time.
    """
    prior = prior_numbers()
    kinds = []
    for kind, each in found.items():
        differs = np.abs(each.numbers - prior) > SMALLEST
        names = [name for name, chosen in zip(number_names(), differs, strict=True) if chosen]
        entry = {
            "numbers": dict(zip(names, np.round(each.numbers[differs], 3).tolist(), strict=True)),
            "levels": {name: [round(value, 3) for value in pair] for name, pair in each.levels.items()},
            "log_sigma_factor": each.log_sigma_factor,
            "other_device_log_sigma_factor": each.other_device_log_sigma_factor,
            "sources": list(each.sources),
            "rows": each.rows,
        }
        by_hand = {"host_s": each.host_s, "hop_s": each.hop_s, "call_s": each.call_s}
        entry |= {name: value for name, value in by_hand.items() if value}
        kinds.append(f"{json.dumps(kind)}: {json.dumps(entry)}")
    lines = ",\n  ".join(kinds)
    write_whole(path, f'{{"format_version": {FORMAT_VERSION}, "efficiencies": {{\n  {lines}\n}}}}\n')
