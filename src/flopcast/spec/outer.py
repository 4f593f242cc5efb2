"""The exchange of low-communication data parallelism: "topk:64/4096,bits:2,exchange:store".

Answers: which values do peers exchange after their inner steps, how, in which format, and which states does
the outer optimizer keep?
Elsewhere: the numbers of peers and inner steps (plan.py), the rules (rules_outer.py), bytes and time of an
exchange (report/outer_round.py), the memory of the states (memory/outer.py).

References
----------
DiLoCo: arXiv:2311.08105. Streaming DiLoCo: arXiv:2501.18512. SparseLoCo: arXiv:2508.15706.
"""

import math
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BeforeValidator, Field, PlainSerializer, model_validator

from flopcast.dtypes import ELEMENT_BYTES, Floats
from flopcast.fixes import in_place, set_to
from flopcast.quantities import parse_quantity
from flopcast.records import Record
from flopcast.spec.written_lists import meanings, or_text
from flopcast.strict_model import NotAllowedError, StrictModel, cached_results
from flopcast.units import Number

Exchange = Literal["all_reduce", "all_gather", "store"]
Buffers = Literal["momentum", "error_feedback", "both", "none"]
EXAMPLE = "topk:64/4096,bits:2,exchange:store"


class Pattern(Record):
    """How peers exchange their values.

    Attributes
    ----------
    sent, received : bytes that each of n peers sends and receives, for each byte of its own values
    hops : number of latencies for each doubling of the number of peers or, for a store, in total
    sums : whether values are summed on the way, so that all peers must send the same positions
    stored : whether a peer first uploads its values, and downloads those of others afterwards
    """

    sent: Callable[[int], Number]
    received: Callable[[int], Number]
    hops: int
    sums: bool = False
    stored: bool = False

    def seconds(self, sending_s: Number, receiving_s: Number, latency_s: Number, peers: int) -> Number:
        """Return the seconds of an exchange, given the seconds of sending alone and of receiving alone."""
        if self.stored:
            return sending_s + receiving_s + self.hops * latency_s
        return max(sending_s, receiving_s) + self.hops * math.ceil(math.log2(peers)) * latency_s


PATTERNS: dict[str, Pattern] = {
    "all_reduce": Pattern(
        sent=lambda n: 2 * (n - 1) / n, received=lambda n: 2 * (n - 1) / n, hops=2, sums=True
    ),
    "all_gather": Pattern(sent=lambda n: n - 1, received=lambda n: n - 1, hops=1),
    "store": Pattern(sent=lambda _: 1, received=lambda n: n - 1, hops=2, stored=True),
}
FP32_BITS, FP32_BYTES = 32, ELEMENT_BYTES["fp32"]


def _or_ratio(schema: dict[str, Any]) -> None:
    """Make the schema of `topk` accept the text that sets the chunk as well."""
    number = {key: schema.pop(key) for key in ("type", "minimum")}
    schema["anyOf"] = [number, {"type": "string", "pattern": "^[0-9]+/[0-9]+$"}]


