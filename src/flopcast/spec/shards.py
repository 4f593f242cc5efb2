"""The shard group of each kind of state: "parameters:2:int8,gradients:8,optimizer:all".

Answers: over how many ranks is each kind of state sharded, do ranks keep a second copy of parameters, which
number format do messages have, and how is this written?
Elsewhere: what ZeRO shards, and the group of all other kinds (plan.py, `zero` and `data_shard`), the rules
(rules_shard_groups.py), the ranks and axes of a group (shard_groups.py).
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, Literal, get_args

from pydantic import BeforeValidator, Field

from flopcast.spec.written_lists import by_kind, entries_of, or_text
from flopcast.strict_model import NotAllowedError, StrictModel

Kind = Literal["parameters", "secondary", "gradients", "optimizer"]
MessageFormat = Literal["", "int8", "int4"]
KINDS: tuple[str, ...] = get_args(Kind)
ALL = "all"
MESSAGE_BYTES: dict[str, float] = {"int8": 1.0, "int4": 0.5}  # of an element, without scales of blocks
EXAMPLE = "parameters:2,gradients:8,optimizer:all"


class ShardGroup(StrictModel):
    """A group of ranks over which one kind of state is sharded, and the number format of its messages.

    Attributes
    ----------
    kind : str
        Kind of state that is sharded. "parameters": weights, which are gathered for every forward pass.
        "secondary": a second copy of the weights, which is gathered for backward passes (hpZ of ZeRO++).
        "gradients": accumulated gradients. "optimizer": main weights and moments.
    ranks : int
        Number of neighbouring data-parallel ranks over which the state is sharded; 0 means all of them.
    messages : str
        Number format of the messages that gather or reduce this state: "int8" or "int4". Values are
        quantised before they are sent and dequantised afterwards. By default, messages have the number
        format of the training framework.
    """

    kind: Kind
    ranks: int = Field(default=0, ge=0)
    messages: MessageFormat = ""

    def word(self) -> str:
        """Return the group as one word, as plans are written.

        >>> ShardGroup(kind="gradients", ranks=8, messages="int4").word()
        'gradients:8:int4'
        """
        return ":".join([self.kind, str(self.ranks or ALL), *filter(None, [self.messages])])


def shards_word(groups: Iterable[ShardGroup]) -> str:
    """Return all groups as one word; empty if every kind of state has the same group."""
    return ",".join(group.word() for group in groups)


def group_of(groups: Iterable[ShardGroup], kind: str) -> ShardGroup | None:
    """Return the group of a kind of state that a plan names, or None."""
    return next((group for group in groups if group.kind == kind), None)


def message_format(groups: Iterable[ShardGroup], kind: str) -> str:
    """Return the number format of the messages with a kind of state; "" is that of the stack.

    >>> message_format((ShardGroup(kind="parameters", messages="int8"),), "parameters")
    'int8'
    """
    group = group_of(groups, kind)
    return group.messages if group else ""


def _groups(given: object) -> object:
    """Return groups as a file, a plan's text or Python writes them, each as a mapping or a group.

    Raises
    ------
    ValueError
        A truth value, a word of another form, or a kind that is named twice.
    """
    if isinstance(given, bool):
        raise _fault("shards lists kinds of state; true and false are no kinds of state", EXAMPLE)
    found = entries_of(
        given, _of_word, lambda groups: [_of_word(f"{kind}:{group}") for kind, group in groups.items()]
    )
    if isinstance(found, tuple):
        _check_named_once(found)
    return found


def _check_named_once(groups: tuple[object, ...]) -> None:
    """Raise an error if a kind of state has two groups."""
    kinds = [
        each.get("kind") if isinstance(each, Mapping) else getattr(each, "kind", None) for each in groups
    ]
    twice = next((kind for kind in kinds if kinds.count(kind) > 1), None)
    if twice is not None:
        raise _fault(
            f"{twice} is listed twice, but each kind of state can have only one group", f"{twice}:8"
        )


def _of_word(word: str) -> dict[str, object]:
    kind, *rest = word.replace("=", ":").split(":")
    if kind not in KINDS:
        raise _fault("each group needs a kind of state", f"{KINDS[0]}:{ALL}")
    if not rest or not (rest[0] == ALL or (rest[0].isdecimal() and int(rest[0]) > 0)):
        raise _fault(f"the group of {kind} needs a number of ranks", f"{kind}:{ALL}")
    if len(rest) > 2 or (rest[1:] and rest[1] not in MESSAGE_BYTES):
        raise _fault(
            "communication can be quantised to only these number formats", f"{kind}:{rest[0]}:int8"
        )
    ranks = 0 if rest[0] == ALL else int(rest[0])
    return {"kind": kind, "ranks": ranks, "messages": rest[1] if rest[1:] else ""}


def _fault(because: str, meant: str) -> NotAllowedError:
    """Return the error of a word, with a group that is right."""
    kinds, formats = (f"{', '.join(names[:-1])} or {names[-1]}" for names in (KINDS, tuple(MESSAGE_BYTES)))
    allowed = f"a kind of state ({kinds}), a number of ranks or {ALL}, and optionally {formats}"
    return NotAllowedError(f"{allowed}, such as {EXAMPLE}", because, {"shards": meant})


_BY_KIND = by_kind(KINDS, "Number of ranks over which this kind of state is sharded.", "integer", "string")
Shards = Annotated[
    tuple[ShardGroup, ...], BeforeValidator(_groups), Field(json_schema_extra=or_text(EXAMPLE, _BY_KIND))
]
