"""Slow runs that people described in public issues: the diagnosis names the reason that the thread found.

The logs have the numbers of the issues in the lines of their frameworks; what an issue does not state (the
global batch of #22 and #1031) is a usual value, on which the reason does not depend.
"""

import pytest
from judged import found, without_plans

from flopcast.jobs import job

SLOWING_MS = {  # by step
    122: 86545.2, 123: 87871.6, 124: 89474.8, 125: 89075.2, 126: 89692.9,
    182: 126995.3, 183: 125553.7, 184: 127804.5, 185: 130554.9, 186: 127859.5,
}  # fmt: skip


def test_a_fine_tune_that_gets_slower_and_slower():
    """epfLLM/Megatron-LLM issue 11: LLaMA-2 7B, "the training speed gradually slowed down"."""
    line = " iteration {0:8d}/ 250000 | elapsed time per iteration (ms): {1} | global batch size:  1024 |\n"
    text = "".join(line.format(step, taken_ms) for step, taken_ms in SLOWING_MS.items())

    told = without_plans(job("llama-2-7b", cluster="dgx-a100:1", plan="dp=8 gbs=1024 mbs=1 zero=1"), text)

    first = told.suspects[0]
    assert first.title == "The steps became slower during the run, between steps 126 and 182"
    assert first.basis == "measured"


def test_a_node_whose_devices_are_connected_by_pcie():
    """InternLM/InternLM issue 22: 2,105 tokens/s a GPU; 4,234 with NVLink, as the maintainers measured."""
    line = "tflops={1},step={0},loss=7.5,tgs (tokens/gpu/second)={2},lr=2.2e-06,fwd_bwd_time=6.15\n"
    slow, right = (
        "".join(line.format(step, *values) for step in range(9, 40))
        for values in ((93.48, 2104.89), (188.03, 4233.73))
    )
    one = job(
        "llama-2-7b", cluster="dgx-a100:1", stack="internevo", seq=2048, plan="dp=8 gbs=128 mbs=4 zero=1"
    )

    told, good = found(one, slow, plans=False), found(one, right, plans=False)

    assert told.framework == "internevo"
    assert not told.inside
    network = next(one for one in told.suspects if one.basis == "possible")
    assert network.name == "network"
    assert good.inside
    assert good.suspects[0].cost_s < 0.1 * network.cost_s


def test_full_recompute_and_a_deep_pipeline_where_memory_needs_neither():
    """NVIDIA/Megatron-LM issue 1031: 70B with tp 8 and pp 8 on 128 H100 has 296.5 TFLOP/s a GPU.

    The table that the issue compares with has 420.5, with pp 2, without recompute and with the overlap of
    tensor-parallel messages. The issue's own run fails with that switch.
    """
    plan = "dp=2 tp=8 pp=8 mbs=1 gbs=1024 sp zero=1 recompute=full"
    told = found(job("llama-3-70b", cluster="dgx-h100:16", stack="megatron-core", plan=plan))

    names = [one.name for one in told.suspects]
    gains = {one.name: one.cost_s / told.report.step_time_s for one in told.suspects}
    assert names[:3] == ["recompute_not_needed", "tensor_messages_not_overlapped", "plan"]
    assert gains["recompute_not_needed"] == pytest.approx(0.25, abs=0.03)  # a fourth pass of four
    assert told.report.metrics.device_flop_per_s / 1e12 == pytest.approx(296.5, rel=0.2)
