"""Comparisons of recommended plans with measured plans: text, JSON and the page docs/accuracy/decisions.md.

Answers: what does `flopcast validate --decisions` print?
Elsewhere: the statistics (lab/validation/decision_statistics.py), how tables are written (tables.py).
"""

from collections.abc import Iterator, Sequence

from flopcast.cost.between_plans import TIED_RATIO
from flopcast.lab.validation.decision_statistics import LARGEST, Judged, by_source, gained, of_sweeps, wrong
from flopcast.lab.validation.decisions import Sweep
from flopcast.lab.validation.published import JUDGED, Constants
from flopcast.render.plain_data import FORMAT_VERSION, fields_of, plain
from flopcast.render.tables import PrintedTable, as_markdown, as_text, table_of, texts_of
from flopcast.render.terminal import capital
from flopcast.report.labels import component_label
from flopcast.units import nine_digits

SAME = f"{TIED_RATIO - 1.0:.0%}"
TEXTS = texts_of("decisions")
HEADINGS, FREE = TEXTS["headings"], TEXTS["free"]  # FREE: what a sweep varies → the caption of its table
LEGEND = {heading: meaning.format(same=SAME) for heading, meaning in TEXTS["legend"].items()}
IN_ONE = [heading not in ("sweeps", "worst regret", "baseline worst regret") for heading in HEADINGS]


def tables(way: Constants, sweeps: Sequence[Sweep]) -> Iterator[PrintedTable]:
    """Yield the tables for one choice of constants.

    Parameters
    ----------
    way : Constants
        With which constants the runs were predicted; it gives the title.
    sweeps : sequence of Sweep

    Yields
    ------
    PrintedTable
        The title, a table for each kind of decision with one row for each source, sweeps of plans one by
        one, and the recommendations that turned out wrong.
    """
    title, caption = JUDGED[way].split(": ", 1)
    yield PrintedTable(title=title, caption=capital(caption), first="", headings=(), lines=())
    groups = by_source(sweeps)
    for free, question in FREE.items():
        lines = [(source, _cells(members)) for (kind, source), members in groups.items() if kind == free]
        if lines:
            yield PrintedTable(
                caption=question, first="source", headings=tuple(HEADINGS), lines=tuple(lines)
            )
    plans = [sweep for sweep in sweeps if sweep.free == "plan"]
    if plans:
        yield _one_by_one(plans)
    if wrong(sweeps):
        yield _wrong(sweeps)


def _one_by_one(sweeps: Sequence[Sweep]) -> PrintedTable:
    lines = tuple(
        (
            ", ".join((sweep.source, sweep.fixed["model"], f"{sweep.fixed['devices']} devices")),
            [cell for cell, kept in zip(_cells([sweep]), IN_ONE, strict=True) if kept],
        )
        for sweep in sweeps
    )
    headings = [heading for heading, kept in zip(HEADINGS, IN_ONE, strict=True) if kept]
    return table_of(TEXTS["tables"]["one_by_one"], lines, headings)


def _cells(sweeps: Sequence[Sweep]) -> list[str]:
    statistics = of_sweeps(sweeps)
    rank, trivial_rank = statistics["mean_spearman"], statistics["trivial_mean_spearman"]
    right = statistics["right"]
    return [
        str(statistics["sweeps"]),
        str(statistics["plans"]),
        "–" if rank is None else f"{rank:.2f}",
        *(f"{statistics[key]:.1%}" for key in ("mean_regret", "worst_regret")),
        "–" if trivial_rank is None else f"{trivial_rank:.2f}",
        *(f"{statistics[key]:.1%}" for key in ("trivial_mean_regret", "trivial_worst_regret")),
        str(statistics["pairs"]),
        "–" if right is None else f"{right:.0%}",
        f"{statistics['tied_equal']} of {statistics['tied']}",
        f"{statistics['settled_wrong']} of {statistics['settled']}",
        f"{statistics['covered']:.0%}",
    ]


def _wrong(sweeps: Sequence[Sweep]) -> PrintedTable:
    """Return recommendations that cost more than noise, with the components that caused them."""
    lines = []
    for sweep in wrong(sweeps):
        taken, fastest = sweep.recommended[0], sweep.fastest
        parts = list(gained(taken, fastest).items())[:LARGEST]
        cells = [
            sweep.free,
            f"{sweep.regret_ratio:.1%}",
            f"{taken.predicted_s / fastest.predicted_s - 1.0:+.1%}",
            ", ".join(f"{component_label(name)} {share:+.1%}" for name, share in parts),
            "yes" if sweep.fastest_is_called_equal else "no",
        ]
        lines.append((f"{taken.name}, not {fastest.name}", cells))
    return table_of(TEXTS["tables"]["wrong"], lines, same=SAME)


def decisions_as_text(judged: Judged) -> str:
    """Return all results as text."""
    return as_text(LEGEND, _all_tables(judged))


def decisions_as_markdown(judged: Judged) -> str:
    """Return the page of the documentation, without its last line break."""
    return as_markdown(TEXTS["head"].format(result=_result(judged)), LEGEND, _all_tables(judged))


def _result(judged: Judged) -> str:
    """Return a sentence on the sweeps that vary only the plan."""
    way: Constants = "others" if "others" in judged else next(iter(judged))
    sweeps = [sweep for sweep in judged[way] if sweep.free == "plan"]
    if not sweeps:
        return ""
    sentence: str = TEXTS["result"]
    return sentence.format(number=len(sweeps), constants=TEXTS["constants"][way], **of_sweeps(sweeps))


def _all_tables(judged: Judged) -> Iterator[PrintedTable]:
    for way, sweeps in judged.items():
        yield from tables(way, sweeps)


def decisions_as_json(judged: Judged) -> dict[str, object]:
    """Return the results as JSON data; keys may be added, never renamed.

    `ways` contains, for each choice of constants, `sources` (statistics of `of_sweeps` by `free` and
    source) and every sweep. `free` lists the settings besides the plan that may differ, and `fixed` those
    that are equal.
    """
    ways = {
        way: {
            "sources": [
                {"source": source, "free": free, **of_sweeps(members)}
                for (free, source), members in by_source(sweeps).items()
            ],
            "sweeps": [_sweep(sweep) for sweep in sweeps],
        }
        for way, sweeps in judged.items()
    }
    return {"decisions": {"format_version": FORMAT_VERSION, "tied_ratio": TIED_RATIO, "ways": ways}}


def _sweep(sweep: Sweep) -> dict[str, object]:
    taken = sweep.recommended[0]
    return {
        **fields_of(sweep, "source", "free", "fixed"),
        "plans": len(sweep.choices),
        **fields_of(sweep, "spearman"),
        "regret": nine_digits(sweep.regret_ratio),
        "recommended": [choice.name for choice in sweep.recommended],
        "fastest": sweep.fastest.name,
        "fastest_equal": sweep.fastest_is_called_equal,
        **fields_of(sweep, "trivial_spearman"),
        "trivial_regret": nine_digits(sweep.trivial_regret_ratio),
        "gained": plain(gained(taken, sweep.fastest)),
        "choices": [
            {
                "id": choice.name,
                "plan": choice.plan,
                "measured_device_s_per_token": nine_digits(choice.measured_s),
                "predicted_device_s_per_token": nine_digits(choice.predicted_s),
                "fits": choice.fits,
            }
            for choice in sorted(sweep.choices, key=lambda choice: choice.measured_s)
        ],
    }
