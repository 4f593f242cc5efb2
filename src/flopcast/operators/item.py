"""An item: one operator or message, with the tensors that it reads, writes and keeps, and the items for
which it waits.

Answers: which items run, in which order, on which stream, and which tensors are kept for the backward pass?
Layers return logical items. The package `workload` rewrites them to the items of a stack and derives the
backward pass.

Streams are in-order queues of one rank: "compute", "tp", "ep", "cp", "dp", "pp", "host", which launches the
work of all other streams, "updates" of an optimizer on the host during the passes, and one for each link
between memories (operators/tier_copies.py). "gathered" contains no work, but the times at which units of
sharded parameters are gathered. An item starts when all earlier items on its own stream and on every stream
of `waits` have ended. A blocking collective waits for "compute", and items that need its result wait for
its stream.
"""

from collections.abc import Hashable

from flopcast.dtypes import ONE, Counts, Floats
from flopcast.kept_results import content
from flopcast.operators.base import AbstractMessage, AbstractOperator, Saved
from flopcast.operators.tier_copies import LINKS, HostUpdate, TierCopy
from flopcast.records import Record, field, replace

EVERY_STREAM = ("compute", "tp", "ep", "cp", "dp", "pp", "host", "updates", "gathered", *LINKS)


class HostWork(Record):
    """Time of the host during which it launches nothing.

    `kind`: "synchronise" (it waits for the device), "step" (the fixed work of one optimizer step),
    "transfer" (the posting of one blocking message), "piece", "message" and "element" (costs of ZeRO-3 with
    a message for each tensor, spec/data_parallel.py), "forward_layer" or "backward_layer" (the bookkeeping
    of a layer whose states are partly outside the device), "sharded_operator" (the dispatch of an operator
    on sharded tensors, workload/sharded_operators.py).
    """

    kind: str


class Item(Record, eq=False):
    """One operator, message or host synchronisation of a program.

    `component` is the line of the breakdown to which its seconds belong; `count` is the number of its
    executions in sequence. `inputs` and `output` name tensors of the layer; `group` names the part that a
    recompute mode may run again ("core_attention"); `phase` is forward, recompute, backward or step; `when`
    is the micro-batch in which it runs: "every", "first" (a gather for the whole step), "not_first" (an
    accumulation), "last" (a reduction), and others of WHEN (workload/program.py). `overlapped` marks a
    message that runs concurrently with compute, which waits for the message later or not at all. The
    message slows down this compute (timeline/contention.py). `is_further_chunk`: the call that launched
    another chunk of the same work also launches this item.
    """

    name: str
    work: AbstractOperator | AbstractMessage | HostWork | TierCopy | HostUpdate
    component: str
    inputs: tuple[str, ...] = ()
    output: str = ""
    group: str = ""
    phase: str = "forward"
    when: str = "every"
    stream: str = "compute"
    waits: tuple[str, ...] = ("compute", "tp", "ep", "cp", "host")
    count: Counts = field(default_factory=lambda: ONE)
    overlapped: bool = False  # a message that slows compute while it runs
    kept_bytes: Floats | None = None  # a gather whose source is kept instead of its output
    wide: bool = False  # a product that no recipe of narrow formats takes: a router, a head
    is_further_chunk: bool = False
    beside: str = ""  # stream of a message that it runs beside, in the backward pass too
    known_saved: tuple[tuple[str, Floats], ...] | None = field(default=None, init=False, repr=False)
    known_content: Hashable = field(default=None, init=False, repr=False)

    def saved(self) -> tuple[tuple[str, Floats], ...]:
        """Return the tensors that are kept for the backward pass as (name, bytes), with names that are
        unique in the layer.

        Two operators that keep the same tensor use the same name, so that the tensor is counted once. A
        tensor of one operator has the name of the operator in front ("attention.dropout.mask"). The result
        is cached, because the backward pass and its memory need it several times.
        """
        found = self.known_saved
        if found is None:
            saves = self.work.saves() if isinstance(self.work, AbstractOperator) else ()
            found = tuple((self._tensor(kept), kept.size_bytes) for kept in saves)
            object.__setattr__(self, "known_saved", found)
        return found

    def work_content(self) -> Hashable:
        """Return a key that is equal for equal work and identifies the prices of the item."""
        found = self.known_content
        if found is None:
            found = content(self.work)
            object.__setattr__(self, "known_content", found)
        return found

    def _tensor(self, kept: Saved) -> str:
        """Return the name in the layer of the tensor that has a role of the operator."""
        if kept.role == "output":
            return self.output
        if kept.role.startswith("tensor:"):
            return kept.role.removeprefix("tensor:")
        if kept.role.startswith("input:"):
            return self.inputs[int(kept.role.removeprefix("input:"))]
        return f"{self.name}.{kept.role}"

    def again(self) -> "Item":
        """Return the same item, recomputed in the backward pass."""
        return replace(self, phase="recompute")


def kernel(
    name: str,
    work: AbstractOperator,
    inputs: tuple[str, ...] = (),
    output: str = "",
    *,
    component: str,
    group: str = "",
) -> Item:
    """Return a forward operator on the compute stream.

    Parameters
    ----------
    name : str
        Name of the item; also that of its output if `output` is empty.
    work : AbstractOperator
    inputs : tuple of str
        Tensors that it reads. The gradient of the first one flows to the previous layer.
    component : str
        Line of the breakdown to which its seconds belong.
    group : str
        Name shared by items that a rewrite replaces together, such as "core_attention".
    """
    return Item(
        name=name, work=work, component=component, inputs=inputs, output=output or name, group=group
    )


def in_part(
    part: str,
    name: str,
    work: AbstractOperator,
    inputs: tuple[str, ...],
    output: str = "",
    group: str = "",
    *,
    component: str = "",
) -> Item:
    """Return a kernel whose name and tensors start with the name of a part: "attention.q".

    Parameters
    ----------
    part : str
        Name of the part, and of the component if `component` is empty.
    name, work, inputs, output, group
        See `kernel`; names are without the part.
    """
    tensors = tuple(f"{part}.{tensor}" for tensor in inputs)
    output = f"{part}.{output or name}"
    return kernel(f"{part}.{name}", work, tensors, output, component=component or part, group=group)


def host_work(kind: str, phase: str) -> Item:
    """Return an item that waits until the device is idle, then takes host time.

    Parameters
    ----------
    kind : str
        Kind of work, such as "step" or "synchronise"; the stack states the seconds of each kind.
    phase : str
        Part of the step in which it runs: "forward", "backward" or "step".
    """
    return Item(
        name=f"host.{kind}",
        work=HostWork(kind=kind),
        component="host",
        phase=phase,
        stream="host",
        waits=EVERY_STREAM,
    )


def blocking(
    name: str, work: AbstractMessage, source: str, output: str, kept_bytes: Floats | None = None
) -> Item:
    """Return a message for which compute waits, and which waits for compute.

    It runs on the stream of its axis. With `kept_bytes`, `source` is saved for the backward pass instead of
    `output`, and is gathered again.
    """
    return Item(
        name=name,
        work=work,
        component=f"{work.axis}_communication",
        inputs=(source,),
        output=output,
        stream=work.axis,
        kept_bytes=kept_bytes,
    )