class Outer(StrictModel):
    """The values that peers exchange after `inner_steps` steps, and the method of the exchange.

    A pseudo-gradient is the difference between the parameters before and after the inner steps. Each peer
    sends its pseudo-gradient, and the outer optimizer applies the mean of all of them.

    Attributes
    ----------
    topk : int
        Number of values of each chunk that are sent, those with the largest magnitude (SparseLoCo). 0 means
        that all values are sent.
    chunk : int
        With `topk`: number of values in a chunk. The text "topk:64/4096" sets both fields.
    bits : float
        Bits of a sent value. Scales of quantised values are not counted.
    index_bits : float or None
        With `topk`: bits of the position of a sent value. By default, the smallest number of whole bits
        that can represent all positions in a chunk.
    exchange : str
        How peers exchange their values. "all_reduce": a ring of peers, the default if all values are sent.
        "all_gather": a ring in which each peer receives the values of all others, the default with `topk`.
        "store": each peer uploads its values to an object store, and then downloads those of all others.
    fragments : int
        Number of fragments of the model that are exchanged one after the other during the inner steps
        (Streaming DiLoCo).
    overlap : int
        Number of inner steps during which the exchange of a fragment may run in the background. 0 means
        that training waits for the exchange.
    buffers : str or None
        What each peer keeps in addition to the outer parameters, in fp32: "momentum" of the outer
        optimizer, "error_feedback" (values that were not sent), "both" or "none". By default, momentum if
        all values are sent, and error feedback with `topk`.
    window_s : float
        Shortest time of all inner steps of a round, for peers that wait until a fixed time has passed.
    """

    topk: int = Field(default=0, ge=0, json_schema_extra=_or_ratio)
    chunk: int = Field(default=4096, ge=1)
    bits: Number = Field(default=FP32_BITS, gt=0, le=FP32_BITS)
    index_bits: Number | None = Field(default=None, ge=0, le=64)
    exchange: Exchange | None = None
    fragments: int = Field(default=1, ge=1)
    overlap: int = Field(default=0, ge=0)
    buffers: Buffers | None = None
    window_s: float = Field(default=0.0, ge=0)

    @model_validator(mode="after")
    def _sends_what_exists(self) -> "Outer":
        if self.topk > self.chunk:
            because = f"a chunk has only {self.chunk} values"
            swapped = {"chunk": self.topk} if "chunk" in self.model_fields_set else {}
            right = {"topk": self.chunk} | swapped
            raise NotAllowedError(f"topk of at most {self.chunk}, the chunk", because, right)
        if self.index_bits is not None and not self.topk:
            because = "without topk, peers send all values in order, and therefore send no positions"
            raise NotAllowedError("no index_bits without topk", because, "remove index_bits")
        return self

    @property
    def pattern(self) -> Pattern:
        """Return the method by which peers exchange values."""
        return PATTERNS[self.exchange or ("all_gather" if self.topk else "all_reduce")]

    @property
    def sent_bits(self) -> Number:
        """Return how many bits a peer sends of its own values, divided by the number of all parameters.

        >>> Outer().sent_bits, Outer(topk=64, bits=2).sent_bits
        (32, 0.21875)
        """
        if not self.topk:
            return self.bits
        position = math.ceil(math.log2(self.chunk)) if self.index_bits is None else self.index_bits
        return self.topk / self.chunk * (self.bits + position)

    @property
    def state_bytes(self) -> float:
        """Return the bytes of the outer parameters and buffers for each trained parameter."""
        kept = self.buffers or ("error_feedback" if self.topk else "momentum")
        return FP32_BYTES * (1 + {"both": 2, "none": 0}.get(kept, 1))

    @property
    def buffer_bytes(self) -> float:
        """Return the bytes of the pseudo-gradient of a fragment for each trained parameter."""
        return FP32_BYTES / self.fragments

    def traffic_bytes(self, payload_bytes: Number, peers: int) -> tuple[Number, Number]:
        """Return the bytes that a peer sends and receives in a round.

        >>> Outer().traffic_bytes(100.0, 4), Outer(exchange="store").traffic_bytes(100.0, 4)
        ((150.0, 150.0), (100.0, 300.0))
        """
        pattern = self.pattern
        return pattern.sent(peers) * payload_bytes, pattern.received(peers) * payload_bytes

    def exposed_s(self, exchange_s: Number, inner_steps: int, step_s: Floats) -> Floats:
        """Return the seconds of a round's exchange that training waits for, given the time of a step.

        The exchanges of all fragments use one link, one after the other. Each exchange may overlap with the
        inner steps until the next exchange begins, but with at most `overlap` inner steps.
        """
        steps = min(self.overlap * self.fragments, inner_steps)
        hidden_s = steps * step_s if steps else np.zeros_like(step_s)  # a step may be infinite
        exposed_s: Floats = np.maximum(exchange_s - hidden_s, 0.0)
        return exposed_s

    @cached_results(64)  # every report in JSON writes it
    def text(self) -> str:
        """Return the short form, from which the same settings can be read; "" if all have their defaults.

        >>> Outer(topk=64, bits=2, exchange="store", window_s=1200).text()
        'topk:64/4096,bits:2,exchange:store,window:1200s'
        """
        stated = [f"topk:{self.topk}/{self.chunk}"] if self.topk else []
        for name, info in type(self).model_fields.items():
            value = getattr(self, name)
            if name not in ("topk", "chunk", "window_s") and value != info.default:
                stated.append(f"{name}:{value:g}" if isinstance(value, float) else f"{name}:{value}")
        return ",".join(stated + [f"window:{self.window_s!r}s".replace(".0s", "s")] * bool(self.window_s))


