"""A comparison in numbers and in text: per source, per row, per class of component.

Answers: what does `flopcast validate` print, as text, JSON and Markdown?
Elsewhere: how a row is predicted and under which protocol (compare.py). An error is predicted over
measured, less one: positive where flopcast is too slow.
"""

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence

from flopcast.report.as_json import nine_digits
from flopcast.units import show_seconds
from flopcast.validation.compare import ComparedComponent, ComparedRow, Comparison

FORMAT_VERSION = 1


def errors(values: Iterable[float]) -> dict[str, float]:
    """Return statistics of relative errors.

    Returns
    -------
    dict
        `rows` (how many), `mape` (mean absolute), `median`, `p90` and `worst` of the absolute errors, and
        `bias`, the mean with its sign.

    Examples
    --------
    >>> errors([0.1, -0.2, 0.3])["mape"], errors([0.1, -0.2, 0.3])["worst"]
    (0.2, 0.3)
    """
    found = sorted(values, key=abs)
    sizes = [abs(value) for value in found]
    return {
        "rows": len(found),
        "mape": nine_digits(statistics.mean(sizes)),
        "median": nine_digits(statistics.median(sizes)),
        "p90": nine_digits(sizes[min(len(sizes) - 1, int(0.9 * len(sizes)))]),
        "worst": nine_digits(sizes[-1]),
        "bias": nine_digits(statistics.mean(found)),
    }


def by_source(rows: Sequence[ComparedRow]) -> list[dict[str, object]]:
    """Return errors and interval coverage, one entry per source, system and reference.

    Systems and references are never pooled: a mean over best and mean steps would say nothing.
    """
    groups: dict[tuple[str, str, str], list[ComparedRow]] = defaultdict(list)
    for row in rows:
        groups[row.source, row.system, row.reference].append(row)
    return [
        {
            "source": source,
            "system": system,
            "reference": reference,
            **errors(row.relative_error for row in members),
            "coverage": nine_digits(statistics.mean(row.covered for row in members)),
        }
        for (source, system, reference), members in groups.items()
    ]


def by_component(components: Sequence[ComparedComponent]) -> dict[str, dict[str, float]]:
    """Return errors of every class of component, over all rows and stages that measured it.

    A component that the prediction lacks is left out here, and stands as null in the JSON.
    """
    groups: dict[str, list[float]] = defaultdict(list)
    for entry in components:
        if entry.relative_error is not None:
            groups[entry.component].append(entry.relative_error)
    return {name: errors(values) for name, values in groups.items()}


def as_json(comparisons: Sequence[Comparison]) -> dict[str, object]:
    """Return a validation as JSON data; keys may be added, never renamed.

    `rows` holds one entry per run and reference, `components` one per measured component, `sources` the
    statistics of `by_source`, `component_classes` those of `by_component`. Numbers have nine digits; what
    is not known is null. `refused` is null too: a suite whose job breaks a rule is not loaded
    (io/suites.py); the reason would stand there if single rows were left out.
    """
    return {
        "format_version": FORMAT_VERSION,
        "rows": [_row(row, comparison) for comparison in comparisons for row in comparison.rows],
        "components": [
            {
                "id": entry.id,
                "component": entry.component,
                "stage": entry.stage,
                "measured_s": entry.measured_s,
                "predicted_s": None if entry.predicted_s is None else nine_digits(entry.predicted_s),
            }
            for comparison in comparisons
            for entry in comparison.components
        ],
        "sources": [entry for comparison in comparisons for entry in by_source(comparison.rows)],
        "component_classes": {
            name: value
            for comparison in comparisons
            for name, value in by_component(comparison.components).items()
        },
    }


def _row(row: ComparedRow, comparison: Comparison) -> dict[str, object]:
    """Return one run and reference; its jitter comes from other runs, or is None for the cluster's own."""
    jitter = comparison.jitter_ratio.get(row.id) if row.reference == "mean" else None
    return {
        "id": row.id,
        "source": row.source,
        "system": row.system,
        "reference": row.reference,
        "measured_step_time_s": nine_digits(row.measured_step_time_s),
        "predicted_step_time_s": nine_digits(row.predicted_step_time_s),
        "low_s": nine_digits(row.low_s),
        "high_s": nine_digits(row.high_s),
        "measured_memory_bytes": row.measured_memory_bytes,
        "predicted_memory_bytes": nine_digits(row.predicted_memory_bytes),
        "measured_resident_bytes": row.measured_resident_bytes,
        "predicted_resident_bytes": nine_digits(row.predicted_resident_bytes),
        "jitter_ratio": None if jitter is None else nine_digits(jitter),
        "refused": None,
        "assumptions": list(row.assumptions),
    }


