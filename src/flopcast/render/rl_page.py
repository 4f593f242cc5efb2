"""A step of reinforcement learning as one HTML file that needs no network and no script.

Answers: which sections does the page of a step have?
Elsewhere: the same as text and as JSON (rl_text.py, the page holds the JSON), the pages of its serving and
its training (serving_page.py, report_page.py).
"""

from html import escape

from flopcast.files.package_table import read_text
from flopcast.render import serving_page
from flopcast.render.page.frame import Section, document
from flopcast.render.page.summary import Tile, tiles
from flopcast.render.page.summary import answer as step_answer
from flopcast.render.page.table import Cell, bar, listing, markup, seconds, share, table
from flopcast.render.rl_text import as_json, heading, jobs_of, sent_text
from flopcast.render.terminal import capital
from flopcast.rl.step import PHASES, RlReport
from flopcast.units import show, show_usd

ABOUT = {
    "rollout": "the engine generates all answers",
    "scoring": "log-probabilities, values and rewards of all answers",
    "training": "optimizer steps on all answers",
    "handoff": "the engine receives the new weights",
}


def as_html(report: RlReport) -> str:
    """Return the page."""
    return document(
        f"A step of reinforcement learning of {report.rollout.job.model.name}",
        [_phases(report), _rollout(report), _training(report), _assumed(report)],
        top=_answer(report),
        script=read_text("flopcast.render.page", "report.js"),
        data={"report": as_json(report)},
    )


def _answer(report: RlReport) -> str:
    """Return the two jobs and one tile per result as HTML."""
    low, high = (
        markup(seconds(bound, report.step_s.value)) for bound in (report.step_s.low, report.step_s.high)
    )
    lead = ("Step", markup(seconds(report.step_s.value)), f"90 %: {low} to {high}")
    longest = max(PHASES, key=lambda name: report.phases[name].value)
    others: list[Tile] = [
        ("Generation", show(report.generated_tokens_per_s.value, "tokens/s"), "during the rollout"),
        ("Longest phase", longest, ABOUT[longest]),
    ]
    if report.usd is not None:
        others.append(("Cost", show_usd(report.usd.value), "for a step"))
    subject = "<br>".join(escape(line) for line in (heading(report), *jobs_of(report)))
    return f'<p class="subject">{subject}</p>{tiles(lead, others)}'


def _phases(report: RlReport) -> Section:
    """Return the seconds of each phase with their interval."""
    total_s = sum(phase.value for phase in report.phases.values())
    rows: list[tuple[Cell, ...]] = [
        (
            name,
            ABOUT[name],
            seconds(phase.value),
            seconds(phase.low),
            seconds(phase.high),
            share(phase.value / total_s),
            bar(phase.value / total_s),
        )
        for name in PHASES
        for phase in (report.phases[name],)
    ]
    order = "overlap" if report.plan.apart else "run one after another"
    caption = f"The phases of a step, which {order}."
    html = table(caption, ("phase", "what it does", "time", "90 % from", "to", "share", ""), rows)
    return Section(
        "phases", "Where the time goes", html=f"{html}<p>{escape(capital(sent_text(report)))}.</p>"
    )


def _rollout(report: RlReport) -> Section:
    """Return the answer of the engine alone."""
    return Section("rollout", "Rollout: the engine alone", html=serving_page.answer(report.rollout))


def _training(report: RlReport) -> Section:
    """Return the answer of one optimizer step."""
    html = step_answer(report.training)
    return Section("training", "Training: one optimizer step", html=html)


def _assumed(report: RlReport) -> Section:
    """Return the assumptions of both jobs."""
    texts = dict.fromkeys([*report.rollout.job.assumptions, *report.training.assumptions])
    return Section("assumed", "Assumed", html=listing(texts) or "<ul></ul>")
