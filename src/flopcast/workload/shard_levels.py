"""Messages and casts if kinds of state are sharded over different groups (ZeRO++, levels of shards).

Answers: from which copy and in which format is a unit gathered, when do the owners of optimizer states get
the sums of other groups, how are updated parameters distributed, and which kernels quantise messages?
Elsewhere: the groups (spec/shards.py), the times of gathers (sharded.py) and reductions (reductions.py),
resident memory (memory/sharded.py).

References
----------
ZeRO++ (quantised gathers, a secondary copy, quantised reductions by all-to-all): arXiv:2306.10209. Three
levels of groups on Frontier: arXiv:2501.04266. MiCS: arXiv:2205.00119.
"""

from flopcast.dtypes import ELEMENT_BYTES, Counts
from flopcast.operators.item import Item
from flopcast.operators.messages import AllGather, AllReduce, ReduceScatter
from flopcast.operators.quantise import Quantise
from flopcast.records import replace
from flopcast.spec.plan import Plans
from flopcast.spec.shard_groups import APART, axis_of, ranks_of
from flopcast.spec.shards import MESSAGE_BYTES, group_of, message_format
from flopcast.spec.stack import Stack
from flopcast.workload.reductions import equal_buckets, step_message

SHARDED = 3  # the ZeRO stage that shards parameters


def gathered_kind(plans: Plans, backward: bool) -> str:
    """Return the kind of state that a pass gathers: parameters, their second copy, or updated parameters.

    Examples
    --------
    >>> from flopcast.spec.plan import Plan, one_plan
    >>> plans = one_plan(Plan(dp=16, zero=3, shards="secondary:8"))
    >>> gathered_kind(plans, backward=False), gathered_kind(plans, backward=True)
    ('parameters', 'secondary')
    """
    if plans.structure.zero < SHARDED:
        return "optimizer"
    copied = group_of(plans.structure.shards, "secondary") is not None
    return "secondary" if backward and copied else "parameters"


def narrow_bytes(plans: Plans, kind: str) -> float:
    """Return the bytes per element of messages with a kind of state; 0 if they are not quantised."""
    return MESSAGE_BYTES.get(message_format(plans.structure.shards, kind), 0.0)


def parameter_cast(plans: Plans, kind: str, count: Counts, at: tuple[str, str, str]) -> tuple[Item, ...]:
    """Return the kernel that quantises a shard, or dequantises a unit; none if messages are not quantised.

    Parameters
    ----------
    count : elements that the kernel reads
    at : name, phase and micro-batches of the item
    """
    narrow = narrow_bytes(plans, kind)
    if not narrow:
        return ()
    dtype = plans.structure.activations
    cast = Quantise(elements=count, each_bytes=ELEMENT_BYTES[dtype] + narrow, dtype=dtype)
    name, phase, when = at
    return (Item(name=f"parameters.{name}", work=cast, component="parameters", phase=phase, when=when),)


def gradient_casts(plans: Plans, bucket: Counts, when: str) -> list[Item]:
    """Return the kernels around a quantised reduction of one bucket; none if it is not quantised.

    One kernel quantises the bucket. Another one dequantises and adds the received parts, which have as many
    elements. flopcast does not count the kernels of the second level of a reduction over several domains,
    which has far fewer elements.
    """
    narrow = narrow_bytes(plans, "gradients")
    if not narrow:
        return []
    dtype = plans.structure.activations
    sizes = {"quantise": ELEMENT_BYTES[dtype] + narrow, "dequantise": narrow}
    return [
        Item(
            name=f"gradients.{name}",
            work=Quantise(elements=bucket, each_bytes=each_bytes, dtype=dtype),
            component="gradients",
            phase="backward",
            when=when,
        )
        for name, each_bytes in sizes.items()
    ]


def summed_by_owners(stack: Stack, plans: Plans, parameters: Counts) -> tuple[Item, ...]:
    """Return the messages in which owners of optimizer states get the sums of other gradient groups.

    Once in each step, these are a reduce-scatter over the ranks of an optimizer group that hold the same
    part, and an all-reduce over optimizer groups. There are none if gradients have no separate group. A
    message to one rank costs nothing.
    """
    if group_of(plans.structure.shards, "gradients") is None:
        return ()
    size_bytes = ELEMENT_BYTES[stack.gradients.dtype]
    held = parameters / ranks_of(plans, "gradients")
    owned = parameters / plans.state_shards
    (first, part), (second, own) = (
        equal_buckets(stack, plans, one, overlaps=False) for one in (held, owned)
    )
    axis = axis_of(plans, "gradients") + APART
    apart = ReduceScatter(axis=axis, message_bytes=part * size_bytes)
    across = AllReduce(axis="dp_replicate", message_bytes=own * size_bytes)
    return (
        replace(step_message("reduce_to_owners", apart), count=first),
        replace(step_message("reduce_across_groups", across), count=second),
    )


def refreshed_parameters(stack: Stack, plans: Plans, parameters: Counts) -> tuple[Item, ...]:
    """Return the gather of updated parameters in the group that shares optimizer states.

    Each rank then has the 16-bit shards of its smaller group of parameters. There is no message if
    parameters have no separate group.
    """
    if group_of(plans.structure.shards, "parameters") is None:
        return ()
    held = parameters / ranks_of(plans, "parameters")
    buckets, part = equal_buckets(stack, plans, held, overlaps=False)
    size_bytes = part * ELEMENT_BYTES[plans.structure.activations]
    back = AllGather(axis=axis_of(plans, "parameters") + APART, message_bytes=size_bytes)
    return (replace(step_message("gather_parameters", back), count=buckets),)
