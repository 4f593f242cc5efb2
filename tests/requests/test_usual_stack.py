"""The stack of a job that names none: one that runs on its devices, and an assumption."""

import math
import re

import pytest
from all_cases import all_cases
from conftest import REPOSITORY

from flopcast import job, predict
from flopcast.library import catalog

SETUP = {"model": "llama-3-8b", "seq": 2048}
WHOLE = {8: {"plan": "dp=8 mbs=1 gbs=64"}, 64: {"plan": "dp=64 mbs=1 gbs=64"}}  # nothing is left to choose
CLUSTERS = {
    "gcp-v5e": "maxtext",
    "gcp-v5p": "maxtext",
    "gcp-v6e": "maxtext",
    "aws-trn1": "neuron",
    "aws-trn2": "neuron",
    "gaudi3-8": "megatron-core",
    "dgx-h100": "megatron-core",
}


@all_cases("cluster", CLUSTERS)
def test_a_job_without_a_stack_runs_on_one_that_its_devices_have(cluster):
    made = job(cluster=cluster, gpus=64, **SETUP, **WHOLE[64])

    assert made.stack.name == CLUSTERS[cluster]
    assert f"stack {CLUSTERS[cluster]}" in made.assumptions


@all_cases("name", catalog.names("devices"))
def test_the_usual_stack_of_a_device_is_one_of_the_catalogue(name):
    device = catalog.device(name)

    usual = {device.usual_stack, device.usual_pretraining_stack}
    usual |= set(device.usual_expert_stacks.values())
    assert usual <= {"", *catalog.names("stacks")}


def test_devices_of_2025_pretrain_with_software_that_is_not_older():
    new = [catalog.device(name) for name in catalog.names("devices")]
    new = [device for device in new if device.generation in ("blackwell", "cdna4")]
    stacks = {device.usual_pretraining_stack for device in new if "simumax" not in device.name}

    assert len(new) > 8
    assert {catalog.stack(name).era for name in stacks} == {"2026-01"}
    assert catalog.stack("megatron-core").era < "2025"
    for cluster in ("dgx-b200", "dgx-b300", "mi355x-8"):
        made = job(cluster=cluster, gpus=8, **SETUP, **WHOLE[8])
        assert made.stack.name == "megatron-core-2026"
        assert "stack megatron-core-2026 (megatron-core is older than the device)" in made.assumptions
    assert job(cluster="dgx-b200", gpus=8, lora=16, **SETUP, **WHOLE[8]).stack.name == "torch-fsdp2"
    assert job("mixtral-8x7b", cluster="dgx-b200", gpus=64, seq=2048, plan=SPREAD).stack.name == (
        "megatron-bridge-26.04"
    )


SPREAD = "dp=64 ep=8 mbs=1 gbs=64"
EXPERTS = {
    "of the catalogue": ("mixtral-8x7b", "dgx-h100", SPREAD, "megatron-bridge-26.04-hopper"),
    "changed": (
        {"base": "mixtral-8x7b", "vocabulary": 64000},
        "dgx-h100",
        SPREAD,
        "megatron-bridge-26.04-hopper",
    ),
    "a dense model": ("llama-3-8b", "dgx-h100", WHOLE[64]["plan"], "megatron-core"),
    "GPUs before Hopper": ("mixtral-8x7b", "dgx-a100", SPREAD, "megatron-core"),
    "Blackwell": ("mixtral-8x7b", "gb200-nvl72", SPREAD, "megatron-bridge-26.04"),
    "8 bits on Blackwell": (
        "mixtral-8x7b",
        "gb200-nvl72",
        f"{SPREAD} precision=mxfp8",
        "megatron-bridge-26.06",
    ),
}


@all_cases("name", EXPERTS)
def test_experts_run_on_the_software_of_recipes_for_their_device(name):
    model, cluster, plan, stack = EXPERTS[name]

    made = job(model=model, cluster=cluster, gpus=64, seq=2048, plan=plan)

    assert made.stack.name == stack
    assert any(one.startswith(f"stack {stack}") for one in made.assumptions)


@all_cases("plan", [f"{SPREAD} recompute=full", f"{SPREAD} zero=2", "ep=8"])
def test_a_plan_that_such_software_cannot_run_keeps_the_usual_stack(plan):
    made = job("mixtral-8x7b", cluster="dgx-h100", gpus=64, seq=2048, plan=plan)

    assert made.stack.name == ("megatron-core" if "zero=2" in plan else "megatron-bridge-26.04-hopper")
    assert predict(made).step_time_s > 0


