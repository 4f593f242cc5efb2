"""What a step costs, in words.

Answers: how do money and energy of a step appear in a report, and what is said where one is unknown?
Elsewhere: what they are (economics/), the same as data (as_json.py).
"""

from flopcast.economics.step import KWH_J, StepCost
from flopcast.units import Number, show

NO_PRICE = "unknown: what does a device cost? --price '2.10 USD/h', or cluster.price of a job"
NO_POWER = "unknown: board_power_w of the device is not stated"


def show_usd(value: Number) -> str:
    """Dollars as people write them, three digits of them.

    >>> show_usd(0.0123), show_usd(4.5), show_usd(91437.2), show_usd(2.5e6)
    ('$0.0123', '$4.50', '$91,400', '$2.50 M')
    """
    if value >= 1e6:
        return f"${show(value, '').strip()}"
    if value >= 100:
        return f"${float(f'{value:.3g}'):,.0f}"
    return f"${value:.2f}" if value >= 0.995 else f"${value:.3g}"


def as_text(cost: StepCost) -> list[str]:
    """A line each: money, its price, energy, power, and what devices do meanwhile."""
    price = [] if cost.price is None else [f"  price     {cost.price.told()}"]
    return ["cost", f"  money     {_money(cost)}", *price, *(f"  {line}" for line in _energy(cost))]


def _money(cost: StepCost) -> str:
    """Dollars of a step and of 1e12 tokens."""
    if cost.step_usd is None or cost.price is None:
        return NO_PRICE
    many = cost.per_many_tokens(cost.step_usd)
    low, high = many.bounds
    return (
        f"{show_usd(cost.step_usd.value)} a step, {show_usd(many.value)} for 1e12 tokens (90 %:"
        f" {show_usd(low)} to {show_usd(high)})"
    )


def _energy(cost: StepCost) -> list[str]:
    """Energy of the building, and the power of a device."""
    if cost.energy is None:
        return [f"energy    {NO_POWER}"]
    step, power = cost.energy.step_j, cost.energy.device_power_w
    many = cost.per_many_tokens(step) * (1000 / KWH_J)  # watt-hours
    low, high = many.bounds
    low_w, high_w = power.bounds
    busy = ", ".join(f"{name} {share:.0%}" for name, share in cost.energy.busy.items() if share >= 0.005)
    return [
        f"energy    {show(step.value, 'J')} a step, {show(many.value, 'Wh')} for 1e12 tokens (90 %:"
        f" {show(low, 'Wh')} to {show(high, 'Wh')}), building included",
        f"power     {power.value:.0f} W a device in the mean (90 %: {low_w:.0f} to {high_w:.0f})",
        f"busy      {busy}",
    ]
