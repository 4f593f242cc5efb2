"""The table of the plans that a search found: the content of its cells, and the text of each plan.

Answers: which columns does a table of plans have, what is a plan called, and how do its variants differ?
Elsewhere: the text around the tables (search_text.py), the page (ui/responses.py), the whole run of a plan
(search_runs.py), sentences on single plans (search_reasons.py).
"""

from collections.abc import Sequence

from flopcast.render import search_reasons
from flopcast.render.search_runs import names_of_run, run_values
from flopcast.report.metrics import measure
from flopcast.search.exact import Exact
from flopcast.search.find import SearchResult
from flopcast.search.objectives import OBJECTIVES, Objective
from flopcast.search.question import Question
from flopcast.search.rank import Ranked
from flopcast.spec.job import Job
from flopcast.units import show, show_memory

Group = Sequence[Ranked]  # a plan and its variants
VARIANTS = 3  # of a plan that are shown; JSON and CSV have all
INTERVAL, MEMORY, DEVICES = "90 %", "expected memory", "GPUs"  # names of columns
RATE, MFU, BEHIND = "tokens/s", "MFU", "vs best"
RECOMMENDED, UNSETTLED = "recommended", "may be the best"


def name_of(job: Job, question: Question) -> str:
    """Return the cluster and size of a plan, with its stack and power limit if several are compared."""
    return f"{job.cluster.name}, {job.cluster.num_devices} devices{_varied(job, question)}"


def place_cells(job: Job, question: Question) -> list[str]:
    """Return the cells of the columns for the cluster, with what `name_of` adds, and for its devices."""
    return [f"{job.cluster.name}{_varied(job, question)}", str(job.cluster.num_devices)]


def place_of(job: Job, question: Question) -> str:
    """Return the devices and the cluster of a plan for sentences, with what `name_of` adds."""
    return f"{job.cluster.machine} ({job.cluster.name}){_varied(job, question)}"


def _varied(job: Job, question: Question) -> str:
    """Return those of a plan's stack, overlap and power limit in which the compared plans differ."""
    name = ""
    if len({one.stack.label for one in question.jobs}) > 1:
        name += f", {job.stack.label}"
    if len({one.stack.tensor_overlap for one in question.jobs}) > 1:
        name += f", tensor_overlap={job.stack.tensor_overlap}"
    if len({one.site.power_limit_w for one in question.jobs}) > 1:
        limit_w = job.site.power_limit_w
        name += ", full power" if limit_w is None else f", {show(limit_w, 'W')}"
    return name


def rows_of(result: SearchResult, plans: Sequence[Ranked], *, front: bool = False) -> list[list[str]]:
    """Return the names of the columns, followed by one row per plan.

    The row of a plan has the named objectives, or all objectives on a `front`. The first objective and the
    ratio to the best plan have intervals. If memory is not an objective, the row has the expected memory,
    as in `predict`, or with a headroom the memory in use. If the tokens of the run are known, the row has
    the time of the run and, if a device has a price, its cost.
    """
    headroom = result.question.space.headroom_fraction
    objectives = result.question.asked if front else result.question.named
    of_memory = OBJECTIVES["memory"] in objectives
    several = len({name_of(one.played.job, result.question) for one in result.plans}) > 1
    head = ["", *(["cluster", DEVICES] if several else [])]
    first, *others = [objective_name(one) for one in objectives]
    of_run = _of_run(result.question, objectives)
    head += [first, INTERVAL, *others, *of_run, BEHIND, INTERVAL]
    head += [] if of_memory else [memory_heading(result.question)]
    rows = [head]
    for number, one in enumerate(plans, 1):
        row = [f"{number}{' =' if one.equal else ''}"]
        row += place_cells(one.played.job, result.question) if several else []
        first, *others = values_of(result, one)[: len(objectives)]
        low, high = sorted(objectives[0].shown(bound) for bound in one.losses[0].bounds)
        row += [first, f"{objectives[0].show(low)} to {objectives[0].show(high)}", *others]
        row += [run_values(one.played, result.question)[name] for name in of_run]
        row += [behind(one)]
        row += [search_reasons.ratio_interval(one) if one.ratio != 1 else ""]
        row += [] if of_memory else [_memory(one, in_use=headroom is not None)]
        rows.append(row)
    return rows


