"""The offload of a plan: "optimizer:host,activations:nvme:0.5".

Answers: which states can be offloaded to which memory, and how is this written?
Elsewhere: whether a stack, a cluster and a plan support it (rules_offload.py), the copies
(workload/offload.py), the memory of each tier (memory/tiers.py).
"""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Literal, get_args

from pydantic import BeforeValidator, Field

from flopcast.fixes import set_to
from flopcast.quantities import fraction_of
from flopcast.spec.written_lists import by_kind, entries_of, meanings, or_text
from flopcast.strict_model import NotAllowedError, StrictModel

Kind = Literal["optimizer", "gradients", "parameters", "activations", "outer"]
TierName = Literal["host", "nvme", "file_system", "peer"]
KINDS: tuple[str, ...] = get_args(Kind)
TIERS: tuple[str, ...] = get_args(TierName)
OTHER_NAMES = {"cpu": "host", "dram": "host", "ram": "host", "disk": "nvme", "ssd": "nvme"}  # of memories
OTHER_KINDS = {"weights": "parameters", "params": "parameters", "grads": "gradients", "states": "optimizer",
               "opt": "optimizer", "acts": "activations"}  # fmt: skip
OUTER = "outer"  # kind of the states of an outer round
OUTER_PLACES = ("outer:host",)  # of every stack, because the outer optimizer is a program of its own
PEER = "peer"  # the only memory that states reach without passing through the host
STRIDE = "stride"
PATTERN = rf"^({'|'.join(KINDS)})[:=].+$"


class Placement(StrictModel):
    """One kind of state that is offloaded, and the memory that it is offloaded to.

    Attributes
    ----------
    kind : str
        What is offloaded. "optimizer": main weights and moments. "gradients": accumulated gradients; by
        default, they are in the same memory as the optimizer, or on the device if the optimizer is on
        peers. "parameters": the shards of weights (ZeRO-3 only). "activations": what layers keep for the
        backward pass. "outer": outer parameters, buffers and pseudo-gradients of plans with peers (to the
        host only).
    tier : str
        Memory that the state is offloaded to: the memory of the "host", the "nvme" drives of the node, the
        "file_system" of the cluster, or the free memory of "peer" devices of the node.
    fraction : float
        Fraction of the state that is offloaded to this memory; the rest stays on the device. You can divide
        one kind of state over several memories.
    stride : int
        With a stride of n, every n-th subgroup of the parameters of an optimizer on the host is updated on
        the device instead (Deep Optimizer States). 0 means that all subgroups are updated on the host.
    """

    kind: Kind
    tier: TierName
    fraction: float = Field(default=1.0, gt=0, le=1)
    stride: int = Field(default=0, ge=0)

    def word(self) -> str:
        """Return the placement as one word, as plans are written.

        >>> Placement(kind="optimizer", tier="host", fraction=0.8, stride=2).word()
        'optimizer:host:0.8:stride2'
        """
        part = f":{self.fraction:g}" if self.fraction < 1 else ""
        every = f":{STRIDE}{self.stride}" if self.stride else ""
        return f"{self.kind}:{self.tier}{part}{every}"


def offload_word(placements: tuple[Placement, ...]) -> str:
    """Return all placements as one word; empty if nothing is placed outside the devices."""
    return ",".join(placement.word() for placement in placements)


def _placements(given: object) -> object:
    """Return placements as a file, a plan's text or Python writes them, each as a mapping.

    Raises
    ------
    ValueError
        A truth value, or a word of another form.
    """
    if isinstance(given, bool):
        raise ValueError("none, or placements such as optimizer:host, not true or false")
    return entries_of(given, _of_word, _of_entries)


