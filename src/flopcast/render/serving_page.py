"""A report of serving as one HTML file that needs no network and no script.

Answers: which sections does the page of a serving report have?
Elsewhere: its drawings (page/serving_drawings.py), the same as text (serving_text.py) and as JSON
(serving_json.py, which the page holds), reports of training (report_page.py).
"""

from collections.abc import Sequence
from html import escape

from flopcast.economics.step import ENERGY_INCLUDES
from flopcast.files.package_table import read_text
from flopcast.render.page.frame import Section, document
from flopcast.render.page.serving_drawings import load_section, occupancy_section, percentile_section
from flopcast.render.page.summary import NO_PRICE, Tile, tiles
from flopcast.render.page.table import (
    Cell,
    Quantity,
    listing,
    markup,
    part_row,
    seconds,
    share,
    size,
    table,
)
from flopcast.render.serving_json import as_json
from flopcast.render.serving_text import LABELS, LIMITS, NAMES, hits_and_preemptions, plan_text
from flopcast.render.terminal import capital
from flopcast.serving.serving_report import ServingReport
from flopcast.serving.tier_memory import NAMES as NAMES_OF_MEMORIES
from flopcast.spec.factor_kinds import in_words
from flopcast.units import show, show_seconds, show_usd

SURE = 0.9  # probability of meeting all limits from which a page shows it as good


def as_html(report: ServingReport, loads: Sequence[ServingReport] = ()) -> str:
    """Return the page. `loads` are predictions for other loads, which the page shows as a curve."""
    job = report.job
    sections = [*([load_section(loads)] if len(loads) > 1 else []), *sections_of(report)]
    return document(
        f"Serving {job.model.name} on {job.machine}",
        sections,
        top=answer(report),
        script=read_text("flopcast.render.page", "report.js"),
        data={"report": as_json(report)},
    )


def sections_of(report: ServingReport) -> list[Section]:
    """Return the sections of a report, without its load curve."""
    return [
        percentile_section(report),
        _times(report),
        _memory(report),
        occupancy_section(report),
        _certainty(report),
        _evidence(report),
        _repeat(report),
    ]


def answer(report: ServingReport) -> str:
    """Return the job, one tile per result, and every warning as HTML."""
    job = report.job
    subject = (
        f'<p class="subject">{escape(job.model.name)} on {escape(job.machine)}'
        f" ({escape(job.cluster.name)}), {escape(job.engine.label)}."
        f" Plan: <code>{escape(plan_text(job))}</code>. Traffic: {escape(job.traffic.text())}</p>"
    )
    subject += "".join(
        f'<p class="subject">{escape(capital(text))}.</p>' for text in job.leading_assumptions
    )
    warnings = "".join(f'<p class="warning">{escape(text)}</p>' for text in _warnings(report))
    first = _latency(report, "ttft", "Time to first token")
    others = [_latency(report, "tpot", "Time per output token"), _rate(report), *_costs(report)]
    return f"{subject}{tiles(first, [*others, *_goodput(report), _limit(report)])}{warnings}"


def _warnings(report: ServingReport) -> list[str]:
    if report.saturation_per_s is not None:
        most = f"{report.saturation_per_s:.3g} requests/s"
        return [
            f"Requests arrive faster than the engine can serve them. The largest stable rate is {most}."
        ]
    if not report.stable_if_slower:
        slow = "If passes are as slow as the upper end of their 90 % interval, the engine does not keep up."
        return [f"The engine is nearly saturated. {slow}"]
    return []


def _latency(report: ServingReport, metric: str, name: str) -> Tile:
    mean = report.latencies[metric]["mean"]
    p99 = markup(seconds(report.latencies[metric]["p99"].value))
    low, high = (markup(seconds(bound, mean.value)) for bound in (mean.low, mean.high))
    return name, markup(seconds(mean.value)), f"mean; 90 %: {low} to {high}; p99 {p99}"


def _rate(report: ServingReport) -> Tile:
    value = report.output_tokens_per_s.value
    about = f"{show(value / report.job.devices, 'tokens/s')} per device"
    about += f"; {report.requests_per_s.value:.3g} requests/s"
    return "Output throughput", show(value, "tokens/s"), about


def _costs(report: ServingReport) -> list[Tile]:
    cost = report.usd_per_million_tokens
    found = [NO_PRICE if cost is None else ("Cost", show_usd(cost.value), "for a million output tokens")]
    if report.kwh_per_million_tokens is not None:
        watts = "" if report.device_power_w is None else f"; {report.device_power_w.value:.3g} W per device"
        energy = f"{report.kwh_per_million_tokens.value:.3g} kWh"
        found.append((f"Energy, {ENERGY_INCLUDES}", energy, f"for a million output tokens{watts}"))
    return found


