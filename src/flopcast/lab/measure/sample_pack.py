"""A sample pack: the results of a micro-benchmark, as plain values and as rows of text.

Answers: what does a row of `samples.csv` and of `collectives.csv` contain, and which rows are wrong?
Elsewhere: files (lab/samples/packs.py), timing (timing.py), the use of samples (measured_operators.py,
site.py).

Times are microseconds, as in every table of kernels; all repetitions are kept, so that statistics other
than the median stay possible. Several values of one field are joined by ";".
"""

import math
from collections.abc import Mapping
from statistics import median

from flopcast.dtypes import ELEMENT_BYTES
from flopcast.lab.measure.sampling_plan import COLD, LOADED
from flopcast.lab.measure.shapes import SIZES, Shape
from flopcast.records import Record, field

FORMAT_VERSION = 1
MEDIAN_SLACK = 0.01  # a median that differs more from its repetitions has another unit, or another row
Megahertz = float
Celsius = float
Microseconds = float

READINGS = ("clock_mhz", "power_w", "temperature_c")
SAMPLE_COLUMNS = (
    "device", "kernel", "layout", "dtype", "sizes", "flags", "condition",
    "repetitions_us", "median_us", *READINGS,
)  # fmt: skip
MESSAGE_COLUMNS = (
    "device", "collective", "message_bytes", "inside", "nodes", "condition",
    "repetitions_us", "median_us", "gemm_alone_us", "gemm_overlapped_us",
)  # fmt: skip
ALONE, OVERLAPPED = "alone", "overlapped"


class Reading(Record):
    """Sensor readings while the device was busy; None if they are unknown."""

    clock_mhz: Megahertz | None = None
    power_w: float | None = None
    temperature_c: Celsius | None = None


class Sample(Record):
    """One shape under one condition: "cold" (idle between repetitions) or "loaded" (back to back).

    A loaded repetition is the mean over a batch of executions that takes at least two milliseconds.
    """

    device: str
    shape: Shape
    condition: str
    repetitions_us: tuple[float, ...]
    reading: Reading = Reading()

    @property
    def key(self) -> str:
        """Return the shape and the condition, as in a plan."""
        return f"{self.shape.key}|{self.condition}"

    @property
    def median_s(self) -> float:
        """Return the median seconds of the repetitions."""
        return median(self.repetitions_us) * 1e-6


class MessageSample(Record):
    """One collective of one size over `inside` ranks on each of `nodes` nodes.

    `message_bytes` follows operators/messages.py. An "overlapped" message ran concurrently with a
    product: its times are those during the product, and the product's own times are given alone and
    during the message.
    """

    device: str
    collective: str
    message_bytes: int
    inside: int
    nodes: int
    condition: str
    repetitions_us: tuple[float, ...]
    gemm_alone_us: Microseconds | None = None
    gemm_overlapped_us: Microseconds | None = None

    @property
    def key(self) -> str:
        """Return the key of the row."""
        return f"{self.collective}|{self.message_bytes}|{self.inside}|{self.nodes}|{self.condition}"


class Manifest(Record):
    """The circumstances of the measurement of a pack that its rows do not state.

    `unsupported` holds the keys of shapes that this device or this release of torch could not run, with
    the reason. `facts` are the driver, capability, versions and clocks, in the words of the machine.
    """

    device: str
    tool_version: str
    started: str
    facts: Mapping[str, object] = field(default_factory=dict)
    options: Mapping[str, object] = field(default_factory=dict)
    seed: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)
    unsupported: Mapping[str, str] = field(default_factory=dict)
    format_version: int = FORMAT_VERSION


def sample_row(sample: Sample) -> dict[str, str]:
    """Return a sample as the text of a row, in the order of SAMPLE_COLUMNS; a missing reading is empty.

    All repetitions are kept, in addition to their median and their number.
    """
    shape, reading = sample.shape, sample.reading
    return {
        "device": sample.device,
        "kernel": shape.kernel,
        "layout": shape.layout,
        "dtype": shape.dtype,
        "sizes": ";".join(f"{name}={value}" for name, value in shape.sizes),
        "flags": ";".join(shape.flags),
        "condition": sample.condition,
        **times_of_row(sample.repetitions_us),
        **{name: _number(getattr(reading, name)) for name in READINGS},
    }


def message_row(sample: MessageSample) -> dict[str, str]:
    """Return a collective as the text of a row, in the order of MESSAGE_COLUMNS."""
    return {
        **{name: str(getattr(sample, name)) for name in MESSAGE_COLUMNS[:6]},
        **times_of_row(sample.repetitions_us),
        **{name: _number(getattr(sample, name)) for name in MESSAGE_COLUMNS[8:]},
    }


