"""A diagnosis as text and as JSON.

Answers: what does `flopcast diagnose` print?
Elsewhere: how suspects are found (lab/diagnosis/diagnose.py).
"""

from flopcast.lab.diagnosis.suspect import SlowStep, Suspect
from flopcast.render.assumption_lines import assumption_lines
from flopcast.render.plain_data import FORMAT_VERSION, fields_of
from flopcast.render.tables import in_paragraphs
from flopcast.render.terminal import answer, caution, good
from flopcast.units import show_seconds

BASIS = {
    "stated": "stated by the log",
    "measured": "measured",
    "within doubt": "measured, but within the uncertainty of the prediction",
    "predicted": "predicted",
    "unsettled": "predicted, but not certain",
    "possible": "possible, not measured",
}
IF_IT_FITS = "if it fits (check with a short test run)"


def marked_text(found: SlowStep) -> str:
    """Return the printed text, with marks that a terminal shows as colours (terminal.py)."""
    report = found.report
    job = report.job
    lines = [
        f"{job.model.name} on {job.cluster.name}: {job.cluster.num_devices} ×"
        f" {job.cluster.node.device.name}, {job.plan.short()}",
        *_contradicted(found),
        *(f"{word:<9} {text}" for word, text in verdict(found)),
    ]
    if not found.suspects:
        lines += ["", "no suspects: flopcast knows no change that would make this step shorter"]
    elif len(found.suspects) > 1:
        lines += ["", "suspects (measured and predicted causes first, then uncertain and possible ones)"]
    for place, suspect in enumerate(found.suspects, 1):
        lines += ["", *_suspect(place, suspect)]
    for head, texts in (
        ("components that do not take longer than predicted", found.cleared),
        ("changes that would save less than 1% of the step", found.negligible),
    ):
        lines += ["", head, *(f"  {text}" for text in texts)] if texts else []
    if found.advice:
        lines += ["", *(f"next      {text}" for text in found.advice)]
    return in_paragraphs(lines, assumption_lines(report.assumptions))


def verdict(found: SlowStep) -> tuple[tuple[str, str], ...]:
    """Return the measured and the predicted step as pairs of a word and its text.

    Texts have marks for a terminal (terminal.py). The words are "measured", "predicted", "unknown" and
    "note", in this order. Words without a text are left out.
    """
    report = found.report
    low, high = (show_seconds(bound, like=report.step_time_s) for bound in report.bounds_s)
    predicted = f"{show_seconds(report.step_time_s)}   (90 %: {low} to {high})"
    if found.measured_s is None:
        return (("predicted", predicted),)
    source = found.log_name or found.trace_name
    source += f", {found.framework}" if found.framework else ""
    measured = f"{show_seconds(found.measured_s)}, the median of the steady steps ({source})"
    if found.step is not None and found.step.num_used > 1:
        measured += f"; with slow steps, the mean is {show_seconds(found.step.mean_s)}"
    if not found.describes_run:
        told = (
            f"{predicted} for the job; flopcast does not compare times, because the log is of another run"
        )
        return (("measured", measured), ("predicted", told))
    ratio = round(found.measured_s / report.step_time_s - 1.0, 3) + 0.0  # without -0.0
    interval = good("inside the interval") if found.inside else caution("OUTSIDE the interval")
    longer = f"{abs(ratio):.1%} {'shorter' if ratio < 0 else 'longer'}"
    told = f"{predicted}: the measured step is {longer}, {interval}"
    lines = [("measured", measured), ("predicted", told)]
    if found.unexplained_s > 0:
        lines.append(("unknown", _unexplained(found)))
    if found.measured_s < report.step_time_low_s:
        lines.append(("note", "the run is faster than predicted: check that the job describes this run"))
    return tuple(lines)


def _unexplained(found: SlowStep) -> str:
    """Return a sentence about the seconds that no measurement explains."""
    text = f"{show_seconds(found.unexplained_s)} of the difference: no measurement shows its cause"
    if any(one.basis in ("predicted", "unsettled") for one in found.suspects):
        because = "because the predicted step already includes their cost"
        text += f"; suspects with a predicted cost do not explain it, {because}"
    return text


