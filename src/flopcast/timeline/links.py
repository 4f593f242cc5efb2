"""What messages lose to others that use the same link at the same time.

Answers: how much longer does a message take because a queue beside it uses its link, and how long does it
hold up that queue?
Elsewhere: what each takes alone (cost/), which tier joins a group (cost/collectives/network.py), what
compute loses to messages (contention.py), when everything runs (program.py).

A link is a rank's own part of a tier: its ports of NVLink, its share of the network cards. Two messages
that use it together need at least the sum of the times in which they occupy it; during their latency it is
free (`Price.link` says which tier a message occupies, and for which part of its seconds). Messages on
different tiers do not meet; a message counts on the widest tier that it needs.

Of a layer that lasts T seconds, and under which messages of D seconds are gathered or reduced, a message of
c seconds on the same tier shares its link for the part D / T of its time (all of it at most), and both get
half: it takes c · (1 + min(D / T, 1)). The queue beside it is held up for c. So a row of equal layers that
compute for w takes at least D + c each, the sum of the bytes over the bandwidth, and never more than
w + c + D, one after the other.

Exact where the queue is always busy, or never meets a message. Otherwise D / T is a mean: it supposes that
the queue is busy equally often at every moment of the layer. That needs no moments, only sums of a layer,
so that equal layers remain powers of one matrix. A message that finds its queue idle is held up by nobody,
and what it adds to an idle queue ends no later than the message itself.

Queues are those streams that a message does not wait for: data-parallel ones beside all others, and an
exchange of experts' tokens beside the messages of shared experts. Not counted: messages of other segments
(the last layer's gather of what follows it), and transfers between stages, which lie between programs.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from flopcast.cost.collectives.formulas import FORMULAS
from flopcast.cost.prices import Priced
from flopcast.dtypes import ONE, ZERO, Floats
from flopcast.operators.base import AbstractMessage
from flopcast.operators.item import Item

QUEUES = ("tp", "ep", "cp", "dp")  # streams of messages inside a program


@dataclass(frozen=True, eq=False, slots=True)
class Shared:
    """What a message loses and takes, as parts of its own seconds; (positions, plans, classes) each, with
    one position for all of them where they are alike.

    `own_fraction` is by how much longer it takes, `held_fraction` by how much it holds up each queue that
    uses its link.
    """

    own_fraction: Floats
    held_fraction: dict[str, Floats]


@dataclass(frozen=True, eq=False, slots=True)
class _Use:
    """One message's use of a link: the tier's index (plans, 1), and its seconds on it."""

    tier: np.ndarray
    on_link_s: Floats  # (positions, plans, classes)


def shared_links(
    items: Sequence[Item], alone_s: Sequence[Floats], priced: Priced, period_s: Callable[[], Floats]
) -> tuple[Shared | None, ...]:
    """For every item of a layer, what it loses and takes; None for what shares no link.

    Parameters
    ----------
    alone_s : one array (positions, plans, classes) an item
        All executions of its entry alone.
    period_s : gives the seconds of the layer where no link is shared, same shape
        Asked only if a link is shared.
    """
    meets = _meetings(items)
    if not any(meets):
        return (None,) * len(items)
    uses = [_use(item, each_s, priced) for item, each_s in zip(items, alone_s, strict=True)]
    found: list[Shared | None] = []
    lasts_s: Floats | None = None
    for names, use, each_s in zip(meets, uses, alone_s, strict=True):
        beside = {name: _beside(name, use, items, uses) for name in names} if use is not None else {}
        if use is None or not any((all_s * use.on_link_s).any() for all_s, _ in beside.values()):
            found.append(None)
            continue
        lasts_s = period_s() if lasts_s is None else lasts_s
        on_link = use.on_link_s / np.where(each_s > 0, each_s, 1.0)
        under_s = sum((under_s for _, under_s in beside.values()), ZERO[None])
        found.append(
            Shared(
                own_fraction=on_link * _part_of(under_s, lasts_s),
                held_fraction={name: on_link * (all_s > 0) for name, (all_s, _) in beside.items()},
            )
        )
    return tuple(found)


def may_share(items: Sequence[Item]) -> bool:
    """Whether any message of a layer meets a queue of others, whichever links they use."""
    return any(_meetings(items))


def _meetings(items: Sequence[Item]) -> list[tuple[str, ...]]:
    """Of every item, the queues that may be busy while it is sent."""
    queues = {item.stream for item in items if item.stream in QUEUES and _message_of(item)}
    return [_met(item, queues) for item in items]


def _met(item: Item, queues: set[str]) -> tuple[str, ...]:
    """Queues that may be busy while a message is sent; none for what is no message, or runs in one."""
    if item.overlapped or _message_of(item) is None:
        return ()
    return tuple(sorted(queues - {item.stream, *item.waits}))


def _message_of(item: Item) -> AbstractMessage | None:
    """The message that an item sends over a link, if it is one: what each rank has already is not sent."""
    work = item.work
    return work if isinstance(work, AbstractMessage) and work.collective in FORMULAS else None


def _use(item: Item, alone_s: Floats, priced: Priced) -> _Use | None:
    """What a message occupies of a link, as its price says; None for what is no message."""
    link = priced.of(item).link
    if link is None or _message_of(item) is None:
        return None
    return _Use(link.tier, alone_s * link.fraction[None])


def _beside(
    queue: str, use: _Use, items: Sequence[Item], uses: Sequence[_Use | None]
) -> tuple[Floats, Floats]:
    """Seconds on the same link of all messages of a queue, and of those that run under compute."""
    all_s, under_s = ZERO[None], ZERO[None]
    for item, other in zip(items, uses, strict=True):
        if other is not None and item.stream == queue:
            same_s = other.on_link_s * (other.tier == use.tier)[None]
            all_s = all_s + same_s
            under_s = under_s + (same_s if item.overlapped else 0.0)
    return all_s, under_s


def _part_of(busy_s: Floats, period_s: Floats) -> Floats:
    """The part of a period that a queue is busy, 1 at most; nothing of no time at all."""
    busy_fraction: Floats = np.minimum(busy_s / np.where(period_s > 0, period_s, 1.0), ONE[None])
    return busy_fraction
