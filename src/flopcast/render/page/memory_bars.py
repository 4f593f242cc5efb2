"""Memory of every stage, and outside the devices, as bars of categories, compared with the capacity.

Answers: which stage and which memory is fullest, what fills it, and how much is left?
Elsewhere: memory over the step, and the tables (memory.py).

A bar shows the memory that is allocated at the peak of the stage, by category, and then the other memory
that the driver holds. A thin line extends to the upper end of the 90 % interval, which includes the cache
of the allocator.
"""

from collections.abc import Iterator, Sequence
from html import escape

from flopcast.memory.tiers import TierMemory
from flopcast.memory.verdict import verdict
from flopcast.records import Record
from flopcast.render.page.drawing import figure, label, legend
from flopcast.render.page.pipeline import chosen
from flopcast.render.page.style import HUES
from flopcast.render.page.summary import VERDICTS
from flopcast.report.labels import memory_label
from flopcast.report.memory_report import MemoryReport
from flopcast.units import Number, show_memory

LEFT, RIGHT, ROW_HEIGHT, LEAST_HEIGHT, MOST_HEIGHT = 84, 770, 28, 16, 640
DRIVER, OTHERS = "context and communication buffers", "others"
DRIVER_HUE = HUES - 1
Part = tuple[int, str, float]  # hue, label, bytes


class StageBar(Record, kw_only=False):
    """The content of the bar of a stage: (hue, label, bytes) of its parts, their sum, and the high end."""

    stage: int
    parts: tuple[Part, ...]
    expected_bytes: float
    high_bytes: float
    word: str
    colour: str


def stage_bars(memory: MemoryReport, names: Sequence[str]) -> list[StageBar]:
    """Return the bars of the stages that are drawn.

    Parameters
    ----------
    memory : MemoryReport
    names : sequence of str
        Categories with a colour of their own; all others are added up as one part.

    Returns
    -------
    list of StageBar
        The last part of a bar is the memory that the driver holds in addition to the framework's
        allocations.
    """
    stages = [memory.per_stage[stage] for stage in chosen(len(memory.per_stage)).tolist()]
    classes, peaks, bars = memory.programs.stages.of(0).stage_class, memory.peaks, []
    for stage in stages:
        place = int(classes[stage.stage])
        by_name = dict.fromkeys(names, 0.0)
        for name, held_bytes in stage.by_category.items():
            by_name[name if name in by_name else OTHERS] += held_bytes
        parts = [
            (hue, memory_label(name), by_name[name]) for hue, name in enumerate(names) if by_name[name]
        ]
        driver_bytes = float(peaks.needed_bytes[0, place] - peaks.allocated_bytes[0, place])
        expected_bytes = stage.allocated_bytes + driver_bytes
        high_bytes = max(expected_bytes, float(peaks.high_bytes[0, place]))
        word, colour = VERDICTS[verdict(expected_bytes, high_bytes, memory.capacity_bytes)]
        parts.append((DRIVER_HUE, DRIVER, driver_bytes))
        bars.append(StageBar(stage.stage, tuple(parts), expected_bytes, high_bytes, word, colour))
    return bars


