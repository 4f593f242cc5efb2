"""Activations that a stack keeps in fewer bytes than its operators read, if the recipe has 8 or 4 bits.

Answers: how many bytes does a kept tensor have, and which of its copies are not needed?
Elsewhere: the kept tensors (backward.py), operands that are cast again (recompute_order.py), the settings
(spec/precision.py).
"""

from flopcast.dtypes import ELEMENT_BYTES, Floats
from flopcast.operators.flash_attention import FlashAttention
from flopcast.operators.formats import FORMATS
from flopcast.operators.item import Item
from flopcast.operators.memory_bound import KINDS, MemoryBound
from flopcast.spec.plan import Plan
from flopcast.spec.precision import RECIPES
from flopcast.spec.stack import Stack
from flopcast.workload.backward import kept_tensors, total_bytes
from flopcast.workload.recompute_order import RECAST
from flopcast.workload.rewrites.quantise import WRITES_NARROW

TWELVE_BITS_BYTES = 1.5  # E5M6 of arXiv:2412.19437, section 3.3.3
NARROW = ".narrow"  # behind the name of a tensor: its copy in few bits


def with_recast(recomputed: frozenset[str], stack: Stack) -> frozenset[str]:
    """Return the recomputed modules, with the casts of their outputs if the stack repeats these casts."""
    return recomputed | {RECAST} if "recast" in stack.narrow.smaller_activations else recomputed


def kept_bytes(forward: tuple[Item, ...], recomputed: frozenset[str], plan: Plan, stack: Stack) -> Floats:
    """Return the bytes that a layer keeps of one micro-batch, in the formats in which the stack keeps them.

    Formats differ only under a low-precision recipe.
    """
    found = kept_tensors(forward, recomputed)
    if plan.precision not in RECIPES:
        return total_bytes(found)
    wide_bytes = ELEMENT_BYTES[plan.activations]
    narrow_ratio = max(FORMATS[RECIPES[plan.precision].format].size_bytes, 1.0) / wide_bytes  # 8 bits
    smaller = stack.narrow.smaller_activations
    for item in forward:
        tensor = item.inputs[0] if item.inputs else ""
        if "gate_inputs" in smaller and _is_gate(item) and tensor in found:
            found[tensor] = found[tensor] * narrow_ratio
        elif "attention_outputs" in smaller and isinstance(item.work, FlashAttention):
            copy = f"{item.output}{NARROW}"
            if copy in found and item.output in found:
                del found[copy]
                found[item.output] = found[item.output] * (TWELVE_BITS_BYTES / wide_bytes)
    return total_bytes(found)


def _is_gate(item: Item) -> bool:
    """Return whether one half of an item's input gates the other, in a kernel of its own or not."""
    work = item.work
    return isinstance(work, MemoryBound) and (KINDS[work.kind].is_gated or work.kind == WRITES_NARROW)
