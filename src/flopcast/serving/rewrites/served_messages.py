"""All-reduces by the engine's own kernels or over one device; messages of a backward pass are left out."""

from flopcast.operators.item import Item
from flopcast.operators.messages import AllReduce, Replicate, ServedAllReduce, StarAllReduce
from flopcast.records import replace
from flopcast.serving.seen import Seen


def served_messages(items: tuple[Item, ...], seen: Seen) -> tuple[Item, ...]:
    """Replace all-reduces by those of the engine, and leave out messages that only a backward pass sends.

    Engines have all-reduces of their own for small messages: custom kernels over peer memory
    (`own_all_reduce`), or one device that adds all parts (`star_all_reduce`). Their curves differ from
    those of NCCL. `Replicate` sends nothing forward.
    """
    kept: list[Item] = []
    for item in items:
        work = item.work
        if isinstance(work, Replicate):
            continue
        if isinstance(work, AllReduce) and (seen.engine.star_all_reduce or seen.engine.own_all_reduce):
            kind = StarAllReduce if seen.engine.star_all_reduce else ServedAllReduce
            served = kind(axis=work.axis, message_bytes=work.message_bytes)
            kept.append(replace(item, work=served))
        else:
            kept.append(item)
    return tuple(kept)
