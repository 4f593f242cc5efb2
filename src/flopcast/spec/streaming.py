"""Weights and KV caches outside the devices: where they are stored, and how an engine copies them.

Answers: which fraction of the weights or of the KV cache is in which memory, and how is this written?
Elsewhere: the memories (memory_tiers.py), whether a deployment is possible (serving/checks_tiers.py), the
time of copies (serving/pass_copies.py), the offload of training (offload.py).
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

from annotated_types import Gt, Le
from pydantic import BeforeValidator, Field

from flopcast.quantities import fraction_of
from flopcast.strict_model import NotAllowedError, StrictModel

OUTSIDE = Literal["host", "nvme"]
MEMORIES: tuple[str, ...] = get_args(OUTSIDE)
DEVICE = "device"
HostComputes = Literal["nothing", "attention", "layers"]
Fraction = Annotated[float, Gt(0), Le(1)]


def fractions_of(text: str) -> dict[str, float]:
    """Return the fraction in each memory outside the device; the rest is on the device.

    >>> fractions_of("host:0.5+nvme:30%"), fractions_of("host"), fractions_of("device")
    ({'host': 0.5, 'nvme': 0.3}, {'host': 1.0}, {})

    Raises
    ------
    ValueError
        A memory is unknown or occurs twice, a fraction is not above 0, or the sum of the fractions exceeds
        1.
    """
    found: dict[str, float] = {}
    for word in () if text.strip() in (DEVICE, "") else text.split("+"):
        name, _, part = word.strip().partition(":")
        if name not in MEMORIES:
            because = "weights can be streamed only from these memories"
            fix = "write host, host:0.8 or host:0.5+nvme:0.3"
            raise NotAllowedError(f"{DEVICE}, {' or '.join(MEMORIES)}", because, fix)
        fraction = (fraction_of(part) or 0.0) if part else 1.0
        if not 0 < fraction <= 1:
            because = "the value after the colon is a fraction"
            raise NotAllowedError("a fraction above 0, at most 1", because, f"write {name}:0.5")
        if name in found:
            fix = f"write one fraction for {name}"
            raise NotAllowedError("each memory only once", "it can have only one fraction", fix)
        found[name] = fraction
    if sum(found.values()) > 1 + 1e-9:
        because = f"the sum of the fractions is {sum(found.values()):g}"
        raise NotAllowedError("fractions with a sum of at most 1", because, "write smaller fractions")
    return found


def placement_text(fractions: Mapping[str, float]) -> str:
    """Return fractions as a plan writes them.

    >>> placement_text({"host": 0.5, "nvme": 0.5}), placement_text({"host": 1.0}), placement_text({})
    ('host:0.5+nvme:0.5', 'host', 'device')
    """
    words = [name if part == 1 else f"{name}:{part:g}" for name, part in fractions.items()]
    return "+".join(words) or DEVICE


def _canonical(given: object) -> object:
    """Return the text of a placement in one form; a mapping of fractions by memory is accepted as well."""
    if isinstance(given, Mapping):
        given = "+".join(f"{name}:{part}" for name, part in given.items())
    return placement_text(fractions_of(given)) if isinstance(given, str) else given


def _or_mapping(schema: dict[str, Any]) -> None:
    """Make the schema accept a mapping of fractions by memory beside a text."""
    text = {"type": schema.pop("type"), "examples": ["host:0.8", "host:0.5+nvme:0.3"]}
    number = {"type": "number", "exclusiveMinimum": 0, "maximum": 1}
    fractions = {"type": "object", "properties": dict.fromkeys(MEMORIES, number)}
    schema["anyOf"] = [text, fractions | {"additionalProperties": False}]


PlacedOn = Annotated[str, BeforeValidator(_canonical), Field(json_schema_extra=_or_mapping)]


class Streaming(StrictModel):
    """What an engine can store outside the devices, and how it copies this data to the devices.

    Rates are fractions of the hardware's rates: `host_bytes_per_s` of a device, `read_bytes_per_s` of the
    drives, or `bytes_per_s` of the host memory.

    Attributes
    ----------
    weights : tuple of str
        Memories outside the devices in which the engine can keep weights of blocks.
    caches : tuple of str
        Memories outside the devices in which the engine can keep keys and values.
    activations : tuple of str
        Memories outside the devices in which the engine can keep the hidden states between two layers.
    host_computes : tuple of str
        What the CPU of the host can compute; the first entry is the default. "nothing": all data is copied
        to the device. "attention": attention of decoding tokens to the keys and values in host memory.
        "layers": the layers whose weights are in host memory.
    whole_layers : bool
        Whether a fraction of the weights means a number of whole layers (Accelerate, llama.cpp), or the
        same fraction of each layer (FlexGen). Copies overlap only with the kernels of layers that are
        copied. With whole layers, these are only a part of all layers.
    overlapped : bool
        Whether the copies of the next layer overlap with the kernels of the current layer. A pass then
        takes as long as the longest of the kernels and the copies on each link, and otherwise as long as
        their sum.
    window_layers : int
        Number of layers whose weights, keys and values are copied to the device and stay there at the same
        time.
    file_copy_fraction : float
        While an embedding, a head or a block is loaded, its weights are also in memory in the format of the
        file. This is the number of these bytes per byte of converted weights, such as 0.5 if 16-bit files
        are converted to fp32.
    kernel_tokens : int or None
        Largest number of new tokens that a kernel computes at once. A larger pass computes each layer in
        several parts with the same weights, so that only one part needs memory for activations. None means
        no limit.
    weight_fraction, cache_fraction, storage_fraction : float
        Fraction of the rate of the link to the host that copies of weights reach, fraction that copies of
        keys and values reach, and fraction of the drives' rates that reads and writes reach.
    host_fraction : float
        Fraction of the host memory's bandwidth that kernels on the host reach.
    host_tokens : int
        Largest number of new tokens of a pass whose layers the host computes. For larger passes, the
        weights are copied to the device.
    unpack_fraction : float or None
        With weights in 4 bits: the rate at which the device unpacks weights to 16 bits before each use, in
        bytes of 16-bit weights, as a fraction of its memory bandwidth. None if the kernels read 4-bit
        weights.
    """

    weights: tuple[OUTSIDE, ...] = ()
    caches: tuple[OUTSIDE, ...] = ()
    activations: tuple[OUTSIDE, ...] = ()
    host_computes: tuple[HostComputes, ...] = Field(default=("nothing",), min_length=1)
    whole_layers: bool = False
    overlapped: bool = True
    window_layers: int = Field(default=2, ge=1)
    file_copy_fraction: float = Field(default=0.0, ge=0, le=1)
    kernel_tokens: int | None = Field(default=None, ge=1)
    weight_fraction: Fraction = 0.8
    cache_fraction: Fraction = 0.8
    storage_fraction: Fraction = 0.8
    host_fraction: Fraction = 0.7
    host_tokens: int = Field(default=32, ge=1)
    unpack_fraction: float | None = Field(default=None, gt=0)
