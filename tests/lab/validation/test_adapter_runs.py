"""Published runs with adapters: what their peaks of memory and their FLOP say of ours.

The rows do not say everything: which linears had adapters is the recipe's default, and whether blocks were
recomputed follows from what the row without it needs. So bounds are wide, and no constant was fitted here.
"""

import csv
from functools import cache

import pytest
from conftest import SHARED, make_job

from flopcast.prediction import memory_of
from flopcast.report.flop_conventions import CONVENTIONS

GIB = 2.0**30
RUNS = SHARED / "validation" / "published_runs.csv"
TORCHTUNE = {  # bf16 throughout: weights, gradients, both moments; logits in eight chunks; one device
    "base": "megatron-core",
    "gradients": {"dtype": "bf16", "overflow_checks": 0},
    "optimizer": {"state_bytes": "4 B"},
    "memory": {"logit_bytes": "0.75 B"},
}
RECIPE = {
    "rank": 8,
    "targets": ["q", "v", "out", "gate", "up", "down"],
}  # recipes/configs/llama3_1 of torchtune
ONE_DEVICE = {
    "base": "dgx-a100",
    "groups": [{"node": {"device": "a100-sxm4-80gb", "devices": 1, "host": "epyc-7763"}, "count": 1}],
}


@cache
def published(name):
    if not RUNS.is_file():
        pytest.skip("the published runs (../shared/validation) are not beside this checkout")
    with RUNS.open(encoding="utf-8", newline="") as file:
        return next(row for row in csv.DictReader(file) if row["id"] == name)


@pytest.mark.parametrize(
    ("name", "fields", "recompute"),
    [
        ("torchtune-readme-003", {}, "full"),
        ("torchtune-readme-004", {}, "none"),
        ("torchtune-readme-005", {"base_dtype": "nf4"}, "full"),
    ],
)
def test_peaks_of_llama_8b_are_met_within_a_tenth(name, fields, recompute):
    row = published(name)
    job = make_job(
        model={"base": "llama-3.1-8b", "adapters": RECIPE | fields},
        cluster=ONE_DEVICE,
        stack=TORCHTUNE,
        batch={"seq": int(float(row["seq_len"]))},
        plan=f"dp=1 mbs=2 gbs=2 recompute={recompute} precision=bf16",
    )

    allocated_bytes = memory_of(job).allocated_bytes

    assert allocated_bytes / GIB == pytest.approx(float(row["peak_mem_gb"]), rel=0.1)


@pytest.mark.parametrize(
    ("name", "model"), [("nemo-24.07-h100-016", "llama-2-7b"), ("nemo-24.07-h100-017", "llama-2-13b")]
)
def test_printed_rates_of_nemo_count_four_flop_a_parameter_and_token(name, model):
    """Printed TFLOP/s × devices × step time; six a parameter would be half as much again.

    Sequences are packed out of short questions, which attend to themselves alone: scores are left out.
    """
    row = published(name)
    printed_flop = float(row["tflops_per_gpu"]) * 1e12 * 8 * float(row["step_time_s_derived"])
    parts = {
        "cluster": "dgx-h100:1",
        "stack": "megatron-core",
        "batch": {"seq": 4096},
        "plan": "dp=8 gbs=32 precision=bf16",
    }
    frozen = make_job(model={"base": model, "adapters": {"rank": 32, "targets": ["qkv"]}}, **parts)
    full = make_job(model=model, **parts)

    counted, of_all = (
        CONVENTIONS["megatron-core-causal"].flop(job) - 3 * 32 * job.model.attention_flop(4096, causal=True)
        for job in (frozen, full)
    )

    assert counted == pytest.approx(printed_flop, rel=0.02)
    assert of_all > 1.45 * printed_flop
