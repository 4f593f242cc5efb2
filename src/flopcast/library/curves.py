"""Curve files: `catalog/curves/<owner>.json`, read for a prediction, written by calibration.

Answers: which curves does this cluster need, and what do their files contain? Curves that only serving uses
are in separate files, `catalog/curves/serving/<owner>.json`, so that a prediction of training does not
read them. A file holds its axes (log2 of the coordinates), the table of log-efficiency, the launch time,
layout ratios, and its evidence. Numbers have four decimals, and the rounding is far below their error.

Files are text with one curve per line, so that a diff shows which curves a refit has changed. Loading a
file cannot run code.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from flopcast.cost.collectives.formulas import FORMULAS
from flopcast.cost.kernels.classes import class_of
from flopcast.cost.kernels.curve import Curve, CurveEvidence
from flopcast.cost.kernels.curve_book import CurveBook
from flopcast.cost.kernels.curve_conversion import Rates, converted_curve, converted_times, rates_of
from flopcast.dtypes import Counts
from flopcast.library.catalog import device as device_of
from flopcast.library.catalog import folder, names
from flopcast.library.constants import shipped_levels
from flopcast.library.graph_efficiencies import shipped_efficiencies
from flopcast.spec.cluster import Cluster, Device
from flopcast.spec.node_groups import as_cluster
from flopcast.strict_model import cached_results

DECIMALS = 4
MOST_BOOKS = 8  # of serving
SERVING = "serving"  # the folder of curves that only serving uses
NAME = re.compile(r'  {"name":"([^"]+)",')  # begins the line of a curve
Key = tuple[str, str]  # owner and name


class CurvesByKey(Mapping[Key, Curve]):
    """Curves that are read and converted when they are first used.

    A prediction uses a quarter of the curves.

    Examples
    --------
    >>> curves = load_owner("gh200-96gb")
    >>> len(curves), curves["gh200-96gb", "gemm"].name
    (22, 'gemm')
    """

    def __init__(self, makers: Mapping[Key, Callable[[], Curve]]) -> None:
        """Keep the functions that make the curves."""
        self._makers = makers
        self._made: dict[Key, Curve] = {}

    def __getitem__(self, key: Key) -> Curve:
        """Return a curve; raise KeyError if there is none."""
        if key not in self._made:
            self._made[key] = self._makers[key]()
        return self._made[key]

    def __contains__(self, key: object) -> bool:
        """Return whether there is a curve, without making it."""
        return key in self._makers

    def __iter__(self) -> Iterator[Key]:
        """Return the keys in order."""
        return iter(self._makers)

    def __len__(self) -> int:
        """Return the number of curves."""
        return len(self._makers)


def load_book(cluster: Cluster) -> CurveBook:
    """Load the curves of the cluster's device, its relatives and fabrics, and the constants of factors.

    Curves of relatives are converted for this device (cost/kernels/curve_conversion.py).

    An owner without a file has no curves. The book chooses their replacements.
    """
    levels, graphs = shipped_levels(), shipped_efficiencies()
    alone = (as_cluster(cluster, group) for group in cluster.groups if len(cluster.groups) > 1)
    groups = tuple(CurveBook(curves=_curves_for(each), levels=levels, graphs=graphs) for each in alone)
    return CurveBook(curves=_curves_for(cluster), levels=levels, graphs=graphs, groups=groups)


@cached_results(MOST_BOOKS)
def load_serving_book(cluster: Cluster) -> CurveBook:
    """Load the curves of `load_book`, and the curves that only serving uses."""
    return CurveBook(
        curves={**_curves_for(cluster), **_curves_for(cluster, serving=True)}, levels=shipped_levels()
    )


def _curves_for(cluster: Cluster, serving: bool = False) -> CurvesByKey:
    """Return the curves of one kind of files that a cluster may need."""
    fabrics = tuple(tier.fabric for tier in cluster.tiers if tier.fabric)
    return _curves_on(cluster.node.device, fabrics, serving)


@cached_results(64)  # clusters of all sizes share their curves, and so the times of their kernels
def _curves_on(device: Device, fabrics: tuple[str, ...], serving: bool) -> CurvesByKey:
    """Return the curves of one kind of files for a device and some fabrics."""
    owners = (device.curves or device.name, *fabrics)
    sources = [load_owner(owner, serving) for owner in owners]
    for owner in device.relatives:
        sources.append(_lent_times(owner, device, serving))
        sources += [] if serving else [_lent(owner, rates_of(device))]
    return CurvesByKey({key: partial(each.__getitem__, key) for each in reversed(sources) for key in each})


@lru_cache(maxsize=256)
def _lent_times(owner: str, borrower: Device, serving: bool) -> CurvesByKey:
    """Return the curves of kernels of engines of a relative, converted for a device."""

    def converted(key: Key) -> Curve:
        return converted_times(curves[key], device_of(owner), borrower)

    curves = load_owner(owner, serving)
    keys = [key for key in curves if serving or class_of(key[1]).base.serves]
    return CurvesByKey({key: partial(converted, key) for key in keys})


@lru_cache(maxsize=256)
def _lent(owner: str, borrower: Rates) -> CurvesByKey:
    """Return every curve of a relative, converted for a device with these rates."""

    def converted(key: Key) -> Curve:
        return converted_curve(curves[key], lender, borrower)

    curves = load_owner(owner)
    if owner not in names("devices"):
        return curves
    lender = rates_of(device_of(owner))
    return CurvesByKey({key: partial(converted, key) for key in curves})


@lru_cache(maxsize=64)
def load_owner(owner: str, serving: bool = False) -> CurvesByKey:
    """Return every curve of one device or fabric, by (owner, name). There are none without a file.

    With `serving`, the curves also include those that only serving uses.
    """
    file = file_of(owner, serving)
    if file not in names("curves"):  # a job's own device may have any name, even one that no file can have
        return CurvesByKey({})
    lines = (folder("curves") / file).read_text(encoding="utf-8").splitlines()
    found = ((NAME.match(line), line) for line in lines)
    return CurvesByKey({(owner, name[1]): partial(_curve_in, line, owner) for name, line in found if name})


def _curve_in(line: str, owner: str) -> Curve:
    """Return the curve in a line of a file of the catalogue."""
    return curve_of(owner, json.loads(line.rstrip(",")))


def file_of(owner: str, serving: bool = False) -> str:
    """Return the file of an owner's curves in a folder of curves."""
    return f"{SERVING}/{owner}.json" if serving else f"{owner}.json"


