"""Memory outside the devices: what leaves a device is in the tiers, and nothing is held twice."""

import numpy as np
import pytest
from all_cases import all_cases
from conftest import make_job

from flopcast.kept_results import KeptResults
from flopcast.memory.outside import with_placements_in_memory
from flopcast.memory.peak import peak_memory
from flopcast.prediction import memory_of, realised
from flopcast.search.offload_choices import offload_choices

NODE = {"device": "a100-sxm4-80gb", "devices": 8, "host": "epyc-7763"}
MEMORY = {"capacity_bytes": "1 TB", "bytes_per_s": "400 GB/s"}
DRIVES = {"capacity_bytes": "10 TB", "read_bytes_per_s": "20 GB/s", "write_bytes_per_s": "10 GB/s"}
DEVICES = 8


def memory(offload, plan="dp=8 mbs=1 gbs=8 zero=3", stack="generic", model="llama-2-7b", capacity="1 TB"):
    node = NODE | {"memory": MEMORY | {"capacity_bytes": capacity}, "nvme": DRIVES}
    cluster = {"base": "dgx-a100", "groups": [{"count": 1, "node": node}]}
    job = make_job(
        model=model, cluster=cluster, stack=stack, plan=f"{plan} precision=bf16 offload={offload}"
    )
    return memory_of(job)


def on_devices(report, name):
    return report.peaks.standing.get(name, np.zeros((1, 1)))[0].max() * DEVICES


def in_tiers(report, name):
    return sum(tier.by_category.get(name, 0.0) for tier in report.tiers)


@all_cases(
    ("offload", "name"),
    [
        ("optimizer:host", "optimizer_states"),
        ("optimizer:host:0.4", "optimizer_states"),
        ("optimizer:nvme:0.5,optimizer:host:0.25", "optimizer_states"),
        ("parameters:host:0.5", "parameters"),
        ("optimizer:host,parameters:nvme", "parameters"),
    ],
)
def test_states_are_on_the_device_or_in_a_tier(offload, name):
    whole, placed = (memory(each, stack="deepspeed-zero") for each in ("none", offload))

    assert on_devices(placed, name) + in_tiers(placed, name) == pytest.approx(on_devices(whole, name))


@all_cases("plan", ["dp=8 mbs=2 gbs=64", "dp=2 tp=2 pp=2 mbs=1 gbs=16", "dp=2 pp=4 vpp=2 mbs=1 gbs=16"])
def test_all_activations_of_all_micro_batches_in_flight_are_in_the_tier(plan):
    whole, placed = memory("none", plan), memory("activations:host", plan)
    flying = {name: size for name, size in whole.peaks.by_category.items() if name == "activations"}
    most = float(np.max(flying["activations"]))

    held = in_tiers(placed, "activations") / DEVICES

    assert held == pytest.approx(most, rel=0.12)  # the device keeps what embedding and head need
    assert placed.allocated_bytes < whole.allocated_bytes


def test_gradients_on_the_host_are_in_fp32_and_leave_no_shard_on_the_device():
    placed = memory("optimizer:host")
    parameters = float(placed.programs.parameters.max())

    assert in_tiers(placed, "gradients") == pytest.approx(4 * parameters)
    assert in_tiers(placed, "optimizer_states") == pytest.approx(12 * parameters)
    assert on_devices(placed, "gradients") == 0.0


def test_each_rank_pins_a_power_of_two_for_its_16_bit_gradients_under_zero_3():
    parameters = float(memory("none").programs.parameters.max())
    for zero, pinned_bytes in ((2, 0.0), (3, DEVICES * 2**31)):  # shards have 1.6 GiB in 16 bits
        placed = memory("optimizer:host", f"dp=8 mbs=1 gbs=8 zero={zero}", stack="deepspeed-zero")

        assert in_tiers(placed, "gradients") == pytest.approx(4 * parameters + pinned_bytes)


@all_cases(("capacity", "verdict"), [("1 TB", "fits"), ("110 GB", "tight"), ("60 GB", "does not fit")])
def test_the_verdict_is_the_worst_of_device_and_tiers(capacity, verdict):
    placed = memory("optimizer:host", capacity=capacity)
    (tier,) = placed.tiers

    assert tier.expected_bytes == pytest.approx(16 * float(placed.programs.parameters.max()))
    assert tier.verdict == placed.verdict == verdict
    assert placed.fits == (verdict != "does not fit")


def test_nothing_placed_uses_no_tier():
    assert memory("none").tiers == ()


@all_cases(
    ("stack", "plan"),
    [
        ("deepspeed-zero", "dp=8 mbs=1 gbs=64 zero=2"),
        ("deepspeed-zero", "dp=8 mbs=2 gbs=16 zero=3 recompute=full"),
        ("torch-fsdp2", "dp=8 mbs=1 gbs=16 zero=3"),
        ("megatron-core-2025", "dp=2 tp=2 pp=2 vpp=2 mbs=1 gbs=16 zero=1 sp"),
        ("generic", "dp=2 pp=4 mbs=1 gbs=32 schedule=zb_h1"),
    ],
)
def test_memory_with_placements_is_that_of_realised_plans_also_from_kept_layers(stack, plan):
    job = make_job(model="llama-2-7b", cluster="dgx-h100:1", stack=stack, plan=f"{plan} precision=bf16")
    kept = KeptResults(4096)
    plain = realised(job, kept)

    choices = offload_choices(job)

    assert len(choices) > 1
    for choice in choices:
        placed = job.model_copy(update={"plan": job.plan.model_copy(update={"offload": choice})})
        alone = peak_memory(realised(placed, KeptResults(0)))
        for programs in (with_placements_in_memory(plain, choice), realised(placed, kept)):
            found = peak_memory(programs)
            assert np.array_equal(found.high_bytes, alone.high_bytes)
            assert found.by_category.keys() == alone.by_category.keys()
            for name, size in alone.by_category.items():
                assert np.array_equal(found.by_category[name], size), (choice, name)
