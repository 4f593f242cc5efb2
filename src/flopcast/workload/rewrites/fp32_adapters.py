"""Adapters in fp32 of linear layers in 16 bits, as Hugging Face PEFT runs them without autocast.

Since release 0.11 of May 2024, PEFT casts the weights of adapters from 16 bits to fp32
(`autocast_adapter_dtype`). A linear layer with an adapter then casts its input to fp32, applies dropout
and the two products in fp32, scales the result, adds it to that of the layer, and casts the sum to 16 bits.
Each of these operations is a kernel of its own. With autocast, the two products run in 16 bits between
other kernels, so this rewrite does not apply.

The two products keep their times in 16 bits. The additional bytes that they read and write are counted in
the passes before and after them. References: huggingface/peft, src/peft/tuners/lora/layer.py
(`Linear.forward`), tuners/tuners_utils.py (`cast_adapter_dtype`).
"""

from flopcast.operators.item import Item
from flopcast.operators.memory_bound import MemoryBound
from flopcast.records import replace
from flopcast.workload.rewrites.base import Items, kind_of

WIDE = {"add_adapter": "wide_add_adapter", "dropout": "wide_dropout"}


def fp32_adapters(items: Items) -> Items:
    """Cast the input of every adapter to fp32 once, and run its dropout and its sum in fp32."""
    adapters = {item.name.removesuffix(".add") for item in items if kind_of(item) == "add_adapter"}
    result: list[Item] = []
    for item in items:
        adapter, _, part = item.name.rpartition(".")
        if adapter not in adapters:
            result.append(item)
        elif part == "fork":
            result += [item, _cast(item, adapter)]
        else:
            result.append(_widened(item, adapter))
    return tuple(result)


def _cast(fork: Item, adapter: str) -> Item:
    """Return the cast of an adapter's input, whose result the adapter reads instead of the input."""
    if not isinstance(fork.work, MemoryBound):  # always is
        return fork
    work = replace(fork.work, kind="widen")
    return replace(fork, name=f"{adapter}.cast", work=work, inputs=(fork.output,), output=f"{adapter}.wide")


def _widened(item: Item, adapter: str) -> Item:
    """Return a part of an adapter as it runs in fp32."""
    kind, last = kind_of(item), item.name.rpartition(".")[2]
    if last == "dropout" or (last == "a" and item.inputs != (f"{adapter}.in",)):
        item = replace(item, inputs=(f"{adapter}.wide",))
    if isinstance(item.work, MemoryBound) and kind in WIDE:
        return replace(item, work=replace(item.work, kind=WIDE[kind]))
    return item