def sample_of(row: Mapping[str, str], device: str) -> Sample:
    """Return the sample in a row.

    Raises
    ------
    ValueError
        The row is broken. The message states which rows are valid.
    """
    check_columns(row, SAMPLE_COLUMNS, device)
    if row["condition"] not in (COLD, LOADED):
        raise ValueError(f"{COLD} or {LOADED} in the column condition, not {row['condition']!r}")
    if not row["kernel"] or row["dtype"] not in ELEMENT_BYTES:
        raise ValueError(f"a kernel class in kernel, and one of {', '.join(ELEMENT_BYTES)} in dtype")
    shape = Shape(
        kernel=row["kernel"],
        layout=row["layout"],
        dtype=row["dtype"],
        sizes=tuple(_size(word) for word in row["sizes"].split(";") if word),
        flags=tuple(word for word in row["flags"].split(";") if word),
    )
    if (names := SIZES.get(shape.kernel)) is not None and sorted(names) != sorted(
        name for name, _ in shape.sizes
    ):
        raise ValueError(
            f"the sizes of {shape.kernel} in the column sizes: each of {', '.join(names)} once,"
            f" not {row['sizes']!r}"
        )
    return Sample(
        device=device,
        shape=shape,
        condition=row["condition"],
        repetitions_us=repetitions_of_row(row),
        reading=Reading(**{name: _optional(row[name]) for name in READINGS}),
    )


def message_of(row: Mapping[str, str], device: str) -> MessageSample:
    """Return the collective in a row.

    Raises
    ------
    ValueError
        A column is missing, or a value is not allowed. The message states which values are allowed.
    """
    check_columns(row, MESSAGE_COLUMNS, device)
    if row["condition"] not in (ALONE, OVERLAPPED):
        raise ValueError(f"{ALONE} or {OVERLAPPED} in the column condition, not {row['condition']!r}")
    sizes = {name: row[name] for name in ("message_bytes", "inside", "nodes")}
    if not all(text.isdecimal() and int(text) > 0 for text in sizes.values()):
        given = [*sizes.values()]
        raise ValueError(f"whole numbers above 0 in message_bytes, inside and nodes, not {given}")
    return MessageSample(
        device=device,
        collective=row["collective"],
        **{name: int(text) for name, text in sizes.items()},
        condition=row["condition"],
        repetitions_us=repetitions_of_row(row),
        gemm_alone_us=_optional(row["gemm_alone_us"]),
        gemm_overlapped_us=_optional(row["gemm_overlapped_us"]),
    )


def times_of_row(repetitions_us: tuple[float, ...]) -> dict[str, str]:
    """Return the repetitions and their median, in microseconds, as the text of a row."""
    return {
        "repetitions_us": ";".join(f"{value:.6g}" for value in repetitions_us),
        "median_us": f"{median(repetitions_us):.6g}",
    }


def _number(value: float | Celsius | None) -> str:
    return "" if value is None else f"{value:.6g}"


def check_columns(row: Mapping[str, str], names: tuple[str, ...], device: str) -> None:
    """Raise ValueError unless a row has exactly these columns and belongs to the device."""
    if any(row.get(name) is None for name in names) or None in row:
        raise ValueError(f"{len(names)} columns: {', '.join(names)}")
    if row["device"] != device:
        raise ValueError(f"{device} (the device of the pack)")


def repetitions_of_row(row: Mapping[str, str]) -> tuple[float, ...]:
    """Return positive times that agree with the given median."""
    times = tuple(_time(word) for word in row["repetitions_us"].split(";"))
    if abs(_time(row["median_us"]) / median(times) - 1) > MEDIAN_SLACK:
        raise ValueError(f"a median_us that equals the median of repetitions_us ({median(times):g})")
    return times


def _time(text: str) -> float:
    value = _finite(text)
    if value <= 0:
        raise ValueError(f"times above 0 instead of {text}")
    return value


def _optional(text: str) -> float | None:
    if not text:
        return None
    value = _finite(text)
    if value < 0:
        raise ValueError(f"readings of at least 0, not {text}")
    return value


def _finite(text: str) -> float:
    """Return a finite number; nan and inf raise an error."""
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"a number instead of {text!r}") from None
    if not math.isfinite(value):
        raise ValueError(f"a finite number instead of {text}")
    return value


def _size(word: str) -> tuple[str, int]:
    name, _, value = word.partition("=")
    if not name or not value.isdecimal() or int(value) == 0:
        raise ValueError(f"sizes such as m=4096;n=1024, with whole numbers above 0, not {word!r}")
    return name, int(value)
