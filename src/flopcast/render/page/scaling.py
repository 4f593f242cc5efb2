"""The same plan on fewer and on more devices: tokens per second and cost.

Answers: how does a page show predictions for other numbers of devices?
Elsewhere: these predictions (search/scaled.py).
"""

from collections.abc import Callable, Sequence

from flopcast.records import Record, replace
from flopcast.render.page.drawing import Axis, figure, grid, legend, line, mark, names
from flopcast.render.page.frame import Section
from flopcast.render.page.table import Cell, Quantity, rate, seconds, share, table
from flopcast.search.scaled import GROWN, KEPT, ScaledStep
from flopcast.units import Number, show, show_usd

HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 340, 136, 985, 14, 290
SHAPES = {KEPT: (0, "M-5,0a5,5 0 1,0 10,0a5,5 0 1,0 -10,0z"), GROWN: (1, "M-4.5,-4.5H4.5V4.5H-4.5z")}


def scaling(steps: Sequence[ScaledStep], *, fine_tunes: bool = False) -> Section:
    """Return the section with the curves and their numbers.

    Parameters
    ----------
    steps : sequence of ScaledStep
        Predictions with other numbers of replicas; not empty. Each number of devices may occur twice: with
        the global batch kept, and with the batch of each replica kept.
    fine_tunes : bool
        Whether costs are those of 1e6 tokens, because a fine-tune trains on far fewer than 1e12.
    """
    money = FEW_MONEY if fine_tunes else MONEY
    rows: list[tuple[Cell, ...]] = [
        (
            Quantity(one.num_devices, f"{one.num_devices}"),
            one.batch,
            Quantity(one.global_batch, f"{one.global_batch}"),
            seconds(one.step_time_s),
            rate(one.tokens_per_s, "tokens/s"),
            rate(one.tokens_per_s / one.num_devices, "tokens/s"),
            share(one.mfu_ratio),
            "–" if one.many_usd is None else Quantity(money.of(one), show_usd(money.of(one))),
            "yes" if one.fits else "no",
        )
        for one in sorted(steps, key=lambda one: (one.num_devices, one.batch != KEPT))
    ]
    of_step = ("step", "rate", "rate per device", "MFU", money.name, "fits")
    headings = ("devices", "batch", "sequences", *of_step)
    caption = "The same plan with more or fewer data-parallel replicas; everything else as in the job."
    several = len({one.num_devices for one in steps}) > 1
    curves = [RATE, money] if all(one.many_usd is not None for one in steps) else [RATE]
    drawn = "".join(drawing(steps, curve) for curve in curves) if several else ""
    return Section("scaling", "More and fewer devices", html=drawn + table(caption, headings, rows))


class ScalingCurve(Record):
    """One quantity that is drawn against the number of devices.

    Attributes
    ----------
    key : str
        Identifier of the drawing.
    name, caption : str
        Name of the vertical axis, and the sentence below the drawing.
    of, show : function
        Return the quantity of a step, and a value as text.
    logarithmic : bool
        Whether the vertical axis is logarithmic.
    """

    key: str
    name: str
    of: Callable[[ScaledStep], Number]
    show: Callable[[Number], str]
    logarithmic: bool
    caption: str


RATE = ScalingCurve(
    key="rate",
    name="tokens/s",
    of=lambda one: one.tokens_per_s,
    show=lambda value: show(value, "tokens/s"),
    logarithmic=True,
    caption="Tokens per second against devices, on logarithmic axes: a straight diagonal is perfect"
    " scaling.",
)
MONEY = ScalingCurve(
    key="money",
    name="cost of 1e12 tokens",
    of=lambda one: one.many_usd or 0.0,
    show=show_usd,
    logarithmic=False,
    caption="Cost of 1e12 tokens against devices.",
)
FEW_MONEY = replace(
    MONEY,
    name="cost of 1e6 tokens",
    of=lambda one: (one.many_usd or 0.0) / 1e6,
    caption="Cost of 1e6 tokens against devices.",
)


def axes(steps: Sequence[ScaledStep], curve: ScalingCurve) -> tuple[Axis, Axis]:
    """Return the logarithmic axis of devices, and the axis of the curve's quantity."""
    devices, values = [one.num_devices for one in steps], [curve.of(one) for one in steps]
    ends, marked = (min(devices) / 1.15, max(devices) * 1.15), tuple(sorted(set(devices)))
    across = Axis(low=ends[0], high=ends[1], start=LEFT, end=RIGHT, logarithmic=True, marked=marked)
    low, high = (min(values) / 1.3, max(values) * 1.3) if curve.logarithmic else (0.0, max(values) * 1.1)
    return across, Axis(low=low, high=high, start=BOTTOM, end=TOP, logarithmic=curve.logarithmic)


def drawing(steps: Sequence[ScaledStep], curve: ScalingCurve) -> str:
    """Return the drawing of a curve: a line for each way to scale; hollow marks do not fit.

    Both ways coincide at the job's own number of devices.
    """
    across, up = axes(steps, curve)
    lines = [*grid(across, up, lambda value: f"{value:g}", curve.show)]
    for batch, (hue, shape) in SHAPES.items():
        mine = sorted((one for one in steps if one.batch == batch), key=lambda one: one.num_devices)
        points = [(one.num_devices, curve.of(one)) for one in mine]
        if len(points) > 1:
            lines.append(line(points, across, up, f"line-{hue}"))
        for one, (devices, value) in zip(mine, points, strict=True):
            label = f"{one.num_devices} devices, {batch}: {curve.show(value)}"
            label += "" if one.fits else "; does not fit"
            kind = f"hue-{hue}" if one.fits else f"line-{hue}"
            lines.append(mark(label, kind, shape, across.at(devices), up.at(value)))
    drawn = "".join(lines) + names(across, up, "devices", curve.name)
    title = f"{curve.name.capitalize()} by devices"
    shown = [(hue, name) for name, (hue, _) in SHAPES.items() if any(one.batch == name for one in steps)]
    below = f"{legend(shown)}<p>{curve.caption} Hollow marks do not fit.</p>"
    return figure(f"{curve.key}-drawing", title, curve.caption, HEIGHT, drawn, below)
