"""The machines of measured graphs that are no accelerators of the catalogue.

Answers: what can the processor of a table do?
Elsewhere: accelerators (catalog/devices), the rates that they sustain (cost/graph_kernels/rates.py).
"""

from collections.abc import Mapping

from flopcast.library.catalog import device
from flopcast.spec.cluster import Device
from flopcast.spec.source import Source
from flopcast.strict_model import FrozenMapping

PROCESSORS: Mapping[str, Device] = {
    "core-i9-10940x": Device(
        name="core-i9-10940x",
        generation="cascade-lake",
        memory_bytes=256 * 2**30,
        memory_bytes_per_s=4 * 8 * 2.933e9,
        peak_flop_per_s=FrozenMapping({"fp32": 14 * 3.3e9 * 64}),
        multiprocessors=14,
        clock_hz=3.3e9,
        cache_bytes=19.25e6,
        kernel_launch_s=1e-6,
        source=(
            Source(
                covers="clock_hz, cores, cache and 4 channels of DDR4-2933",
                title="Intel Core i9-10940X X-series processor, specifications",
                url="https://www.intel.com/content/www/us/en/products/sku/198014/",
            ),
            Source(
                covers="peaks",
                title="two AVX-512 units a core, 64 FLOP a cycle; their clock is lower, and not published",
            ),
            Source(covers="kernel_launch_s", title="estimate: a call out of compiled code"),
        ),
    )
}


def machine(name: str) -> Device:
    """Return a processor of this file, or a device of the catalogue.

    Raises
    ------
    SpecError
        Neither has one of this name.

    Examples
    --------
    >>> round(machine("core-i9-10940x").peak("fp32") / 1e12, 2)
    2.96
    """
    return PROCESSORS.get(name) or device(name)
