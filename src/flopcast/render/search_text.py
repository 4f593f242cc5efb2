"""The answer of a search as text: counts, plans, a sentence for each, plans that nearly fit, assumptions.

Answers: what does a terminal show?
Elsewhere: the sentences (search_reasons.py), the whole run of a plan (search_runs.py), the same as data
(search_json.py) and as a drawing (search_drawing.py).
"""

from collections.abc import Iterator, Sequence

from flopcast.render import search_reasons
from flopcast.render.assumption_lines import assumption_lines
from flopcast.render.search_runs import limits_lines, names_of_run, run_of
from flopcast.render.tables import aligned
from flopcast.render.terminal import OF_VERDICT, Mark, answer, aside, plain
from flopcast.search.find import SearchResult
from flopcast.search.objectives import OBJECTIVES, Objective
from flopcast.search.question import Question
from flopcast.search.rank import Ranked, grouped
from flopcast.spec.job import Job
from flopcast.units import show, show_memory

NOTHING_ELSE = "–"  # of a plan whose words all others have too
Group = Sequence[Ranked]  # a plan and its variants
TOP = 20
VARIANTS = 3  # of a plan that are shown; JSON and CSV have all
INTERVAL, MEMORY = "90 %", "expected memory"  # names of columns
NEAREST = 3  # that are shown; JSON has all


def as_text(result: SearchResult, top: int = TOP, *, with_front: bool = False) -> str:
    """Return the result as text: paragraphs, without a final newline; at most `top` plans.

    With `with_front`, the front of all objectives is shown too.
    """
    return plain(marked_text(result, top, with_front=with_front))


def marked_text(result: SearchResult, top: int = TOP, *, with_front: bool = False) -> str:
    """Return the same text with marks for a terminal (terminal.py)."""
    parts = [question_lines(result)]
    if result.plans:
        groups = grouped(result.plans)[:top]
        parts.append(_table(result, groups))
        parts.append(_reasons(result, groups))
        parts.append(_given(result))
    parts.append(_settings(result))
    if result.plans:
        parts.append(_front(result) if with_front else [])
    parts.append(nearest(result))
    parts.append(assumption_lines(text for job in result.question.jobs for text in job.assumptions))
    return "\n\n".join("\n".join(part) for part in parts if part)


def name_of(job: Job, question: Question) -> str:
    """Return the cluster and size of a plan, with stack and power limit if the question names several."""
    name = f"{job.cluster.name} × {job.cluster.num_devices}"
    if len({one.stack for one in question.jobs}) > 1:
        name += f", {job.stack.label}"
    if len({one.site.power_limit_w for one in question.jobs}) > 1:
        limit_w = job.site.power_limit_w
        name += ", full power" if limit_w is None else f", {show(limit_w, 'W')}"
    return name


def question_lines(result: SearchResult) -> list[str]:
    """Return the lines that state the question and the number of plans."""
    question = result.question
    job = question.jobs[0]
    sizes = dict.fromkeys(f"{one.cluster.name} × {one.cluster.num_devices}" for one in question.sized())
    devices = dict.fromkeys(one.cluster.node.device.name for one in question.jobs)
    stacks = dict.fromkeys(one.stack.label for one in question.jobs)
    part = question.space.headroom_fraction
    room = "" if part is None else f" ({part:.0%} of the memory)"
    kept = f"{result.feasible:,} of these keep all limits by estimate"
    lines = [
        f"{job.model.name} on {', '.join(sizes)}: {', '.join((*devices, *stacks))}, {job.batch.text()}",
        f"searched  {result.candidates:,} plans: {result.possible:,} possible, {result.in_memory:,} fit"
        + (f" into memory{room}, {kept}" if question.limits else room)
        + f", {result.played} simulated exactly"
        + (f", {result.refined} of them refine the best" if result.refined else ""),
    ]
    notes = dict.fromkeys(_not_tried(one, question) for one in question.jobs)
    lines += [f"note      {text}" for text in notes if text]
    lines += limits_lines(result)
    if result.partial:
        lines.append("warning   interrupted: only a part of the space was searched")
    if result.thinned:
        lines.append("warning   the front has more plans than were simulated: only some of them are shown")
    return lines


def _not_tried(job: Job, question: Question) -> str:
    """Return a sentence on what the stack cannot do and the question does not name; "" for nothing."""
    fields = [name for name in job.stack.switches.fixed if not getattr(question.space, name)]
    names = ", ".join(name.replace("_parallel", " parallelism").replace("_", " ") for name in fields)
    return f"{job.stack.label} has no {names}: plans with it are tried if --plan names it" if names else ""