def memory_bars(memory: MemoryReport, names: Sequence[str]) -> str:
    """Return the drawing: a bar for each stage, with its need, its share of the memory and a verdict.

    `names` are the categories that have a colour of their own, then OTHERS if there are more.
    """
    bars = stage_bars(memory, names)
    full_bytes = max(memory.capacity_bytes, *(bar.high_bytes for bar in bars))
    height = min(ROW_HEIGHT, max(LEAST_HEIGHT, MOST_HEIGHT // len(bars)))
    scale = (RIGHT - LEFT) / full_bytes
    rows = [_drawn(bar, row * height, height, scale, memory.capacity_bytes) for row, bar in enumerate(bars)]
    edge, base = LEFT + memory.capacity_bytes * scale, height * len(bars)
    drawn = "".join(rows) + f'<path class="edge" d="M{edge:.1f},0V{base}"/>'
    drawn += label(edge, base + 16, f"{show_memory(memory.capacity_bytes)} of the device", "end", "soft")
    described = (
        "Expected memory at the fullest moment of each stage, by category. The thin line ends at the "
        "high end of the 90 % interval. The dashed line is the memory of the device. "
        f"{'; '.join(_described(bars))}."
    )
    entries = [(hue, memory_label(name)) for hue, name in enumerate(names)]
    below = legend([*entries, (DRIVER_HUE, DRIVER)])
    return figure("memory-bars", "Memory of each stage", described, base + 22, drawn, below)


def tier_bars(memory: MemoryReport, names: Sequence[str]) -> str:
    """Return the drawing of memory outside the devices: a bar for each tier, on a scale of its own.

    `names` are the categories that have a colour, the same as those of the stages. The drawing is empty if
    the plan places nothing outside the devices.
    """
    if not memory.tiers:
        return ""
    rows = [_tier(tier, row * ROW_HEIGHT, names) for row, tier in enumerate(memory.tiers)]
    described = (
        "States that the plan places outside the devices, by category, compared with the capacity of each"
        " memory."
    )
    each = (f"{tier.label} of {tier.owner}: {tier.need}, {tier.verdict}" for tier in memory.tiers)
    held = dict.fromkeys(name for tier in memory.tiers for name in tier.by_category)
    entries = [(_hue(name, names), memory_label(name)) for name in held]
    text, base = f"{described} {'; '.join(each)}.", ROW_HEIGHT * len(rows)
    title = "Memory outside the devices"
    drawn = figure("tier-bars", title, text, base + 6, "".join(rows), legend(entries))
    return f"<h3>Outside the devices</h3><p>{described}</p>{drawn}"


def _tier(tier: TierMemory, top: int, names: Sequence[str]) -> str:
    """Return the bar of one tier as SVG: its categories, the high end of its interval, its capacity."""
    word, colour = VERDICTS[tier.verdict]
    parts = tuple((_hue(name, names), memory_label(name), size) for name, size in tier.by_category.items())
    scale = (RIGHT - LEFT) / max(tier.capacity_bytes, tier.high_bytes)
    drawn = _bar(tier.name, parts, tier.high_bytes, top, ROW_HEIGHT, scale)
    edge, middle = LEFT + tier.capacity_bytes * scale, top + ROW_HEIGHT / 2
    drawn += f'<path class="edge" d="M{edge:.1f},{top}V{top + ROW_HEIGHT}"/>'
    share = f"{show_memory(tier.expected_bytes)}, {tier.expected_bytes / tier.capacity_bytes:.0%}"
    return drawn + label(RIGHT + 12, middle + 4.5, f"{share}: {word.lower()}", "start", colour)


def _hue(name: str, names: Sequence[str]) -> int:
    """Return the colour of a category; one without a colour of its own has the last."""
    return list(names).index(name) if name in names else len(names) - 1


def _described(bars: Sequence[StageBar]) -> Iterator[str]:
    return (f"stage {bar.stage}: {show_memory(bar.expected_bytes)}, {bar.word.lower()}" for bar in bars)


def _drawn(bar: StageBar, top: int, height: int, scale: Number, capacity_bytes: float) -> str:
    """Return one bar as SVG, with the name of its stage before it and its verdict behind it."""
    drawn = _bar(f"stage {bar.stage}", bar.parts, bar.high_bytes, top, height, scale)
    text = (
        f"{show_memory(bar.expected_bytes)}, {bar.expected_bytes / capacity_bytes:.0%}: {bar.word.lower()}"
    )
    return drawn + label(RIGHT + 12, top + height / 2 + 4.5, text, "start", bar.colour)


def _bar(
    heading: str, parts: Sequence[Part], high_bytes: float, top: int, height: int, scale: Number
) -> str:
    """Return the parts of a bar side by side, with its name before it and a line up to the high end."""
    left, drawn = float(LEFT), [label(LEFT - 8, top + height / 2 + 4.5, heading, "end")]
    for hue, name, held_bytes in parts:
        width = held_bytes * scale
        drawn.append(
            f'<rect class="hue-{hue}" x="{left:.2f}" y="{top + 3}" width="{width:.2f}"'
            f' height="{height - 6}">'
            f"<title>{escape(f'{name}: {show_memory(held_bytes)}')}</title></rect>"
        )
        left += width
    middle = top + height / 2
    drawn.append(f'<path class="rule" d="M{left:.1f},{middle}H{LEFT + high_bytes * scale:.1f}"/>')
    return "".join(drawn)
