"""The answer of a search as text: counts, plans, a sentence for each, plans that nearly fit, assumptions.

Answers: what does a terminal show?
Elsewhere: the rows of tables (search_table.py), the sentences (search_reasons.py), the same as data
(search_json.py) and as a drawing (search_drawing.py).
"""

from collections.abc import Iterator, Sequence

from flopcast.files.nearest_names import alternatives
from flopcast.render import search_reasons, search_table
from flopcast.render.assumption_lines import assumption_lines
from flopcast.render.search_runs import limits_lines, risk_text, run_values
from flopcast.render.tables import aligned_below, in_paragraphs
from flopcast.render.terminal import OF_VERDICT, Mark, answer, aside, plain
from flopcast.search.find import SearchResult
from flopcast.search.question import Question
from flopcast.search.rank import Ranked, grouped
from flopcast.search.space import Space
from flopcast.spec.job import Job
from flopcast.spec.plan_text import meaning_of_runs

TOP = 5
NEAREST = 3  # that are shown; JSON has all
NOT_FASTER_RATIO = 0.9995  # of its loss to that of the best: such a plan would be shown as 0.0% better
INDENT = " " * 6  # of lines below a row


def as_text(result: SearchResult, top: int = TOP, *, with_front: bool = False) -> str:
    """Return the result as text: paragraphs, without a final newline; at most `top` plans.

    With `with_front`, the front of all objectives is shown too.
    """
    return plain(marked_text(result, top, with_front=with_front))


def marked_text(result: SearchResult, top: int = TOP, *, with_front: bool = False) -> str:
    """Return the printed text, with marks that a terminal shows as colours (terminal.py)."""
    parts = [question_lines(result)]
    if result.plans:
        groups = grouped(result.plans)[:top]
        parts.append(answer_lines(result) + _table(result, groups) + _legend(groups))
        parts.append(_reasons(result, groups))
        parts.append(_given(result))
    parts.append(settings_lines(result))
    if result.plans:
        parts.append(_front(result) if with_front else [])
    parts.append(nearest(result))
    parts.append(assumption_lines(result.question.assumptions))
    return in_paragraphs(*parts)


def question_lines(result: SearchResult) -> list[str]:
    """Return the lines that state the question and the number of plans."""
    question = result.question
    job = question.jobs[0]
    sizes = dict.fromkeys(f"{one.cluster.name}: {one.cluster.machine}" for one in question.sized())
    stacks = dict.fromkeys(one.stack.label for one in question.jobs)
    part = question.space.headroom_fraction
    room = "" if part is None else f" ({part:.0%} of the memory)"
    kept = f"{result.feasible:,} of these are estimated to meet all limits"
    are = "is a variant" if result.refined == 1 else "are variants"
    lines = [
        f"{job.model.name} on {alternatives([*sizes])}, {', '.join(stacks)}, {job.batch_text}",
        f"searched  {result.candidates:,} plan{'s' * (result.candidates != 1)}:"
        f" {result.possible:,} possible, {result.in_memory:,} fit"
        + (f" into memory{room}, {kept}" if question.limits else room)
        + f", {result.played} simulated exactly"
        + (
            f" ({result.refined} of these {are} of other plans,"
            " with layers divided differently among stages or with less recompute)"
            if result.refined
            else ""
        )
        + ("; an evolutionary algorithm chose the plans" if question.evolve else ""),
    ]
    notes = dict.fromkeys(_not_tried(one, question) for one in question.jobs)
    lines += [f"note      {text}" for text in notes if text]
    lines += limits_lines(result)
    if result.partial:
        lines.append("warning   interrupted: only a part of the space was searched")
    if result.thinned:
        lines.append("warning   only a part of the Pareto front was simulated and is shown")
    return lines + [f"warning   {text}" for text in warnings_of(result)]


def warnings_of(result: SearchResult) -> list[str]:
    """Return the kernels of the first plan of each device that were not measured."""
    of_device: dict[str, tuple[str, ...]] = {}
    for one in result.plans:
        of_device.setdefault(one.played.job.cluster.node.device.name, one.played.warnings)
    return list(dict.fromkeys(text for texts in of_device.values() for text in texts))