def _of_word(word: str) -> dict[str, object]:
    kind, *rest = word.replace("=", ":").split(":")
    if not rest or kind not in KINDS or rest[0] not in TIERS:
        kinds, tiers = (f"{', '.join(names[:-1])} or {names[-1]}" for names in (KINDS, TIERS))
        allowed = f"a kind of state ({kinds}) and a memory ({tiers}), such as optimizer:host"
        memory = rest[0] if rest else ""
        tier = OTHER_NAMES.get(memory, memory if memory in TIERS else TIERS[0])
        begun = next((each for each in KINDS if each.startswith(kind[:4])), KINDS[0])
        tier = next((each for each in TIERS if each in memory), tier)
        known = OTHER_KINDS.get(kind, begun)
        shares = [memory] if fraction_of(memory) is not None else []  # no memory, but a fraction is stated
        meant = ":".join([known, tier, *shares, *rest[1:]])
        because = "each entry of offload consists of a kind of state and a memory"
        if kind in OTHER_KINDS:
            because = f"flopcast calls these states {known}, not {kind}"
        if kind in KINDS and memory in OTHER_NAMES:
            because, meant = (
                f"flopcast calls this memory {tier}, not {memory}",
                word.replace(memory, tier).replace("=", ":"),
            )
        because, meant = _with_commas(word) or (because, meant)
        if kind == "auto":
            because = "auto cannot be combined with other entries, and only flopcast search supports it"
            fix = set_to("run flopcast search with --offload auto", {"offload": meant})
            raise NotAllowedError(allowed, because, fix)
        raise NotAllowedError(allowed, because, {"offload": meant})
    found: dict[str, object] = {"kind": kind, "tier": rest[0]}
    for more in rest[1:]:
        if more.startswith(STRIDE) and more.removeprefix(STRIDE).isdecimal():
            found["stride"] = int(more.removeprefix(STRIDE))
        elif (fraction := fraction_of(more)) is not None and 0 < fraction <= 1:
            found["fraction"] = fraction
        else:
            allowed = f"a fraction above 0 and at most 1, or {STRIDE} and a number, after {kind}:{rest[0]}"
            because, meant = "the rest of the state stays on the device", f"{kind}:{rest[0]}"
            because, meant = _with_commas(word) or (because, meant)
            raise NotAllowedError(allowed, because, {"offload": meant})
    return found


def _with_commas(word: str) -> tuple[str, str] | None:
    """Return why a word with spaces or semicolons is wrong, and the entries that it means; else None."""
    if not re.search(r"[;\s]", word):
        return None
    kinds = "|".join((*KINDS, *OTHER_KINDS))
    named = re.sub(
        rf"\b({kinds})[\s:=]+(?=\w)", lambda found: f"{OTHER_KINDS.get(found[1], found[1])}:", word.strip()
    )
    entries = re.sub(r"[;\s]+", ",", re.sub(r"\s+(?=[\d.])", ":", named))
    return "commas separate entries of offload", entries


def _of_entries(given: Mapping[object, object]) -> Iterator[object]:
    """Yield the placements of a mapping by kind: {"optimizer": "host"}."""
    words = [
        f"{kind}:{word.strip()}"
        for kind, place in given.items()
        if isinstance(place, str)
        for word in place.split(",")
    ]
    yield from meanings(words, _of_word, ",".join(words))
    for kind, place in given.items():
        if isinstance(place, str):
            continue
        if isinstance(place, Mapping):
            yield {"kind": kind, **place}
        else:
            because = "each entry of offload consists of a kind of state and a memory"
            fix = {"offload": f"{kind}:host"}
            raise NotAllowedError(f"a memory for {kind}, such as host", because, fix)


_BY_KIND = by_kind(
    KINDS, "Memory to which this kind of state is offloaded, with an optional fraction.", "string", "object"
)
Offload = Annotated[
    tuple[Placement, ...],
    BeforeValidator(_placements),
    Field(json_schema_extra=or_text("optimizer:host", _BY_KIND)),
]


def placed(placements: tuple[Placement, ...], kind: str) -> tuple[Placement, ...]:
    """Return the placements of a kind of state.

    Gradients without a placement are in the memory from which the host updates the optimizer. If optimizer
    states are on peers, the device updates them and keeps their gradients.
    """
    own = tuple(one for one in placements if one.kind == kind)
    if kind == "gradients" and not own:
        own = tuple(one for one in placed(placements, "optimizer") if one.tier != PEER)
    return own


def fraction_in(placements: tuple[Placement, ...], kind: str, tier: str = "") -> float:
    """Return the fraction of a kind of state that is in a tier, or in any tier outside the device.

    >>> nvme = (Placement(kind="optimizer", tier="nvme", fraction=0.5),)
    >>> fraction_in(nvme, "optimizer"), fraction_in(nvme, "gradients", "host")
    (0.5, 0.0)
    """
    return sum((one.fraction for one in placed(placements, kind) if tier in ("", one.tier)), 0.0)


def used_in_steps(placements: tuple[Placement, ...]) -> bool:
    """Return whether a step itself uses states outside the device; only a round uses outer states."""
    return any(one.kind != OUTER for one in placements)


def stride_of(placements: tuple[Placement, ...]) -> int:
    """Return the stride of the optimizer's update; 0 if the host updates all placed states."""
    return max((one.stride for one in placements if one.kind == "optimizer"), default=0)
