"""Tables of calibrations with runs of the same machine.

Answers: what do `flopcast validate --runs TABLE --from-one-run` and `calibrate from-run` print?
Elsewhere: the guesses and their statistics (lab/validation/from_one_run.py).
"""

from collections.abc import Iterator, Mapping, Sequence

from flopcast.cost.factors import FAMILIES
from flopcast.lab.validation.from_one_run import Guess, machine_of, statistics_of
from flopcast.lab.validation.from_run import Posterior
from flopcast.render.tables import PrintedTable, as_markdown, as_text, texts_of
from flopcast.units import show_seconds

MOST_LINES = 20  # of factors that one run moved
Calibrated = Mapping[str, Sequence[Guess]]

ALIKE = (("up to 10 %", 0.0, 0.1), ("10 to 30 %", 0.1, 0.3), ("more than 30 %", 0.3, float("inf")))
TEXTS = texts_of("from_one_run")
HEADINGS, LEGEND = tuple(TEXTS["headings"]), TEXTS["legend"]


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
    falls = [
        TEXTS["falls"].format(family=TEXTS["families"][family], **statistics_of(guesses))
        for family in FAMILIES
        if (guesses := _of_family(calibrated["others"], family))
    ]
    return as_markdown(TEXTS["head"].format(falls=" and ".join(falls)), LEGEND, tables(calibrated))


def from_one_run_as_json(calibrated: Calibrated) -> dict[str, object]:
    """Return statistics (`statistics_of`) by way of calibration and by family as JSON data."""
    ways = {
        way: {
            family: statistics_of(members)
            for family in FAMILIES
            if (members := _of_family(guesses, family))
        }
        for way, guesses in calibrated.items()
    }
    return {"from_one_run": ways}


def posterior_text(posterior: Posterior) -> str:
    """Return a text that lists each changed factor, and the number of factors that changed by less than
    0.1 %.
    """
    lines = [
        f"{check.name:14}{show_seconds(check.observed_s)} measured,"
        f" {show_seconds(check.predicted_s)} predicted"
        f" ({check.predicted_s / check.observed_s - 1:+.1%}, {check.surprise_ratio:.1f} standard"
        f" deviations), {show_seconds(check.updated_s)} after calibration"
        for check in posterior.checks
    ]
    moved = [one for one in posterior.factors if abs(one.ratio - 1) > 0.001]
    width = max(48, *(len(one.name) for one in moved[:MOST_LINES]))
    lines += ["", f"{'factor':{width}}{'ratio':>8}{'sigma':>16}{'explains':>10}"]
    for one in moved[:MOST_LINES]:
        sigma = f"{one.prior_log_sigma_factor:.1%} → {one.log_sigma_factor:.1%}"
        lines.append(f"{one.name:{width}}{one.ratio:8.3f}{sigma:>16}{one.taken_share:10.0%}")
    rest = len(posterior.factors) - len(moved[:MOST_LINES])
    lines += [f"{rest} other factors changed by less", ""]
    low, high = show_seconds(posterior.step_time_low_s), show_seconds(posterior.step_time_high_s)
    lines.append(f"step      {show_seconds(posterior.step_time_s)} after, 90 % between {low} and {high}")
    return "\n".join(lines)
