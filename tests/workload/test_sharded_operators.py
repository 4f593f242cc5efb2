"""Operators on sharded tensors: counted by hand, and paid for only where the device waits for the host."""

import pytest
from job_cases import job_text, read_job

from flopcast import predict

FORWARD = 7 * 4 + 2 * 6  # linear layers of a Llama block and its norms
BACKWARD = 2 * 7 * 4 + 2 * 6
KEPT_AGAIN = FORWARD - 4  # the last linear layer does not run again: nothing keeps its output


def report(stack="torch-fsdp2", plan="tp=8 sp", sequence=512, seconds=None, looped=0):
    found = read_job(
        job_text(
            model="model: llama-3-8b",
            cluster="cluster: dgx-h100:1",
            stack=f"stack: {stack}",
            batch=f"batch: {{sequence_length: {sequence}}}",
            plan=f'plan: "{plan} mbs=1 gbs=1 precision=bf16"',
        )
    )
    if seconds is not None:
        host = found.stack.host.model_copy(update={"sharded_operator_s": seconds})
        found = found.model_copy(update={"stack": found.stack.model_copy(update={"host": host})})
    if looped:
        optimizer = found.stack.optimizer.model_copy(update={"sharded_operators": looped})
        found = found.model_copy(update={"stack": found.stack.model_copy(update={"optimizer": optimizer})})
    return predict(found)


def operators(found):
    """Operators on sharded tensors in the forward and the backward pass of a block."""
    (block,) = (layer for layer in found.priced.programs.layers if layer.kind == "block")
    return [
        sum(float(item.count.max()) for item in items if item.name == "host.sharded_operator")
        for items in (block.forward, block.backward)
    ]


def test_operators_of_a_block_are_those_that_pytorch_calls():
    assert operators(report()) == [FORWARD, BACKWARD]
    assert operators(report(plan="tp=8 sp recompute=full")) == [FORWARD, BACKWARD + KEPT_AGAIN]
    assert operators(report(stack="torch-fsdp2-compiled")) == [0, 0]
    assert operators(report(plan="tp=1 pp=8")) == [0, 0]


def test_a_step_of_little_work_lasts_as_long_as_its_operators_and_one_of_much_work_hides_them():
    small, without = report(), report(seconds=0.0)
    each_s, speed = 95e-6, small.job.cluster.node.host.speed_ratio
    dispatch_s = 32 * (FORWARD + BACKWARD) * each_s / speed

    assert small.clean_step_time_s >= dispatch_s
    assert small.clean_step_time_s - without.clean_step_time_s == pytest.approx(dispatch_s, rel=0.1)
    long = {"sequence": 32768}
    assert report(**long).step_time_s == pytest.approx(report(**long, seconds=0.0).step_time_s, rel=0.02)


def test_an_optimizer_in_python_dispatches_operators_for_every_tensor():
    without, looped = report(), report(looped=10)
    speed = looped.job.cluster.node.host.speed_ratio
    tensors = 32 * 6 + 3  # qkv, out, up with gate, down and two norms of a block; embedding, norm, head

    added_s = looped.clean_step_time_s - without.clean_step_time_s

    assert added_s == pytest.approx(10 * tensors * 95e-6 / speed, rel=1e-6)
