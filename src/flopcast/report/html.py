"""A report as one HTML file: no network, no script, readable on paper.

Answers: the same questions as the text, with a drawing of the pipeline.
Elsewhere: the drawing with every operator in it (perfetto.py).
Every text that a user can choose (names, assumptions, sources) is escaped. Colours follow the reader's
light or dark scheme; the drawing is SVG and scales with the page.
"""

from html import escape

from flopcast.report.costs import as_text as cost_lines
from flopcast.report.memory_drawing import memory_drawing
from flopcast.report.report import Report, StageMemory
from flopcast.units import show, show_seconds

STYLE = """
:root { color-scheme: light dark; --line: #8886; }
:root { --forward: #3572b0; --backward: #c2662d; --weight: #5c9a4c; --update: #8a8a8a; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; width: 100%; } td, th { padding: .25rem .5rem; text-align: left; }
tr + tr { border-top: 1px solid var(--line); }
td.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
th.number { text-align: right; }
.answer { font-size: 1.3rem; } .bar { background: var(--forward); height: .8rem; border-radius: 2px; }
.warning { border-left: 4px solid var(--backward); padding-left: .75rem; }
svg { width: 100%; height: auto; } .scroll { overflow-x: auto; }
"""
SVG_WIDTH, ROW_HEIGHT, MOST_BOXES = 1000, 22, 6000


def as_html(report: Report) -> str:
    """The page.

    Returns
    -------
    str
        A whole document, UTF-8, a few hundred kilobytes at most: above MOST_BOXES tasks the drawing is
        replaced by a sentence that points to the trace file.
    """
    job = report.job
    title = f"{job.model.name} on {job.cluster.num_devices} × {job.cluster.node.device.name}"
    body = [
        f"<h1>{escape(title)}</h1>",
        _answer(report),
        "<h2>Where the time goes</h2>",
        _breakdown(report),
        "<h2>The pipeline over one step</h2>",
        _pipeline(report),
        "<h2>Memory over one step</h2>",
        memory_drawing(report),
        "<h2>Memory by stage</h2>",
        _memory(report),
        "<h2>What it costs</h2>",
        _costs(report),
        "<h2>What the uncertainty hangs on</h2>",
        _factors(report),
        "<h2>Evidence</h2>",
        _evidence(report),
        _assumptions(report),
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>"
        f"<body>{''.join(body)}</body></html>\n"
    )


def _answer(report: Report) -> str:
    """Step, rate, utilisation, memory and its verdict in two sentences; then every warning, marked."""
    metrics, memory = report.metrics, report.memory
    low, high = show_seconds(report.step_time_low_s), show_seconds(report.step_time_high_s)
    lines = [
        f'<p class="answer"><strong>{show_seconds(report.step_time_s)}</strong> a step'
        f" (90 %: {low} to {high})</p>",
        f"<p>{escape(report.job.plan.short())}, {report.job.batch.told()}, stack"
        f" {escape(report.job.stack.label)}. {show(metrics.tokens_per_s, 'tokens/s')},"
        f" MFU {metrics.mfu_ratio:.1%} (full attention counted). {show(memory.device_used_bytes, 'B')} of"
        f" {show(memory.capacity_bytes, 'B')} on the fullest stage:"
        f" <strong>{'fits' if memory.fits else 'does not fit'}</strong>.</p>",
    ]
    return "".join(lines + [f'<p class="warning">{escape(text)}</p>' for text in report.warnings])


def _breakdown(report: Report) -> str:
    """One row a component, with a bar as long as its share of the step."""
    rows = []
    for name, seconds in report.breakdown.items():
        share = seconds / report.step_time_s
        rows.append(
            f"<tr><td>{escape(name.replace('_', ' '))}</td>"
            f'<td class="number">{show_seconds(seconds)}</td><td class="number">{share:.1%}</td>'
            f'<td style="width:40%"><div class="bar" style="width:{share:.2%}"></div></td></tr>'
        )
    head = '<tr><th>component</th><th class="number">time</th><th class="number">share</th><th></th></tr>'
    return f"<table>{head}{''.join(rows)}</table>"


