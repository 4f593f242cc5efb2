"""Metrics of training that read the logits once more, each with a cross entropy of its own.

Composer updates what a model calls its training metrics in every micro-batch; LLM Foundry's are the cross
entropy and the perplexity of language, each PyTorch's loss on 16-bit logits in fp32, without a gradient.
"""

from flopcast.operators.item import Item
from flopcast.operators.memory_bound import MemoryBound
from flopcast.records import replace
from flopcast.workload.rewrites.base import Items, beside, kind_of

METRICS = ("cross_entropy", "perplexity")


def loss_metrics(items: Items) -> Items:
    """Add one `metric_cross_entropy` of the same logits before a loss for each metric.

    The kernel reads as many bytes as the forward of the loss. It has its own kind because it has no
    backward pass.
    """
    found: list[Item] = []
    for item in items:
        if kind_of(item) == "cross_entropy" and isinstance(item.work, MemoryBound):
            work = replace(item.work, kind="metric_cross_entropy")
            found += [
                replace(
                    item, name=beside(item, f"metric_{name}"), work=work, inputs=("logits",), output=name
                )
                for name in METRICS
            ]
        found.append(item)
    return tuple(found)
