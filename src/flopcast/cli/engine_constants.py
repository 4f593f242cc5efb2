"""`flopcast calibrate constants` with tables of serving, which fits the constants of engines again.

Elsewhere: the fit (lab/serving_runs/fit.py), constants of training (calibrate_constants.py).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from flopcast.errors import spec_error
from flopcast.units import Number

if TYPE_CHECKING:
    from flopcast.spec.iteration_cost import IterationCost


def fitted_engines(
    paths: Sequence[str], others: Sequence[str], every: int, out: Path | None
) -> "Mapping[str, IterationCost]":
    """Return the constants of each engine, fitted to a regular subset of the rows of serving tables.

    Raises
    ------
    SpecError
        Tables of another kind, or an output file, are given. The constants of each engine are in its file.
    """
    from flopcast.lab.measured_tables import SERVING
    from flopcast.lab.serving_runs.score import fitted_constants

    if others:
        because = "the constants of serving engines are fitted separately"
        fix = "fit the constants to this table in a separate command"
        raise spec_error("--runs", others[0], "only tables of serving measurements", because, fix)
    if out is not None:
        because = "the constants of a serving engine are stored in catalog/engines/NAME.yaml"
        fix = "remove --out, and copy the printed constants into these files"
        raise spec_error("--out", str(out), "no value for tables of serving measurements", because, fix)
    return fitted_constants([run for path in paths for run in SERVING.read(Path(path))[::every]])


def engines_as_json(fitted: "Mapping[str, IterationCost]") -> dict[str, object]:
    """Return the constants as JSON data."""
    return {"format_version": 1, "engines": {name: cost.model_dump() for name, cost in fitted.items()}}


def engines_as_text(fitted: "Mapping[str, IterationCost]") -> str:
    """Return a line for each engine, in the form of its file in the catalogue."""
    if not fitted:
        return "No constant was fitted, because these tables have too few suitable rows."
    return "\n".join(f"{name}\n  {_line(cost)}" for name, cost in sorted(fitted.items()))


def _line(cost: "IterationCost") -> str:
    numbers = ", ".join(f"{name}: {_text(name, value)}" for name, value in cost.model_dump().items())
    return f"iteration: {{{numbers}}}"


def _text(name: str, number: Number) -> str:
    return f"{number * 1e3:.4g} ms" if name.endswith("_s") else f"{number:g}"
