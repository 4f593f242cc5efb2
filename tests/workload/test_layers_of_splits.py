"""Layers of a large batch are derived for one plan of each split, and equal those of the plans."""

import numpy as np

from flopcast.jobs import job
from flopcast.spec import rows
from flopcast.spec.plan import Plan, batch_plans
from flopcast.workload.lower import lower
from flopcast.workload.realise import realise

CASES = (  # model, stack, fields of all plans
    ("llama-3-8b", "megatron-core", {"recompute": "none", "zero": 1}),
    ("llama-3-8b", "megatron-core", {"recompute": "full", "zero": 0, "precision": "fp8"}),
    ("mixtral-8x7b", "megatron-core", {"recompute": "selective", "zero": 1, "ep": 2}),
    ("deepseek-v2", "megatron-core", {"recompute": "none", "zero": 1, "ep": 2}),
    ("llama-2-7b", "torch-fsdp2", {"recompute": "none", "zero": 3}),
)
DEGREES = (
    (8, 1, 2),
    (4, 2, 2),
    (2, 2, 4),
    (4, 4, 1),
    (16, 1, 1),
)  # of data, tensor and pipeline parallelism


def test_a_batch_has_the_layers_of_its_plans_alone(monkeypatch):
    for model, stack, fields in CASES:
        plans = [
            Plan(dp=data, tp=tensor, pp=stages, mbs=micro, gbs=64, **fields)
            for data, tensor, stages in DEGREES
            for micro in (1, 2)
        ]
        one = job(model=model, cluster="dgx-h100", gpus=16, stack=stack, plan="dp=16 gbs=64")
        batch = batch_plans(plans)

        each = realise(lower(one.model, batch, one.batch), one.software)
        monkeypatch.setattr(rows, "WORTH_ROWS", 1)
        monkeypatch.setattr(rows, "WORTH_GROUPS", 1)
        shared = realise(lower(one.model, batch, one.batch), one.software)
        monkeypatch.undo()

        assert rows.distinct_splits(batch) is None
        assert rows.of_equal_split(batch).size == 6
        pairs = zip(rows.arrays_of(each.layers), rows.arrays_of(shared.layers), strict=True)
        assert all(np.array_equal(*np.broadcast_arrays(*pair)) for pair in pairs), (model, fields)
        assert [one.rewrite for one in each.accounting] == [one.rewrite for one in shared.accounting]
