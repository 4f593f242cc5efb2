"""The machines of measured graphs that are not accelerators of the catalogue.

Answers: how fast is the processor of a table?
Elsewhere: accelerators (catalog/devices), these devices (catalog/runs/processors.yaml), the rates that they
sustain (cost/graph_kernels/rates.py).
"""

from flopcast.lab.catalog_facts import catalog_facts
from flopcast.library.catalog import device
from flopcast.spec.cluster import Device
from flopcast.strict_model import StrictModel


class OtherDevices(StrictModel):
    """Devices of tables: general-purpose processors, and GPUs in fp32."""

    processors: tuple[Device, ...]
    graphics: tuple[Device, ...]


def other_devices() -> OtherDevices:
    """Return the devices that are not in catalog/devices."""
    return catalog_facts("processors", OtherDevices)


def is_processor(name: str) -> bool:
    """Return whether a device is a general-purpose processor."""
    return name in [each.name for each in other_devices().processors]


def machine(name: str) -> Device:
    """Return a device of a table or of the catalogue.

    Raises
    ------
    SpecError
        Neither has a device of this name.

    Examples
    --------
    >>> round(machine("core-i9-10940x").peak("fp32") / 1e12, 2)
    2.96
    """
    known = other_devices()
    others = (each for each in (*known.processors, *known.graphics) if each.name == name)
    return next(others, None) or device(name)
