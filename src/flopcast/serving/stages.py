"""Pipeline stages of an engine: their layers, their messages, and the time of a pass through all stages.

Answers: how many layers of each kind does a stage run, and how long is a pass while other passes are in
flight?
Elsewhere: stages of training (workload/stages.py), the seconds of one stage (pass_times.py).

An engine with n stages keeps n passes in flight, each with different sequences (vLLM,
`max_concurrent_batches`; SGLang and TensorRT-LLM call them micro-batches). A sequence is in only one of
them, because its next token depends on the last token. A pass therefore returns after the time of all
stages, or later if the slowest stage is still busy with other passes.
"""

import numpy as np

from flopcast.cost.placement import crossings
from flopcast.dtypes import ELEMENT_BYTES, Floats, Integers
from flopcast.layers.multi_token import MultiTokenPrediction
from flopcast.operators.item import blocking
from flopcast.operators.messages import SendReceive
from flopcast.records import Record, replace
from flopcast.serving.decode_times import Amount
from flopcast.serving.engine_pass import EnginePass
from flopcast.serving.lower import ServedLayer
from flopcast.serving.pass_prices import PricedPasses, plan_of
from flopcast.serving.pass_times import PassTimes
from flopcast.spec.cluster import Cluster
from flopcast.spec.deployment import Deployment
from flopcast.spec.divisors import dealt
from flopcast.spec.engine import Engine
from flopcast.spec.model import Model
from flopcast.units import Number

AXES = "pp_inside", "pp"  # of a message inside a scale-up domain, and of one that leaves it


def layers_of_stages(model: Model, stages: int) -> Integers:
    """Return how many layers of each kind a stage has, shape (stages, layers).

    Layers are those of `lower_passes`, in their order: the embedding and a vision tower are on the first
    stage, the final norm and the head are on the last. Stages are as equal as possible, and the last one
    has no extra block (vLLM, `get_pp_indices`).
    """
    kinds, first = model.sequence(), model.first_block
    counts = np.zeros((stages, len(kinds)), dtype=np.intp)
    room, stage = list(dealt(model.num_blocks, stages, last_short=1)), 0
    for place, number in model.runs():
        if not first <= place < first + len(model.blocks):
            counts[0 if place < first else stages - 1, place] += number
            continue
        left = number
        while left:
            taken = min(left, room[stage])
            counts[stage, place] += taken
            room[stage] -= taken
            left -= taken
            stage += not room[stage] and stage < stages - 1
    kept = [not isinstance(layer, MultiTokenPrediction) for layer, _ in kinds]
    return counts[:, kept]


def hops(
    model: Model, deployment: Deployment, engine: Engine, cluster: Cluster, run: EnginePass
) -> tuple[ServedLayer, ...]:
    """Return the messages between stages: one entry inside a scale-up domain, and one that leaves it.

    Each tensor-parallel rank sends its share. If the norm adds the residual, the residual stream and the
    output of the last block are sent separately.
    """
    tensors = 2.0 if engine.fused_norms else 1.0
    sent_bytes = tensors * run.new_tokens * model.hidden * ELEMENT_BYTES["bf16"]
    layers = []
    for axis, number in zip(AXES, _hops(deployment, cluster).sum(axis=1).tolist(), strict=True):
        if number:
            work = SendReceive(axis=axis, message_bytes=sent_bytes / deployment.tensor_parallel)
            item = blocking("stage.send", work, "y", "x")
            layers.append(ServedLayer(kind="hop", count=number, items=(item,), weights=()))
    return tuple(layers)


def _hops(deployment: Deployment, cluster: Cluster) -> Integers:
    """Return which stages send inside a domain and which to another one, shape (2, stages)."""
    stages = deployment.pipeline_parallel
    leaves = crossings(plan_of(deployment), 0, stages, cluster.scale_up_devices)
    sends = np.arange(stages) < stages - 1
    return np.stack([sends & (leaves == 0), sends & (leaves == 1)]).astype(np.intp)


