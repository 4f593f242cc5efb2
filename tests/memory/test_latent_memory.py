"""Peak memory of DeepSeek-V2, cut to four blocks, on eight B200: what Megatron-Core was measured to need.

Rows of simumax-b200 in the published runs: latent attention, one leading dense block, experts that are
padded to their mean load, a fused loss. Nothing here was fitted on them.
"""

import csv

import pytest
from all_cases import all_cases
from conftest import make_job

from flopcast.memory.peak import peak_memory
from flopcast.spec.plan import one_plan
from flopcast.workload.lower import lower
from flopcast.workload.realise import realise

GIB = 2**30
MIXER = {
    "heads": 128,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_size": 128,
    "qk_rope_head_size": 64,
    "value_head_size": 128,
}
EXPERTS = {
    "num_experts": 160,
    "top_k": 6,
    "expert_hidden": 1536,
    "shared_experts": 2,
    "capacity_factor": 1.0,
    "pads_to_capacity": True,
}
BLOCK = {"norm": "rmsnorm", "mixer": MIXER}
MODEL = {
    "hidden": 5120,
    "vocabulary": 102400,
    "blocks": [
        BLOCK | {"count": 1, "feed_forward": {"ffn_hidden": 12288, "activation": "swiglu"}},
        BLOCK | {"count": 3, "feed_forward": EXPERTS},
    ],
}
ROWS = ["simumax-b200-005", "simumax-b200-006", "simumax-b200-021", "simumax-b200-022"]


def allocated_bytes(row):
    """The largest allocation of any stage."""
    degrees = {name: int(float(row[name])) for name in ("dp", "pp", "ep", "micro_batch", "global_batch")}
    job = make_job(
        model=MODEL,
        cluster="dgx-b200:1",
        stack="megatron-core-2026",
        batch={"sequence_length": 4096},
        plan=degrees | {"zero": 1, "precision": "bf16"},
    )
    programs = realise(lower(job.model, one_plan(job.plan), job.batch), job.stack)
    return float(peak_memory(programs).allocated_bytes.max())


@all_cases("name", ROWS)
def test_the_peak_of_deepseek_v2_is_the_measured_one_within_one_per_cent(name, shared):
    with (shared / "validation/published_runs.csv").open(encoding="utf-8") as file:
        row = next(row for row in csv.DictReader(file) if row["id"] == name)

    found = allocated_bytes(row)

    assert found / GIB == pytest.approx(float(row["peak_mem_gb"]), rel=0.01)
