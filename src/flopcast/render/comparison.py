"""Two predictions side by side, as text and as JSON.

Answers: what does `flopcast compare` print?
Elsewhere: ratios and their intervals (report/versus.py).
"""

import re
from collections.abc import Callable, Mapping, Sequence

from flopcast.render.assumption_lines import assumption_lines
from flopcast.render.plain_data import FORMAT_VERSION
from flopcast.render.report_json import as_json as report_as_json
from flopcast.render.report_json import with_bounds
from flopcast.render.tables import aligned
from flopcast.render.terminal import OF_VERDICT, Mark, answer, aside
from flopcast.report.labels import component_label
from flopcast.report.report import Report
from flopcast.report.versus import ReportComparison, settled
from flopcast.spec.job import Job
from flopcast.units import Number, nine_digits, show, show_memory, show_seconds, show_usd

LABELS = ("A", "B")
SHARE = re.compile(r" \([\d.]+% of the step\)")  # in which two jobs with the same warning differ
SMALLEST_FRACTION = 5e-5  # of a ratio: smaller differences are printed as 0.0 %
INTERVAL, MEMORY = "90 %", "memory"  # names of rows


def marked_text(compared: ReportComparison, names: tuple[str, str]) -> str:
    """Return a table with one column per job, then the verdicts, with marks for a terminal (terminal.py).

    Parameters
    ----------
    compared : ReportComparison
    names : tuple of str
        The names of both jobs, such as the paths of their files.
    """
    first, second = compared.first, compared.second
    who = [
        f"{label}  {name}: {report.job.plan.short()} {report.job.batch_text}"
        for label, name, report in zip(LABELS, names, (first, second), strict=True)
    ]
    warned: dict[str, list[str]] = {}
    for label, report in zip(LABELS, (first, second), strict=True):
        for text in report.warnings:
            warned.setdefault(SHARE.sub("", text), []).append(label)
    lines = [*who, "", *aligned(_marked_rows(compared)), "", *map(_marked_verdict, verdicts(compared))]
    lines += [f"warning   {' and '.join(labels)}: {text}" for text, labels in warned.items()]
    return "\n".join([*lines, *_assumed(compared)])


def _marked_rows(compared: ReportComparison) -> list[list[str]]:
    """Return the rows of `rows_of` with marks on intervals and on what memory needs."""
    reports = (compared.first, compared.second)
    marks: Mapping[str, Sequence[Mark]] = {
        INTERVAL: [aside, aside],
        MEMORY: [OF_VERDICT[report.memory.verdict] for report in reports],
    }
    return [
        [name, *(mark(cell) for mark, cell in zip(marks.get(name, [str, str]), cells, strict=True))]
        for name, *cells in rows_of(compared)
    ]


def _marked_verdict(text: str) -> str:
    """Return a verdict as an answer, without its interval."""
    verdict, bracket, rest = text.partition(" (90 %")
    return answer(verdict) + bracket + rest


def _assumed(compared: ReportComparison) -> list[str]:
    """Return the assumptions of the jobs: those of both first, then those of one of them with its label."""
    first, second = compared.first.assumptions, compared.second.assumptions
    shared = [text for text in first if text in second]
    own = [f"A: {text}" for text in first if text not in shared]
    own += [f"B: {text}" for text in second if text not in shared]
    lines = assumption_lines([*shared, *own])
    return ["", *lines] if lines else []


def rows_of(compared: ReportComparison) -> list[tuple[str, str, str]]:
    """Return rows of name, value of the first job and value of the second; the first row has the labels."""
    first, second = compared.first, compared.second
    return [("", *LABELS), *_facts(first, second), *_runs(first, second), *_times(first, second)]


def verdicts(compared: ReportComparison) -> list[str]:
    """Return a sentence each on time, cost and energy: which job is better, and whether this is certain."""
    return [_verdict(compared), *_verdicts_of_costs(compared), *_difference_of_costs(compared)]


def _facts(first: Report, second: Report) -> list[tuple[str, str, str]]:
    """Return the rows that describe the jobs and their results; "same" replaces an equal description."""
    described = zip(_description(first.job), _description(second.job), strict=True)
    rows = [(name, one, "same" if one == other else other) for (name, one), (_, other) in described]
    quoted = first.job.has_open_length or second.job.has_open_length
    answers = zip(_answers(first, quoted=quoted), _answers(second, quoted=quoted), strict=True)
    return rows + [(name, one, other) for (name, one), (_, other) in answers]