def settings_rows(result: SearchResult) -> list[list[str]]:
    """Return the names of columns, then a row for each setting that has a plan, the best setting first.

    A setting is a cluster, a size and a stack. The plan of a row has the same position in
    `plans_of_settings`. A row has the named objectives, rate, MFU, the run if its tokens are known, memory,
    and the ratio to the best plan of all settings with its interval. If an interval contains 1, the last
    column marks the rows whose order is uncertain. The list is empty if the question has one setting or no
    plan.
    """
    plans = plans_of_settings(result)
    if len(result.settings) < 2 or not plans:
        return []
    question, objectives = result.question, result.question.named
    of_rate = [] if OBJECTIVES["tokens_per_s"] in objectives else [RATE]
    of_run = _of_run(question, objectives)
    of_memory = [] if OBJECTIVES["memory"] in objectives else [memory_heading(question)]
    names = map(objective_name, objectives)
    rows = [["on", DEVICES, *names, *of_rate, MFU, *of_run, *of_memory, BEHIND, INTERVAL]]
    for one in plans:
        rate, mfu = rate_and_mfu(one.played)
        row = [*place_cells(one.played.job, question), *values_of(result, one)[: len(objectives)]]
        row += [*([rate] if of_rate else []), mfu]
        row += [run_values(one.played, question)[name] for name in of_run]
        row += [_memory(one, in_use=question.space.headroom_fraction is not None)] if of_memory else []
        row += [behind(one), search_reasons.ratio_interval(one) if one.ratio != 1 else ""]
        rows.append(row)
    open_order = [UNSETTLED if one.equal and one.ratio != 1 else "" for one in plans]
    if any(open_order):
        rows = [[*row, text] for row, text in zip(rows, ["", *open_order], strict=True)]
    return rows


def preference_rows(result: SearchResult, place: int) -> tuple[str, list[list[str]]]:
    """Return the heading and the rows of the plans that are best for weights of the first objective.

    The weights balance the first objective against the other objective with this number.
    """
    first, other = result.question.asked[0], result.question.asked[place + 1]
    names = objective_name(first), objective_name(other)
    heading = (
        f"best plan by preference: a weight w means that 1 % of {names[0]} is worth w / (1 − w) % of"
        f" {names[1]}"
    )
    rows = [["weight", *names, "plan"]]
    for one in result.preferences[place]:
        values = values_of(result, one.plan)
        weights = f"{one.low_ratio:.3f} to {one.high_ratio:.3f}"
        rows.append([weights, values[0], values[place + 1], one.plan.played.plan.short()])
    return heading, rows


def plans_of_settings(result: SearchResult) -> list[Ranked]:
    """Return the plan that is recommended on each cluster, size and stack that has one, best first."""
    plans = [one.best for one in result.settings if one.best is not None]
    return sorted(plans, key=lambda one: one.losses[0].value)


def _of_run(question: Question, objectives: Sequence[Objective]) -> list[str]:
    """Return what is known of whole runs and is no objective."""
    names = [objective_name(one) for one in objectives]
    return [name for name in names_of_run(question) if name not in names]


def rate_and_mfu(played: Exact) -> tuple[str, str]:
    """Return the tokens per second of the whole cluster and the MFU, as `predict` shows them."""
    metrics = measure(played.job, played.step_time_s)
    return show(metrics.tokens_per_s, RATE), f"{metrics.mfu_ratio:.1%}"


def mark_of(one: Ranked, result: SearchResult) -> str:
    """Return that a plan is recommended or, if another plan is recommended, that it is the best."""
    if one is result.plans[0]:
        return RECOMMENDED
    return result.question.first.superlative if one.ratio == 1 else ""


def option(short: str) -> str:
    """Return a plan as an option that can be copied."""
    return f'--plan "{short}"'


DIFFERENCE = "in brackets: the difference from the best plan"


def variants_of(group: Group) -> str:
    """Return the number of variants of a plan, and how the best of them differ from it; "" for none."""
    first, *others = group
    told = [f"{_changes(one, first)} ({behind(one)})" for one in others[:VARIANTS]]
    told += [f"{len(others) - VARIANTS} more"] if len(others) > VARIANTS else []
    count = f"{len(others)} variants" if len(others) > 1 else "1 variant"
    return f"{count} that may be as good as this plan: {'; '.join(told)}" if others else ""


def _changes(one: Ranked, first: Ranked) -> str:
    """Return the words of a plan that another does not have, and the names of those that it lacks."""
    words, known = (each.played.plan.short().split() for each in (one, first))
    own, theirs = ({word.partition("=")[0] for word in each} for each in (words, known))
    gone = " and ".join(sorted(theirs - own))
    new = [word for word in words if word not in known]
    return " ".join([*new, f"without {gone}"] if gone else new)


def behind(one: Ranked) -> str:
    """Return the difference between a plan and the best plan."""
    return f"{one.ratio - 1:+.1%}" if one.ratio != 1 else "best"


def memory_heading(question: Question) -> str:
    """Return the name of the column of memory."""
    return MEMORY if question.space.headroom_fraction is None else objective_name(OBJECTIVES["memory"])


def _memory(one: Ranked, *, in_use: bool) -> str:
    """Return the memory in use or the expected need, and the verdict unless the plan fits."""
    played = one.played
    size = show_memory(played.device_used_bytes if in_use else played.expected_bytes)
    return size if played.verdict == "fits" else f"{size} {played.verdict}"


def values_of(result: SearchResult, one: Ranked) -> list[str]:
    """Return the value of a plan for each objective of the question, with units."""
    pairs = zip(result.question.asked, one.losses, strict=True)
    return [objective.show(objective.shown(loss.value)) for objective, loss in pairs]


def objective_name(objective: Objective) -> str:
    """Return the name of a column. The unit is in the cells."""
    name = next(name for name, one in OBJECTIVES.items() if one is objective)
    return objective.label or name.replace("_", " ")
