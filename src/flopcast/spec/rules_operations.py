"""The rules about operating a cluster: prices, power, clocks and caches must be those of its device.

Answers: which prices, limits and clocks contradict the cluster, why, and which edit fixes this?
Elsewhere: prices, power and failures (operations.py), what a rule is (checks.py).
"""

from flopcast.spec.checks import Case, Rule
from flopcast.spec.site import LEAST_LIMIT_FRACTION


def _device_for_hire(case: Case) -> str:
    """Return the device that the price is for; "" for a user's own price, or if none is known."""
    return case.cluster.price.device if case.cluster.price is not None else ""


def _board_w(case: Case) -> float:
    """Return the board power of the device; 0 if it is not stated."""
    return case.cluster.node.device.board_power_w or 0.0


def _least_limit_w(case: Case) -> float:
    return LEAST_LIMIT_FRACTION * _board_w(case)


def _cache_has_a_size(case: Case) -> bool:
    """Return whether the size of the device's cache is known, if its rate is."""
    device = case.cluster.node.device
    return device.cache_bytes > 0 or device.cache_bytes_per_s == 0


def _clock_hz(case: Case) -> float:
    """Return the clock that the site sets; the device's highest if it sets none."""
    return case.site.clock_hz or case.cluster.node.device.clock_hz or 0.0


RULES: tuple[Rule, ...] = (
    Rule(
        field="cluster.price.device",
        holds=lambda c: _device_for_hire(c) in ("", c.cluster.node.device.name),
        value=_device_for_hire,
        allowed=lambda c: c.cluster.node.device.name,
        because="the price and the cluster name different devices",
        fix=(
            "change cluster.price to a price of the cluster's device (flopcast catalog prices lists all), "
            "or write your own price"
        ),
    ),
    Rule(
        field="site.power_limit_w",
        holds=lambda c: c.site.power_limit_w is None or _board_w(c) > 0,
        allowed="no value, because board_power_w of the device is not known",
        because="the effect of a power limit depends on the board power",
        fix="describe the device with its board_power_w, or remove power_limit_w",
    ),
    Rule(
        field="site.power_limit_w",
        holds=lambda c: (c.site.power_limit_w or _board_w(c)) >= LEAST_LIMIT_FRACTION * _board_w(c),
        allowed=lambda c: f"at least {_least_limit_w(c):.0f} W on {c.cluster.node.device.name}",
        because="limits below 30 % of the board power were never measured",
        fix=lambda c: {"power_limit_w": f"{_least_limit_w(c):.0f} W"},
    ),
    Rule(
        field="site.clock_hz",
        holds=lambda c: c.site.clock_hz is None or c.cluster.node.device.clock_hz is not None,
        allowed="no value, because clock_hz of the device is not known",
        because=(
            "flopcast computes the slowdown of kernels from the ratio of this clock to clock_hz of the "
            "device"
        ),
        fix="describe the device with its clock_hz, or remove site.clock_hz",
    ),
    Rule(
        field="site.clock_hz",
        holds=lambda c: _clock_hz(c) <= (c.cluster.node.device.clock_hz or _clock_hz(c)),
        allowed=lambda c: f"at most {(c.cluster.node.device.clock_hz or 0.0) / 1e6:.0f} MHz",
        because="this is the highest clock of the device",
        fix=lambda c: {"clock_hz": f"{(c.cluster.node.device.clock_hz or 0.0) / 1000000.0:.0f} MHz"},
    ),
    Rule(
        field="cluster.node.device.cache_bytes_per_s",
        holds=_cache_has_a_size,
        allowed="0, because cache_bytes of the device is not known",
        because="without the size of the cache, flopcast cannot compute how many bytes it holds",
        fix="describe the device with its cache_bytes, or remove cache_bytes_per_s",
    ),
)
