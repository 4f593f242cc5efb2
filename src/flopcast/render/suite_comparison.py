"""Compared suites of measured runs, steps or memory, as text, JSON and Markdown.

Answers: what do `flopcast validate --suite` and `flopcast demo` print?
Elsewhere: how a row is predicted (lab/validation/compare.py, memory.py), errors by source
(lab/validation/statistics.py).
"""

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from flopcast.lab.validation.compare import ComparedRow, ComparedSuite
from flopcast.lab.validation.memory import ComparedMemory, summary
from flopcast.lab.validation.statistics import by_component, by_source
from flopcast.render.plain_data import FORMAT_VERSION, fields_of, plain
from flopcast.render.tables import markdown_rows, texts_of
from flopcast.render.terminal import caution, good
from flopcast.units import show_memory, show_seconds

TEXTS = texts_of("suites")
Tables = dict[str, tuple[tuple[ComparedMemory, ...], dict[str, str]]]  # rows, and why others are left out


def as_json(comparisons: Sequence[ComparedSuite]) -> dict[str, object]:
    """Return a validation as JSON data; keys may be added, never renamed.

    `rows` holds one entry per run and reference, `components` one per measured component, `sources` the
    statistics of `by_source`, `component_classes` those of `by_component`. Numbers have nine digits;
    unknown values are null. `refused` is always null, because a suite with an invalid job is not loaded
    (lab/published/suite_files.py).
    """
    return {
        "format_version": FORMAT_VERSION,
        "rows": [_row(row, comparison) for comparison in comparisons for row in comparison.rows],
        "components": [
            fields_of(entry, "id", "component", "stage")
            | {"measured_s": entry.measured_s, "predicted_s": plain(entry.predicted_s)}
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


def _row(row: ComparedRow, comparison: ComparedSuite) -> dict[str, object]:
    """Return one run and reference; its jitter comes from other runs, or is None for the cluster's own."""
    jitter = comparison.jitter_ratio.get(row.id) if row.reference == "mean" else None
    return {
        **fields_of(row, "id", "source", "system", "reference"),
        **fields_of(row, "measured_step_time_s", "predicted_step_time_s", "low_s", "high_s"),
        "measured_memory_bytes": row.measured_memory_bytes,
        **fields_of(row, "predicted_memory_bytes"),
        "measured_resident_bytes": row.measured_resident_bytes,
        **fields_of(row, "predicted_resident_bytes"),
        "jitter_ratio": plain(jitter),
        "refused": None,
        "assumptions": list(row.assumptions),
    }


def marked_text(comparison: ComparedSuite) -> str:
    """Return the printed text, with marks that a terminal shows as colours (terminal.py)."""
    suite = comparison.suite
    lines = [f"suite {suite.name}: {suite.source}", f"  fitted on these rows: {suite.fitted}"]
    lines += [f"  other models: {suite.peers}"] if suite.peers else []
    for system, ratio in comparison.host_ratio.items():
        lines.append(
            f"  host time on {system}: multiplied by {ratio:.2f}, a factor that was fitted on the other"
            " systems"
        )
    for system in dict.fromkeys(row.system for row in suite.rows):
        if jitters := comparison.jitters(system):
            low, *_, high = jitters
            lines.append(
                f"  steps on {system}: multiplied by {low:.3f} to {high:.3f} (the jitter of its other runs)"
            )
    lines.append(f"  {'run':22} {'reference':9} {'measured':>10} {'predicted':>10} {'error':>7}   90 %")
    for row in comparison.rows:
        lines.append(
            f"  {row.id:22} {row.reference:9} {show_seconds(row.measured_step_time_s):>10}"
            f" {show_seconds(row.predicted_step_time_s):>10} {row.relative_error:+7.1%}"
            f"   {good('inside') if row.covered else caution('OUTSIDE')}"
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
        for name, scores in classes.items():
            lines.append(
                f"  {name:40} {scores['rows']:4.0f} {scores['mape']:6.1%} {scores['worst']:6.1%}"
                f" {scores['bias']:+6.1%}"
            )
    return "\n".join(lines)


def _memory_error(row: ComparedRow) -> float:
    return row.predicted_memory_bytes / (row.measured_memory_bytes or 1.0) - 1.0


def _resident_error(row: ComparedRow) -> float:
    return row.predicted_resident_bytes / (row.measured_resident_bytes or 1.0) - 1.0


def as_markdown(comparisons: Sequence[ComparedSuite]) -> str:
    """Return the page `docs/accuracy/suites.md`: every row, every class of component, what was fitted."""
    errors = (
        f"{statistics.mean(abs(row.relative_error) for row in each.rows):.1%} for `{each.suite.name}`"
        for each in comparisons
    )
    lines = [TEXTS["head"].format(errors=", ".join(errors))]
    for comparison in comparisons:
        lines += ["", *_markdown_of(comparison)]
    return "\n".join(lines) + "\n"


def _markdown_of(comparison: ComparedSuite) -> Iterable[str]:
    suite = comparison.suite
    yield f"## {suite.name}"
    yield ""
    yield f"- Source: {suite.source}."
    yield f"- Fitted to these runs: {suite.fitted}."
    if suite.peers:
        yield f"- Mean errors of other performance models on these runs: {suite.peers}."
    systems = [
        (
            *(entry[key] for key in ("system", "reference", "rows")),
            *(f"{entry[key]:.1%}" for key in ("mape", "median", "worst")),
            f"{entry['bias']:+.1%}",
            f"{entry['coverage']:.0%}",
        )
        for entry in by_source(comparison.rows)
    ]
    yield from ("", *markdown_rows(TEXTS["systems"], systems, "<<>>>>>>"))
    runs = [
        (
            row.id,
            row.reference,
            show_seconds(row.measured_step_time_s),
            show_seconds(row.predicted_step_time_s),
            f"{row.relative_error:+.1%}",
            f"{show_seconds(row.low_s)} to {show_seconds(row.high_s)}",
            f"{_memory_error(row):+.1%}" if row.measured_memory_bytes else "",
        )
        for row in comparison.rows
    ]
    yield from ("", *markdown_rows(TEXTS["runs"], runs, "<<>>><>"))
    parts = [
        (
            name,
            f"{scores['rows']:.0f}",
            *(f"{scores[key]:.1%}" for key in ("mape", "worst")),
            f"{scores['bias']:+.1%}",
        )
        for name, scores in by_component(comparison.components).items()
    ]
    if parts:
        yield from ("", *markdown_rows(TEXTS["components"], parts, "<>>>>"))
    if suite.remarks:
        yield ""
        yield from (f"- {remark}" for remark in suite.remarks)


def compared_text(comparison: ComparedSuite, run: str) -> str:
    """Return the measured and predicted step, memory and components of one run of a suite, with their
    errors.
    """
    rows = [row for row in comparison.rows if row.id == run]
    parts = [entry for entry in comparison.components if entry.id == run]
    labels: Mapping[str, str] = TEXTS["component_labels"]
    lines = [
        f"comparison with the measurements of run {run} of {comparison.suite.source.partition(';')[0]}",
        "(the launch time was fitted on another cluster, and the jitter on other runs of this cluster)",
        f"  {'':50} {'measured':>10} {'predicted':>10} {'error':>7}",
    ]
    for row in rows:
        name = {"best": "best step", "mean": "mean steady step"}[row.reference]
        measured, predicted = row.measured_step_time_s, row.predicted_step_time_s
        lines.append(_line(name, show_seconds(measured), show_seconds(predicted), row.relative_error))
    memory = rows[0].measured_memory_bytes
    if memory:
        predicted = rows[0].predicted_memory_bytes
        name = "peak allocated memory, first stage"
        lines.append(_line(name, show_memory(memory), show_memory(predicted), predicted / memory - 1))
    for entry in parts:
        if entry.predicted_s is not None and entry.relative_error is not None:
            name = f"{labels.get(entry.component, entry.component)}, {entry.stage} stage"
            shown = show_seconds(entry.measured_s), show_seconds(entry.predicted_s)
            lines.append(_line(name, *shown, entry.relative_error))
    return "\n".join(lines)


def _line(name: str, measured: str, predicted: str, error: float) -> str:
    return f"  {name:50} {measured:>10} {predicted:>10} {error:+7.1%}"


def memory_as_text(name: str, rows: Sequence[ComparedMemory], left_out: Mapping[str, str]) -> str:
    """Return a line for every row, a summary line, and the rows that were left out by reason."""
    lines = [f"{name}: memory", f"  {'measured':>10} {'predicted':>10} {'error':>7}"]
    lines += [
        f"  {show_memory(row.measured_bytes):>10} {show_memory(row.predicted_bytes):>10}"
        f" {row.relative_error:>+7.1%}  {row.quantity}  {row.id}"
        for row in rows
    ]
    lines.append(_summary_text(rows))
    reasons = Counter(left_out.values())
    return "\n".join(lines + [f"left out, {number}: {reason}" for reason, number in reasons.items()])


def _summary_text(rows: Sequence[ComparedMemory]) -> str:
    if not rows:
        return "no rows"
    scores = summary(rows)
    return (
        f"{len(rows)} rows: mean {scores['mean']:.2%}, median {scores['median']:.2%},"
        f" p90 {scores['p90']:.2%}, largest {scores['largest']:.2%}, bias {scores['bias']:+.2%}"
    )


def memory_as_json(tables: Tables) -> object:
    """Return all rows by name of the suite or file, their summary, and the rows that were left out with
    reasons.
    """
    return {
        name: {
            "summary": plain(summary(rows)),
            "rows": [fields_of(row) for row in rows],
            "left_out": dict(left_out),
        }
        for name, (rows, left_out) in tables.items()
    }


def memory_as_markdown(tables: Tables) -> str:
    """Return a section of the page for each table."""
    lines: list[str] = []
    for name, (rows, _) in tables.items():
        lines += ["", f"## {name}: bytes", ""]
        if not rows:
            lines += ["No row could be compared."]
            continue
        scores = summary(rows)
        lines += [
            f"The mean absolute error of {len(rows)} peaks is {100 * scores['mean']:.2f} %, the median"
            f" {100 * scores['median']:.2f} % and the largest {100 * scores['largest']:.2f} %. The table"
            " compares the peak of the fullest rank. Nothing is fitted to these runs.",
            "",
        ]
        cells = [
            (
                row.id,
                row.quantity,
                show_memory(row.measured_bytes),
                show_memory(row.predicted_bytes),
                f"{row.relative_error:+.1%}",
            )
            for row in rows
        ]
        lines += markdown_rows(("run", "quantity", "measured", "predicted", "error"), cells)
    return "\n".join(lines) + "\n" if lines else ""
