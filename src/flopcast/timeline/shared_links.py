"""Time that messages lose to other messages on the same link.

Answers: how much longer does a message take because another queue uses its link, and by how much does it
delay that queue?
Elsewhere: the time of each message alone (cost/), which tier connects a group
(cost/collectives/collective_time.py), the time that compute loses to messages (contention.py), when
everything runs (program.py).

A link is a rank's own part of a tier: its NVLink ports, or its share of the network cards. Two concurrent
messages on a link need at least the sum of the times in which they occupy it. During their latency, the
link is free (`ItemPrice.link` states the tier that a message occupies, and for which part of its seconds).
Messages on different tiers do not slow each other. A message counts on the widest tier that it needs.

Suppose that a layer lasts T seconds and overlaps with gathers or reductions of D seconds. A message of c
seconds on the same tier then shares its link for the fraction min(D / T, 1) of its time, in which each gets
half of the link. It takes c · (1 + min(D / T, 1)), and delays the other queue by c. A layer that computes
for w seconds therefore takes at least D + c, the time of all bytes, and at most w + c + D, if nothing
overlaps.

This is exact if the queue is always busy or never overlaps with a message. Otherwise D / T is a mean, which
assumes that the queue is equally busy throughout the layer. It needs only sums over a layer, so equal
layers remain powers of one matrix. If the queue is idle, a message delays nothing. The delay that it adds
to the queue ends no later than the message itself.

A message shares its link with the streams that it does not wait for: data-parallel streams with all others,
and an exchange of experts' tokens with the messages of shared experts. Two cases are not counted: messages
of other segments (the last layer's gather for the next one), and transfers between stages, which are
outside programs.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np

from flopcast.cost.collectives.formulas import FORMULAS
from flopcast.cost.item_prices import Priced
from flopcast.dtypes import ZERO, Counts, Floats, any_of
from flopcast.operators.base import AbstractMessage
from flopcast.operators.item import Item
from flopcast.records import Record
from flopcast.spec.plan import Plans
from flopcast.timeline.contention import ends_stage, executions

QUEUES = ("tp", "ep", "cp", "dp")  # streams of messages inside a program


class QueueLoss(Record, eq=False, kw_only=False):
    """Loss of a message to queues on its link, (positions, plans, classes).

    If all positions are equal, there is only one. `fraction` is the loss divided by the seconds of the
    message. `slope` is the rest of the derivative of the loss, as executions of the layer's items, followed
    by the seconds of launches (layer.py): the loss also grows with the messages of the queue and falls with
    the duration of the layer. In seconds, it sums to 0. Its last axis is empty unless slopes were
    requested.
    """

    fraction: Floats
    slope: Counts


class SharedLinkLoss(Record, eq=False, kw_only=False):
    """Losses of a message that shares its link, and the delays that it causes.

    `own` is its loss inside the program, and `later` its loss to messages whose effect is charged to the
    stage (contention.py, `ends_stage`). `held_fraction` is the delay of each queue on its link, as a
    fraction of the seconds of the message.
    """

    own: QueueLoss
    later: QueueLoss
    held_fraction: dict[str, Floats]


class Period(Record, eq=False, kw_only=False):
    """Duration of a layer if no link is shared, and how often each item counts in it.

    `counts` are executions by item, followed by seconds of launches. The last axis is empty unless
    requested.
    """

    lasts_s: Floats  # (positions, plans, classes)
    counts: Counts


class _Use(Record, eq=False, kw_only=False):
    """One message's use of a link: the tier's index (plans, 1), the seconds on it and their fraction."""

    tier: np.ndarray
    on_link_s: Floats  # (positions, plans, classes)
    fraction: Counts  # (plans, classes)


class _Busy(Record, eq=False, kw_only=False):
    """Seconds that queues occupy a link during compute; `weights` are executions by item on that link."""

    busy_s: Floats
    weights: Counts


def shared_links(
    items: Sequence[Item], alone_s: Sequence[Floats], priced: Priced, period: Callable[[], Period]
) -> tuple[SharedLinkLoss | None, ...]:
    """Return the losses and delays of every item of a layer; None for items that share no link.

    Parameters
    ----------
    alone_s : one array (positions, plans, classes) an item
        Seconds of all executions of its entry without concurrent work.
    period : callable
        Returns the duration of the layer if no link were shared. It is called only if a link is shared.
        Slopes are computed if the result has counts.
    """
    meets = _meetings(items)
    if not any(meets):
        return (None,) * len(items)
    uses = [_use(item, each_s, priced) for item, each_s in zip(items, alone_s, strict=True)]
    found: list[SharedLinkLoss | None] = []
    lasts: Period | None = None
    for names, use in zip(meets, uses, strict=True):
        queued = {name: _queued_s(name, use, items, uses) for name in names} if use is not None else {}
        if use is None or not any(any_of(all_s * use.on_link_s) for all_s in queued.values()):
            found.append(None)
            continue
        lasts = period() if lasts is None else lasts
        held = {name: use.fraction[None] * (all_s > 0) for name, all_s in queued.items()}
        found.append(_shared(use, names, (items, uses), lasts, priced.programs.plans, held))
    return tuple(found)


def _shared(
    use: _Use,
    names: tuple[str, ...],
    layer: tuple[Sequence[Item], Sequence[_Use | None]],
    lasts: Period,
    plans: Plans,
    held_fraction: dict[str, Floats],
) -> SharedLinkLoss:
    """Return the loss of one message to the queues `names`, some of which end with the stage."""
    width = lasts.counts.shape[-1]
    inside, whole = (_busy(names, use, layer, plans, everything, width) for everything in (False, True))
    own, both = _lost(use, inside, lasts), _lost(use, whole, lasts)
    later = QueueLoss(both.fraction - own.fraction, both.slope - own.slope)
    return SharedLinkLoss(own=own, later=later, held_fraction=held_fraction)


def _lost(use: _Use, busy: _Busy, lasts: Period) -> QueueLoss:
    """Return the loss of a message that has half of the link while the queues are busy."""
    period_s = np.where(lasts.lasts_s > 0, lasts.lasts_s, 1.0)
    part = busy.busy_s / period_s
    fraction = use.fraction[None] * np.minimum(part, 1.0)
    if not lasts.counts.shape[-1]:
        return QueueLoss(fraction, np.zeros((1, 1, 1, 0)))
    often = np.where(part < 1.0, use.on_link_s / period_s, 0.0)[..., None]
    return QueueLoss(fraction, often * (busy.weights - part[..., None] * lasts.counts))


def _busy(
    names: tuple[str, ...],
    use: _Use,
    layer: tuple[Sequence[Item], Sequence[_Use | None]],
    plans: Plans,
    everything: bool,
    width: int,
) -> _Busy:
    """Return overlapped messages on the link of `use`: all, or those that end with their program."""
    busy_s, weights = ZERO[None], np.zeros((1, 1, 1, width))
    for column, (item, other) in enumerate(zip(*layer, strict=True)):
        if other is None or not item.overlapped or item.stream not in names:
            continue
        here = (other.tier == use.tier) & (True if everything else ~ends_stage(item, plans))
        busy_s = busy_s + other.on_link_s * here[None]
        if width:
            each = (executions(item) * other.fraction[None] * here[None])[..., None]
            weights = weights + each * (np.arange(width) == column)
    return _Busy(busy_s, weights)


@lru_cache(maxsize=256)  # predictions share most layers
def may_share(items: tuple[Item, ...]) -> bool:
    """Return whether any message of a layer may run at the same time as another queue, on any link."""
    return any(_meetings(items))


def _meetings(items: Sequence[Item]) -> list[tuple[str, ...]]:
    """Return, for every item, the queues that may be busy while it is sent."""
    queues = {item.stream for item in items if item.stream in QUEUES and _message_of(item)}
    return [_met(item, queues) for item in items]


def _met(item: Item, queues: set[str]) -> tuple[str, ...]:
    """Return the queues that may be busy while a message is sent; none if it is itself overlapped."""
    if item.overlapped or _message_of(item) is None:
        return ()
    return tuple(sorted(queues - {item.stream, *item.waits}))


def _message_of(item: Item) -> AbstractMessage | None:
    """Return the message that an item sends over a link, or None; data that each rank has is not sent."""
    work = item.work
    return work if isinstance(work, AbstractMessage) and work.collective in FORMULAS else None


def _use(item: Item, alone_s: Floats, priced: Priced) -> _Use | None:
    """Return the seconds that a message occupies a link, from its price; None for other items."""
    link = priced.of(item).link
    if link is None or _message_of(item) is None:
        return None
    return _Use(link.tier, alone_s * link.fraction[None], link.fraction)


def _queued_s(queue: str, use: _Use, items: Sequence[Item], uses: Sequence[_Use | None]) -> Floats:
    """Return the seconds that all messages of a queue occupy the same link."""
    found_s: Floats = ZERO[None]
    for item, other in zip(items, uses, strict=True):
        if other is not None and item.stream == queue:
            found_s = found_s + other.on_link_s * (other.tier == use.tier)[None]
    return found_s
