"""The FLOP of recompute.

Answers: how many FLOP of a step run a second time, by the conventions of model FLOP?
Elsewhere: the sums with these FLOP (metrics.py), the kernels that run again (workload/recompute_order.py,
workload/checkpoints.py).

The FLOP are those of undivided logical items, by the conventions of metrics.py.
"""

import numpy as np

from flopcast.operators.base import AbstractOperator
from flopcast.operators.item import Item
from flopcast.operators.matmul import BatchedMatmul
from flopcast.records import Record
from flopcast.spec.batch import Batch
from flopcast.spec.job import Job
from flopcast.spec.mirrored import halved
from flopcast.spec.model import Model
from flopcast.spec.plan import Plan, one_plan
from flopcast.spec.stack import Stack
from flopcast.strict_model import cached_results
from flopcast.workload.backward import derive_backward
from flopcast.workload.checkpoints import INNER, Checkpoints
from flopcast.workload.layer_strategies import by_layout
from flopcast.workload.lower import lower
from flopcast.workload.recompute import kinds_of_layers, recomputed_modules
from flopcast.workload.recompute_order import Until
from flopcast.workload.recomputed_operators import marked
from flopcast.workload.stages import divide_all


def recomputed_flop(job: Job, causal: bool) -> float:
    """Return the FLOP of one step that are recomputed.

    Full recompute repeats the forward pass of the blocks that its method chooses, but not embedding and
    head. Selective recompute repeats its modules (scores and contexts in arXiv:2205.05198, section 5). If a
    stack stops early, the last GEMM of a checkpoint is not repeated. A fused kernel of scores and contexts
    is repeated completely.

    Parameters
    ----------
    causal : count half of the scores and of their products with values
    """
    total_flop = 0.0
    for model, plan in by_layout(job.model, job.plan):
        if plan.recompute != "none":
            total_flop += _full_and_causal(model, plan, job.batch, job.stack)[causal]
    return total_flop


@cached_results(1024)  # reports, audits and baselines ask for the same jobs
def _full_and_causal(model: Model, plan: Plan, batch: Batch, stack: Stack) -> tuple[float, float]:
    """Return FLOP that are recomputed, with scores and contexts counted in full and by half."""
    plans = one_plan(plan)
    again = _of_layers(model, plans.structure, batch, stack)
    parts, counts = zip(*model.runs(), strict=True)
    stages = divide_all(
        counts,
        halved(plans),
        stack.pipeline,
        parts,
        again.layers_at_end,
        again.checkpoints,
        model.first_block,
    )
    held = (stages.multiplicity[:, :, None] * stages.stage_counts).sum(axis=(0, 1))
    totals_flop = [0.0, 0.0]
    for each_flop, count in zip(again.flop, held.tolist(), strict=True):
        for causal in (False, True):
            totals_flop[causal] += count * each_flop[causal]
    full_flop, causal_flop = (plan.step_sequences * total_flop for total_flop in totals_flop)
    return full_flop, causal_flop


class _Again(Record):
    """The recompute of one sequence: how plans cut the layers, and the FLOP of each layer.

    `flop` has a pair for each layer: scores and contexts counted in full, and by half.
    """

    checkpoints: Checkpoints | None
    layers_at_end: int
    flop: tuple[tuple[float, float], ...]


@cached_results(256)  # plans that differ in their numbers alone recompute the same in every layer
def _of_layers(model: Model, structure: Plan, batch: Batch, stack: Stack) -> _Again:
    workload = lower(model, one_plan(structure), batch)
    checkpoints, layers = kinds_of_layers(workload)
    flop: list[tuple[float, float]] = []
    pairs = zip(batch.shares, batch.kinds, strict=True)
    slots = tuple(share * kind.shared_by for share, kind in pairs)  # of a rank, with its part of a sequence
    for layer in layers:
        modules = recomputed_modules(layer, workload, stack)
        forward = marked(layer.forward, modules)
        again = _again(forward, modules, "end")
        if layer.checkpoint != INNER:
            fused = stack.fuses_attention
            short = {item.name for item in _again(forward, modules, stack.recompute_until)}
            again = [
                item
                for item in again
                if item.name in short or (fused and isinstance(item.work, BatchedMatmul))
            ]
        full_flop, causal_flop = (
            sum((_flop(item, causal, slots) for item in again), 0.0) for causal in (False, True)
        )
        flop.append((full_flop, causal_flop))
    return _Again(checkpoints=checkpoints, layers_at_end=workload.layers_at_end, flop=tuple(flop))


def _again(forward: tuple[Item, ...], modules: frozenset[str], until: Until) -> list[Item]:
    return [item for item in derive_backward(forward, modules, until) if item.phase == "recompute"]


def _flop(item: Item, causal: bool, shares: tuple[float, ...]) -> float:
    """Return FLOP of one logical item over one sequence; scores and contexts only inside windows.

    Without `causal`, a window counts for both sides of a query. For sequences of several kinds, it is the
    mean by their shares.
    """
    if not isinstance(item.work, AbstractOperator):
        return 0.0
    flop = item.work.work().flop
    if isinstance(item.work, BatchedMatmul):
        seen = 1.0 if item.work.mean_keys is None else 2.0 * item.work.mean_keys / item.work.keys
        flop = flop * seen * (0.5 if causal else 1.0)
    of_kinds = np.broadcast_to(flop * item.count, (len(shares), 1))[:, 0]
    return float(np.dot(shares, of_kinds))