def contradictions(found: SlowStep) -> tuple[str, ...]:
    """Return a heading and a line for each contradiction between log and job, or no lines if there is none.

    The heading states the job for which the suspects below it are computed: the job with the values of the
    log if it is possible, and otherwise the given job.
    """
    if not found.contradictions:
        return ()
    then = "refer to the described job, which is not the run of the log"
    if found.describes_run:
        then = "are computed for the job with the values of the log"
    return (
        f"the log contradicts the description of the job; the suspects below {then}",
        *(
            f"the log has {one.of_log}, but the job has {one.of_job}: {one.change}"
            for one in found.contradictions
        ),
    )


def _contradicted(found: SlowStep) -> list[str]:
    told = contradictions(found)
    return [f"warning   {told[0]}", *(f"          {text}" for text in told[1:])] if told else []


def _cost(suspect: Suspect) -> str:
    """Return the seconds of a suspect with their interval, and how they are known."""
    cost_s, basis = suspect.cost_s, BASIS[suspect.basis]
    if cost_s is None:
        return "unknown"
    cost = f"{show_seconds(abs(cost_s))} {'less ' * (cost_s < 0)}per step"
    if suspect.low_s is None or suspect.high_s is None:
        return f"{cost}, {basis}"
    low, high = (show_seconds(bound, like=cost_s) for bound in (suspect.low_s, suspect.high_s))
    return f"{cost} (90 %: {low} to {high}), {basis}"


def most_helpful(first: Suspect | None, step_s: float, head: str) -> list[str]:
    """Return two lines about the change of a setting that saves the most time, or one line if none does.

    Parameters
    ----------
    first : the setting whose change saves the most time
    step_s : the predicted step, with which the saving is compared
    head : the words that begin the first line
    """
    if first is None:
        known = "no single setting saves 1% or more of the step with certainty"
        return [f"{head}: {known}; flopcast search compares plans"]
    saved, low, high = (value or 0.0 for value in (first.cost_s, first.low_s, first.high_s))
    would = "saves" if first.basis == "predicted" else "may save"
    shares = f"{saved / step_s:.1%}; 90 %: {low / step_s:.1%} to {high / step_s:.1%}"
    switch, of_software, _ = first.change.partition("; in a job file: ")
    edits = f"{first.edits} ({switch})" if of_software else first.edits
    option = f'--plan "{first.plan}"' if first.plan else edits
    reasons = "; ".join((first.title, *first.against))
    condition = f"{IF_IT_FITS}, " * first.is_tight
    return [f"{head}: {condition}{option} {would} {show_seconds(saved)} a step ({shares})", f"  {reasons}"]


def _suspect(place: int, suspect: Suspect) -> list[str]:
    return [
        f"{place:<3} {answer(suspect.title)}",
        f"    costs     {_cost(suspect)}",
        *(f"    for       {text}" for text in suspect.evidence),
        *(f"    against   {text}" for text in suspect.against),
        f"    change    {suspect.change}",
    ]


def as_json(found: SlowStep) -> dict[str, object]:
    """Return the diagnosis as JSON data; keys may be added, never renamed.

    Returns
    -------
    dict
        The measured and the predicted step in seconds, the contradictions, and the suspects in their order,
        with the fields of `Contradiction` and of `Suspect`. Floats are rounded to nine digits.
    """
    report = found.report
    return {
        "format_version": FORMAT_VERSION,
        "model": report.job.model.name,
        "cluster": report.job.cluster.name,
        "plan": report.job.plan.short(),
        "measured_s": found.measured_s,
        "measured_step": None if found.step is None else fields_of(found.step),
        "predicted": fields_of(report, "step_time_s", "step_time_low_s", "step_time_high_s"),
        "skipped_steps": [] if found.log is None else [fields_of(one) for one in found.log.skipped],
        "contradictions": [fields_of(one) for one in found.contradictions],
        "describes_run": found.describes_run,
        "inside": found.inside,
        "unexplained_s": found.unexplained_s,
        "suspects": [fields_of(suspect) for suspect in found.suspects],
        "as_predicted": list(found.cleared),
        "negligible": list(found.negligible),
        "advice": list(found.advice),
    }
