"""Tables of calibrations with runs of the same machine.

Answers: what does `flopcast validate --runs TABLE --from-one-run` print?
Elsewhere: the guesses and their statistics (lab/validation/from_one_run.py).
"""

from collections.abc import Iterator, Mapping, Sequence

from flopcast.cost.factors import FAMILIES
from flopcast.lab.validation.from_one_run import Guess, machine_of, statistics_of
from flopcast.render.tables import PrintedTable, as_markdown, as_text

Calibrated = Mapping[str, Sequence[Guess]]

HEAD = """# Calibration with runs of a cluster: how much it improves predictions of other runs

This page shows how much a [calibration](../howto/calibrate.md) with measured runs of a cluster improves
the predictions of other runs on this cluster. Each *machine* in the tables is a cluster on which one
source measured at least three runs with one version of a framework. `flopcast validate --runs TABLE
--from-one-run --markdown` prints this page; without `--markdown`, the command prints plain text.

Before the calibration, predictions use constants that were fitted without the source of the run ([left
out](left-out.md)). The tables compare two calibrations:

- *one run*: flopcast is calibrated with one run of a machine and then predicts every other run of the
  machine. This is repeated with each run of the machine.
- *all other runs*: to predict a run, flopcast is calibrated with all other runs of the machine.

The first table combines all machines. Some rows of this table contain only pairs of runs (the run for
calibration and the predicted run) that differ by a certain percentage. Two runs differ by 0 % if they
spend equal fractions of the step time on each kind of kernel and collective, and by 100 % if they have no
such kind in common.

The columns of the tables are:"""
ALIKE = (("up to 10 %", 0.0, 0.1), ("10 to 30 %", 0.1, 0.3), ("more than 30 %", 0.3, float("inf")))
HEADINGS = (
    *("runs", "mean before", "mean after", "median before", "median after", "reduction of mean"),
    *("inside 90 % before", "inside 90 % after", "half-width before", "half-width after"),
)
LEGEND = {
    "mean, median": "mean and median of the absolute error of the step time, before and after the"
    " calibration",
    "reduction of mean": "the percentage by which the calibration lowers the mean error",
    "inside 90 %": "fraction of the measurements that lie in their predicted 90 % interval",
    "half-width": "median distance from the prediction to the upper end of its 90 % interval, as a"
    " percentage of the prediction",
}


def tables(calibrated: Calibrated) -> Iterator[PrintedTable]:
    """Yield tables of all runs together, then of each machine, for the predictions of `calibrated`."""
    yield PrintedTable(first="calibrated with", headings=HEADINGS, lines=tuple(_together(calibrated)))
    for way, runs_text in (("one", "one other run"), ("others", "all other runs")):
        title, lines = f"Each machine, calibrated with {runs_text}", tuple(_machines(calibrated[way]))
        yield PrintedTable(title=title, first="machine", headings=HEADINGS, lines=lines)


def _together(calibrated: Calibrated) -> Iterator[tuple[str, list[str]]]:
    """Yield the lines of each family: one run, one by how alike it is, all others."""
    for family in FAMILIES:
        one, others = (_of_family(calibrated[way], family) for way in ("one", "others"))
        if not one:
            continue
        yield f"{family}: one run", _cells(one)
        for share_text, low, high in ALIKE:
            alike = [guess for guess in one if low <= guess.moved_share < high]
            if alike:
                yield (
                    f"{family}: one run that differs from the predicted run by {share_text}",
                    _cells(alike),
                )
        yield f"{family}: all other runs", _cells(others)


def _machines(guesses: Sequence[Guess]) -> Iterator[tuple[str, list[str]]]:
    """Yield a line for each family of each machine."""
    for family in FAMILIES:
        members = _of_family(guesses, family)
        for machine in sorted({machine_of(guess.row) for guess in members}):
            source, _, device, stack = machine
            own = [guess for guess in members if machine_of(guess.row) == machine]
            yield f"{family}: {source}, {device}, {stack}", _cells(own)


def _of_family(guesses: Sequence[Guess], family: str) -> list[Guess]:
    return [guess for guess in guesses if guess.row.family == family]


def _cells(guesses: Sequence[Guess]) -> list[str]:
    statistics = statistics_of(guesses)
    mean, median = (
        [f"{statistics[f'{name}_{time}']:.1%}" for time in ("before", "after")]
        for name in ("mean", "median")
    )
    less = f"{1.0 - statistics['mean_after'] / statistics['mean_before']:+.0%}"
    inside = [f"{statistics[f'inside_{time}']:.0%}" for time in ("before", "after")]
    width = [f"±{statistics[f'width_{time}']:.0%}" for time in ("before", "after")]
    return [f"{statistics['runs']:.0f}", *mean, *median, less, *inside, *width]


def from_one_run_as_text(calibrated: Calibrated) -> str:
    """Return all results as text."""
    return as_text(LEGEND, tables(calibrated))


def from_one_run_as_markdown(calibrated: Calibrated) -> str:
    """Return the page of the documentation, without its last line break."""
    return as_markdown(HEAD, LEGEND, tables(calibrated))


def from_one_run_as_json(calibrated: Calibrated) -> dict[str, object]:
    """Return statistics (`statistics_of`) by way of calibration and by family as JSON data."""
    return {
        way: {
            family: statistics_of(members)
            for family in FAMILIES
            if (members := _of_family(guesses, family))
        }
        for way, guesses in calibrated.items()
    }
