"""The sizes of transfers between stages if blocks have activations of different sizes, as in exported
graphs.

Answers: how many elements are sent at a stage boundary before each block, and at the boundaries of a plan?
Elsewhere: the division over stages (stages.py), the messages (realise.py).
"""

import numpy as np

from flopcast.kept_results import NOTHING_KEPT, KeptResults, content
from flopcast.layers.base import Split
from flopcast.records import replace
from flopcast.schedules.base import along_the_model
from flopcast.spec.model import Model
from flopcast.spec.orders import rules_of_rows
from flopcast.workload.program import Workload
from flopcast.workload.stages import Stages
from flopcast.workload.tensor_sizes import tensor_bytes


def entering_elements(model: Model, split: Split) -> list[int]:
    """Return the elements per token of each block's input, which are sent if the block begins a stage."""
    tokens = float(split.own_tokens.ravel()[0])
    found: list[int] = []
    for block in model.blocks:
        items = block.mixer.forward(model.hidden, split) if block.mixer.is_whole_block else ()
        sizes, made, read = tensor_bytes(items), set[str](), set[str]()
        for item in items:
            read |= {name for name in item.inputs if name not in made}
            made.add(item.output)
        size_bytes = sum(float(sizes[name].ravel()[0]) for name in read if name in sizes)
        elements = size_bytes / split.element_bytes / tokens
        found += [round(elements) or model.hidden] * block.count
    return found


def with_cuts(workload: Workload, stages: Stages, kept: KeptResults = NOTHING_KEPT) -> Workload:
    """Return a workload in which each stage sends the tensors that the first block of the next stage reads.

    If stages have several chunks, all stages of a plan send as much as the widest boundary. `kept` contains
    the sizes for the blocks of earlier workloads.
    """
    model, plans = workload.model, workload.plans
    if not any(block.mixer.is_whole_block for block in model.blocks) or plans.pipeline_parallel.max() < 2:
        return workload

    def made() -> list[int]:
        return entering_elements(model, workload.split)

    each = kept.of(("entering", model, content(workload.split)), made) if kept else made()
    entering = np.array([*each, model.hidden])
    blocks = np.array([layer.kind == "block" and not layer.tower for layer in workload.layers])
    most = max(int(plans.pipeline_parallel.max()), *(len(each.chunk_class) for each in stages.divisions))
    widths = np.zeros((len(stages.code), most))
    for width, code in zip(widths, stages.code, strict=True):
        division = stages.divisions[code]
        of_chunk = (division.chunk_counts @ blocks)[division.chunk_class]
        pipe, virtual = of_chunk.shape
        place = along_the_model(pipe, virtual, rules_of_rows(plans)[virtual > 1].folds_chunks)
        ends = of_chunk.ravel()[place.ravel().argsort()].cumsum().astype(np.intp)
        sent = entering[np.minimum(ends, len(entering) - 1)][: max(pipe * virtual - 1, 1)]
        width[: max(pipe - 1, 1)] = sent if virtual == 1 else sent.max()
    return replace(workload, sent_width=widths)