def as_text(comparison: Comparison) -> str:
    """Return the table of one suite as text: protocol, rows, sources, classes of components."""
    suite = comparison.suite
    lines = [f"suite {suite.name}: {suite.source}", f"  fitted on these rows: {suite.fitted}"]
    lines += [f"  other models: {suite.peers}"] if suite.peers else []
    for system, ratio in comparison.host_ratio.items():
        lines.append(f"  host cost on {system}: × {ratio:.2f}, fitted on the other systems")
    for system in dict.fromkeys(row.system for row in suite.rows):
        if jitters := comparison.jitters(system):
            low, *_, high = jitters
            lines.append(f"  jitter on {system}: × {low:.3f} to {high:.3f}, of its other runs")
    lines.append(f"  {'run':22} {'reference':9} {'measured':>10} {'predicted':>10} {'error':>7}   90 %")
    for row in comparison.rows:
        lines.append(
            f"  {row.id:22} {row.reference:9} {show_seconds(row.measured_step_time_s):>10}"
            f" {show_seconds(row.predicted_step_time_s):>10} {row.relative_error:+7.1%}"
            f"   {'inside' if row.covered else 'OUTSIDE'}"
            + (f"   memory {_memory_error(row):+.1%}" if row.measured_memory_bytes else "")
            + (f", between steps {_resident_error(row):+.1%}" if row.measured_resident_bytes else "")
        )
    for entry in by_source(comparison.rows):
        lines.append(
            f"  {entry['system']}, {entry['reference']}: mean absolute error {entry['mape']:.1%},"
            f" worst {entry['worst']:.1%}, bias {entry['bias']:+.1%}, {entry['coverage']:.0%} inside"
        )
    classes = by_component(comparison.components)
    if classes:
        lines.append(f"  {'component':40} {'rows':>4} {'error':>6} {'worst':>6} {'bias':>6}")
        for name, found in classes.items():
            lines.append(
                f"  {name:40} {found['rows']:4.0f} {found['mape']:6.1%} {found['worst']:6.1%}"
                f" {found['bias']:+6.1%}"
            )
    return "\n".join(lines)


def _memory_error(row: ComparedRow) -> float:
    return row.predicted_memory_bytes / (row.measured_memory_bytes or 1.0) - 1.0


def _resident_error(row: ComparedRow) -> float:
    return row.predicted_resident_bytes / (row.measured_resident_bytes or 1.0) - 1.0


def as_markdown(comparisons: Sequence[Comparison]) -> str:
    """Return the page `docs/accuracy/suites.md`: every row, every class of component, what was fitted."""
    lines = [
        "# Suites: measured runs, row by row",
        "",
        "Generated by `flopcast validate --markdown`; `flopcast validate` prints the same as text. Errors",
        "are predicted over measured, less one. *best*: the fastest profiled step, without jitter;",
        "*mean*: the mean of the steady steps, jitter included. *inside 90 %*: how many intervals hold the",
        "measurement.",
    ]
    for comparison in comparisons:
        lines += ["", *_markdown_of(comparison)]
    return "\n".join(lines) + "\n"


def _markdown_of(comparison: Comparison) -> Iterable[str]:
    suite = comparison.suite
    yield f"## {suite.name}"
    yield ""
    yield f"Source: {suite.source}. Fitted on these rows: {suite.fitted}."
    if suite.peers:
        yield f"Other models: {suite.peers}."
    yield from ("", "| system | reference | rows | mean error | median | worst | bias | inside 90 % |")
    yield "|---|---|--:|--:|--:|--:|--:|--:|"
    for entry in by_source(comparison.rows):
        yield (
            f"| {entry['system']} | {entry['reference']} | {entry['rows']} | {entry['mape']:.1%} |"
            f" {entry['median']:.1%} | {entry['worst']:.1%} | {entry['bias']:+.1%} |"
            f" {entry['coverage']:.0%} |"
        )
    yield from ("", "| run | reference | measured | predicted | error | 90 % interval | peak memory |")
    yield "|---|---|--:|--:|--:|---|--:|"
    for row in comparison.rows:
        memory = f"{_memory_error(row):+.1%}" if row.measured_memory_bytes else ""
        yield (
            f"| {row.id} | {row.reference} | {show_seconds(row.measured_step_time_s)} |"
            f" {show_seconds(row.predicted_step_time_s)} | {row.relative_error:+.1%} |"
            f" {show_seconds(row.low_s)} to {show_seconds(row.high_s)} | {memory} |"
        )
    classes = by_component(comparison.components)
    if classes:
        yield from ("", "| component | rows | mean error | worst | bias |", "|---|--:|--:|--:|--:|")
        for name, found in classes.items():
            yield (
                f"| {name} | {found['rows']:.0f} | {found['mape']:.1%} | {found['worst']:.1%} |"
                f" {found['bias']:+.1%} |"
            )
    if suite.remarks:
        yield ""
        yield from (f"- {remark}" for remark in suite.remarks)
