"""The default software of mixtures of experts against published runs: users name model, cluster and plan.

NVIDIA Megatron-Bridge, docs/performance-summary.md, releases 26.04 to 26.08: tokens per second and GPU.
Constants were fitted to the runs on Blackwell, and the default for Hopper was chosen with its runs in view.
"""

from functools import lru_cache
from statistics import median

from all_cases import all_cases

from flopcast import job, predict

RUNS = {  # model, GPUs, cluster, plan, measured step in seconds
    "H100, GPT-OSS": (
        "gpt-oss-120b", 64, "dgx-h100",
        "dp=16 ep=8 pp=4 mbs=1 gbs=1280 zero=1 recompute=selective:layernorm,moe_act precision=bf16", 14.1,
    ),
    "H100, Qwen3 30B": (
        "qwen3-30b-a3b", 16, "dgx-h100", "dp=16 ep=16 mbs=1 gbs=1024 zero=1 precision=fp8_current", 29.45,
    ),
    "H100, Qwen3 235B": (
        "qwen3-235b-a22b", 256, "dgx-h100",
        "dp=16 tp=2 ep=32 etp=1 pp=8 vpp=4 mbs=1 gbs=8192 sp zero=1 stage_layers=2,3x30,2 "
        "precision=fp8_current",
        77.74,
    ),
    "B200, GPT-OSS": (
        "gpt-oss-120b", 64, "dgx-b200",
        "dp=64 ep=8 mbs=4 gbs=1280 zero=1 recompute=selective:layernorm,moe_act precision=bf16", 6.038,
    ),
    "B200, Qwen3 30B": (
        "qwen3-30b-a3b", 8, "dgx-b200", "dp=8 ep=8 mbs=4 gbs=512 zero=1 precision=mxfp8", 9.66,
    ),
    "B300, Qwen3 235B": (
        "qwen3-235b-a22b", 256, "dgx-b300",
        "dp=32 ep=8 pp=8 mbs=2 gbs=8192 zero=1 stage_layers=11,12x6,11 precision=mxfp8", 22.08,
    ),
    "GB200, GPT-OSS in 16 bits": (
        "gpt-oss-120b", 64, "gb200-nvl72",
        "dp=64 ep=64 mbs=4 gbs=1280 zero=1 recompute=selective:layernorm,moe_act precision=bf16", 5.14,
    ),
    "GB200, Qwen3 30B in 8 bits": (
        "qwen3-30b-a3b", 8, "gb200-nvl72", "dp=8 ep=8 mbs=4 gbs=512 zero=1 precision=mxfp8", 6.564,
    ),
    "GB300, GPT-OSS in 8 bits": (
        "gpt-oss-120b", 64, "gb300-nvl72", "dp=64 ep=16 mbs=4 gbs=1280 zero=1 precision=mxfp8", 2.481,
    ),
}  # fmt: skip


@lru_cache
def of_run(name):
    model, gpus, cluster, plan, measured_s = RUNS[name]
    return predict(job(model, gpus=gpus, cluster=cluster, seq=4096, plan=plan)), measured_s


@all_cases("name", RUNS)
def test_a_job_that_names_no_software_takes_as_long_as_the_recipe_of_its_device(name):
    report, measured_s = of_run(name)

    assert abs(report.step_time_s / measured_s - 1.0) < 0.15
    assert report.step_time_low_s < measured_s < report.step_time_high_s


def test_the_default_software_is_neither_too_fast_nor_too_slow():
    ratios = [report.step_time_s / measured_s for report, measured_s in map(of_run, RUNS)]

    assert abs(median(ratios) - 1.0) < 0.05
