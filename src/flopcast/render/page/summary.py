"""The first section of a report's page: time, memory, cost and their intervals.

Answers: what does a reader see first?
Elsewhere: the same as text (render/report_text.py), where the time goes (time_breakdown.py).
"""

from collections.abc import Callable
from html import escape

from flopcast.economics.amount import Amount
from flopcast.render.page.table import Quantity, markup, rate, seconds, share, size
from flopcast.report.report import Report
from flopcast.units import Number, show, show_count, show_seconds, show_usd

Tile = tuple[str, str, str]  # a name, the answer as HTML, what is said about it as HTML


def answer(report: Report) -> str:
    """Return the job, one tile per result, and every warning as HTML."""
    job = report.job
    subject = (
        f"{job.cluster.num_devices} × {job.cluster.node.device.name} ({job.cluster.name}),"
        f" {job.stack.label}; {job.plan.short()}, {job.batch.text()}"
    )
    tiles = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{value}<small>{about}</small></dd></div>"
        for name, value, about in (*_times(report), _memory(report), *_run(report), *_costs(report))
    )
    warnings = "".join(f'<p class="warning">{escape(text)}</p>' for text in report.warnings)
    return f'<p>{escape(subject)}</p><dl class="tiles">{tiles}</dl>{warnings}'


def _times(report: Report) -> tuple[Tile, ...]:
    metrics = report.metrics
    low, high = (markup(seconds(bound, report.step_time_s)) for bound in report.bounds_s)
    per_device = markup(rate(metrics.device_tokens_per_s, "tokens/s"))
    attained = markup(Quantity(metrics.device_flop_per_s / 1e12, f"{metrics.device_flop_per_s / 1e12:.0f}"))
    return (
        ("One step takes", markup(seconds(report.step_time_s)), f"90 %: {low} to {high}"),
        ("Tokens", markup(rate(metrics.tokens_per_s, "tokens/s")), f"{per_device} per device"),
        (
            "MFU",
            markup(share(metrics.mfu_ratio)),
            f"{attained} TFLOP/s per device, masked attention counted in full;"
            f" HFU {markup(share(metrics.hfu_ratio))}",
        ),
    )


def _memory(report: Report) -> Tile:
    """Return the tile that says whether the fullest stage fits."""
    memory = report.memory
    verdicts: dict[str, str] = {
        "fits": "it fits",
        "tight": "it is tight",
        "does not fit": '<strong class="bad">it does not fit</strong>',
    }
    sizes_bytes = memory.expected_bytes, memory.low_bytes, memory.high_bytes, memory.capacity_bytes
    expected, low, high, there = (markup(size(each)) for each in sizes_bytes)
    about = f"{expected} expected (90 %: {low} to {high}) of {there} on the fullest stage"
    return "Memory", verdicts[memory.verdict], about


def _run(report: Report) -> tuple[Tile, ...]:
    """Return tiles with the time and the cost of the whole run; none if its length is not stated."""
    run = report.run
    if run is None:
        return ()
    spent, about = _amount(run.wall_s, lambda value: show_seconds(value, like=run.wall_s.value))
    tokens = f"{show_count(sum(phase.phase_tokens for phase in run.phases))} tokens"
    time: Tile = ("The whole run takes", spent, f"{about}; {tokens}, failures included")
    return (time,) if run.usd is None else (time, ("The whole run costs", *_amount(run.usd, show_usd)))


def _costs(report: Report) -> tuple[Tile, ...]:
    """Return tiles with the cost and energy of 1e12 tokens; of a step, where the length is not open."""
    cost, quoted = report.cost, report.job.has_open_length
    of = "1e12 tokens" if quoted else "one step"
    if cost.step_usd is None:
        money: Tile = ("Cost", "unknown", "the price of a device is not stated")
    else:
        usd = cost.per_many_tokens(cost.step_usd) if quoted else cost.step_usd
        money = (f"Cost of {of}", *_amount(usd, show_usd))
    if cost.energy is None:
        return money, ("Energy", "unknown", "the device's board power is not stated")
    joules = cost.per_many_tokens(cost.energy.step_j) if quoted else cost.energy.step_j
    amount, about = _amount(joules * (1 / 3.6e6), lambda value: show(value * 1000, "Wh"))
    return money, (f"Energy of {of}", amount, f"{about}, building included")


def _amount(amount: Amount, show_value: Callable[[Number], str]) -> tuple[str, str]:
    low, high = (markup(Quantity(bound, show_value(bound))) for bound in amount.bounds)
    return markup(Quantity(amount.value, show_value(amount.value))), f"90 %: {low} to {high}"
