"""Fitted efficiencies of kernels of graphs: `catalog/graphs/efficiencies.json`.

Answers: which numbers does each kind of software use, and on which tables were they fitted?
Elsewhere: what a number is (cost/graph_kernels/), the fit (lab/graph_runs/fit.py). Every number was fitted
on whole steps, so all of them are constants: `--no-constants` uses priors in their place.
"""

import json
from collections.abc import Mapping
from functools import lru_cache

from flopcast.cost.graph_kernels.efficiencies import Efficiencies
from flopcast.cost.graph_kernels.efficiency import number_names, prior_numbers
from flopcast.library.catalog import folder

NAME = "efficiencies.json"


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
