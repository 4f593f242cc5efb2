"""The answer of a search as a part of a page: the best plan as tiles, the front, the plans, and each
setting.

Answers: what does a reader of the page see first about a search, and where does each plan link?
Elsewhere: the rows of the tables (render/search_table.py), the answer as text (render/search_text.py), the
drawing (render/search_drawing.py), the style (static/style.css).

Every plan takes two rows of a table: its numbers, and the plan itself across all columns, because the
text of a plan is longer than any column. On a narrow screen the style shows the numbers below each other,
named by the attribute `data-name`.
"""

from collections.abc import Callable, Sequence
from html import escape

from flopcast.economics.run import TrainingRun
from flopcast.render import search_reasons, search_text
from flopcast.render.assumption_lines import with_option
from flopcast.render.page.frame import folded
from flopcast.render.page.summary import VERDICTS, Tile, run_tiles, tiles
from flopcast.render.page.table import listing
from flopcast.render.search_drawing import LEGEND, drawing_of
from flopcast.render.search_table import (
    DIFFERENCE,
    INTERVAL,
    MFU,
    RATE,
    Group,
    mark_of,
    name_of,
    objective_name,
    place_of,
    plans_of_settings,
    preference_rows,
    rate_and_mfu,
    rows_of,
    settings_rows,
    values_of,
    variants_of,
)
from flopcast.render.terminal import capital
from flopcast.search.find import SearchResult
from flopcast.search.objectives import OBJECTIVES, run_of
from flopcast.search.rank import Ranked, grouped
from flopcast.spec.job import Job
from flopcast.spec.plan_text import meaning_of_runs
from flopcast.units import show_memory

SHOWN_PLANS = 20
Address = Callable[[Job], str]  # of the page that predicts a job


def search_parts(result: SearchResult, address: Address) -> str:
    """Return the result of a search as HTML.

    Parameters
    ----------
    result : SearchResult
    address : function
        Returns the address of the page that predicts a plan.

    Returns
    -------
    str
        The best plan as tiles, the counts, the drawing of the front, the plans, the best plan of each
        setting, plans that nearly fit, and assumptions. Texts are escaped.
    """
    html = _best(result, address) if result.plans else ""
    html += "".join(map(_question_line, search_text.question_lines(result)))
    if result.plans:
        figure = (
            f'<div class="scroll">{drawing_of(result).of_page()}</div><figcaption>{LEGEND}</figcaption>'
        )
        html += f"<figure>{figure}</figure>"
        plans = " ".join(one.played.plan.short() for one in result.plans)
        if meaning := meaning_of_runs(plans):
            html += f'<p class="soft">{escape(capital(f"{meaning}."))}</p>'
        caption = "The best plans (= means that the plan may be as good as the best plan)"
        html += _plans(caption, result, grouped(result.plans)[:SHOWN_PLANS], address)
        alone = [(one,) for one in result.on_front]
        caption = "Plans that no other plan beats in every objective"
        html += folded("front", "The front", _plans(caption, result, alone, address, front=True))
        html += "".join(_preferences(result, place, address) for place in range(len(result.preferences)))
    html += _settings(result, address)
    if beyond := search_text.nearest(result):
        html += f"<pre>{escape(chr(10).join(beyond))}</pre>"
    if assumed := result.question.assumptions:
        html += folded("assumed", "Assumed", listing(map(with_option, assumed)))
    return html


def _question_line(line: str) -> str:
    """Return a line about the question as a paragraph; a warning has the style of a warning."""
    if line.startswith("warning"):
        return f'<p class="warning">{escape(capital(line.removeprefix("warning").strip()))}</p>'
    word, _, text = line.partition("  ")
    shown = f"{capital(word)}: {text.strip()}" if text and " " not in word else line
    return f'<p class="subject">{escape(shown)}</p>'


def _best(result: SearchResult, address: Address) -> str:
    """Return the recommended plan, one tile per result, and why it is recommended."""
    first, question = result.plans[0], result.question
    where = f"{question.jobs[0].model.name} on {place_of(first.played.job, question)}"
    subject = f'<p class="subject">{escape(where)}. Recommended: {_link(first, address)}</p>'
    run = run_of(first.played, question.total_tokens)
    others = [_compared(result), *_rate(first), _memory(first)]
    run_is_first = question.first in (OBJECTIVES["time_to_train"], OBJECTIVES["run_cost"])
    of_run = [] if run is None else run_tiles(TrainingRun(phases=(run,)))[:2]
    if run_is_first:  # its tile is there already
        of_run = of_run[1:] if question.first is OBJECTIVES["time_to_train"] else of_run[:1]
    others[1:1] = [*of_run, *_next_setting(result, first)]
    return subject + tiles(_objective(result, first), others)


def _next_setting(result: SearchResult, first: Ranked) -> list[Tile]:
    """Return a tile of the best plan on the next cluster, size or stack; none if there is only one."""
    others = [one for one in plans_of_settings(result) if one is not first]
    if not others:
        return []
    other, where = others[0], escape(place_of(others[0].played.job, result.question))
    gap = f"{other.ratio - 1:+.1%} against the best (90 %: {search_reasons.ratio_interval(other)})"
    about = f"{where}, {gap}" if other.ratio != 1 else where
    return [("Next best cluster or size", escape(values_of(result, other)[0]), about)]


def _objective(result: SearchResult, first: Ranked) -> Tile:
    objective = result.question.first
    low, high = sorted(objective.shown(bound) for bound in first.losses[0].bounds)
    interval = f"90 %: {escape(objective.show(low))} to {escape(objective.show(high))}"
    return capital(objective_name(objective)), escape(values_of(result, first)[0]), interval