def answer_lines(result: SearchResult) -> list[str]:
    """Return the recommended plan with its results, why it is not the best, and the next cluster.

    A plan that is not the best in the first objective is recommended if it is simpler or more certain to
    keep its limits, and the difference is within the intervals. With several settings, a second line has
    the best plan of the next setting.
    """
    first, objective = result.plans[0], result.question.first
    where = search_table.place_of(first.played.job, result.question)
    text = f"{first.played.plan.short()} on {where}: {_results(result, first)}"
    if first.ratio != 1:
        gap = f"{first.ratio - 1:.1%} {objective.comparative}, 90 %: {search_reasons.ratio_interval(first)}"
        reason = search_reasons.recommended_for(result)
        tied = "it" if objective.superlative in reason else f"the {objective.superlative} plan"
        text += f"; {reason}, and tied with {tied} ({gap})"
    others = [one for one in search_table.plans_of_settings(result) if one is not first]
    if not others:
        return [f"answer    {text}"]
    other, where = others[0], search_table.place_of(others[0].played.job, result.question)
    interval = search_reasons.ratio_interval(other)
    gap = (
        f"{search_table.behind(other)} (90 %: {interval}) relative to the best"
        if other.ratio != 1
        else "the best"
    )
    return [f"answer    {text}", f"next best {where}: {_results(result, other)}, {gap}"]


def _results(result: SearchResult, one: Ranked) -> str:
    """Return the first objective of a plan, and the time and cost of its run."""
    question = result.question
    values = {search_table.objective_name(question.first): search_table.values_of(result, one)[0]}
    values |= run_values(one.played, question) if question.total_tokens else {}
    return ", ".join(f"{name} {value}" for name, value in values.items())


def _not_tried(job: Job, question: Question) -> str:
    """Return a sentence on the degrees that the stack fixes and the question does not name, or ""."""
    space = question.space
    fixed = [name for name in job.stack.switches.fixed if name in Space.model_fields]
    fields = [name for name in fixed if not getattr(space, name)]
    if not fields:
        return ""
    names = alternatives([name.replace("_parallel", " parallelism").replace("_", " ") for name in fields])
    return f"{job.stack.label}: a search with this stack tries {names} only if --plan contains the setting"


def _table(result: SearchResult, groups: Sequence[search_table.Group], *, front: bool = False) -> list[str]:
    """Return for each group the row of its first plan, then this plan, its rate and MFU, and variants."""
    firsts = [first for first, *_ in groups]
    heading, *cells = search_table.rows_of(result, firsts, front=front)
    marked = [_marked(row, heading, one) for row, one in zip(cells, firsts, strict=True)]
    if not front:
        marked[0] = [answer(marked[0][0]), answer(marked[0][1]), *marked[0][2:]]
    signs = "<" + "".join("<" if title == "cluster" else ">" for title in heading[1:])
    lines = aligned_below(heading, marked, signs)
    told, lines = lines[: -len(cells)], lines[-len(cells) :]
    for line, group in zip(lines, groups, strict=True):
        told += [line, *_below(group, result, is_answer=not front and group[0] is result.plans[0])]
    return told


def _legend(groups: Sequence[search_table.Group]) -> list[str]:
    """Return lines that explain the signs in the table of plans."""
    lines = (
        ["= means that the plan may be as good as the best plan"] if any(g[0].equal for g in groups) else []
    )
    if any(len(group) > 1 for group in groups):
        text = f"variants differ from the plan above only in the settings shown ({search_table.DIFFERENCE})"
        lines.append(text)
    plans = " ".join(
        one.played.plan.short() for group in groups for one in group[: search_table.VARIANTS + 1]
    )
    lines += [meaning] if (meaning := meaning_of_runs(plans)) else []
    return lines


def _below(group: search_table.Group, result: SearchResult, *, is_answer: bool) -> Iterator[str]:
    """Yield what stands below the row of a plan: the plan to copy, its mark, rate, MFU and variants."""
    copied = search_table.option(group[0].played.plan.short())
    yield INDENT + (answer(copied) if is_answer else copied)
    rate, mfu = search_table.rate_and_mfu(group[0].played)
    mark = search_table.mark_of(group[0], result)
    risk = risk_text(group[0].played, result.question)
    yield f"{INDENT}{f'{mark}; ' if mark else ''}{rate}, MFU {mfu}{f'; {risk}' if risk else ''}"
    if variants := search_table.variants_of(group):
        yield f"{INDENT}and {variants}"


def _marked(row: Sequence[str], heading: Sequence[str], one: Ranked) -> list[str]:
    """Return a row with intervals as asides, and with a need for memory that is not met as a caution."""
    verdict = one.played.verdict
    memory: Mark = str if verdict == "fits" else OF_VERDICT[verdict]
    marks = {search_table.INTERVAL: aside, search_table.MEMORY: memory}
    return [marks.get(name, str)(cell) for name, cell in zip(heading, row, strict=True)]