@all_cases("recompute, overlap", [("full", "none"), ("selective", "other_micro_batch")])
def test_only_under_full_recompute_the_usual_stack_exposes_the_all_to_alls_of_experts(recompute, overlap):
    jobs = [
        job(
            "mixtral-8x7b",
            cluster="dgx-h100",
            gpus=64,
            plan=f"{SPREAD} recompute={recompute}",
            changes=changes,
        )
        for changes in ([], [f"stack.experts.exchange_overlap={overlap}"])
    ]

    usual, named = map(predict, jobs)

    assert usual.step_time_s == named.step_time_s


def test_deepseek_v3_takes_as_long_as_its_report_says_on_the_software_of_the_report():
    """arXiv:2412.19437, sections 3.1, 4.2, table 1: 2.664 M GPU hours for 14.8 T tokens; 16 stages, 64
    ranks of experts. Nothing was fitted to the run, but the stack was written when it was known.

    tests/test_docs.py compares what the page shows with what its commands print.
    """
    page = (REPOSITORY / "docs/howto/experts.md").read_text(encoding="utf-8")
    total_s = 2.664e6 * 3600 / 2048
    measured = {"time": total_s / 86400, "step": total_s / (14.8e12 / (4096 * 15360))}
    (printed,) = re.findall(r"--stack hai-llm .*schedule=dualpipe.*\n((?:.+\n)+?)```", page)
    for quantity, expected_measured in measured.items():
        number = r"([\d.]+) [ds]"
        line = re.search(rf"^ *{quantity} +{number} +\(90 %: {number} to {number}\)", printed, re.M)
        expected, low, high = map(float, line.groups())

        assert abs(expected / expected_measured - 1) < 0.11
        assert low < expected_measured < high


def test_on_a_tpu_attention_is_a_flash_kernel_without_a_word_of_the_user():
    silent = job(cluster="gcp-v5e", gpus=64, **SETUP, **WHOLE[64])
    named = job(cluster="gcp-v5e", gpus=64, stack="megatron-core", **SETUP, **WHOLE[64])

    assert silent.stack.attention_kernel == "flash"
    assert named.stack.name == "megatron-core"


TUNED = {
    "adapters": {"lora": 16},
    "adapters over 4 bits": {"qlora": 16},
    "samples": {"samples": "52k"},
    "samples of a change": {"changes": ["run.samples=52000"]},
    "a field of the stack": {"lora": 16, "changes": ["stack.attention_generation=flash-2"]},
}


@all_cases("name", TUNED)
def test_a_fine_tune_without_a_stack_runs_in_pytorch_and_says_so(name):
    tuned = job(cluster="dgx-h100", gpus=8, **SETUP, **WHOLE[8], **TUNED[name])
    named = job(cluster="dgx-h100", gpus=8, **SETUP, **WHOLE[8], **TUNED[name], stack="megatron-core")

    assert tuned.stack.name == "torch-fsdp2"
    of_samples = ", because a job with a number of samples is a fine-tune" * name.startswith("samples")
    assert f"stack torch-fsdp2 (most fine-tunes run in PyTorch{of_samples}; the" in str(tuned.assumptions)
    assert named.stack.name == "megatron-core"


def test_the_unstated_code_of_a_fine_tune_may_be_slower_than_a_named_stack():
    """Undescribed code adds a sigma of 0.26, so the sigma of the whole step is at least 0.26."""
    tuned = {"cluster": "dgx-h100", "gpus": 8, "lora": 16, **SETUP, **WHOLE[8]}
    unstated, named = predict(job(**tuned)), predict(job(stack="torch-fsdp2", **tuned))

    above = [report.step_time_high_s / report.step_time_s for report in (unstated, named)]
    assert unstated.step_time_s == pytest.approx(named.step_time_s, rel=0.01)
    assert above[0] > math.exp(1.645 * 0.26) > above[1]


def test_other_jobs_keep_their_stack():
    others = {
        "tokens": {"tokens": "1T"},
        "a stage of ZeRO": {"lora": 16, "plan": "dp=8 mbs=1 gbs=64 zero=1"},
    }
    for told, words in others.items():
        made = job(cluster="dgx-h100", gpus=8, **SETUP | WHOLE[8] | words)
        assert made.stack.name == "megatron-core", told
    assert job(cluster="gcp-v5e", gpus=8, **SETUP, **WHOLE[8], lora=16).stack.name == "maxtext"
