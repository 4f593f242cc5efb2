"""SuperOffload of DeepSpeed (arXiv:2509.21271): updates on a Grace processor beside the backward pass.

The files are like those of its public example: Qwen3-14B on one GH200, four sequences of 4096 tokens, and
ZeRO-3. The authors state up to 600 TFLOP/s for this case, and in the example about 1.5 times the throughput
of ZeRO-Offload. Whether the rate includes recompute is not stated; the test assumes so.
"""

import json

import pytest
from command_line import data_of

OFFLOADED = {"device": "cpu", "pin_memory": True, "ratio": 0.9, "cpuadam_cores_perc": 0.9}
FILE = {
    "train_micro_batch_size_per_gpu": 4,
    "gradient_accumulation_steps": 1,
    "bf16": {"enabled": True},
    "zero_optimization": {
        "stage": 3,
        "overlap_comm": False,
        "reduce_bucket_size": 4e8,
        "sub_group_size": 4e8,
    },
}
WHERE = ("--model", "qwen3-14b", "--cluster", "gh200-nvl2", "--gpus", "1", "--seq", "4096")
PEAK_TFLOP_PER_S = 989


def predicted(tmp_path, **changes):
    path = tmp_path / "ds.json"
    sharding = FILE["zero_optimization"] | {"offload_optimizer": OFFLOADED | changes}
    path.write_text(json.dumps(FILE | {"zero_optimization": sharding}))
    return data_of("predict", path, *WHERE, "plan.recompute=full")


def test_superoffload_reaches_the_published_rate_and_speed_up(tmp_path):
    beside, after = predicted(tmp_path, super_offload=True), predicted(tmp_path, ratio=1.0)

    assert beside["hfu"] * PEAK_TFLOP_PER_S == pytest.approx(600, rel=0.08)
    assert after["step_time_s"] / beside["step_time_s"] == pytest.approx(1.5, rel=0.08)
