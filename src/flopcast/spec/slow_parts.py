"""Devices, hosts and links that are slower than the others: "device=3:0.8,host=1:0.7,link=12:0.5".

Answers: which devices, hosts and links are slow, how slow are they, and how is this written?
Elsewhere: the rules (rules_speeds.py), the stages that wait for slow parts (cost/parts.py), the time that
they cost (report/stragglers.py).

A device has the number of its rank, and a host has the number of its node.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated

from pydantic import BeforeValidator, Field

from flopcast.fixes import in_place
from flopcast.quantities import fraction_of
from flopcast.spec.written_lists import entries_of, or_text
from flopcast.strict_model import NotAllowedError, StrictModel

DEVICE, HOST, LINK = "device", "host", "link"
PEER, PEER_LINK = OF_PEERS = ("peer", "peer_link")
MEANT = re.compile(r"\W*([a-z]+)\W*(\d+)(?:\.0)?\b[^.\d]*(\d*\.?\d+)\s*(%|p\w+|)\W*")  # in other notations
OF_DEVICES = ("gpu", "rank", "dev")
EXAMPLE = f"{DEVICE}=3:0.8"


class SlowPart(StrictModel):
    """One device, host or link that is slower than the others of its kind.

    Attributes
    ----------
    kind : str
        What is slow. "device": all kernels of one device. "host": the CPU of one node. "link": the
        connection of one device to other scale-up domains. "peer": all devices and hosts of one peer.
        "peer_link": the connection of one peer to the other peers. You can also name a network of the
        cluster: the connection of one device to this network.
    index : int
        Index of the slow device or peer or, for a host, of its node, from 0. The index of a device is the
        number of the rank that runs on it.
    speed_fraction : float
        Speed of the slow device, host or link divided by the speed of the others.
    """

    kind: str = Field(min_length=1)
    index: int = Field(ge=0)
    speed_fraction: float = Field(gt=0, le=1)

    @property
    def label(self) -> str:
        """Return the name of the part in reports.

        >>> SlowPart(kind="link", index=12, speed_fraction=0.5).label
        'link of device 12'
        """
        if self.kind == PEER_LINK:
            return f"link of peer {self.index}"
        return self._label_of_link if self.is_link else f"{self.kind} {self.index}"

    @property
    def is_link(self) -> bool:
        """Return whether the part is the connection of one device to a network."""
        return self.kind not in (DEVICE, HOST, *OF_PEERS)

    @property
    def _label_of_link(self) -> str:
        return f"{self.kind if self.kind == LINK else f'{self.kind} link'} of device {self.index}"

    def word(self) -> str:
        """Return the part as one word, in the form of the option.

        >>> SlowPart(kind="device", index=3, speed_fraction=0.8).word()
        'device=3:0.8'
        """
        return f"{self.kind}={self.index}:{self.speed_fraction:g}"


def _parts(given: object) -> object:
    """Return slow parts as a file, an option or Python writes them, each as a mapping.

    Raises
    ------
    ValueError
        A word of another form.
    """
    entries = given if isinstance(given, (list, tuple)) else ()
    pairs = [entries] if _is_pair(entries) else [each for each in entries if _is_pair(each)]
    if pairs:
        words = ",".join(f"{name}:{fraction}" for name, fraction in pairs)
        because = "each entry describes one slow device, host or link"
        raise NotAllowedError("a text, or a mapping by kind and index", because, {"slow": words})
    return entries_of(given, _of_word, _of_entries)


def _is_pair(entry: object) -> bool:
    """Return whether an entry is a part without its speed, and the speed: ("device=3", 0.8)."""
    if not isinstance(entry, (list, tuple)) or len(entry) != 2 or not isinstance(entry[0], str):
        return False
    return isinstance(entry[1], (int, float)) and "=" in entry[0]


def _of_word(word: str) -> dict[str, object]:
    kind, equals, rest = word.partition("=")
    index, colon, speed = rest.partition(":")
    fraction = fraction_of(speed.strip())
    if not (kind.strip() and equals and colon and index.strip().isdecimal() and fraction is not None):
        allowed = f"KIND=INDEX:FRACTION with a fraction of the usual speed, such as {EXAMPLE}"
        because = "each entry describes one slow device, host or link"
        meant = MEANT.fullmatch(word)
        meant_kind = DEVICE if meant and meant[1] in OF_DEVICES else meant and meant[1]
        begun = re.match(r"[a-z]+=\d+", word)
        right = f"{meant_kind}={meant[2]}:{meant[3]}{'%' * bool(meant[4])}" if meant else EXAMPLE
        right = f"{begun[0]}:0.8" if begun and not meant else right
        raise NotAllowedError(allowed, because, in_place(right, word))
    if not 0 < fraction <= 1:
        allowed = "a speed above 0 and at most 1 after the colon"
        because = "the number is the speed of the slow part divided by the speed of the others"
        percent = f"{fraction / 100:g}" if 10 < fraction <= 100 else "0.5"
        slowed = f"{1 / fraction:.2g}" if 1 < fraction <= 10 else percent  # who writes 1.25 times the time
        raise NotAllowedError(allowed, because, in_place(f"{kind}={index}:{slowed}", word))
    return {"kind": kind.strip(), "index": int(index), "speed_fraction": fraction}


def _of_entries(given: Mapping[object, object]) -> Iterator[object]:
    """Yield the parts of a mapping by kind: {"device": {3: 0.8}}."""
    for kind, parts in given.items():
        if not isinstance(parts, Mapping):
            because = "each entry describes one slow device, host or link"
            usual = f"{kind}:{parts}" if "=" in str(kind) else EXAMPLE
            fix = {"slow": usual}
            raise NotAllowedError(f"a mapping from indices to fractions for {kind}", because, fix)
        for index, fraction in parts.items():
            yield {"kind": kind, "index": index, "speed_fraction": fraction}


_BY_KIND = {
    "type": "object",
    "additionalProperties": {"type": "object", "additionalProperties": {"type": "number"}},
}
SlowParts = Annotated[
    tuple[SlowPart, ...], BeforeValidator(_parts), Field(json_schema_extra=or_text(EXAMPLE, _BY_KIND))
]
