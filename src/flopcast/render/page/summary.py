"""The first section of a report's page: time, memory, cost, what limits the step, and what would help most.

Answers: which numbers are shown first?
Elsewhere: the same as text (render/report_text.py), the breakdown of the time (time_breakdown.py), the
search for helpful changes (lab/diagnosis/settings.py).
"""

from collections.abc import Callable, Iterable, Sequence
from html import escape

from flopcast.economics.amount import Amount
from flopcast.economics.run import TrainingRun
from flopcast.economics.step import ENERGY_INCLUDES
from flopcast.lab.diagnosis.suspect import Suspect
from flopcast.memory.verdict import Verdict
from flopcast.render.diagnosis import IF_IT_FITS
from flopcast.render.page.limits import by_limit
from flopcast.render.page.table import Quantity, markup, rate, seconds, share, size
from flopcast.render.terminal import capital
from flopcast.render.trained_text import leading_assumptions
from flopcast.report.report import Report
from flopcast.spec.plan_text import meaning_of_runs
from flopcast.units import Number, show, show_count, show_seconds, show_usd

Tile = tuple[str, str, str]  # a name, the answer as HTML, what is said about it as HTML
VERDICTS: dict[Verdict, tuple[str, str]] = {  # what a reader sees, and its colour
    "fits": ("Fits", "good"),
    "tight": ("Tight", "amber"),
    "does not fit": ("Does not fit", "bad"),
}
NO_PRICE: Tile = ("Cost", "unknown", "the price of a device is not stated: set it, such as 2.10 USD/h")
OTHER_CHANGES = 3  # that are listed below the best one


def answer(report: Report) -> str:
    """Return the job, one tile per result, and every warning as HTML."""
    job = report.job
    meaning = meaning_of_runs(job.plan.short())
    subject = (
        f'<p class="subject">{escape(job.model.name)} on {job.cluster.num_devices} ×'
        f" {escape(job.cluster.node.device.name)} ({escape(job.cluster.name)}), {escape(job.stack.label)}."
        f" Plan: <code>{escape(job.plan.short())}</code>, {escape(job.batch_text)}"
        f"{escape(meaning and f' ({meaning})')}</p>"
    )
    spent = _costs(report) if report.run is None else run_tiles(report.run)
    others = (_memory(report), _limit(report), *spent, *_rates(report))
    subject += "".join(
        f'<p class="subject">{escape(capital(text))}.</p>' for _, text in leading_assumptions(job)
    )
    warnings = "".join(f'<p class="warning">{escape(capital(text))}</p>' for text in report.warnings)
    return f"{subject}{tiles(_time(report), others)}{warnings}"


def tiles(lead: Tile, others: Iterable[Tile]) -> str:
    """Return tiles as HTML; the leading one is larger."""
    return f'<dl class="tiles">{_tile(lead, lead=True)}{"".join(map(_tile, others))}</dl>'


def advice(changes: Sequence[Suspect], step_s: float, links: Sequence[str] = ()) -> str:
    """Return the change that would help most as HTML, and the next best folded below it.

    Parameters
    ----------
    changes : settings whose change saves time, the best first
    step_s : the predicted step, which the savings are compared with
    links : the address that predicts the job with each change; none where a page leads nowhere
    """
    if not changes:
        text = "<p>No single setting saves 1 % or more of the step with certainty.</p>"
        return f'<section class="advice"><h2>What would help most</h2>{text}</section>'
    texts = [_change(each, step_s) for each in changes[: OTHER_CHANGES + 1]]
    texts = [
        text + (f' <a class="button" href="{escape(link)}">Apply</a>' if link else "")
        for text, link in zip(texts, [*links, *[""] * len(texts)], strict=False)
    ]
    others = "".join(f"<li>{text}</li>" for text in texts[1:])
    folded = f"<details><summary>Other changes</summary><ul>{others}</ul></details>" if others else ""
    return f'<section class="advice"><h2>What would help most</h2><p>{texts[0]}</p>{folded}</section>'


def _change(suspect: Suspect, step_s: float) -> str:
    """Return a change as two sentences: what is wrong and what it costs; what to do."""
    saved_s, text = suspect.cost_s or 0.0, f"<strong>{escape(suspect.title)}.</strong> "
    interval = ""
    if suspect.low_s is not None and suspect.high_s is not None:
        low, high = (share(bound / step_s).shown for bound in (suspect.low_s, suspect.high_s))
        interval = f"; 90 %: {low} to {high}"
    saved = f"{markup(seconds(saved_s))} a step ({share(saved_s / step_s).shown}{interval})"
    certainly = "would" if suspect.basis == "predicted" else "may"
    condition = f"{capital(IF_IT_FITS)}, a" if suspect.is_tight else "A"
    text += f"{condition} change {certainly} save {saved}."
    against = "".join(f" {escape(capital(each))}." for each in suspect.against)
    return f"{text}{against} <small>Change: {escape(suspect.change)}.</small>"


