"""`flopcast validate --runs` with tables whose columns are measured quantities.

They hold serving, states outside the devices, models that are not decoders of tokens, or fused products.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from flopcast.cli.options import print_json
from flopcast.cli.validate_options import Judging
from flopcast.errors import spec_error
from flopcast.records import dataclass

if TYPE_CHECKING:
    from flopcast.lab.scores import Scores

DEVICE_WORDS: Mapping[str, Literal["catalogue", "device", "none"]] = {
    "catalogue": "catalogue",
    "generations": "device",
    "none": "none",
}
"""Names of constants: those of the options → those of the scores, which call a generation a device."""


def print_measured(paths: Sequence[str], judging: Judging, wants_json: bool) -> bool:
    """Print the tables of one of these kinds beside their predictions; return whether there are any.

    Raises
    ------
    SpecError
        Tables of several kinds are given together, or an option does not apply to theirs.
    """
    from flopcast.lab.fused_products import is_table_of_fused_products
    from flopcast.lab.graph_runs.tables import is_graph_table
    from flopcast.lab.offload_runs.tables import is_offload_table
    from flopcast.lab.serving_runs.tables import is_serving_table

    kinds = (
        (is_serving_table, partial(print_by_model_and_device, table=SERVING)),
        (is_offload_table, print_offload),
        (is_graph_table, partial(print_by_model_and_device, table=GRAPHS)),
        (is_table_of_fused_products, print_fused_products),
    )
    for is_table, print_table in kinds:
        if own := [path for path in paths if is_table(Path(path))]:
            print_table(own, [path for path in paths if path not in own], judging, wants_json)
            return True
    return False


def print_by_model_and_device(
    paths: Sequence[str], others: Sequence[str], judging: Judging, wants_json: bool, table: "_Fitted"
) -> None:
    """Print measured runs beside predictions whose constants are fitted by model and by device.

    Raises
    ------
    SpecError
        Tables of another kind are given too, or the options leave a source out.
    """
    allowed = "--leave-one-model-out, --leave-one-generation-out or --no-constants"
    because = f"only a {table.model} or a device can be left out of the fit, and --report is not supported"
    _check(paths, others, judging, (table.kind, *DEVICE_WORDS, "models"), allowed, because)
    _print(table.scores(paths, judging), wants_json)


def _serving_scores(paths: Sequence[str], judging: Judging) -> "Scores":
    """Return predictions of measured runs of serving engines, and their errors."""
    from flopcast.lab.serving_runs.score import score_runs
    from flopcast.lab.serving_runs.tables import read_serving_runs

    runs = [run for path in paths for run in read_serving_runs(Path(path))]
    return score_runs(runs, DEVICE_WORDS.get(judging.constants, "model"))


def _graph_scores(paths: Sequence[str], judging: Judging) -> "Scores":
    """Return predictions of measured steps of models that are not decoders, and their errors."""
    from flopcast.lab.graph_runs.score import score_runs
    from flopcast.lab.graph_runs.tables import read_graph_runs

    runs = [run for path in paths for run in read_graph_runs(Path(path), judging.measured_on)]
    return score_runs(runs, DEVICE_WORDS.get(judging.constants, "family"))


@dataclass(frozen=True, kw_only=True, slots=True)
class _Fitted:
    """A kind of table whose constants are fitted by model and by device."""

    kind: str  # what the tables measure
    model: str  # what a model is called in these tables
    scores: Callable[[Sequence[str], Judging], "Scores"]


SERVING = _Fitted(kind="serving", model="model", scores=_serving_scores)
GRAPHS = _Fitted(kind="models that are not decoders", model="family", scores=_graph_scores)


def print_offload(paths: Sequence[str], others: Sequence[str], judging: Judging, wants_json: bool) -> None:
    """Print measured runs with states outside the devices beside their predictions.

    If constants are fitted, each row also has the prediction with its model left out of the fit.

    Raises
    ------
    SpecError
        Tables of another kind are given too, or the options choose constants that do not exist for these.
    """
    from flopcast.lab.offload_runs.score import OF_DATA_SHEETS, Constants, score_runs
    from flopcast.lab.offload_runs.tables import read_offload_runs

    words: Mapping[str, Constants] = {
        "catalogue": "catalogue",
        "models": "model",
        "others": "folder",
        "generations": "generation",
        "none": "none",
    }
    allowed = ", ".join(f"--leave-one-{name}-out" for name in ("model", "source", "generation"))
    allowed += " or --no-constants"
    because = (
        "only a model, a folder of logs or a generation can be left out, and --report is not supported"
    )
    _check(paths, others, judging, ("offloaded training", *words), allowed, because)
    chosen = words[judging.constants]
    runs = [run for path in paths for run in read_offload_runs(Path(path), chosen not in OF_DATA_SHEETS)]
    beside = score_runs(runs, "model") if chosen == "catalogue" else None
    _print(score_runs(runs, chosen), wants_json, beside)


def print_fused_products(
    paths: Sequence[str], others: Sequence[str], judging: Judging, wants_json: bool
) -> None:
    """Print measured products that are fused with messages beside their predictions.

    Raises
    ------
    SpecError
        Other tables are given together with these, or rows are to be left out.
    """
    from flopcast.lab.fused_products import read_fused_products, score_fused_products

    because = "nothing is fitted on these rows, and --report is not supported"
    _check(paths, others, judging, ("fused products", "catalogue"), "no other option", because)
    runs = tuple(run for path in paths for run in read_fused_products(Path(path)))
    _print(score_fused_products(runs), wants_json)


def _check(
    paths: Sequence[str],
    others: Sequence[str],
    judging: Judging,
    kind_and_words: tuple[str, ...],
    allowed: str,
    because: str,
) -> None:
    """Refuse tables of another kind, and options that such a table has no constants for.

    `kind_and_words` is what the tables measure, and the choices of constants that they have.
    """
    kind, *words = kind_and_words
    if others:
        raise spec_error(
            "--runs",
            others[0],
            f"tables of {kind} only",
            f"{kind} has its own scores",
            "validate this table in a separate command",
        )
    judging.check()
    if judging.sources or judging.constants not in words or judging.report is not None:
        raise spec_error("--runs", paths[0], allowed, because, "choose one of these options")


def _print(scores: "Scores", wants_json: bool, beside: "Scores | None" = None) -> None:
    """Print scores; `beside` are those of the same runs, left out of the fit."""
    from flopcast.render.measured_scores import scores_as_json, scores_as_text

    if wants_json:
        left_out = {} if beside is None else {"published_when_left_out": scores_as_json(beside)}
        print_json({"published": scores_as_json(scores), **left_out})
    else:
        click.echo(scores_as_text(scores, beside))
