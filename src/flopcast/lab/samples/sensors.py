"""Sensor readings of a busy GPU (clock, power, temperature), and its driver.

Answers: how fast does the device run right now, and under which driver?
Elsewhere: when readings are taken (lab/measure/). The vendor's tool is started once and keeps printing, so
that a reading costs no time while kernels are timed. Without the tool, every reading is empty and no error
is raised.
"""

import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from threading import Thread

from flopcast.lab.measure.sample_pack import Reading
from flopcast.lab.samples.columns import as_number

TOOL = "nvidia-smi"
FIELDS = "clocks.sm,power.draw,temperature.gpu"
INTERVAL_MS = 200
ANSWER_S = 20  # a driver that is not resident takes seconds to load


class Sensors:
    """The latest line that the tool printed; a thread reads the lines as they arrive."""

    def __init__(self) -> None:
        """Start without a reading."""
        self.line: str = ""

    def read(self) -> Reading:
        """Return the latest reading; it is empty before the first line."""
        return reading_of(self.line)

    def follow(self, lines: Iterable[str]) -> None:
        """Keep the latest of the lines until they end."""
        for line in lines:
            self.line = line


def reading_of(line: str) -> Reading:
    """Return a line of the tool's table as a reading; [N/A] is None.

    >>> reading_of("1755, 612.40, 61")
    Reading(clock_mhz=1755.0, power_w=612.4, temperature_c=61.0)
    >>> reading_of("1755, [N/A], 61").power_w is None
    True
    """
    words = [*(word.strip() for word in line.split(",")), "", "", ""]
    clock, power, temperature = (_number(word) for word in words[:3])
    return Reading(clock_mhz=clock, power_w=power, temperature_c=temperature)


@contextmanager
def sensors(uuid: str) -> Iterator[Sensors]:
    """Yield the sensors of one device, which are read until the block ends; without a `uuid`, all
    readings are empty.

    A reading is at most INTERVAL_MS old, which is shorter than the load during which a kernel is timed.
    """
    readings = Sensors()
    if not uuid:
        yield readings
        return
    words = [TOOL, "-i", uuid, f"--query-gpu={FIELDS}", "--format=csv,noheader,nounits"]
    try:
        child = subprocess.Popen(
            [*words, f"--loop-ms={INTERVAL_MS}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
    except OSError:
        yield readings
        return
    reader = Thread(target=readings.follow, args=(child.stdout,), daemon=True)
    with child:
        reader.start()
        try:
            yield readings
        finally:
            child.terminate()
            reader.join()


def driver_facts(uuid: str) -> dict[str, str]:
    """Return a device's driver, highest clock and power limit from the tool's output; {} without it."""
    names = ("driver_version", "clocks.max.sm", "power.limit")
    words = [TOOL, "-i", uuid, f"--query-gpu={','.join(names)}", "--format=csv,noheader"]
    if not uuid:
        return {}
    try:
        answer = subprocess.run(words, capture_output=True, text=True, timeout=ANSWER_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return {}
    return dict(zip(names, (word.strip() for word in answer.stdout.split(",")), strict=False))


def _number(word: str) -> float | None:
    value = as_number(word)
    return value if value is not None and 0 <= value < float("inf") else None
