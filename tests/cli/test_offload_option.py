"""Offload on the command line: where it is set, what reports say of it, and what is proposed without it."""

import json
import re
from itertools import product

from command_line import flopcast

DEEPSPEED = ("--cluster", "dgx-h100:1", "--stack", "deepspeed-zero", "--seq", "2048")
JOB = ("llama-3-8b", *DEEPSPEED, "--plan", "dp=8 gbs=64 zero=3")
TOO_LARGE = ("llama-30b", *DEEPSPEED, "--plan", "dp=8 gbs=64 zero=2 recompute=full")


def memory(*words):
    return json.loads(flopcast("memory", *words, "--json").out)


def test_the_option_and_the_field_of_the_plan_say_the_same():
    option = memory(*JOB, "--offload", "optimizer:host,activations:host:0.5")
    field = memory(*JOB, "plan.offload=optimizer:host,activations:host:0.5")
    none = memory(*JOB, "--offload", "none")

    assert option == field
    assert none == memory(*JOB)
    assert [tier["tier"] for tier in option["memory"]["tiers"]] == ["host"]
    assert none["memory"]["tiers"] == []


def test_commands_that_choose_no_placement_name_the_one_that_does():
    for command in ("memory", "predict"):
        ended = flopcast(command, *JOB, "--offload", "auto")

        assert ended.code == 1
        assert "fix:     run flopcast search with --offload auto, or set --offload to " in ended.err


def test_a_later_change_wins_and_a_second_option_is_refused():
    changed = memory(*JOB, "--offload", "optimizer:host", "plan.offload=none")
    twice = flopcast("memory", *JOB[:-1], "dp=8 gbs=64 zero=3 offload=optimizer:host", "--offload", "none")

    assert changed == memory(*JOB)
    assert twice.code == 1
    assert "leave out one of them" in twice.err


def test_a_placement_that_is_none_is_refused_with_one_that_is():
    for given in ("bogus", "optimizer=tape", "states=host"):
        ended = flopcast("memory", *JOB, "--offload", given)

        assert ended.code == 1
        assert "set --offload to optimizer:host" in ended.err


def test_serving_has_no_offload_option():
    ended = flopcast("memory", "llama-3-8b", "--engine", "vllm", "--offload", "optimizer:host")

    assert ended.code == 1
    assert "applies to training" in ended.err


def test_each_memory_has_its_own_line_whose_parts_add_up():
    ended = flopcast("predict", *JOB, "--offload", "optimizer:host,parameters:nvme")
    tiers = memory(*JOB, "--offload", "optimizer:host,parameters:nvme")["memory"]["tiers"]

    lines = {line.split()[0]: line for line in ended.out.splitlines()[:10] if line.strip()}
    assert lines["host"].endswith("host memory of a node: fits")
    assert lines["NVMe"].endswith("NVMe drives of a node: fits")
    for tier in tiers:
        assert abs(sum(tier["by_category"].values()) / tier["expected_bytes"] - 1) < 1e-8
        assert tier["low_bytes"] < tier["expected_bytes"] < tier["high_bytes"] < tier["capacity_bytes"]


def test_the_verdict_names_the_memory_that_is_too_small():
    small = "cluster.groups.0.node.memory.capacity_bytes=10 GB"
    ended = flopcast("predict", *JOB, "--offload", "optimizer:host", small)

    assert "host memory of a node: DOES NOT FIT" in ended.out
    assert "of 80.0 GiB: fits" in ended.out
    assert "of the host memory of a node" in next(
        line for line in ended.out.splitlines() if line.startswith("warning   does not fit")
    )


def test_a_plan_that_does_not_fit_names_a_placement_that_does():
    report = json.loads(flopcast("predict", *TOO_LARGE, "--json").out)

    found = report["offload_that_fits"]
    placed = json.loads(flopcast("predict", *TOO_LARGE, "--offload", found["offload"], "--json").out)

    assert not report["memory"]["fits"]
    assert placed["memory"]["fits"]
    assert abs(found["step_time_s"] / placed["step_time_s"] - 1) < 0.01
    assert abs(found["without_s"] / report["step_time_s"] - 1) < 0.01


def test_a_plan_that_does_not_fit_names_the_fastest_plan_with_the_same_degrees_that_does():
    words = ("predict", "llama-3-8b", "--gpus", "64", "--plan")
    text = flopcast(*words, "dp=32 pp=2 mbs=2 gbs=512").out
    (option,) = re.findall(r'--plan "(.*)" fits', text)
    reports = {
        plan: json.loads(flopcast(*words, plan, "--json").out)
        for plan in (
            option,
            *(
                f"dp=32 pp=2 mbs={mbs} gbs=512 zero={zero} recompute={mode}"
                for mbs, zero, mode in product((1, 2), (0, 1), ("none", "selective", "full"))
            ),
        )
    }

    fitting = [report["step_time_s"] for report in reports.values() if report["memory"]["fits"]]
    assert "dp=32 pp=2" in option
    assert reports[option]["memory"]["fits"]
    assert reports[option]["step_time_s"] <= 1.01 * min(fitting)


def test_a_job_without_a_plan_that_fits_names_a_placement_that_does():
    words = ("llama-3-70b", *DEEPSPEED[:-1], "1024")
    refused = flopcast("predict", *words)

    (line,) = (line for line in refused.err.splitlines() if "--offload" in line)
    found = line.split()[1]
    fits = flopcast("memory", *words, "--offload", found, "--json")

    assert refused.code == 2
    assert json.loads(fits.out)["memory"]["fits"]


def test_no_placement_of_a_search_is_faster_than_the_proposed_one():
    """Half of the activations on the host is enough here, and far faster than all of them."""
    words = ("llama-30b", "--gpus", "8", "--cluster", "aws-p4d")
    plan = "tp=2 pp=4 vpp=1 mbs=1 gbs=2048 sp zero=0 recompute=none precision=bf16"
    proposed = json.loads(flopcast("predict", *words, "--plan", plan, "--json").out)["offload_that_fits"]
    searched = json.loads(flopcast("search", *words, "--plan", plan, "--offload", "auto", "--json").out)
    refused = flopcast("predict", *words).err

    fastest_s = min(each["step_time_s"] for each in searched["plans"])
    assert proposed["step_time_s"] <= 1.01 * fastest_s
    assert "--offload optimizer:host,activations:host:0.5 (" in refused


def test_a_search_in_which_nothing_fits_says_what_offload_would_do():
    words = ("search", *TOO_LARGE[:-1], "dp=8 cp=1 gbs=64 mbs=1 zero=2 recompute=full")

    plain = flopcast(*words)
    placed = flopcast(*words, "--offload", "auto")

    assert plain.code == 2
    assert re.search(r"--offload optimizer:host\S* fits", plain.out)
    assert placed.code == 0
    assert "offload=optimizer:host" in placed.out


def test_a_model_that_trains_on_one_small_device_is_said_to_need_its_weights_on_the_host():
    """DeepSpeed and FSDP place weights on the host on one device too, where ZeRO-3 shards nothing."""
    one = (
        "llama-3-8b",
        "--cluster",
        "rtx-4090-8",
        "--gpus",
        "1",
        "--stack",
        "deepspeed-zero",
        "--seq",
        "2048",
    )
    refused = flopcast("memory", *one)
    placed = ("--offload", "optimizer:host,parameters:host")

    assert f"{' '.join(placed)} (with the assumed gbs=" in refused.err + refused.out
    assert "zero=3" in flopcast("memory", *one, *placed).out