def _table(result: SearchResult, groups: Sequence[Group], *, front: bool = False) -> list[str]:
    """Return a line for the first plan of each group, the plan at its end, and one for its variants."""
    rows = rows_of(result, [first for first, *_ in groups], (), front=front)
    numbers, plans, *others = zip(*rows, strict=True)
    head, *options = plans
    columns = [numbers, *others, (head, *map(_option, options))]
    signs = "<" + "".join("<" if head == "cluster" else ">" for head, *_ in others) + "<"
    titles, *cells = zip(*columns, strict=True)
    marked = [_marked(row, titles, first) for row, (first, *_) in zip(cells, groups, strict=True)]
    if not front:
        best = marked[0]
        marked[0] = [answer(best[0]), answer(best[1]), *best[2:-1], answer(best[-1])]
    heading, *lines = aligned([titles, *marked], signs)
    told = [heading]
    for line, group in zip(lines, groups, strict=True):
        variants = variants_of(group)
        told += [line, f"      and {variants}"] if variants else [line]
    return told


def _marked(row: Sequence[str], heading: Sequence[str], one: Ranked) -> list[str]:
    """Return a row with intervals as asides, and with a need for memory that is not met as a caution."""
    verdict = one.played.verdict
    memory: Mark = str if verdict == "fits" else OF_VERDICT[verdict]
    marks = {INTERVAL: aside, MEMORY: memory}
    return [marks.get(name, str)(cell) for name, cell in zip(heading, row, strict=True)]


def _option(short: str) -> str:
    """Return a plan as an option that can be copied."""
    return f'--plan "{short}"'


def variants_of(group: Group) -> str:
    """Return how many variants a plan has, and in which words the next ones differ; "" for none."""
    first, *others = group
    told = [f"{_changes(one, first)} ({_behind(one)})" for one in others[:VARIANTS]]
    told += [f"{len(others) - VARIANTS} more"] if len(others) > VARIANTS else []
    count = f"{len(others)} variants" if len(others) > 1 else "1 variant"
    return f"{count} tied with it: {'; '.join(told)}" if others else ""


def _changes(one: Ranked, first: Ranked) -> str:
    """Return the words of a plan that another does not have, and the names of those that it lacks."""
    words, known = (each.played.plan.short().split() for each in (one, first))
    own, theirs = ({word.partition("=")[0] for word in each} for each in (words, known))
    gone = " and ".join(sorted(theirs - own))
    new = [word for word in words if word not in known]
    return " ".join([*new, f"without {gone}"] if gone else new)


def _behind(one: Ranked) -> str:
    return f"{one.ratio - 1:+.1%}" if one.ratio != 1 else "best"


def rows_of(
    result: SearchResult, plans: Sequence[Ranked], shared: Sequence[str], *, front: bool = False
) -> list[list[str]]:
    """Return the names of columns, then one row per plan.

    A plan has the objectives that are named, all of them on a `front`, the first with its interval, the
    ratio to the best with its, and memory if it is no objective: the expected need as `predict` has it or,
    under a headroom, what is in use on the device. `shared` are words of a plan that are left out, because
    all plans have them (`shared_words`). If the tokens of the run are known, a plan has the time of the run
    and, if a device has a price, its cost.
    """
    headroom = result.question.space.headroom_fraction
    objectives = result.question.asked if front else result.question.named
    of_memory = OBJECTIVES["memory"] in objectives
    several = len({name_of(one.played.job, result.question) for one in result.plans}) > 1
    head = ["", "plan", *(["cluster"] if several else [])]
    first, *others = [objective_name(one) for one in objectives]
    of_run = [name for name in names_of_run(result.question) if name not in (first, *others)]
    head += [first, INTERVAL, *others, *of_run, "vs best", INTERVAL]
    heading = MEMORY if headroom is None else objective_name(OBJECTIVES["memory"])
    head += [] if of_memory else [heading]
    rows = [head]
    for number, one in enumerate(plans, 1):
        row = [f"{number}{' =' if one.equal else ''}", _without(shared, one)]
        row += [name_of(one.played.job, result.question)] if several else []
        first, *others = values_of(result, one)[: len(objectives)]
        low, high = sorted(objectives[0].shown(bound) for bound in one.losses[0].bounds)
        row += [first, f"{objectives[0].show(low)} to {objectives[0].show(high)}", *others]
        row += [run_of(one.played, result.question)[name] for name in of_run]
        row += [_behind(one)]
        row += [search_reasons.ratio_interval(one) if one.ratio != 1 else ""]
        row += [] if of_memory else [_memory(one, in_use=headroom is not None)]
        rows.append(row)
    return rows


def _memory(one: Ranked, *, in_use: bool) -> str:
    """Return the memory in use or the expected need, and the verdict unless the plan fits."""
    played = one.played
    size = show_memory(played.device_used_bytes if in_use else played.expected_bytes)
    return size if played.verdict == "fits" else f"{size} {played.verdict}"


def shared_words(plans: Sequence[Ranked]) -> list[str]:
    """Return the fields that all of the plans share; they are printed once."""
    first, *others = [one.played.plan.short().split() for one in plans]
    return [word for word in first if all(word in words for words in others)] if others else []


def _without(shared: Sequence[str], one: Ranked) -> str:
    words = one.played.plan.short().split()
    return " ".join(word for word in words if word not in shared) or NOTHING_ELSE


