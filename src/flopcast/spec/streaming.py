"""Weights and caches outside the devices that serve: where they are kept and how an engine copies them.

Answers: which fraction of the weights or of the KV cache is in which memory, and how is that written?
Elsewhere: the memories (memory_tiers.py), whether a deployment is possible (serving/checks_tiers.py), the
seconds of copies (serving/pass_copies.py), placements of training (offload.py).
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
        An unknown memory, a memory that stands twice, or fractions that are not above 0 or exceed 1 in all.
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
    """The data that an engine can keep outside the devices, and how it copies them to the devices.

    Rates are fractions of those of the hardware: of a device's `host_bytes_per_s`, of the drives'
    `read_bytes_per_s`, of the host's `bytes_per_s`.

    Attributes
    ----------
    weights : tuple of str
        Memories outside the devices in which the engine can keep weights of blocks.
    caches : tuple of str
        Memories outside the devices in which it can keep keys and values.
    activations : tuple of str
        Memories outside the devices in which it can keep the hidden states between two layers.
    host_computes : tuple of str
        What the host's processor can compute; the first one is the default. "nothing": everything is copied
        to the device. "attention": attention of decoding tokens to the keys and values on the host.
        "layers": the layers whose weights are on the host.
    whole_layers : bool
        Whether a fraction of the weights is a number of whole layers (Accelerate, llama.cpp) or the same
        fraction of each layer (FlexGen). Copies run beside the kernels of layers that are copied; with
        whole layers, these are only a part of all layers.
    overlapped : bool
        Whether copies for the next layer run beside the kernels of a layer. A pass then takes the longest
        of kernels and copies on each link, and otherwise their sum.
    window_layers : int
        Layers whose weights, keys and values are copied to the device and kept there at the same time.
    file_copy_fraction : float
        Bytes of weights in the format of their file, which are in memory together with the converted ones
        while an embedding, a head or a block is loaded, per byte of converted weights. 0.5 if files in 16
        bits become weights in fp32.
    kernel_tokens : int or None
        New tokens that a kernel computes at once. A larger pass computes each layer in parts that share the
        weights, so that only a part needs memory for activations. None computes all tokens at once.
    weight_fraction, cache_fraction, storage_fraction : float
        Fractions of the rate of the link to the host that copies of weights, and of keys and values, reach,
        and of the drives' rates that reads and writes reach.
    host_fraction : float
        Fraction of the bandwidth of the host's memory that kernels on the host reach.
    host_tokens : int
        Most new tokens of a pass whose layers the host computes. For larger passes, the weights are copied
        to the device.
    unpack_fraction : float or None
        With weights in 4 bits, the rate at which the device unpacks them to 16 bits before each use, as a
        fraction of its memory bandwidth, counted in bytes of 16-bit weights. None if its kernels read
        4 bits.
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
