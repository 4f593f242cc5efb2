"""Components of a prediction under the names of GPT-NeoX's profiler.

Answers: which predicted seconds correspond to a measured component? `encoder_*` is one layer. `stage_*`
is all tasks of a stage for one micro-batch, without gathering the data that a neighbour sent; the
reduction includes its copies; the optimizer includes the common synchronisation.
"""

from collections.abc import Callable

import numpy as np

from flopcast.operators.item import Item
from flopcast.operators.messages import AllReduce
from flopcast.report.report import Report
from flopcast.timeline.program import simulate
from flopcast.workload.program import Layer, Segment

MIDDLE = 1  # position of a micro-batch that is neither first nor last
REDUCTION = ("gradients.flatten", "gradients.scale_gradient", "gradients.reduce", "gradients.unflatten")


def component_seconds(report: Report, component: str, stage: str, update_skipped: bool) -> float | None:
    """Return the seconds of a component on a kind of stage, in the steady state of the pipeline.

    Parameters
    ----------
    component : a name of `COMPONENTS`, as the profiles of the paper spell it
    stage : "first", "middle" (the second stage) or "last"
    update_skipped
        The measured step made no update: its optimizer only ran the checks before an update.

    Returns
    -------
    float or None
        None if the prediction lacks the component: for example, there is no all-reduce without tensor
        parallelism.
    """
    find = (IN_SKIPPED_STEP if update_skipped else {}).get(component, COMPONENTS.get(component))
    if find is None:
        return None
    number = {"first": 0, "middle": 1, "last": len(report.timeline.update_s) - 1}[stage]
    return find(report, number)


def _block(report: Report) -> Layer:
    return next(layer for layer in report.priced.programs.layers if layer.kind == "block")


def _one_layer(report: Report, items: tuple[Item, ...]) -> float:
    """Return one pass of one block for a middle micro-batch, including launches and exposed host time."""
    alone = simulate([Segment(items=items, repeat=np.ones((1, 1)))], report.priced, attribute=False)
    return float(alone.duration_s[MIDDLE, 0, 0])


def _item_seconds(report: Report, item: Item, stage: int) -> float:
    classes = report.priced.programs.stages.of(0).stage_class
    seconds = report.priced.of(item).alone_s * item.count
    return float(np.broadcast_to(seconds, (1, int(classes.max()) + 1))[0, classes[stage]])


def _stage(report: Report, stage: int, backward: bool) -> float:
    """Return one pass of all chunks of a stage.

    The profiler's clock starts after the input was assembled. The predicted program also gathers the
    slices that a neighbour sent, so the time of these gathers is subtracted.
    """
    programs = report.priced.programs
    simulated = report.timeline.backward if backward else report.timeline.forward
    chunks = programs.stages.of(0).chunk_class[stage]
    segments = programs.backward if backward else programs.forward
    gathers = sum(
        float(segment.repeat[0, chunk]) * _item_seconds(report, item, stage)
        for segment in segments
        for item in segment.items
        for chunk in chunks
        if item.name == "receive.gather"
    )
    return float(simulated.duration_s[MIDDLE, 0, chunks].sum()) - gathers


def _tp_all_reduce(report: Report) -> float | None:
    """Return the all-reduce at the end of a row-parallel product; None without tensor parallelism."""
    sums = [item for item in _block(report).forward if item.name.endswith("leave")]
    return _item_seconds(report, sums[0], 0) if sums else None


def sums_in_layer(report: Report, backward: bool) -> int:
    """Return the number of all-reduces over tensor-parallel ranks in one pass of a layer.

    With recompute, the backward pass contains the all-reduces of the forward pass a second time. The
    protocol for the host's cost needs this number to replace predicted all-reduces by measured ones.
    """
    block = _block(report)
    items = block.backward if backward else block.forward
    works = [item.work for item in items]
    return sum(isinstance(work, AllReduce) and work.axis == "tp" for work in works)


def _named(report: Report, items: tuple[Item, ...], names: tuple[str, ...], stage: int) -> float:
    return sum(_item_seconds(report, item, stage) for item in items if item.name in names)


def _checks(report: Report, stage: int) -> float:
    """Return the seconds before the update: overflow checks, the norm, host work, synchronisation."""
    programs = report.priced.programs
    others = (*REDUCTION, "gradients.tied_embeddings", "gradients.replicated")
    checks = [item for item in programs.reduce if item.name not in others]
    return sum(_item_seconds(report, item, stage) for item in checks) + report.timeline.synchronise_s


Find = Callable[[Report, int], float | None]
COMPONENTS: dict[str, Find] = {
    "encoder_fwd": lambda report, _: _one_layer(report, _block(report).forward),
    "encoder_bwd": lambda report, _: _one_layer(report, _block(report).backward),
    "tp_allreduce": lambda report, _: _tp_all_reduce(report),
    # the transfer between adjacent stages, without waiting for the other side
    "pp_p2p_send_activation": lambda report, _: sum(
        _item_seconds(report, item, 0) for item in report.priced.programs.hop_across.forward
    ),
    "stage_fwd": lambda report, stage: _stage(report, stage, backward=False),
    "stage_bwd": lambda report, stage: _stage(report, stage, backward=True),
    "dp_grad_allreduce": lambda report, stage: _named(  # copies of buffers included
        report, report.priced.programs.reduce, REDUCTION, stage
    ),
    "dp_param_allgather": lambda report, stage: _named(  # of the parameters that peers updated (ZeRO-1)
        report, report.priced.programs.update, ("gradients.gather_parameters",), stage
    ),
    # from the end of the reduction to the end of the parameter all-gather
    "optimizer_step_incl_param_allgather": lambda report, stage: (
        _checks(report, stage) + float(report.timeline.update_s[stage])
    ),
}
IN_SKIPPED_STEP: dict[str, Find] = {"optimizer_step_incl_param_allgather": _checks}