def values_of(result: SearchResult, one: Ranked) -> list[str]:
    """Return what a plan attains in each objective of the question, with units."""
    pairs = zip(result.question.asked, one.losses, strict=True)
    return [objective.show(objective.shown(loss.value)) for objective, loss in pairs]


def objective_name(objective: Objective) -> str:
    """Return the name of a column; the unit is in its cells."""
    name = next(name for name, one in OBJECTIVES.items() if one is objective)
    return objective.label or name.replace("_", " ")


def _reasons(result: SearchResult, groups: Sequence[Group]) -> list[str]:
    """Return the sentence on the first plan, and what each of the others takes more time in."""
    first = result.plans[0]
    lines = ["why (time against plan 1; = is tied: the 90 % interval of its ratio to the best contains 1)"]
    for number, (one, *_) in enumerate(groups, 1):
        lost = search_reasons.reason_lost(one, first) or "no component takes longer"
        lines.append(f"{number:3}  {search_reasons.sentence_of(one, result) if one is first else lost}")
    return lines


def _given(result: SearchResult) -> list[str]:
    """Return lines that compare the user's own plans with the best."""
    if not result.given:
        return []
    lines = ["as given"]
    for one in result.given:
        shown, *_ = values_of(result, one)
        name = name_of(one.played.job, result.question)
        lines.append(f"  {_option(one.played.plan.short())} on {name}: {shown}")
        lines.append(f"    {search_reasons.gap_to_best(one, result.plans[0], result.question)}")
    return lines


def settings_rows(result: SearchResult) -> list[tuple[str, str]]:
    """Return the name of every setting, with its best plan or why it has none; the best setting first.

    A setting is a cluster, a size and a stack. The list is empty if the question has one setting.
    """
    if len(result.settings) < 2:
        return []
    best = [(one, one.best) for one in result.settings if one.best is not None]
    best.sort(key=lambda pair: pair[1].losses[0].value)
    rows = [(name_of(one.job, result.question), _best_there(plan, result)) for one, plan in best]
    without = (one for one in result.settings if one.best is None)
    return [
        *rows,
        *(
            (name_of(one.job, result.question), search_reasons.reason_no_plan(one, result))
            for one in without
        ),
    ]


def _best_there(one: Ranked, result: SearchResult) -> str:
    """Return the best plan of a setting: its objectives, memory, how far it is behind, its short form."""
    named, in_use = result.question.named, result.question.space.headroom_fraction is not None
    values, behind = values_of(result, one)[: len(named)], "best"
    if OBJECTIVES["memory"] not in named:
        values.append(f"{_memory(one, in_use=in_use)} {'in use' if in_use else 'expected'}")
    if one.ratio != 1:
        settled = "; the order is not settled" if one.equal else ""
        behind = f"{one.ratio - 1:+.1%}, 90 %: {search_reasons.ratio_interval(one)}{settled}"
    return f"{', '.join(values)} ({behind}): {_option(one.played.plan.short())}"


def _settings(result: SearchResult) -> list[str]:
    """Return lines with the best plan on every cluster, size and stack, or why there is none."""
    rows = settings_rows(result)
    if not rows:
        return []
    width = max(len(name) for name, _ in rows)
    stacks = len({one.job.stack for one in result.settings}) > 1
    head = "the best on each cluster, size and stack" if stacks else "the best on each cluster and size"
    return [head, *(f"  {name.ljust(width)}  {reason}" for name, reason in rows)]


def _front(result: SearchResult) -> list[str]:
    """Return the table of the plans that no other plan beats in all objectives."""
    names = " and ".join(objective_name(objective) for objective in result.question.asked)
    return [
        f"the front: no plan is better in {names} at once",
        *_table(result, [(one,) for one in result.on_front], front=True),
    ]


def _not_too_far(nearest: Sequence[Ranked]) -> Iterator[Ranked]:
    """Yield the nearest plan, and a few others that need at most twice the memory of a device."""
    for place, one in enumerate(nearest[:NEAREST]):
        if not place or one.played.device_used_bytes < 2 * one.played.job.cluster.node.device.memory_bytes:
            yield one


def nearest(result: SearchResult) -> list[str]:
    """Return better plans that break a limit; if no plan is feasible, the nearest ones."""
    if result.partial and not result.plans:
        if not result.candidates:
            return ["the search was interrupted before any part of the space was searched"]
        return ["nothing that was searched so far is feasible"]
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
            "no plan is possible; the nearest",
            f"  {_option(result.rejected.plan.short())}",
            f"    breaks {breaks}",
        ]
    if not result.nearest:
        return []
    alone = not result.plans
    lines = ["no plan is feasible; the nearest" if alone else "better plans that break a limit"]
    for one in _not_too_far(result.nearest):
        several = len(tuple(result.question.sized())) > 1
        where = f" on {name_of(one.played.job, result.question)}" if several else ""
        lines.append(f"  {_option(one.played.plan.short())}{where}")
        lines.append(f"    {search_reasons.reason_infeasible(one, result.question, alone=alone)}")
    return lines