def _pipeline(report: Report) -> str:
    """One row a stage; forward, backward and weight tasks, update and reduction as boxes.

    Time runs from left to right over the step without jitter; white is waiting. The synchronisation at the
    end of the step is too short to draw.
    """
    timeline = report.timeline
    stages = len(timeline.update_s)
    end = max(report.clean_step_time_s, float((timeline.reduce_start_s + timeline.reduce_s).max()))
    if len(timeline.stage) > MOST_BOXES:
        return (
            f"<p>{len(timeline.stage)} tasks on {stages} stages: too many to draw; see the trace file.</p>"
        )
    names = [("forward", "backward", "weight")[kind] for kind in timeline.kind]
    rows = [
        *zip(
            timeline.stage.tolist(), names, timeline.start_s.tolist(), timeline.end_s.tolist(), strict=True
        ),
        *((s, "update", 0.0, stop) for s, stop in enumerate(timeline.update_s.tolist())),
        *(
            (s, "update", start, start + seconds)
            for s, (start, seconds) in enumerate(
                zip(timeline.reduce_start_s.tolist(), timeline.reduce_s.tolist(), strict=True)
            )
        ),
    ]
    boxes = "".join(_box(stage, colour, start / end, stop / end) for stage, colour, start, stop in rows)
    label = (
        f"{stages} stage{'s' if stages > 1 else ''} over {show_seconds(end)}: update and reduction grey,"
        " forward blue, backward orange" + (", weight gradients green" if timeline.weight else "")
    )
    return (
        f'<div class="scroll"><svg role="img" aria-label="{label}"'
        f' viewBox="0 0 {SVG_WIDTH} {stages * ROW_HEIGHT}">{boxes}</svg></div><p>{label}</p>'
    )


def _box(stage: int, colour: str, start_share: float, end_share: float) -> str:
    """One rectangle; shares of the step in [0, 1]. At least 0.3 wide, or short tasks would vanish."""
    return (
        f'<rect x="{start_share * SVG_WIDTH:.2f}" y="{stage * ROW_HEIGHT + 2}"'
        f' width="{max((end_share - start_share) * SVG_WIDTH, 0.3):.2f}" height="{ROW_HEIGHT - 4}"'
        f' fill="var(--{colour})" stroke="canvas" stroke-width=".4"/>'
    )


def _memory(report: Report) -> str:
    """One row a stage: when it is fullest, and how full."""
    rows = "".join(
        f"<tr><td>{stage.stage}</td><td>{stage.moment}{_of_task(stage)}</td>"
        f'<td class="number">{show(stage.allocated_bytes, "B")}</td>'
        f'<td class="number">{show(stage.reserved_bytes, "B")}</td>'
        f'<td class="number">{show(stage.device_used_bytes, "B")}</td></tr>'
        for stage in report.memory.per_stage
    )
    head = (
        "<tr><th>stage</th><th>fullest at</th>"
        + "".join(f'<th class="number">{name}</th>' for name in ("allocated", "reserved", "device"))
        + "</tr>"
    )
    return f"<table>{head}{rows}</table>"


def _of_task(stage: StageMemory) -> str:
    """Which micro-batch's pass it is, and of which chunk if not the first; nothing at the update."""
    if stage.micro_batch < 0:
        return ""
    return f" of micro-batch {stage.micro_batch}" + (f", chunk {stage.chunk}" if stage.chunk else "")


def _costs(report: Report) -> str:
    """Money, its price, energy and power: a row each, in the words of the text."""
    pairs = [line.split(maxsplit=1) for line in cost_lines(report.cost)[1:]]
    rows = "".join(f"<tr><td>{escape(name)}</td><td>{escape(told)}</td></tr>" for name, told in pairs)
    return f"<table>{rows}</table>"


def _factors(report: Report) -> str:
    """One row a factor, the widest contribution first."""
    rows = "".join(
        f'<tr><td>{escape(f.name)}</td><td class="number">{f.share:.1%}</td>'
        f'<td class="number">{f.log_sigma_factor:.1%}</td></tr>'
        for f in report.factors
    )
    return (
        '<table><tr><th>factor</th><th class="number">share of the step</th>'
        '<th class="number">sigma</th></tr>'
        f"{rows}</table>"
    )


def _evidence(report: Report) -> str:
    """One row a curve: its error on rows kept out of the fit, and whether it had to extrapolate."""
    rows = "".join(
        f'<tr><td>{escape(e.curve)}</td><td class="number">{e.relative_error:.1%}</td>'
        f"<td>{'extrapolated' if e.extrapolated else 'measured range'}</td><td>{escape(e.source)}</td></tr>"
        for e in report.evidence
    )
    return (
        f'<table><tr><th>curve</th><th class="number">error</th><th></th><th>source</th></tr>{rows}</table>'
    )


def _assumptions(report: Report) -> str:
    """What the job did not say; no heading where it said everything."""
    if not report.assumptions:
        return ""
    return "<h2>Assumed</h2><ul>" + "".join(f"<li>{escape(a)}</li>" for a in report.assumptions) + "</ul>"
