"""Steps of GRPO and handoffs of weights that were published: how far predictions are off.

Sources: NVIDIA-NeMo/RL, docs/about/performance-summary.md of release 0.4 (DGX-H100; steps, mean lengths,
degrees) and examples/configs/recipes/llm/performance (recompute, mini-batches, devices of each side);
MoonshotAI/checkpoint-engine, README (updates by broadcast); NVIDIA-NeMo/RL, pull requests 638 and 1379.
Lengths of prompts (200 tokens) and the spread of lengths below the limit of each run are our assumptions.
"""

from functools import cache
from math import exp, log
from statistics import fmean, median, stdev

import pytest

from flopcast import serving_job
from flopcast.api import predict_rl
from flopcast.library import catalog
from flopcast.library.constants import shipped_levels
from flopcast.rl.handoff import LINK_LOG_SIGMA_FACTOR, handoff_of
from flopcast.rl.step import ROLLOUTS
from flopcast.spec.rl_plan import RlPlan

PROMPT = 200
STEPS = {  # published seconds, model, devices of rollout and training, answers, tokens, tp, plan, prompts
    "llama": (97.7, "llama-3.1-8b", 16, 16, "lognormal(860, 0.5)", 1060, 1,
              "dp=8 pp=2 mbs=4 gbs=512 zero=1 recompute=full", 64, 32),
    "llama, asynchronous": (74.6, "llama-3.1-8b", 8, 8, "lognormal(929, 0.5)", 1129, 1,
                            "dp=4 pp=2 mbs=4 gbs=512 zero=1 recompute=full", 64, 32),
    "qwen3-32b": (393, "qwen3-32b", 32, 32, "uniform(2116, 3896)", 3208, 4,
                  "dp=2 tp=4 pp=4 sp mbs=1 gbs=512 zero=1", 64, 32),
    "qwen3-32b, asynchronous": (215, "qwen3-32b", 32, 32, "uniform(2116, 3896)", 3208, 4,
                                "dp=2 tp=4 pp=4 sp mbs=1 gbs=512 zero=1", 64, 32),
    "qwen3-30b": (225, "qwen3-30b-a3b", 32, 32, "uniform(2012, 3896)", 3154, 4,
                  "dp=16 tp=2 sp ep=8 mbs=1 gbs=512 zero=1", 64, 32),
    "qwen3-30b, asynchronous": (244, "qwen3-30b-a3b", 16, 16, "uniform(2020, 3896)", 3158, 2,
                                "dp=8 pp=2 ep=8 mbs=1 gbs=512 zero=1", 64, 32),
    "qwen3-235b": (506, "qwen3-235b-a22b", 128, 128, "uniform(2950, 7992)", 5672, 16,
                   "dp=4 tp=2 cp=2 sp pp=8 ep=4 mbs=1 gbs=512 zero=1 recompute=full"
                   " stage_layers=11,12x6,11", 16, 32),
    "deepseek-v3": (154, "deepseek-v3", 256, 256, "lognormal(545, 0.5)", 745, 32,
                    "dp=16 pp=16 ep=16 mbs=2 gbs=512 zero=1 recompute=full stage_layers=3,4x14,2", 32, 16),
}  # fmt: skip
UPDATES = {  # model, devices of an instance, format → published seconds of updates of all weights
    ("glm-4.5-air", 8, "bf16"): (3.94,),
    ("qwen3-235b-a22b", 8, "bf16"): (6.75,),
    ("deepseek-v3", 16, "fp8"): (12.22, 13.88),
    ("deepseek-v3", 64, "bf16"): (34.0, 14.0, 35.0),
    ("qwen3-235b-a22b", 16, "bf16"): (13.0, 5.5),
}


@cache
def step(name):
    """Return the prediction of a published step."""
    _, model, generating, training, output, tokens, tensor, plan, prompts, samples = STEPS[name]
    apart = name.endswith("asynchronous")
    return predict_rl(
        {
            "rollout": {
                "model": model,
                "cluster": f"dgx-h100:{generating // 8}",
                "engine": {"base": "vllm", "memory_fraction": 0.8 if apart else 0.6},
                "plan": {"tp": tensor, "weights": "bf16"},
                "traffic": {"prompt": PROMPT, "output": output},
            },
            "training": {
                "model": model,
                "cluster": f"dgx-h100:{training // 8}",
                "stack": "megatron-bridge",
                "batch": {"sequence_length": tokens},
                "plan": plan,
            },
            "prompts": prompts,
            "samples": samples,
            "scorers": 2,
            "apart": apart,
        }
    )


def needed(name):
    """Return the ratio of the rollout's time to the engine's with which a step is as published."""
    report, measured_s = step(name), STEPS[name][0]
    phases = {phase: each.value for phase, each in report.phases.items()}
    others_s = phases["handoff"] + (0.0 if report.plan.apart else phases["scoring"] + phases["training"])
    return (measured_s - others_s) / report.rollout.served.end_s


def with_ratio(name, ratio):
    """Return the seconds of a step if rollouts take this ratio of the engine's time."""
    report = step(name)
    phases = {phase: each.value for phase, each in report.phases.items()}
    generated_s = ratio * report.rollout.served.end_s + phases["handoff"]
    trained_s = phases["scoring"] + phases["training"]
    return max(generated_s, trained_s) if report.plan.apart else generated_s + trained_s


def test_the_constant_of_rollouts_is_the_mean_of_the_published_steps():
    logs = [log(needed(name)) for name in STEPS]
    shipped = shipped_levels()[ROLLOUTS]
    assert shipped.ratio == pytest.approx(exp(fmean(logs)), rel=0.05)
    assert shipped.log_sigma_factor == pytest.approx(stdev(logs), rel=0.15)


def test_steps_of_a_model_left_out_are_predicted_within_a_fifth():
    errors = {}
    for name, (measured_s, *_) in STEPS.items():
        model = name.partition(",")[0]
        others = [log(needed(other)) for other in STEPS if other.partition(",")[0] != model]
        errors[name] = abs(with_ratio(name, exp(fmean(others))) / measured_s - 1)
    assert median(errors.values()) < 0.2, errors


def test_intervals_hold_the_published_steps():
    inside = [
        step(name).step_s.low <= measured_s <= step(name).step_s.high
        for name, (measured_s, *_) in STEPS.items()
    ]
    assert sum(inside) >= 7


def test_updates_of_all_weights_take_as_long_as_published():
    errors = []
    for (model, devices, weights), seconds in UPDATES.items():
        job = serving_job(
            model, engine="vllm", cluster="dgx-h100", gpus=devices, plan=f"tp={devices} weights={weights}"
        )
        trained = catalog.model(model)
        sent = handoff_of(job, trained, RlPlan(), {})
        errors += [abs(log(sent.taken.value / measured_s)) for measured_s in seconds]
        assert all(abs(log(sent.taken.value / each)) < 2 * LINK_LOG_SIGMA_FACTOR for each in seconds)
    assert median(errors) < 0.3