def serves(name: str) -> bool:
    """Return whether only serving uses a kernel class or a collective.

    >>> serves("served_all_reduce"), serves("all_reduce"), serves("gated_delta")
    (True, False, False)
    """
    formula = FORMULAS.get(name)
    if formula is not None:
        return formula.serves
    base = class_of(name).base
    return base.serves and not base.also_trains


def read_owner(text: str, owner: str) -> dict[tuple[str, str], Curve]:
    """Return the curves of a file's text, by (owner, name)."""
    return {(owner, entry["name"]): curve_of(owner, entry) for entry in json.loads(text)["curves"]}


def curve_of(owner: str, entry: Mapping[str, Any]) -> Curve:
    """Return a curve from its JSON object. The nesting of the table gives its shape.

    Parameters
    ----------
    owner : str
        Device or fabric to which the file belongs.
    entry : mapping
        `log2_axes` has one list of nodes for each coordinate, `log_efficiency` the natural logarithms at
        their combinations.
    """
    return Curve(
        name=entry["name"],
        owner=owner,
        axes=tuple(np.array(axis) for axis in entry["log2_axes"]),
        table=np.array(entry["log_efficiency"]),
        launch_s=entry["launch_s"],
        evidence=CurveEvidence(**entry["evidence"]),
        layout_ratio=entry.get("layout_ratio", {}),
        terms=entry.get("terms", {}),
    )


def write_curves(place: Path, owner: str, curves: list[Curve]) -> None:
    """Write the curves of one owner into a folder of curves: one file for training, one for serving."""
    for serving in (False, True):
        mine = [curve for curve in curves if serves(curve.name) is serving]
        if mine:
            (place / file_of(owner, serving)).parent.mkdir(parents=True, exist_ok=True)
            write_owner(place / file_of(owner, serving), owner, mine)


def read_curves(place: Path, owner: str) -> dict[str, Curve]:
    """Return the curves that `write_curves` wrote, by name."""
    paths = [place / file_of(owner, serving) for serving in (False, True)]
    texts = [path.read_text(encoding="utf-8") for path in paths if path.is_file()]
    return {name: curve for text in texts for (_, name), curve in read_owner(text, owner).items()}


def write_owner(path: Path, owner: str, curves: list[Curve]) -> None:
    """Write all curves of one owner. Equal curves give equal bytes.

    If the process is interrupted, the old file stays complete.
    """
    entries = [entry_of(curve) for curve in sorted(curves, key=lambda c: c.name)]
    lines = ",\n  ".join(json.dumps(entry, separators=(",", ":")) for entry in entries)
    text = f'{{"format_version": 1, "owner": {json.dumps(owner)}, "curves": [\n  {lines}\n]}}\n'
    from flopcast.files.atomic_write import write_whole

    write_whole(path, text)


def entry_of(curve: Curve) -> dict[str, object]:
    """Return a curve as a JSON object, which `curve_of` reads, rounded to DECIMALS.

    The launch time comes from a data sheet and is not rounded. A curve without layout ratios or terms has
    no such key.
    """
    evidence = {name: getattr(curve.evidence, name) for name in CurveEvidence.__dataclass_fields__}
    for number in ("relative_error", "log_sigma_factor"):
        evidence[number] = round(getattr(curve.evidence, number), DECIMALS)
    entry: dict[str, object] = {
        "name": curve.name,
        "launch_s": curve.launch_s,
        "log2_axes": [_rounded(axis) for axis in curve.axes],
        "log_efficiency": _rounded(curve.table),
        "evidence": evidence,
    }
    for key, shares in (("layout_ratio", curve.layout_ratio), ("terms", curve.terms)):
        if shares:
            entry[key] = {name: round(share, DECIMALS) for name, share in shares.items()}
    return entry


def _rounded(array: Counts) -> object:
    """Return nested lists of an array of any shape."""
    values: object = np.round(array, DECIMALS).tolist()
    return values
