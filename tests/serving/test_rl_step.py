"""A step of reinforcement learning: its phases follow from one serving and one training prediction."""

import json

import pytest
import yaml
from command_line import flopcast

from flopcast.api import predict, predict_rl
from flopcast.errors import SpecError
from flopcast.files.yaml_text import Document
from flopcast.requests.rl_request import rl_request

MACHINE = {"model": "llama-3.1-8b", "cluster": "dgx-h100:1"}
STEP = {
    "rollout": {**MACHINE, "plan": {"tp": 1}, "traffic": {"prompt": 500, "output": "uniform(100, 300)"}},
    "training": {**MACHINE, "batch": {"sequence_length": 1024}, "plan": "dp=8 mbs=1 gbs=64 zero=1"},
    "prompts": 32,
    "samples": 4,
}


def seconds(report):
    return {name: phase.value for name, phase in report.phases.items()}


def test_a_step_on_shared_devices_is_the_sum_of_its_phases():
    report = predict_rl(STEP)
    phases = seconds(report)
    assert report.step_s.value == pytest.approx(sum(phases.values()))
    assert report.step_s.low < report.step_s.value < report.step_s.high
    asked = rl_request(Document("step", STEP, {}))
    assert phases["training"] == pytest.approx(2 * predict(asked.training).step_time_s)  # 128 answers of 64
    served = report.rollout
    longest = served.served.requests.output_tokens.max()
    assert phases["rollout"] > longest * served.latencies["inter_token"]["p50"].value
    assert report.usd.value == pytest.approx(
        report.step_s.value / 3600 * 8 * asked.training.cluster.price.device_usd_per_hour
    )


def test_scorers_add_up_and_cost_less_than_generation():
    none, one, two = (seconds(predict_rl({**STEP, "scorers": number}))["scoring"] for number in (0, 1, 2))
    assert none == 0.0
    assert two == pytest.approx(2 * one)
    assert one < seconds(predict_rl(STEP))["rollout"]


def test_devices_of_their_own_overlap_generation_with_training():
    longer = set()
    for side in ("rollout", "training"):
        for scorers in (0, 16):
            apart = {"apart": True, "scorers": scorers, "scored_on": side}
            phases = seconds(report := predict_rl({**STEP, **apart}))
            times = {"rollout": phases["rollout"] + phases["handoff"], "training": phases["training"]}
            times[side] += phases["scoring"]  # the other side does not wait for the scores
            assert report.step_s.value == pytest.approx(max(times.values()))
            longer.add(max(times, key=times.get))
    assert longer == {"rollout", "training"}


def test_a_critic_is_scored_and_trained_like_the_model_and_epochs_repeat_the_training():
    plain, critic, twice = (
        seconds(predict_rl({**STEP, **changes})) for changes in ({}, {"critics": 1}, {"epochs": 2})
    )
    assert critic["training"] == pytest.approx(2 * plain["training"])
    assert critic["scoring"] == pytest.approx(2 * plain["scoring"])
    assert twice["training"] == pytest.approx(2 * plain["training"])
    assert twice["scoring"] == pytest.approx(plain["scoring"])


def test_scores_of_the_trainer_are_a_forward_pass_over_all_answers():
    """128 answers in batches of 64: the same work as two forward steps of the training job."""
    once = {**STEP["training"], "batch": {"sequence_length": 1024, "forward_only": True}}
    once["plan"] = "dp=8 mbs=1 gbs=128 zero=1"
    forward = predict(rl_request(Document("step", {**STEP, "training": once}, {})).training)
    assert seconds(predict_rl(STEP))["scoring"] == pytest.approx(forward.step_time_s)


