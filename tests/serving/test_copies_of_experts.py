"""Copies of experts, and tensor-parallel ranks on several nodes: deployments of InferenceX need both."""

import pytest
from command_line import flopcast

from flopcast import predict_serving, serving_job
from flopcast.errors import SpecError
from flopcast.serving.memory import serving_memory

TRAFFIC = "concurrency=96 prompt=512 output=64 requests=192"


def job_of(plan, cluster="gb200-nvl72", devices=48, engine="sglang"):
    words = f"replicas=1 weights=fp8_block {plan}"
    return serving_job(
        "deepseek-v3", engine=engine, cluster=cluster, gpus=devices, plan=words, traffic=TRAFFIC
    )


def test_experts_that_their_ranks_do_not_divide_need_copies():
    with pytest.raises(SpecError, match=r"set plan\.redundant_experts to 32"):
        predict_serving(job_of("tp=1 dp=48 ep=48"))


def test_a_rank_holds_its_share_of_experts_and_copies():
    """256 experts and 32 copies on 48 ranks: six on each, where 64 ranks hold four."""
    copied = serving_memory(job_of("tp=1 dp=48 ep=48 redundant_experts=32"))
    whole = serving_memory(job_of("tp=1 dp=64 ep=64", devices=64))

    expert_bytes = 58 * 3 * 7168 * 2048 * (1 + 4 / 128**2)  # of all layers, with scales of blocks
    assert copied.weight_bytes - whole.weight_bytes == pytest.approx(2 * expert_bytes, rel=0.01)


def test_without_copies_nothing_changes():
    same = [
        predict_serving(job_of(f"tp=1 dp=32 ep=32 {more}", devices=32))
        for more in ("", "redundant_experts=0")
    ]

    assert same[0].latencies["tpot"]["mean"].value == same[1].latencies["tpot"]["mean"].value


def test_launch_commands_state_the_copies(tmp_path):
    for engine, flag in (
        ("sglang", "--ep-num-redundant-experts 32"),
        ("vllm", '{"num_redundant_experts": 32}'),
    ):
        path = tmp_path / f"{engine}.sh"
        words = ["--plan", "tp=1 dp=48 ep=48 redundant_experts=32 replicas=1", "-o", path]
        flopcast("export", engine, "deepseek-v3", "--cluster", "gb200-nvl72", "--gpus", "48", *words)

        assert flag in path.read_text(encoding="utf-8")
        found = flopcast("predict", path, "--cluster", "gb200-nvl72", "--traffic", TRAFFIC).out
        assert "redundant_experts=32" in found


def test_tensor_parallel_ranks_on_two_nodes_wait_longer_for_messages_than_in_one_domain():
    """Sixteen B200 are two nodes on a network; ranks of a GB200 rack share one domain of NVLink."""
    waits = []
    for cluster in ("gb200-nvl72", "dgx-b200"):
        report = predict_serving(job_of("tp=16", cluster=cluster, devices=16))
        waits.append(report.iteration_s * report.shares["communication"])

    assert waits[1] > 1.5 * waits[0]
