"""Separate strategies of single blocks: "0-7:tp=2:zero=3,8-31:tp=4:offload=activations:host".

Answers: which blocks have their own tensor parallelism, ZeRO stage, recompute or offload, and how is this
written?
Elsewhere: the rules about these blocks (rules_layers.py), their layouts and the messages between them
(workload/layer_strategies.py), which strategies are best (search/per_layer.py).
"""

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from flopcast.spec.offload import Offload, offload_word
from flopcast.spec.written_lists import entries_of, or_text
from flopcast.strict_model import NotAllowedError, StrictModel

WORD = re.compile(r"(\d+)(?:-(\d+))?((?::\w+=[\w@+.%]+(?::[\w@+.%]++(?!=))*)+)")
NAMES = {"tp": "tensor_parallel", "zero": "zero", "recompute": "recompute", "offload": "offload"}
EXAMPLE = "0-7:tp=2:zero=3,8-31:recompute=full:offload=optimizer:host"
BETWEEN = "+"  # in place of the "," between placements, which separates strategies
OTHER_INSIDE = "@"  # is read in place of the ":" of a placement, too


class LayerStrategy(StrictModel):
    """Consecutive blocks whose strategy differs from the rest of the plan.

    A field that is not given has the value of the plan.

    Attributes
    ----------
    first, last : int
        First and last block of the range. Blocks are numbered from 0.
    tensor_parallel : int or None
        Tensor-parallel degree of these blocks. Their data-parallel degree follows from it, because a
        pipeline stage keeps its devices. The number of sequences of a rank also follows from it, because a
        micro-batch keeps its sequences.
    zero : int or None
        ZeRO stage of these blocks, as in a plan.
    recompute : str or None
        What is recomputed in the backward pass of these blocks, as in a plan.
    offload : tuple of Placement or None
        States of these blocks that are offloaded, such as "optimizer:host". By default, those of the plan.

    Examples
    --------
    >>> LayerStrategy(first=0, last=7, tensor_parallel=2, zero=3).word()
    '0-7:tp=2:zero=3'
    """

    first: int = Field(ge=0)
    last: int = Field(ge=0)
    tensor_parallel: int | None = Field(default=None, ge=1)
    zero: Literal[0, 1, 2, 3] | None = None
    recompute: Literal["none", "selective", "full"] | None = None
    offload: Offload | None = None

    @model_validator(mode="after")
    def _in_order(self) -> "LayerStrategy":
        if self.last < self.first:
            swapped = self.model_copy(update={"first": self.last, "last": self.first})
            raise _fault("the first number must not be greater than the last", swapped.word())
        return self

    @property
    def changes(self) -> dict[str, object]:
        """Return the fields of a plan that the strategy sets."""
        return {name: value for name in NAMES.values() if (value := getattr(self, name)) is not None}

    def word(self) -> str:
        """Return the strategy as one word, as plans are written."""
        blocks = str(self.first) if self.first == self.last else f"{self.first}-{self.last}"
        own = {short: getattr(self, name) for short, name in NAMES.items()}
        if self.offload is not None:
            placed = offload_word(self.offload) or "none"
            own["offload"] = placed.replace(",", BETWEEN)
        return ":".join(
            [blocks, *(f"{short}={value}" for short, value in own.items() if value is not None)]
        )


def layers_word(strategies: Iterable[LayerStrategy]) -> str:
    """Return all strategies as one word; empty if every block has the strategy of the plan."""
    return ",".join(one.word() for one in strategies)


def _strategies(given: object) -> object:
    """Return strategies as a file, a plan's text or Python writes them, each as a mapping or a strategy.

    Raises
    ------
    ValueError
        A truth value, or a word of another form.
    """
    if isinstance(given, bool):
        raise _fault("true and false do not name blocks", EXAMPLE)
    if isinstance(given, str) and re.fullmatch(r"\d+(,\d+)+", given):
        fault = _fault(f"{given.partition(',')[0]!r} names no setting", EXAMPLE)
        raise NotAllowedError(
            fault.allowed, fault.because, f"write stage_layers={given} in place of layers={given}"
        )
    return given if isinstance(given, Mapping) else entries_of(given, _of_word, tuple)


def _of_word(word: str) -> dict[str, object]:
    found = WORD.fullmatch(word)
    if found is None:
        raise _fault(f"{word!r} does not have this form", EXAMPLE)
    own: dict[str, object] = {"first": int(found[1]), "last": int(found[2] or found[1])}
    for each in re.split(r":(?=\w+=)", found[3])[1:]:
        short, _, value = each.partition("=")
        if short not in NAMES:
            raise _fault(f"a block cannot have its own {short}", EXAMPLE)
        if short == "offload":
            value = value.replace(OTHER_INSIDE, ":").replace(BETWEEN, ",")
        own[NAMES[short]] = int(value) if value.isdecimal() else value
    return own


def _fault(because: str, meant: str) -> NotAllowedError:
    """Return the error of a word, with strategies that are right."""
    allowed = f"blocks FIRST-LAST from 0, each with tp=, zero=, recompute= or offload=, such as {EXAMPLE}"
    return NotAllowedError(allowed, because, {"layers": meant})


Layers = Annotated[
    tuple[LayerStrategy, ...], BeforeValidator(_strategies), Field(json_schema_extra=or_text(EXAMPLE))
]