def test_a_handoff_sends_all_weights_or_those_of_adapters():
    full = predict_rl(STEP)
    assert full.handoff_bytes == pytest.approx(2 * 8.03e9, rel=0.01)  # tp=1: every device has all of them
    trained = {**STEP["training"], "plan": "dp=8 mbs=1 gbs=64"}
    tuned = {"rank": 16, "targets": ["q", "v"]}
    adapted = {**STEP, "training": {**trained, "model": {"base": "llama-3.1-8b", "adapters": tuned}}}
    sent = predict_rl({**adapted, "handoff": "adapter"})
    # 32 blocks, rank 16: q is 4096 x 4096, v is 4096 x 1024
    assert sent.handoff_bytes == pytest.approx(2 * 32 * 16 * (4096 + 4096 + 4096 + 1024))
    assert seconds(sent)["handoff"] < 0.01 * seconds(full)["handoff"]


def test_the_command_reads_a_file_and_names_every_fault(tmp_path):
    path = tmp_path / "rl.yaml"
    path.write_text(yaml.safe_dump(STEP), encoding="utf-8")
    told = flopcast("predict", str(path))
    assert told.code == 0, told.err
    assert "32 prompts with 4 answers each" in told.out
    data = json.loads(flopcast("predict", str(path), "samples=8", "--json").out)
    assert data["optimizer_steps"] == 4
    assert sum(phase["value"] for phase in data["phases_s"].values()) == pytest.approx(
        data["step_s"]["value"]
    )
    path.write_text(yaml.safe_dump({**STEP, "training": {**STEP["training"], "plan": "auto gbs=64"}}))
    changed = flopcast("predict", str(path), "training.plan.gbs=128", "rollout.plan.tp=2", "--json")
    assert json.loads(changed.out)["optimizer_steps"] == 1
    assert "argument training.plan.gbx=1" in flopcast("predict", str(path), "training.plan.gbx=1").err
    wrong = flopcast("predict", str(path), "prompts=0", "training.model=lama", "rollout.engine=vlm")
    assert wrong.code == 1
    for word in ("prompts", "training.model", "rollout.engine"):
        assert word in wrong.err
    beside = flopcast("predict", str(path), "--gpus", "8")
    assert "training.KEY=VALUE" in beside.err


def test_the_page_of_a_step_holds_its_phases_and_the_same_numbers(tmp_path):
    path, page = tmp_path / "rl.yaml", tmp_path / "step.html"
    path.write_text(yaml.safe_dump(STEP), encoding="utf-8")
    told = flopcast("predict", str(path), "--report", str(page), "--json")
    html = page.read_text(encoding="utf-8")
    assert told.code == 0, told.err
    step_s = json.loads(told.out)["step_s"]["value"]
    assert html.startswith("<!doctype html>")
    assert f"{step_s:.3g}"[:4] in html
    for word in ("rollout", "scoring", "training", "handoff", "the engine alone"):
        assert word in html


CONTRADICTIONS = {
    "training.cluster": {"cluster": "dgx-h100:2", "plan": "dp=16 mbs=1 gbs=64 zero=1"},
    "training.model": {"model": "llama-2-7b"},
    "training.batch.sequence_length": {"batch": {"sequence_length": 512}},
}


BAD = {"plan": {"tp": 3}}


def test_what_both_jobs_contradict_each_other_in_is_told():
    for field, changes in CONTRADICTIONS.items():
        with pytest.raises(SpecError) as error:
            predict_rl({**STEP, "training": STEP["training"] | changes})
        assert field in [problem.field for problem in error.value.problems]
        with pytest.raises(SpecError) as error:  # beside a fault of the rollout's plan
            predict_rl({**STEP, "rollout": STEP["rollout"] | BAD, "training": STEP["training"] | changes})
        assert {field, "rollout.plan.tensor_parallel"} <= {each.field for each in error.value.problems}


def test_commands_of_one_job_name_the_command_that_takes_a_step(tmp_path):
    file = tmp_path / "rl.yaml"
    file.write_text(yaml.safe_dump(STEP), encoding="utf-8")
    for command in (("search",), ("memory",), ("compare", "plan.tp=2")):
        ended = flopcast(command[0], str(file), *command[1:])
        assert ended.code == 1
        assert f"run flopcast predict {file}" in ended.err
