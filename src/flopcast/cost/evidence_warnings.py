"""Warnings about prices: which kernels were not measured on this device.

Answers: which curves of a prediction belong to another device, and which are data-sheet estimates?
Elsewhere: how a missing curve is replaced (cost/kernels/curve_book.py), prices (price.py).
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from flopcast.cost.kernels.curve import Curve
from flopcast.spec.cluster import Device
from flopcast.units import Number

NO_SHARES: Mapping[str, Number] = MappingProxyType({})


def warnings_of(
    used: Iterable[tuple[Curve, bool]], device: Device, shares: Mapping[str, Number] = NO_SHARES
) -> list[str]:
    """Return warnings about curves, each with a flag that states whether the curve was measured.

    A curve of a related device transfers its efficiency; without such a curve, times are estimated from
    data sheets. `shares` are the shares of the step that the kernels of each curve take, if they are known.
    """
    entries = tuple(used)
    lent = [(curve.owner, curve.name) for curve, _ in entries if curve.owner in device.relatives]
    guessed = [curve.name for curve, calibrated in entries if not calibrated]
    warnings = []
    if lent:
        names, kernels = _few([name for _, name in lent], shares), "kernels" if len(lent) > 1 else "kernel"
        owners = " and ".join(", ".join(sorted({owner for owner, _ in lent})).rsplit(", ", 1))
        warnings.append(
            f"uncalibrated: flopcast has no measurements of the {kernels} {names} on {device.name},"
            f" and uses those of {owners}"
        )
    if guessed:
        names = _few(guessed, shares)
        warnings.append(
            f"uncalibrated: no curve covers {names} on {device.name}; times come from the data sheet"
        )
    return warnings


def _few(names: list[str], shares: Mapping[str, Number]) -> str:
    """Return up to three names as text, the number of the others, and the share of the step of all."""
    share = f" ({sum(shares.get(name, 0.0) for name in {*names}):.1%} of the step)" if shares else ""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "") + share
