"""The cost and energy of a step as text.

Answers: how does a report show the cost and energy of a step, and what if one of them is unknown?
Elsewhere: how they are computed (economics/), the same as JSON data (report_json.py).
"""

from flopcast.economics.power import PowerDraw
from flopcast.economics.step import StepCost
from flopcast.units import show, show_usd

NO_PRICE = "unknown: set the price of a device by --price '2.10 USD/h', or by cluster.price of a job"
WORTH_TELLING = 0.01  # share of the energy; smaller savings are below the accuracy of the estimate
NO_POWER = "unknown: board_power_w of the device is not stated"


def as_text(cost: StepCost, drawn: PowerDraw | None) -> list[str]:
    """Return one line each for cost, price, energy, power, and how busy the devices are."""
    price = [] if cost.price is None else [f"  price     {cost.price.told()}"]
    lines = [*_energy(cost), *([] if drawn is None else _limits(drawn))]
    return ["cost and energy", f"  cost      {_money(cost)}", *price, *(f"  {line}" for line in lines)]


def _money(cost: StepCost) -> str:
    many = cost.many_tokens_usd
    if cost.step_usd is None or many is None:
        return NO_PRICE
    low, high = many.bounds
    return (
        f"{show_usd(cost.step_usd.value)} per step, {show_usd(many.value)} per 1e12 tokens (90 %:"
        f" {show_usd(low)} to {show_usd(high)})"
    )


def _limits(drawn: PowerDraw) -> list[str]:
    at_limit = f"{drawn.at_limit_fraction:.0%} of the step runs at the power limit"
    return [
        f"peak      {drawn.peak_w:.0f} W per device, averaged over the busiest 0.1 s; {at_limit}",
        f"limit     {_least(drawn)}",
    ]


def _least(drawn: PowerDraw) -> str:
    """Return the power limit of least energy, with the energy that it saves and the time that it costs."""
    if drawn.least_energy_ratio > 1.0 - WORTH_TELLING:
        return "no lower power limit saves 1% of the energy or more"
    return (
        f"{drawn.least_energy_limit_w:.0f} W per device would need the least energy: about"
        f" {1 - drawn.least_energy_ratio:.0%} less, in a step that is"
        f" {drawn.least_energy_time_ratio - 1:.0%} longer"
    )


def _energy(cost: StepCost) -> list[str]:
    """Return lines about the energy of the building and the mean power of a device."""
    if cost.energy is None or cost.many_tokens_kwh is None:
        return [f"energy    {NO_POWER}"]
    step, power, many = cost.energy.step_j, cost.energy.device_power_w, cost.many_tokens_kwh * 1000
    low, high = many.bounds
    low_w, high_w = power.bounds
    busy = ", ".join(f"{name} {share:.0%}" for name, share in cost.energy.busy.items() if share >= 0.005)
    return [
        f"energy    {show(step.value, 'J')} per step, {show(many.value, 'Wh')} per 1e12 tokens (90 %:"
        f" {show(low, 'Wh')} to {show(high, 'Wh')}), building included",
        f"power     {power.value:.0f} W per device on average (90 %: {low_w:.0f} to {high_w:.0f})",
        f"busy      {busy}",
    ]