def _of_text(given: object) -> object:
    """Return the mapping that a text means; anything else as it is.

    Raises
    ------
    ValueError
        A word has no meaning, or states again what another one states.
    """
    if isinstance(given, Mapping):
        return {**given, **_top(str(given["topk"]))} if "/" in str(given.get("topk", "")) else given
    if not isinstance(given, str):
        return given
    words = [word.strip() for word in given.split(",")]
    words = [] if words in ([""], ["none"]) else words
    found: dict[str, object] = {}
    for word, fields in zip(words, meanings(words, _setting, given), strict=True):
        if found.keys() & fields.keys():
            because = f"{word} sets a field that another word already sets"
            raise NotAllowedError("each setting only once", because, f"leave out {word}")
        found |= fields
    return found


def _setting(word: str) -> dict[str, object]:
    """Return the fields that a word of the text sets."""
    name, _, value = word.replace("=", ":").partition(":")
    if name in PATTERNS and not value:
        return {"exchange": name}
    if name == "topk" and "/" in value:
        return _top(value)
    if name in ("window", "window_s") and value:
        try:
            return {"window_s": parse_quantity(value, ("s", "min", "h"))}
        except ValueError:
            allowed, fix = "window:TIME, such as window:20min", in_place(f"window:{value}s", word)
            raise NotAllowedError(allowed, f"{value!r} is not a time with a unit", fix) from None
    if name in Outer.model_fields and value:
        return {name: value}
    from difflib import get_close_matches  # only a wrong word needs it

    names = [each for each in Outer.model_fields if each not in ("chunk", "window_s")]
    allowed = f"{', '.join(names)} and window, each with a value after a colon, such as {EXAMPLE}"
    near = get_close_matches(name, [*names, "window"], n=1, cutoff=0.5)
    right = f"{near[0]}:{value}" if near and value else ""
    fix = in_place(right, word) if right else set_to(f"remove {word} from outer")
    because = f"{word!r} sets none of these settings" if value else f"{word!r} states no value"
    raise NotAllowedError(allowed, because, fix)


def _top(value: str) -> dict[str, object]:
    """Return the fields that "64/4096" sets."""
    kept, _, chunk = map(str.strip, value.partition("/"))
    if kept.isdecimal() and chunk.isdecimal() and 0 < int(chunk) < int(kept):
        because = f"a chunk of {chunk} values does not contain {kept}"
        raise NotAllowedError("topk:VALUES/CHUNK", because, in_place(f"{chunk}/{kept}", value))
    return {"topk": kept, "chunk": chunk}


def _or_text(schema: dict[str, Any]) -> None:
    """Make the schema of a plan's field accept a text as well."""
    reference = {"$ref": schema.pop("$ref")} if "$ref" in schema else {}
    or_text(EXAMPLE, *filter(None, [reference]))(schema)


OuterField = Annotated[
    Outer,
    BeforeValidator(_of_text),
    PlainSerializer(Outer.text, when_used="json"),  # whose time has a unit, so that it can be read again
    Field(json_schema_extra=_or_text),
]