def _compared(result: SearchResult) -> Tile:
    """Return the tile that states with what the plan was compared, and by how much the others are worse."""
    return "Chosen from", f"{result.candidates:,} plans", escape(_gap(result))


def _gap(result: SearchResult) -> str:
    """Return how much worse the recommended plan is than the best or, if it is best, the next one is."""
    first, objective = result.plans[0], result.question.first
    if first.ratio != 1:
        interval = search_reasons.ratio_interval(first)
        gap = f"{first.ratio - 1:.1%} {objective.comparative} (90 %: {interval})"
        reason = search_reasons.recommended_for(result)
        return f"Tied with the {objective.superlative} plan, {gap}; {reason}"
    others = [one for one, *_ in grouped(result.plans)[1:]]
    if not others:
        return f"The {objective.superlative} of all"
    gap, interval = f"{others[0].ratio - 1:.1%}", search_reasons.ratio_interval(others[0])
    return f"The next plan that is not a variant of it is {gap} {objective.comparative} (90 %: {interval})"


def _rate(first: Ranked) -> tuple[Tile, Tile]:
    rate, mfu = rate_and_mfu(first.played)
    return ("Throughput", escape(rate), "of all devices"), ("MFU", mfu, "masked attention counted in full")


def _memory(first: Ranked) -> Tile:
    played = first.played
    word, colour = VERDICTS[played.verdict]
    sizes = (played.expected_bytes, played.high_bytes, played.capacity_bytes)
    expected, high, there = map(show_memory, sizes)
    about = f"{expected} expected (90 %: up to {high}) of {there} on the fullest stage"
    return "Memory", f'<span class="{colour}">{word}</span>', about


def _plans(
    caption: str, result: SearchResult, groups: Sequence[Group], address: Address, *, front: bool = False
) -> str:
    """Return a table of plans; each links to its prediction, explains its rank and names its variants."""
    firsts = [first for first, *_ in groups]
    head, *rows = rows_of(result, firsts, front=front)
    shown = result.question.asked if front else result.question.named
    of_rate = [MFU] if OBJECTIVES["tokens_per_s"] in shown else [RATE, MFU]
    headings = ["rank", *head[1:], *of_rate]
    bodies = []
    for row, group in zip(rows, groups, strict=True):
        rates = dict(zip((RATE, MFU), rate_and_mfu(group[0].played), strict=True))
        mark = mark_of(group[0], result)
        below = f"<strong>{capital(mark)}.</strong> " if mark else ""
        below += _link(group[0], address) + _why(group, result)
        bodies.append(_body(headings, [*row, *(rates[name] for name in of_rate)], below))
    return _table(caption, headings, bodies)


def _preferences(result: SearchResult, place: int, address: Address) -> str:
    """Return the plans of the front that are best for some weight of one objective against another."""
    heading, (titles, *rows) = preference_rows(result, place)
    bodies = [
        _body(titles[:-1], row[:-1], _link(one.plan, address))
        for row, one in zip(rows, result.preferences[place], strict=True)
    ]
    name = f"By preference against {titles[2]}"
    return folded(f"preference-{place}", name, _table(capital(heading), titles[:-1], bodies))


def _settings(result: SearchResult, address: Address) -> str:
    """Return the best plan on each cluster, size and stack as a table, and why there is none elsewhere."""
    if len(result.settings) < 2:
        return ""
    headings, *rows = settings_rows(result) or [[]]
    best = plans_of_settings(result)
    bodies = [_body(headings, row, _link(one, address)) for row, one in zip(rows, best, strict=True)]
    html = _table("The best plan on each cluster, size and stack", headings, bodies) if bodies else ""
    without = [one for one in result.settings if one.best is None]
    if without:
        reasons = (
            f"<li>{escape(name_of(one.job, result.question))}:"
            f" {escape(search_reasons.reason_no_plan(one, result))}</li>"
            for one in without
        )
        html += f"<ul>{''.join(reasons)}</ul>"
    return html


def _table(caption: str, headings: Sequence[str], bodies: Sequence[str]) -> str:
    """Return a table of plans, each in a table body of two rows. An interval has no column of its own."""
    head = "".join(
        f'<th scope="col" role="columnheader">{escape(heading)}</th>'
        for heading in headings
        if heading != INTERVAL
    )
    return (
        f'<div class="plans"><table role="table"><caption>{escape(caption)}</caption>'
        f'<thead><tr role="row">{head}</tr></thead>{"".join(bodies)}</table></div>'
    )


def _body(headings: Sequence[str], cells: Sequence[str], below: str) -> str:
    """Return the two rows of a plan; an interval stands below its value."""
    shown: list[tuple[str, str]] = []
    for heading, cell in zip(headings, cells, strict=True):
        if heading == INTERVAL:
            name, value = shown.pop()
            shown.append((name, f"{value}<small>{escape(cell)}</small>"))
        else:
            shown.append((heading, escape(cell)))
    (_, first), *rest = shown
    row = f'<th scope="row" role="rowheader">{first}</th>' + "".join(
        f'<td role="cell" data-name="{escape(name)}">{value}</td>' for name, value in rest
    )
    across = f'<td role="cell" colspan="{len(shown)}">{below}</td>'
    return f'<tbody><tr role="row">{row}</tr><tr role="row">{across}</tr></tbody>'


def _why(group: Group, result: SearchResult) -> str:
    """Return the reasons for a plan's rank, and its variants, folded below the plan."""
    variants = variants_of(group)
    texts = [search_reasons.sentence_of(group[0], result)]
    texts += [f"{variants} ({DIFFERENCE})"] if variants else []
    return f"<details><summary>Why</summary><small>{escape('; '.join(texts))}</small></details>"


def _link(one: Ranked, address: Address) -> str:
    return f'<a href="{escape(address(one.played.job))}">{escape(one.played.plan.short())}</a>'
