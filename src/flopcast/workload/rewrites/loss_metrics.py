"""Metrics of training, each of which computes another cross entropy of the logits.

Composer updates the training metrics of a model in every micro-batch. LLM Foundry has two, cross entropy
and perplexity. Each runs PyTorch's loss in fp32 on 16-bit logits, without a gradient.
"""

from flopcast.operators.item import Item
from flopcast.operators.memory_bound import MemoryBound
from flopcast.records import replace
from flopcast.workload.rewrites.base import Items, beside, kind_of

METRICS = ("cross_entropy", "perplexity")


def loss_metrics(items: Items) -> Items:
    """Add, for each metric, one `metric_cross_entropy` of the same logits before the loss.

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
