"""The machines of measured graphs that are no accelerators of the catalogue.

Answers: what can the processor of a table do?
Elsewhere: accelerators (catalog/devices), the rates that they sustain (cost/graph_kernels/rates.py).
"""

from collections.abc import Mapping

from flopcast.library.catalog import device
from flopcast.spec.cluster import Device
from flopcast.spec.source import Source
from flopcast.strict_model import FrozenMapping
from flopcast.units import Number


def _gpu(
    name: str,
    generation: str,
    gib: int,
    memory_bytes_per_s: Number,
    flop_per_s: Number,
    multiprocessors: int,
    board_power_w: Number,
    url: str,
) -> Device:
    return Device(
        name=name,
        generation=generation,
        memory_bytes=gib * 2**30,
        memory_bytes_per_s=memory_bytes_per_s,
        peak_flop_per_s=FrozenMapping({"fp32": flop_per_s}),
        multiprocessors=multiprocessors,
        kernel_launch_s=3e-6,
        board_power_w=board_power_w,
        source=(Source(covers="memory, peaks and multiprocessors", title="data sheet", url=url),),
    )


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
            Source(covers="kernel_launch_s", title="estimate: one call from compiled code"),
        ),
    )
}

_AMD = "https://www.amd.com/en/products/accelerators/instinct.html"
_TESLA = "https://www.nvidia.com/en-us/data-center/"
OTHERS: Mapping[str, Device] = {
    "mi100-32gb": _gpu("mi100-32gb", "cdna", 32, 1228.8e9, 46.1e12, 120, 300.0, _AMD),
    "mi210-64gb": _gpu("mi210-64gb", "cdna2", 64, 1638.4e9, 45.3e12, 104, 300.0, _AMD),
    "p100-pcie-16gb": _gpu("p100-pcie-16gb", "pascal", 16, 732e9, 9.3e12, 56, 250.0, _TESLA),
    "p4-8gb": _gpu("p4-8gb", "pascal", 8, 192e9, 5.5e12, 20, 75.0, _TESLA),
}
"""GPUs of tables in fp32: peaks are those of matrix engines where they have a rate of their own."""


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
    return PROCESSORS.get(name) or OTHERS.get(name) or device(name)
