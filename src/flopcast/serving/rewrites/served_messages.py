"""All-reduces by the engine's own kernels or over one device, without messages of a backward pass."""

from flopcast.operators.item import Item
from flopcast.operators.messages import (
    AllReduce,
    CustomAllReduce,
    Replicate,
    ServedAllReduce,
    StarAllReduce,
)
from flopcast.records import replace
from flopcast.serving.seen import Seen
from flopcast.spec.engine import Engine


def served_messages(items: tuple[Item, ...], seen: Seen) -> tuple[Item, ...]:
    """Replace all-reduces by those of the engine, and leave out messages that only a backward pass sends.

    Engines have special all-reduces for small messages: custom kernels over peer memory (`own_all_reduce`),
    or one device that adds all parts (`star_all_reduce`). Their curves differ from those of NCCL.
    `Replicate` sends nothing in a forward pass.
    """
    kind = _kind_of(seen.engine)
    kept: list[Item] = []
    for item in items:
        work = item.work
        if isinstance(work, Replicate):
            continue
        if isinstance(work, AllReduce):
            served = kind(axis=work.axis, message_bytes=work.message_bytes)
            kept.append(replace(item, work=served))
        else:
            kept.append(item)
    return tuple(kept)


def _kind_of(
    engine: Engine,
) -> type[AllReduce] | type[ServedAllReduce] | type[CustomAllReduce] | type[StarAllReduce]:
    """Return the all-reduce that an engine runs."""
    if engine.star_all_reduce:
        return StarAllReduce
    if not engine.own_all_reduce:
        return AllReduce
    return ServedAllReduce if engine.fused_all_reduce else CustomAllReduce