def _tile(tile: Tile, *, lead: bool = False) -> str:
    name, value, about = tile
    kind = ' class="lead"' if lead else ""
    return f"<div{kind}><dt>{escape(name)}</dt><dd>{value}<small>{about}</small></dd></div>"


def _time(report: Report) -> Tile:
    low, high = (markup(seconds(bound, report.step_time_s)) for bound in report.bounds_s)
    return "One step takes", markup(seconds(report.step_time_s)), f"90 %: {low} to {high}"


def _rates(report: Report) -> tuple[Tile, ...]:
    metrics = report.metrics
    unit = f"{report.job.batch_unit}/s"
    per_device = markup(rate(metrics.device_tokens_per_s, unit))
    mfu, hfu = (markup(share(ratio)) for ratio in (metrics.mfu_ratio, metrics.hfu_ratio))
    counted = "" if hfu == mfu else f"HFU {hfu}; "
    attained = markup(Quantity(metrics.device_flop_per_s / 1e12, f"{metrics.device_flop_per_s / 1e12:.0f}"))
    return (
        (
            "Throughput",
            markup(rate(metrics.tokens_per_s, unit)),
            f"{per_device} per device" * (report.job.cluster.num_devices > 1),
        ),
        ("MFU", mfu, f"{counted}{attained} TFLOP/s per device{report.job.flop_note}"),
    )


def _memory(report: Report) -> Tile:
    """Return the tile that says whether the fullest stage fits, with the need drawn against the memory."""
    memory = report.memory
    word, colour = VERDICTS[memory.verdict]
    _, drawn = VERDICTS[memory.device_verdict]
    sizes_bytes = memory.expected_bytes, memory.low_bytes, memory.high_bytes, memory.capacity_bytes
    expected, low, high, there = (markup(size(each)) for each in sizes_bytes)
    full_bytes = max(memory.high_bytes, memory.capacity_bytes)
    need, most, end = (
        100 * each / full_bytes
        for each in (memory.expected_bytes, memory.high_bytes, memory.capacity_bytes)
    )
    meter = (
        '<svg class="meter" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect class="band" width="{end:.1f}" height="8"/><rect class="fill-{drawn}" y="1" height="6"'
        f' width="{need:.1f}"/><path class="rule" d="M{need:.1f},4H{most:.1f}M{end:.1f},0V8"/></svg>'
    )
    about = f"{meter}{expected} expected (90 %: {low} to {high}) of {there}{memory.where}"
    about += "".join(f"; {escape(tier.name)}: {escape(tier.need)}, {tier.verdict}" for tier in memory.tiers)
    return "Memory", f'<span class="{colour}">{word}</span>', about


def _limit(report: Report) -> Tile:
    """Return the tile that says what most of the step is limited by."""
    most, second = sorted(by_limit(report).items(), key=lambda pair: -pair[1])[:2]
    (name, first_s), (other, second_s) = most, second
    text = f"{share(first_s / report.step_time_s).shown} of the step; then {escape(other)}"
    return ("Limited by", escape(capital(name)), f"{text}, {share(second_s / report.step_time_s).shown}")


def run_tiles(run: TrainingRun) -> tuple[Tile, ...]:
    """Return tiles with the time, the cost and the energy of the whole run."""
    spent, about = _amount(run.wall_s, lambda value: show_seconds(value, like=run.wall_s.value))
    tokens = f"{show_count(sum(phase.phase_tokens for phase in run.phases))} tokens"
    time: Tile = ("The whole run takes", spent, f"{about}; {tokens}, failures included")
    money = (NO_PRICE,) if run.usd is None else (("The whole run costs", *_amount(run.usd, show_usd)),)
    return time, *money, _energy("The whole run uses", run.joules)


def _costs(report: Report) -> tuple[Tile, ...]:
    """Return tiles with the cost and energy of 1e12 tokens; of a step, where the length is not open."""
    cost, quoted = report.cost, report.job.has_open_length
    of = "1e12 tokens" if quoted else "one step"
    money = NO_PRICE
    if cost.step_usd is not None:
        usd = cost.per_many_tokens(cost.step_usd) if quoted else cost.step_usd
        money = (f"Cost of {of}", *_amount(usd, show_usd))
    joules = None if cost.energy is None else cost.energy.step_j
    if joules is not None and quoted:
        joules = cost.per_many_tokens(joules)
    return money, _energy(f"Energy of {of}", joules)


def _energy(name: str, joules: Amount | None) -> Tile:
    if joules is None:
        return "Energy", "unknown", "the device's board power is not stated"
    amount, about = _amount(joules * (1 / 3.6e6), lambda value: show(value * 1000, "Wh"))
    return name, amount, f"{about}, {ENERGY_INCLUDES}"


def _amount(amount: Amount, show_value: Callable[[Number], str]) -> tuple[str, str]:
    low, high = (markup(Quantity(bound, show_value(bound))) for bound in amount.bounds)
    return markup(Quantity(amount.value, show_value(amount.value))), f"90 %: {low} to {high}"