def by_stage(
    priced: PricedPasses, model: Model, deployment: Deployment, cluster: Cluster
) -> tuple[PricedPasses, ...]:
    """Return the prices of each pipeline stage, whose layers are a part of all layers and messages.

    Parameters
    ----------
    priced : PricedPasses
        Layers of the whole model, then the messages between stages, in the order of `price_of`.
    model, deployment, cluster
        They determine the layers of each stage and the links between stages.

    Returns
    -------
    tuple of PricedPasses
        One entry for each stage, first stage first. Prices are shared; only counts of layers differ.
    """
    stages = deployment.pipeline_parallel
    if stages == 1:
        return (priced,)
    sent = [row for row in _hops(deployment, cluster) if row.any()]
    counts = np.concatenate([layers_of_stages(model, stages), np.array(sent).T], axis=1)
    return tuple(
        replace(
            priced,
            layers=tuple(
                replace(layer, count=count)
                for layer, count in zip(priced.layers, row, strict=True)
                if count
            ),
        )
        for row in counts.tolist()
    )


class StagedTimes(Record, eq=False):
    """Seconds of passes through all stages. Like `PassTimes`, it is a function for the scheduler."""

    stages: tuple[PassTimes, ...]  # those that differ
    counts: tuple[int, ...]  # how many stages are alike
    in_flight: int

    def stretched(self, ratio: Number) -> "StagedTimes":
        """Return the times of passes, multiplied by a ratio."""
        return replace(self, stages=tuple(stage.stretched(ratio) for stage in self.stages))

    def __call__(self, new: Amount, sequences: Amount, cached: Amount, pairs: Amount) -> Amount:
        """Return the seconds of passes; the arguments are floats, or arrays of one shape."""
        each = [stage(new, sequences, cached, pairs) for stage in self.stages]
        if isinstance(new, np.ndarray):
            return through_stages(np.array(each), self.counts, self.in_flight)
        together_s = sum(count * seconds for count, seconds in zip(self.counts, each, strict=True))
        return max(together_s, self.in_flight * max(each))


def staged_times(
    tables: tuple[PassTimes, ...], model: Model, deployment: Deployment, cluster: Cluster, in_flight: int
) -> PassTimes | StagedTimes:
    """Return the seconds of passes through stages; stages with the same layers are evaluated once.

    Parameters
    ----------
    tables : tuple of PassTimes
        Times of each stage; the first includes the host.
    model, deployment, cluster
        They determine the layers and messages of each stage.
    in_flight : int
        Passes that the engine keeps in the pipeline.

    Returns
    -------
    PassTimes or StagedTimes
        With one stage, the result is the table of this stage.
    """
    stages = len(tables)
    if stages == 1:
        return tables[0]
    rows = np.concatenate([layers_of_stages(model, stages), _hops(deployment, cluster).T], axis=1).tolist()
    alike: dict[tuple[int, ...], list[int]] = {}
    for stage, row in enumerate(rows):
        alike.setdefault((stage == 0, *row), []).append(stage)  # the first has the host's time too
    return StagedTimes(
        stages=tuple(tables[members[0]] for members in alike.values()),
        counts=tuple(len(members) for members in alike.values()),
        in_flight=in_flight,
    )


def through_stages(each_s: Floats, counts: tuple[int, ...], in_flight: int) -> Floats:
    """Return the time between two passes of the same sequences, shape (passes,).

    With `in_flight` passes of equal length, a round takes the longer of two times: the sum over all stages,
    and `in_flight` times the slowest stage.

    Parameters
    ----------
    each_s : seconds of each different stage, shape (stages, passes)
    counts : how many stages are alike
    """
    together_s: Floats = np.array(counts, dtype=np.float64) @ each_s
    found_s: Floats = np.maximum(together_s, in_flight * each_s.max(axis=0))
    return found_s
