"""TorchTitan's FSDP runs of Llama 3.1 8B: ratios between them, for absolute rates are not fully specified.

Measured in December 2024 (pytorch/torchtitan, benchmarks/llama3_h100_202412_torchtitan.md), tokens per
second and device. Sequences of 8192 tokens are assumed, the recipe's; devices there were slower H100.
"""

from functools import cache

import pytest

from flopcast.api import predict
from flopcast.io.jobs import job_of
from flopcast.io.sources import Document

MEASURED = {  # by devices and stack
    (8, "torch-fsdp2"): 5762,
    (8, "torch-fsdp2-compiled"): 6667,
    (128, "torch-fsdp2"): 5605,
    (128, "torch-fsdp2-compiled"): 6514,
}
TOLERANCE = 0.08  # of a ratio


@cache
def predicted(devices, stack):
    parts = {
        "model": "llama-3.1-8b",
        "cluster": f"dgx-h100:{devices // 8}",
        "stack": stack,
        "batch": {"sequence_length": 8192},
        "plan": f"dp={devices} zero=3 mbs=2 gbs={2 * devices} recompute=selective precision=bf16",
    }
    return predict(job_of(Document("test", parts, {}))).metrics.tokens_per_s / devices


@pytest.mark.parametrize("devices", [8, 128])
def test_compiled_blocks_are_as_much_faster_as_measured(devices):
    pair = [(devices, stack) for stack in ("torch-fsdp2-compiled", "torch-fsdp2")]

    ratio = predicted(*pair[0]) / predicted(*pair[1])

    assert ratio == pytest.approx(MEASURED[pair[0]] / MEASURED[pair[1]], rel=TOLERANCE)


@pytest.mark.parametrize("stack", ["torch-fsdp2", "torch-fsdp2-compiled"])
def test_sixteen_times_the_devices_cost_as_little_as_measured(stack):
    ratio = predicted(128, stack) / predicted(8, stack)

    assert ratio == pytest.approx(MEASURED[128, stack] / MEASURED[8, stack], rel=TOLERANCE)