def _description(job: Job) -> list[tuple[str, str]]:
    """Return the model, machine and stack of a job by name."""
    return [
        ("model", job.model.name),
        ("cluster", f"{job.cluster.name}, {job.cluster.num_devices} devices"),
        ("device", job.cluster.node.device.name),
        ("stack", job.stack.label),
    ]


def _answers(report: Report, *, quoted: bool) -> list[tuple[str, str]]:
    """Return the results of one job by name: step, interval, rate, MFU, memory, price, cost, energy.

    Cost and energy are those of 1e12 tokens if they are `quoted`, else of a step.
    """
    memory = report.memory
    verdict = memory.verdict if memory.fits else memory.verdict.upper()
    cost = report.cost
    joules = None if cost.energy is None else cost.energy.step_j
    usd, joules = (
        cost.per_many_tokens(one) if one is not None and quoted else one for one in (cost.step_usd, joules)
    )
    of = "1e12 tokens" if quoted else "a step"
    low, high = (show_seconds(bound, like=report.step_time_s) for bound in report.bounds_s)
    return [
        ("step", show_seconds(report.step_time_s)),
        (INTERVAL, f"{low} to {high}"),
        ("rate", show(report.metrics.tokens_per_s, f"{report.job.batch_unit}/s")),
        ("per device", show(report.metrics.device_tokens_per_s, f"{report.job.batch_unit}/s")),
        ("MFU", f"{report.metrics.mfu_ratio:.1%}"),
        (MEMORY, f"{show_memory(memory.expected_bytes)} expected, {verdict}"),
        (
            "price",
            "unknown" if cost.price is None else f"{cost.price.device_usd_per_hour:g} USD/h per device",
        ),
        (f"cost of {of}", "unknown" if usd is None else show_usd(usd.value)),
        (f"energy of {of}", "unknown" if joules is None else show(joules.value / 3600, "Wh")),
    ]


def _runs(first: Report, second: Report) -> list[tuple[str, str, str]]:
    """Return rows with the time and the cost of the whole runs; none if no job states its length."""
    runs = [report.run for report in (first, second)]
    if runs == [None, None]:
        return []
    times = ["unknown" if run is None else show_seconds(run.wall_s.value) for run in runs]
    costs = ["unknown" if run is None or run.usd is None else show_usd(run.usd.value) for run in runs]
    return [("time of the run", times[0], times[1]), ("cost of the run", costs[0], costs[1])]


def _times(first: Report, second: Report) -> list[tuple[str, str, str]]:
    """Return a heading and the components of both steps, those with the largest difference first.

    Components below 0.5 % are left out. If a job has several stages, times are those of the busiest one.
    """
    names = first.breakdown.keys() | second.breakdown.keys()
    pairs = [(name, first.breakdown.get(name, 0.0), second.breakdown.get(name, 0.0)) for name in names]
    pairs.sort(key=lambda row: (-abs(row[1] - row[2]), row[0]))
    least_s = 0.005 * max(first.step_time_s, second.step_time_s)
    several = any(report.job.plan.pipeline_parallel > 1 for report in (first, second))
    return [
        ("time on the busiest stage" if several else "time of the step", "", ""),
        *(
            ("  " + component_label(name), show_seconds(one), show_seconds(other))
            for name, one, other in pairs
            if max(one, other) >= least_s
        ),
    ]


def _verdict(compared: ReportComparison) -> str:
    """Return a sentence that says which job is faster, by how much, and whether that is settled."""
    change = compared.time_ratio - 1
    bounds = _less_or_more(compared.low_ratio - 1, compared.high_ratio - 1, "{:.1%}".format)
    if abs(change) < SMALLEST_FRACTION:
        return f"B takes as long per token as A ({bounds})"
    word = "less" if change < 0 else "more"
    settled = "" if compared.sure else "; the order is uncertain"
    return f"B takes {abs(change):.1%} {word} time per token than A ({bounds}){settled}"