def _goodput(report: ServingReport) -> list[Tile]:
    if report.goodput_per_s is None:
        return []
    sure = report.slo_chance is not None and report.slo_chance >= SURE
    colour = "bad" if not report.meets_slo else "good" if sure else "amber"
    value = f'<span class="{colour}">{report.slo_chance:.0%}</span>'
    of_each = "; ".join(
        f"{NAMES[one.metric]} p{one.percentile:g} up to {show_seconds(one.limit_s)}: {chance:.0%}"
        for one, _, chance in report.limits
    )
    about = f"{of_each}; {report.goodput_per_s.value:.3g} requests/s meet all limits"
    return [("Probability that all limits are met", value, escape(about))]


def _limit(report: ServingReport) -> Tile:
    name, _, rest = LIMITS[report.limited_by].partition(": ")
    return "Limited by", escape(name), escape(rest)


def _times(report: ServingReport) -> Section:
    """Return the components of a mean iteration."""
    rows: list[tuple[Cell, ...]] = [
        part_row(LABELS.get(name, name), seconds(part * report.iteration_s), part)
        for name, part in sorted(report.shares.items(), key=lambda pair: -pair[1])
        if part >= 0.0005
    ]
    caption = "Components of a mean iteration of the engine."
    html = table(caption, ("component", "time", "share", ""), rows)
    return Section("time", "Where the time of an iteration goes", html=html)


def _memory(report: ServingReport) -> Section:
    """Return what fills the memory of a device."""
    memory = report.memory
    rows: list[tuple[Cell, ...]] = [
        part_row(name, size(amount), amount / memory.capacity_bytes)
        for name, amount in memory.parts().items()
    ]
    text = (
        f"<p>The KV cache of an instance holds {memory.cache_tokens:,} tokens;"
        f" {report.summary.mean_kv_share:.0%} of it is in use on average,"
        f" {report.summary.peak_kv_share:.0%} at most.</p>"
    ) + "".join(f"<p>{line}.</p>" for line in hits_and_preemptions(report))
    heads = ("part", "size", "share", "")
    html = table("Memory of one device.", heads, rows)
    for tier in memory.tiers:
        held: list[tuple[Cell, ...]] = [
            part_row(name, size(amount), amount / tier.capacity_bytes)
            for name, amount in tier.parts(memory.cache_tokens).items()
        ]
        html += table(f"The {NAMES_OF_MEMORIES[tier.name]} of one node.", heads, held)
    return Section("memory", "Memory", html=html + text)


def _certainty(report: ServingReport) -> Section:
    """Return the factors that make the interval of an iteration, the largest first."""
    rows: list[tuple[Cell, ...]] = [
        (in_words(name), share(part), Quantity(spread, f"± {spread:.1%}"))
        for name, part, spread in report.spreads
    ]
    caption = "Factors on which the time of an iteration depends."
    html = table(caption, ("factor", "share of the iteration", "90 %"), rows)
    return Section("certainty", "Uncertainty", html=html)


def _evidence(report: ServingReport) -> Section:
    """Return the measurements behind the prediction."""
    rows: list[tuple[Cell, ...]] = [
        (
            each.curve.name,
            each.curve.owner,
            "measured" if each.calibrated else "estimated from the data sheet",
            "yes" if each.extrapolated else "no",
            str(each.curve.evidence.source),
        )
        for each in report.used
    ]
    caption = "Curves of kernels and collectives."
    headings = ("curve", "device or network", "basis", "extrapolated", "source")
    return Section("evidence", "Measurements", html=table(caption, headings, rows))


def _repeat(report: ServingReport) -> Section:
    """Return how to repeat the prediction, and what was assumed."""
    job = report.job
    command = (
        f"flopcast predict {job.model.name} {job.engine.option} --cluster {job.cluster.name}"
        f' --gpus {job.cluster.num_devices} --plan "{plan_text(job)}" --traffic "{job.traffic.text()}"'
    )
    command += f' --slo "{job.slo.text()}"' if job.slo.text() else ""
    assumed = listing(dict.fromkeys(job.assumptions))
    html = f'<pre tabindex="0">{escape(command)}</pre>'
    return Section(
        "repeat", "Command and assumptions", html=html + (f"<p>Assumed:</p>{assumed}" if assumed else "")
    )
