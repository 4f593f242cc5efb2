"""Fitted constants: `catalog/constants/*.json`, read for a prediction, written by `calibrate constants`.

Answers: which levels do predictions use, to which runs were they fitted, and how uncertain are they? The
constants of `runs.json` are fitted to training runs, those of `sites.json` to the residuals of training
runs that are predicted with constants of other sources, those of `offload.json` to runs with states outside
the devices, and those of `checkpoints.json` to published checkpoints (lab/saving_runs.py). The constants of
`chosen.json` were chosen by hand, because no table has such runs. Each constant has a line of its own, so
that a diff shows which constants a fit has changed.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any

from flopcast.cost.constant_transfer import FittedLevel
from flopcast.cost.constants import Constant, Fitted, SiteResiduals
from flopcast.files.package_table import read_table
from flopcast.library.catalog import folder

FORMAT_VERSION = 1
NAME = "runs.json"
OTHERS = ("sites.json", "offload.json", "checkpoints.json", "chosen.json")


@lru_cache(maxsize=1)
def shipped() -> Fitted:
    """Return the constants of all files of the package. There are none if there is no file."""
    found = [_of_file(name) for name in (NAME, *OTHERS)]
    return Fitted(
        constants=tuple(constant for each in found for constant in each.constants),
        noise_log_sigmas={name: sigma for each in found for name, sigma in each.noise_log_sigmas.items()},
        sites=tuple(site for each in found for site in each.sites),
    )


def meaning_of(name: str) -> str:
    """Return the meaning of a constant, or "" if its kind is unknown.

    >>> meaning_of("host_updates[deepspeed]")[:34]
    'time of optimizer updates on the h'
    """
    return _meanings().get(name.partition("[")[0], "")


@lru_cache(maxsize=1)
def _meanings() -> Mapping[str, str]:
    return read_table("flopcast", "catalog/constants/meanings.yaml")


@lru_cache(maxsize=1)
def levels_of_other_runs() -> Mapping[str, FittedLevel]:
    """Return the levels that no table of training runs teaches. Callers must not change the mapping."""
    return {name: level for other in OTHERS for name, level in _of_file(other).levels().items()}


def _of_file(name: str) -> Fitted:
    place = folder("constants") / name
    return read(place.read_text(encoding="utf-8")) if place.is_file() else Fitted((), {})


@lru_cache(maxsize=1)
def shipped_levels() -> Mapping[str, FittedLevel]:
    """Return the catalogue's constants as predictions use them. Callers must not change the mapping."""
    return shipped().levels()


def read(text: str) -> Fitted:
    """Return the constants of a file's text.

    Parameters
    ----------
    text : str
        JSON as `write` lays it out.

    Returns
    -------
    Fitted
        `seen` of a constant lists the contexts (such as devices or frameworks) in which runs support it.
    """
    data = json.loads(text)
    constants = tuple(Constant(**_frozen(entry)) for entry in data["constants"])
    sites = tuple(SiteResiduals(**_frozen(site)) for site in data.get("sites", ()))
    return Fitted(constants=constants, noise_log_sigmas=data["noise_log_sigmas"], sites=sites)


def _frozen(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry of JSON with tuples for its lists, and for the lists of the mappings in it."""
    frozen = {name: tuple(value) if isinstance(value, list) else value for name, value in entry.items()}
    return {name: _frozen(value) if isinstance(value, dict) else value for name, value in frozen.items()}


def write(path: Path, fitted: Fitted) -> None:
    """Write all constants. Equal constants give equal bytes.

    Constants are sorted by name and noise is rounded to four decimals. The file is replaced only after all
    data are written, so that an interrupt leaves the old file.
    """
    by_name = sorted(fitted.constants, key=lambda constant: constant.name)
    lines = ",\n  ".join(json.dumps(asdict(constant)) for constant in by_name)
    noise = json.dumps({name: round(value, 4) for name, value in fitted.noise_log_sigmas.items()})
    head = f'"format_version": {FORMAT_VERSION}, "noise_log_sigmas": {noise}'
    sites = ",\n  ".join(json.dumps(asdict(site)) for site in fitted.sites)
    more = f', "sites": [\n  {sites}\n]' if sites else ""
    from flopcast.files.atomic_write import write_whole

    write_whole(path, f'{{{head}, "constants": [\n  {lines}\n]{more}}}\n')
