"""Drawings of a serving report: latency against throughput, percentiles, and the engine over time.

Answers: how do latencies grow with the load, how are they spread, and how full is the engine?
Elsewhere: the numbers (serving/load_curve.py, serving/served.py), the page (render/serving_page.py), axes
(drawing.py).
"""

from collections.abc import Sequence

import numpy as np

from flopcast.render.page.drawing import Axis, figure, grid, legend, line, mark, names, spanning
from flopcast.render.page.frame import Section
from flopcast.render.page.table import Cell, Quantity, rate, seconds, share, table
from flopcast.render.serving_text import NAMES
from flopcast.serving.serving_report import ServingReport
from flopcast.units import show, show_seconds

HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 340, 136, 985, 14, 290
DOT = "M-4.5,0a4.5,4.5 0 1,0 9,0a4.5,4.5 0 1,0 -9,0z"
MOMENTS = 400  # of the engine's time that are drawn
PERCENTS = (*range(1, 100), 99.5, 99.9)
LATENCIES = {"ttft": (0, "TTFT"), "tpot": (1, "TPOT")}


def load_section(reports: Sequence[ServingReport]) -> Section:
    """Return the latency–throughput curve and its numbers.

    Parameters
    ----------
    reports : sequence of ServingReport
        Predictions of one deployment under growing loads; not empty. Throughput is that of all devices.
    """
    devices = reports[0].job.devices
    across = spanning([one.output_tokens_per_s.value for one in reports], LEFT, RIGHT)
    values = [one.latencies[name]["p99"].value for one in reports for name in LATENCIES]
    up = spanning([max(value, 1e-6) for value in values], BOTTOM, TOP)
    drawn = [*grid(across, up, lambda value: show(value, "tokens/s"), show_seconds)]
    for name, (hue, word) in LATENCIES.items():
        points = [(one.output_tokens_per_s.value, one.latencies[name]["p99"].value) for one in reports]
        drawn.append(line(points, across, up, f"line-{hue}"))
        for one, (x, y) in zip(reports, points, strict=True):
            text = f"{_load(one)}: {word} p99 {show_seconds(y)}, {show(x, 'tokens/s')}"
            drawn.append(mark(text, f"hue-{hue}", DOT, across.at(x), up.at(y)))
    caption = "The 99th percentile of latencies against the output of all devices, as the load grows."
    below = legend([(hue, f"{word} p99") for hue, word in LATENCIES.values()]) + f"<p>{caption}</p>"
    svg = "".join(drawn) + names(across, up, "output tokens/s", "latency")
    title = "Latency against throughput"
    drawing = figure("load-drawing", title, caption, HEIGHT, svg, below)
    rows: list[tuple[Cell, ...]] = [
        (
            _load(one),
            rate(one.output_tokens_per_s.value, "tokens/s"),
            rate(one.output_tokens_per_s.value / devices, "tokens/s"),
            seconds(one.latencies["ttft"]["p99"].value),
            seconds(one.latencies["tpot"]["p99"].value),
            Quantity(one.decoding, f"{one.decoding:.0f}"),
            share(one.summary.mean_kv_share),
        )
        for one in reports
    ]
    headings = ("load", "output", "per device", "TTFT p99", "TPOT p99", "decoding", "KV cache in use")
    html = drawing + table("The same deployment under other loads.", headings, rows)
    return Section("load", "Latency and throughput", html=html)


def _load(report: ServingReport) -> str:
    traffic = report.job.traffic
    if traffic.concurrency is not None:
        return f"{traffic.concurrency} open requests"
    return f"{traffic.rate_per_s or 0.0:.3g} requests/s"


def percentile_section(report: ServingReport) -> Section:
    """Return the distribution of latencies over requests, with a table of the usual percentiles.

    Metrics without values (time between tokens, if every request has one output token) have no curve.
    """
    spreads = {name: getattr(report.summary, name) for name in LATENCIES}
    kept = {name: spread for name, spread in spreads.items() if len(spread.values_s)}
    values = {
        name: [(float(percent), max(spread.at_s(percent), 1e-6)) for percent in PERCENTS]
        for name, spread in kept.items()
    }
    across = Axis(low=0.0, high=100.0, start=LEFT, end=RIGHT)
    up = spanning([y for points in values.values() for _, y in points], BOTTOM, TOP)
    drawn = [*grid(across, up, lambda value: f"{value:g} %", show_seconds)]
    drawn += [line(points, across, up, f"line-{LATENCIES[name][0]}") for name, points in values.items()]
    caption = "The latency that a given share of the requests does not exceed."
    below = legend([LATENCIES[name] for name in values]) + f"<p>{caption}</p>"
    svg = "".join(drawn) + names(across, up, "share of the requests", "latency")
    drawing = figure("percentile-drawing", "Percentiles of latency", caption, HEIGHT, svg, below)
    rows: list[tuple[Cell, ...]] = []
    columns = list(report.latencies["ttft"])
    for name, found in report.latencies.items():
        for column in filter(found.__contains__, columns):
            each = found[column]
            bounds = (seconds(bound, each.value) for bound in (each.low, each.high))
            rows.append((NAMES[name], column, seconds(each.value), *bounds))
    headings = ("latency", "statistic", "value", "90 %: from", "to")
    numbers = table("Latencies with their 90 % intervals.", headings, rows)
    return Section("latencies", "Latencies", html=drawing + numbers)


def occupancy_section(report: ServingReport) -> Section:
    """Return the KV cache, the running and the waiting requests over time, of one group of ranks.

    Values are those of the iteration that runs at each of `MOMENTS` equidistant moments.
    """
    table_of = report.served.iterations
    end_s = float((table_of.start_s + table_of.elapsed_s).max())
    moments = np.linspace(0.0, end_s, MOMENTS)
    rows = np.clip(np.searchsorted(table_of.start_s, moments, side="right") - 1, 0, None)
    blocks = table_of.kv_blocks[rows] / max(report.served.limits.kv_blocks, 1)
    across = Axis(low=0.0, high=end_s or 1.0, start=LEFT, end=RIGHT)
    parts = []
    most = max(float(table_of.running.max()), float(table_of.waiting.max()), 1.0)
    requests = [(0, "running", table_of.running[rows]), (1, "waiting", table_of.waiting[rows])]
    for key, title, series, top, shown in (
        ("cache", "KV cache in use", [(2, "KV cache", blocks)], 1.0, "{:.0%}".format),
        ("requests", "Requests in the engine", requests, most, "{:g}".format),
    ):
        up = Axis(low=0.0, high=1.05 * top, start=BOTTOM, end=TOP)
        drawn = [*grid(across, up, show_seconds, shown)]
        for hue, _, values in series:
            points = zip(moments.tolist(), values.tolist(), strict=True)
            drawn.append(line(points, across, up, f"line-{hue}"))
        below = legend([(hue, name) for hue, name, _ in series])
        svg = "".join(drawn) + names(across, up, "time since the first arrival", title)
        parts.append(figure(f"{key}-drawing", title, f"{title} over time.", HEIGHT, svg, below))
    return Section("engine", "The engine over time", html="".join(parts))
