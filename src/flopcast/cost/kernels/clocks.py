"""The core clock: how much longer kernels take if it is lower than on a device at its board power.

Answers: how much longer does a kernel take with a power limit or a locked clock, and how long do
synchronous devices wait for the slowest one?
Elsewhere: clocks of busy devices at full board power (sustained.py), the watts of each kind of work
(spec/operations.py), joules (economics/energy.py).

The core clock limits products and attention, so their time is inversely proportional to it. Memory-bound
kernels and messages keep their time, because memory and links have separate clocks.

A board with a power limit of x times its board power lowers clock and voltage together. With static power
s, dynamic power in proportion to clock^(1/c), and boards that draw η times their limit,

    stretch = ((demand − s) / (η x − s))^c, at least 1.

Without a limit, products already draw at least η times the board power, and their busy curves were measured
in this state, so their demand is η.

References
----------
Form and constants: 991 measured epochs of networks on V100, P100 and RTX 6000 under limits from 40 to 100 %
of the highest (data/power/zeus_power_limit_*.csv; github.com/ml-energy/zeus, commit 75a8b93). No training
of a large model is among them, and no measurement tests a set clock.
Largest of n normal numbers: Blom, Statistical Estimates and Transformed Beta-Variables (1958).
"""

import math
from collections.abc import Iterator
from statistics import NormalDist

from flopcast.cost.kernels.classes import KernelClass
from flopcast.spec.cluster import Device
from flopcast.spec.site import Site

STATIC_FRACTION, EXPONENT, HEADROOM_RATIO = 0.2, 0.46, 1.08
FAMILIAR_LIMIT_FRACTION = 0.5  # below, measured epochs differ by 15 % and more from the formula
LIMIT_LOG_SIGMAS = ((0.8, 0.05), (0.6, 0.10), (0.0, 0.20))  # from this share of the board power on
CLOCK_LOG_SIGMA = 0.1  # no measurement tests it


def stretch_ratio(limit_fraction: float, demand_fraction: float = HEADROOM_RATIO) -> float:
    """Return how many times as long core-bound work takes under a power limit.

    Parameters
    ----------
    limit_fraction : the limit divided by the board power, above `STATIC_FRACTION`
    demand_fraction : the power of the work without a limit, divided by the board power

    Examples
    --------
    >>> round(stretch_ratio(1.0), 3), round(stretch_ratio(500 / 700), 3)
    (1.0, 1.22)
    >>> stretch_ratio(0.7, demand_fraction=0.5)
    1.0
    """
    wanted = demand_fraction - STATIC_FRACTION
    allowed = HEADROOM_RATIO * limit_fraction - STATIC_FRACTION
    return 1.0 if wanted <= allowed else math.pow(wanted / allowed, EXPONENT)


def slowest_ratio(num_devices: int, spread_fraction: float) -> float:
    """Return the clock of a mean device, divided by that of the slowest of `num_devices`.

    `spread_fraction` is the standard deviation of clocks divided by their mean.

    >>> [round(slowest_ratio(number, 0.02), 4) for number in (1, 8, 1024)]
    [1.0, 1.0287, 1.0647]
    """
    largest = NormalDist().inv_cdf((num_devices - 0.375) / (num_devices + 0.25))
    return 1.0 + spread_fraction * max(0.0, largest)


def most_w(site: Site, device: Device) -> float:
    """Return the watts that a device may draw: the site's limit, at most the board power; 0 if unknown.

    A board cannot draw more than its own limit, so a higher limit of the site changes nothing.
    """
    board_w = device.board_power_w or 0.0
    return min(site.power_limit_w or board_w, board_w)


def limit_ratio(site: Site, device: Device) -> float:
    """Return how many times as long core-bound kernels take under the power limit of the site."""
    if site.power_limit_w is None or device.board_power_w is None:
        return 1.0
    return stretch_ratio(most_w(site, device) / device.board_power_w)


def clock_ratio(site: Site, device: Device, sustained: bool) -> float:
    """Return the additional slowdown by a locked clock: 1 if the device also runs below this clock without
    the lock.

    `sustained` GEMMs run below the highest clock of a busy device, by its sustained ratio.
    """
    if site.clock_hz is None or device.clock_hz is None:
        return 1.0
    slowed_ratio = limit_ratio(site, device) * (device.sustained.ratio if sustained else 1.0)
    return max(1.0, device.clock_hz / (site.clock_hz * slowed_ratio))


def clock_factors(
    priced: KernelClass, site: Site, device: Device, num_devices: int
) -> Iterator[tuple[str, float, float]]:
    """Yield name, log-sigma and ratio of the factors that a site's clocks add to a class of kernels.

    Kernels that the core clock does not limit have no such factors.
    """
    if not priced.kind.is_core_bound:
        return
    limited = limit_ratio(site, device)
    if limited > 1.0:
        share = most_w(site, device) / (device.board_power_w or 1.0)
        sigma = next(sigma for least, sigma in LIMIT_LOG_SIGMAS if share >= least)
        yield f"power_limit[{device.name}]", sigma, limited
    if site.clock_hz is not None:
        ratio = clock_ratio(site, device, priced.kind.is_product)
        yield f"clock[{device.name}: {priced.kind.name}]", CLOCK_LOG_SIGMA, ratio
    if site.clock_spread_fraction > 0:
        ratio = slowest_ratio(num_devices, site.clock_spread_fraction)
        yield f"clock_spread[{device.name}]", site.clock_spread_fraction, ratio


def clock_warnings(site: Site, device: Device) -> list[str]:
    """Return warnings about clocks and power limits for which there are hardly any measurements.

    There are three warnings: a power limit above the board's power has no effect; below half of the board's
    power, the formula was wrong by up to 15 %; no measurement covers a clock that the site sets.
    """
    warnings = []
    limit_w, board_w = site.power_limit_w, device.board_power_w
    if limit_w is not None and board_w is not None and limit_w > board_w:
        warnings.append(
            f"power limit: {limit_w:.0f} W is more than the board power of {board_w:.0f} W, which"
            f" {device.name} cannot exceed; the limit has no effect"
        )
    if limit_w is not None and board_w is not None and limit_w < FAMILIAR_LIMIT_FRACTION * board_w:
        warnings.append(
            f"power limit: {limit_w:.0f} W is less than half of the board power of {board_w:.0f} W;"
            " below that, measured times differ from the formula by up to 15 %"
        )
    if site.clock_hz is not None:
        warnings.append(
            "untested: no measurement shows how much a locked clock slows down GEMMs and attention"
        )
    return warnings


def slowed_fraction(fraction: float, ratio: float) -> float:
    """Return the power of core-bound work, divided by the board power, at a clock `ratio` times as low.

    Static power stays constant; dynamic power falls with clock and voltage.

    >>> round(slowed_fraction(0.98, stretch_ratio(0.8)), 2)
    0.79
    """
    return STATIC_FRACTION + (fraction - STATIC_FRACTION) * math.pow(ratio, -1.0 / EXPONENT)
