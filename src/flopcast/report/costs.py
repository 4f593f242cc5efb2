"""What a step costs, in words.

Answers: how do money and energy of a step appear in a report, and what is said where one is unknown?
Elsewhere: what they are (economics/), the same as data (as_json.py).
"""

import math

from flopcast.economics.step import StepCost
from flopcast.economics.watts import Watts
from flopcast.units import Number, show

LARGE = {"T": 1e12, "B": 1e9, "M": 1e6}
NO_PRICE = "unknown: what does a device cost? --price '2.10 USD/h', or cluster.price of a job"
WORTH_TELLING = 0.01  # of the energy: estimates of savings are no surer
NO_POWER = "unknown: board_power_w of the device is not stated"


def show_usd(value: Number) -> str:
    """Dollars as people write them, three digits of them.

    Millions, billions and trillions are M, B and T, as `--budget` reads them.

    >>> show_usd(0.0123), show_usd(4.5), show_usd(91437.2), show_usd(2.5e6), show_usd(1e9)
    ('$0.0123', '$4.50', '$91,400', '$2.50 M', '$1.00 B')
    >>> show_usd(999_960), show_usd(2.5e16)
    ('$1.00 M', '$25,000 T')
    """
    for letter, scale in LARGE.items():
        if math.isfinite(value) and (scaled := float(f"{value:.3g}") / scale) >= 1:
            return f"${scaled:,.{2 - min(2, int(math.log10(scaled)))}f} {letter}"
    if value >= 100:
        return f"${float(f'{value:.3g}'):,.0f}"
    return f"${value:.2f}" if value >= 0.995 else f"${value:.3g}"


def as_text(cost: StepCost, drawn: Watts | None) -> list[str]:
    """A line each: money, its price, energy, power, and what devices do meanwhile."""
    price = [] if cost.price is None else [f"  price     {cost.price.told()}"]
    lines = [*_energy(cost), *([] if drawn is None else _limits(drawn))]
    return ["cost", f"  money     {_money(cost)}", *price, *(f"  {line}" for line in lines)]


def _money(cost: StepCost) -> str:
    """Dollars of a step and of 1e12 tokens."""
    many = cost.many_tokens_usd
    if cost.step_usd is None or many is None:
        return NO_PRICE
    low, high = many.bounds
    return (
        f"{show_usd(cost.step_usd.value)} a step, {show_usd(many.value)} for 1e12 tokens (90 %:"
        f" {show_usd(low)} to {show_usd(high)})"
    )


def _limits(drawn: Watts) -> list[str]:
    """The most watts, the share of the step at the limit, and the limit that takes the fewest joules."""
    at_limit = f"{drawn.at_limit_fraction:.0%} of the step at the limit of power"
    return [
        f"peak      {drawn.peak_w:.0f} W a device in the tenth of a second that draws most; {at_limit}",
        f"limit     {_least(drawn)}",
    ]


def _least(drawn: Watts) -> str:
    """The limit of least energy, with what it saves and costs."""
    if drawn.least_energy_ratio > 1.0 - WORTH_TELLING:
        return "no lower limit of power would save as much as 1% of the energy"
    return (
        f"{drawn.least_energy_limit_w:.0f} W a device would take the least energy: about"
        f" {1 - drawn.least_energy_ratio:.0%} less, {drawn.least_energy_time_ratio - 1:.0%} longer"
    )


def _energy(cost: StepCost) -> list[str]:
    """Energy of the building, and the power of a device."""
    if cost.energy is None or cost.many_tokens_kwh is None:
        return [f"energy    {NO_POWER}"]
    step, power, many = cost.energy.step_j, cost.energy.device_power_w, cost.many_tokens_kwh * 1000
    low, high = many.bounds
    low_w, high_w = power.bounds
    busy = ", ".join(f"{name} {share:.0%}" for name, share in cost.energy.busy.items() if share >= 0.005)
    return [
        f"energy    {show(step.value, 'J')} a step, {show(many.value, 'Wh')} for 1e12 tokens (90 %:"
        f" {show(low, 'Wh')} to {show(high, 'Wh')}), building included",
        f"power     {power.value:.0f} W a device in the mean (90 %: {low_w:.0f} to {high_w:.0f})",
        f"busy      {busy}",
    ]
