"""Published runs as text: a line for each source, the largest errors, runs that do not fit, and omitted
rows.

Answers: what does `flopcast validate --runs` print?
Elsewhere: the statistics (lab/validation/published_statistics.py), the rows (lab/validation/published.py).
"""

from collections.abc import Iterator
from textwrap import indent

from flopcast.lab.validation.published import ComparedRun, Published
from flopcast.lab.validation.published_statistics import KINDS, by_source, formulas, of_rows, reasons, worst
from flopcast.lab.validation.statistics import grouped
from flopcast.records import replace
from flopcast.units import show_seconds

HEADINGS = (
    "rows", "full", "median", "mean", "p90", "bias", "in 90 %", "width", "once", "repeat", "release",
    "simple", "memory",
)  # fmt: skip
NAME_WIDTH = 31
MOST_EXPLAINED = 10  # rows of which each fault is shown with its fix
REASON_WIDTH = 150  # characters of the reasons of one kind of rows
TARGET_FRACTION = 0.02  # of runs that ran, predicted not to fit: at most this share


def runs_as_text(published: Published) -> str:
    """Return all results of some tables as text."""
    return "\n".join(_lines(published))


def _lines(published: Published) -> Iterator[str]:
    rows = published.rows
    if rows:
        yield published.constants_sentence
        yield "An error is the predicted step time divided by the measured one, minus 1. full: number of"
        yield "rows without assumptions. width: median half-width of the 90 % intervals. once: mean error"
        yield "if repeats of a configuration count once. repeat, release: mean difference between"
        yield "measurements of equal runs, within a release and between releases. simple: mean error of a"
        yield "simple model that divides FLOP and bubble by the mean efficiency of similar rows. memory:"
        yield "median error of memory peaks."
        yield f"{'':{NAME_WIDTH}}" + " ".join(f"{heading:>7}" for heading in HEADINGS)
        for source, members in by_source(rows).items():
            yield _line(source, of_rows(members))
        yield _line("all", of_rows(rows))
        full = [row for row in rows if row.run.fully_specified]
        if full:
            yield _line("all without assumptions", of_rows(full))
        for name, key in KINDS.items():
            yield f"by {name}"
            for value, members in sorted(grouped(rows, key).items()):
                yield _line(f"  {value}", of_rows(members))
        yield from _audited(published)
        yield from _worst(published)
        yield from _unfitted(published)
        yield from _not_fitting(published)
    yield from _left_out(published)


def _line(name: str, scores: dict[str, float]) -> str:
    return f"{name:{NAME_WIDTH}}" + " ".join(f"{cell:>7}" for cell in cells(scores)).rstrip()


def cells(scores: dict[str, float]) -> list[str]:
    """Return the statistics of `of_rows` under `HEADINGS` as text.

    Parameters
    ----------
    scores : dict
        Ratios and counts by name. Statistics that need repeats, a baseline or memory become a dash if rows
        have none.
    """
    return [
        f"{scores['rows']:.0f}",
        f"{scores['fully_specified']:.0f}",
        *(f"{scores[key]:.1%}" for key in ("median", "mape", "p90")),
        f"{scores['bias']:+.1%}",
        f"{scores['coverage']:.0%}",
        f"±{scores['half_width_median']:.0%}",
        f"{scores['clustered_mape']:.1%}",
        *(_percent(scores, key) for key in ("noise_within_mape", "noise_across_mape")),
        _percent(scores, "trivial_mape"),
        _percent(scores, "memory_median"),
    ]


def _percent(scores: dict[str, float], key: str) -> str:
    return f"{scores[key]:.1%}" if key in scores else "–"


def _audited(published: Published) -> Iterator[str]:
    """Yield the formulas by which rows count FLOP, for rows that print rates of FLOP and of tokens."""
    counts = formulas(published.rows)
    if counts:
        numbers = ", ".join(f"{name} {number}" for name, number in counts.items())
        yield f"printed FLOP of {sum(counts.values())} rows, by formula: {numbers}"


def _worst(published: Published) -> Iterator[str]:
    yield "worst rows"
    for row in worst(published.rows):
        measured, predicted = row.measured_step_time_s, row.predicted_step_time_s
        yield (
            f"  {row.run.id:26} {row.relative_error:+7.1%} {show_seconds(measured):>9} measured,"
            f" {show_seconds(predicted):>9} predicted  {row.run.model}, {plan_words(row)}"
        )
        yield f"  {'':26} {row.likely.phrase()}"


def _unfitted(published: Published) -> Iterator[str]:
    """Yield lines on rows that are predicted but not used in fits, with the reasons."""
    rows = published.unfitted
    yield f"predicted, but not used in fits: {len(rows)} of {len(published.rows)}"
    for row in rows:
        yield f"  {row.run.id:26} {row.relative_error:+7.1%}  {row.run.judged_only}"


def plan_words(row: ComparedRun) -> str:
    """Return a plan's short form without the long list of blocks of each chunk."""
    return " ".join(word for word in row.job.plan.short().split() if not word.startswith("stage_layers="))


def _not_fitting(published: Published) -> Iterator[str]:
    """Yield a text about runs that are predicted not to fit: their number, by what fills their memory."""
    wrong = [row for row in published.rows if not row.fits]
    share = len(wrong) / len(published.rows)
    verdict = "within" if share <= TARGET_FRACTION else "above"
    yield (
        f"runs that fitted into memory, but are predicted not to fit: {len(wrong)} of {len(published.rows)}"
        f" ({share:.1%}, {verdict} the target of {TARGET_FRACTION:.0%})"
    )
    for row in sorted(wrong, key=lambda row: -row.used_fraction):
        filled = ", ".join(row.largest_categories)
        yield f"  {row.run.id:26} {row.used_fraction:5.0%} of the device: {filled}; {plan_words(row)}"


def _left_out(published: Published) -> Iterator[str]:
    """Yield a text about rows that are not predicted, by source and reason, and rows seen before."""
    yield f"rows that are not predicted: {len(published.left_out)}"
    if len(published.left_out) <= MOST_EXPLAINED:
        for row in published.left_out:
            for problem in row.problems:
                yield indent(str(replace(problem, where=row.where)), "  ")
    else:
        for (source, reason), number in reasons(published.left_out).items():
            cut = reason if len(reason) <= REASON_WIDTH else reason[: REASON_WIDTH - 1] + "…"
            yield f"  {number:4} {source:26} {cut}"
    if published.twice:
        yield f"rows that are in two tables and count once: {len(published.twice)}"
