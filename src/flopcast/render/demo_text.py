"""One measured run beside its prediction, for people who see flopcast for the first time."""

from flopcast.lab.validation.compare import ComparedSuite
from flopcast.units import show, show_seconds


def compared_text(comparison: ComparedSuite, run: str) -> str:
    """Return the run's step, memory and components as text: measured, predicted, error.

    Parameters
    ----------
    comparison : ComparedSuite
        Of the suite that holds the run.
    run : str
        The row's id.

    Returns
    -------
    str
        A table of about twenty lines, ready to print.
    """
    rows = [row for row in comparison.rows if row.id == run]
    parts = [entry for entry in comparison.components if entry.id == run]
    lines = [
        f"compared with what was measured (run {run} of {comparison.suite.source.partition(';')[0]}; host"
        " cost fitted on the other system, jitter on other runs)",
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
        lines.append(_line(name, show(memory, "B"), show(predicted, "B"), predicted / memory - 1))
    for entry in parts:
        if entry.predicted_s is not None and entry.relative_error is not None:
            name = f"{entry.component}, {entry.stage} stage"
            shown = show_seconds(entry.measured_s), show_seconds(entry.predicted_s)
            lines.append(_line(name, *shown, entry.relative_error))
    return "\n".join(lines)


def _line(name: str, measured: str, predicted: str, error: float) -> str:
    return f"  {name:50} {measured:>10} {predicted:>10} {error:+7.1%}"