def _verdicts_of_costs(compared: ReportComparison) -> list[str]:
    """Return the same sentences about cost and energy, as far as they are known."""
    lines = []
    for word, what, ratio in (
        ("costs", "", compared.usd_ratio),
        ("uses", " energy", compared.energy_ratio),
    ):
        if ratio is None:
            continue
        low, high = ratio.bounds
        bounds = _less_or_more(low - 1, high - 1, "{:.1%}".format)
        if max(abs(bound - 1) for bound in ratio.bounds) < SMALLEST_FRACTION:
            lines.append(f"B {word} the same{what} per token as A ({bounds})")
        elif settled(ratio):
            less = "less" if ratio.value < 1 else "more"
            lines.append(f"B {word} {abs(ratio.value - 1):.1%} {less}{what} per token than A ({bounds})")
        else:
            lines.append(f"it is uncertain whether B {word} less{what} per token than A ({bounds})")
    return lines


def _difference_of_costs(compared: ReportComparison) -> list[str]:
    """Return a sentence with the difference of the costs in dollars; none for jobs without a length."""
    change = compared.usd_difference
    first, second = compared.first.job, compared.second.job
    quoted = first.has_open_length or second.has_open_length
    if change is None or not (compared.of_runs or quoted):
        return []
    subject = "the run of {}" if compared.of_runs else "training {} on 1e12 tokens"
    what, other = subject.format("B"), subject.format("A")
    if max(map(abs, change.difference_bounds)) < SMALLEST_FRACTION:
        return [f"{what} costs as much as {other}"]
    less = "less" if change.value < 0 else "more"
    low, high = change.difference_bounds
    unsure = "; this is uncertain" if low < 0 < high else ""
    bounds = _less_or_more(low, high, show_usd)
    return [f"{what} costs {show_usd(abs(change.value))} {less} than {other} ({bounds}){unsure}"]


def _less_or_more(low: Number, high: Number, shown: Callable[[float], str]) -> str:
    """Return the ends of the 90 % interval of a difference, as amounts that are less or more.

    >>> _less_or_more(-0.25, -0.18, "{:.0%}".format), _less_or_more(-0.05, 0.1, "{:.0%}".format)
    ('90 %: 18% to 25% less', '90 %: 5% less to 10% more')
    """
    first, last = (shown(abs(bound)) for bound in (low, high))
    if low < 0 < high:
        return f"90 %: {first} less to {last} more"
    return f"90 %: {last} to {first} less" if high <= 0 else f"90 %: {first} to {last} more"


def as_json(compared: ReportComparison) -> dict[str, object]:
    """Return the comparison as JSON data: both reports, and the ratios with their 90 % intervals.

    Ratios are the second job divided by the first, per token. Below 1, the second job is faster, cheaper or
    needs less energy. `settled` states whether the interval excludes 1. Ratios that one of the reports
    lacks are null.
    """
    return {
        "format_version": FORMAT_VERSION,
        "first": report_as_json(compared.first),
        "second": report_as_json(compared.second),
        "time_per_token_ratio": nine_digits(compared.time_ratio),
        "time_per_token_ratio_low": nine_digits(compared.low_ratio),
        "time_per_token_ratio_high": nine_digits(compared.high_ratio),
        "settled": compared.sure,
        **with_bounds("cost_per_token_ratio", compared.usd_ratio),
        "cost_settled": None if compared.usd_ratio is None else settled(compared.usd_ratio),
        **_difference_as_json(compared),
        **with_bounds("energy_per_token_ratio", compared.energy_ratio),
        "energy_settled": None if compared.energy_ratio is None else settled(compared.energy_ratio),
    }


def _difference_as_json(compared: ReportComparison) -> dict[str, object]:
    """Return the difference of the costs in dollars with its bounds, and what it is the cost of."""
    change = compared.usd_difference
    keys = ("cost_difference_usd", "cost_difference_usd_low", "cost_difference_usd_high")
    numbers = [None] * 3 if change is None else [change.value, *change.difference_bounds]
    rounded = (None if number is None else nine_digits(number) for number in numbers)
    of = None if change is None else "run" if compared.of_runs else "1e12 tokens"
    return {**dict(zip(keys, rounded, strict=True)), "cost_difference_of": of}