def _reasons(result: SearchResult, groups: Sequence[search_table.Group]) -> list[str]:
    """Return the sentence on the first plan, and what each of the others takes more time in."""
    first = result.plans[0]
    lines = ["why (the times of components on the busiest stage are compared with those of plan 1)"]
    for number, (one, *_) in enumerate(groups, 1):
        lost = search_reasons.reason_lost(one, first) or "no component takes longer"
        reasons = search_reasons.sentence_of(one, result).split("; ") if one is first else [lost]
        lines += [f"{number:3}  {reasons[0]}", *(f"     {text}" for text in reasons[1:])]
    return lines


def _given(result: SearchResult) -> list[str]:
    """Return lines that compare the user's own plans with the best."""
    if not result.given:
        return []
    lines = ["as given"]
    for one in result.given:
        shown, *_ = search_table.values_of(result, one)
        name = search_table.place_of(one.played.job, result.question)
        lines.append(f"  {search_table.option(one.played.plan.short())} on {name}: {shown}")
        lines.append(f"    {search_reasons.gap_to_best(one, result.plans[0], result.question)}")
    return lines


def settings_lines(result: SearchResult) -> list[str]:
    """Return the best plan on every cluster, size and stack, and why others have none.

    The list is empty if the question has one setting.
    """
    if len(result.settings) < 2:
        return []
    stacks = len({one.job.stack for one in result.settings}) > 1
    lines = ["the best on each cluster, size and stack" if stacks else "the best on each cluster and size"]
    heading, *rows = search_table.settings_rows(result) or [[]]
    if rows:
        signs = "".join("<" if name in ("on", "") else ">" for name in heading)
        marked = [
            [
                aside(cell) if cell and name == search_table.INTERVAL else cell
                for name, cell in zip(heading, row, strict=True)
            ]
            for row in rows
        ]
        table = aligned_below(["", *heading[1:]], marked, signs)
        lines += [f"  {line}" for line in table[: -len(rows)]]
        for line, best in zip(table[-len(rows) :], search_table.plans_of_settings(result), strict=True):
            lines += [f"  {line}", INDENT + search_table.option(best.played.plan.short())]
    without = [one for one in result.settings if one.best is None]
    width = max((len(search_table.name_of(one.job, result.question)) for one in without), default=0)
    for one in without:
        name = search_table.name_of(one.job, result.question).ljust(width)
        lines.append(f"  {name}  {search_reasons.reason_no_plan(one, result)}")
    return lines


def _front(result: SearchResult) -> list[str]:
    """Return the table of the plans that no other plan beats in all objectives."""
    names = " and ".join(search_table.objective_name(objective) for objective in result.question.asked)
    lines = [
        f"Pareto front: no other plan is better in {names} at once",
        *_table(result, [(one,) for one in result.on_front], front=True),
    ]
    for place in range(len(result.preferences)):
        heading, (titles, *rows) = search_table.preference_rows(result, place)
        lines += ["", heading, *aligned_below(titles, rows, "<>><")]
    return lines


def _not_too_far(nearest: Sequence[Ranked]) -> Iterator[Ranked]:
    """Yield the nearest plan, and a few others that need at most twice the memory of a device."""
    for place, one in enumerate(nearest[:NEAREST]):
        if not place or one.played.device_used_bytes < 2 * one.played.job.cluster.node.device.memory_bytes:
            yield one


def nearest(result: SearchResult) -> list[str]:
    """Return better plans that break a limit or, if no plan is feasible, the nearest plans.

    If no plan keeps every rule, the line names the rules that the nearest plan breaks. After an interrupt,
    the line states the finished part of the search instead.
    """
    if result.partial and not result.plans:
        if not result.candidates:
            return ["the search was interrupted before any part of the space was searched"]
        return ["none of the plans that were searched so far is feasible"]
    if not result.candidates:
        sized = result.question.sized()
        return [
            search_reasons.reason_empty_space(
                result.question, min(sized, key=lambda job: job.cluster.scale_up_devices)
            )
        ]
    if result.rejected is not None:
        breaks = search_reasons.broken_rules(result.rejected.problems)
        return [
            "no plan is possible; this plan comes closest",
            f"  {search_table.option(result.rejected.plan.short())}",
            f"    breaks {breaks}",
        ]
    alone = not result.plans
    better = [one for one in result.nearest if alone or one.ratio < NOT_FASTER_RATIO]
    if not better:
        return []
    lines = [
        "no plan is feasible; these plans come closest" if alone else "better plans that break a limit"
    ]
    for one in _not_too_far(better):
        several = len(tuple(result.question.sized())) > 1
        where = f" on {search_table.place_of(one.played.job, result.question)}" if several else ""
        lines.append(f"  {search_table.option(one.played.plan.short())}{where}")
        lines.append(f"    {search_reasons.reason_infeasible(one, result.question, alone=alone)}")
    return lines
