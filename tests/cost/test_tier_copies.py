"""Seconds of copies and of updates on the host, against closed forms."""

from dataclasses import replace

import pytest
from all_cases import all_cases
from conftest import make_job

from flopcast.cost.tier_constants import HOST_UPDATES, LOG_SIGMAS, STATE_COPIES
from flopcast.cost.tier_copies import device_rate, interleaved_ratio, storage_rates, update_rate
from flopcast.library.constants import shipped_levels
from flopcast.library.curves import load_book
from flopcast.prediction import predict
from flopcast.spec.memory_tiers import HostMemory

PARAMETERS = 6_738_415_616  # of Llama 2 7B
ALL = "optimizer:host"


def cluster(devices_per_link=1, **memory):
    """Nodes of 8 A100 with a described memory, two drives and a file system."""
    host = {"capacity_bytes": "1 TB", "bytes_per_s": "400 GB/s", "devices_per_link": devices_per_link}
    drives = {"capacity_bytes": "9 TB", "read_bytes_per_s": "16 GB/s", "write_bytes_per_s": "8 GB/s"}
    shared = {"capacity_bytes": "1 PB", "read_bytes_per_s": "800 GB/s", "write_bytes_per_s": "400 GB/s"}
    node = {"device": "a100-sxm4-80gb", "devices": 8, "host": "epyc-7763", "memory": host | memory}
    return {
        "base": "dgx-a100",
        "groups": [{"count": 1, "node": node | {"nvme": drives}}],
        "file_system": shared | {"node_bytes_per_s": "24 GB/s"},
    }


def job(offload=ALL, stack="generic", where=None):
    plan = f"dp=8 mbs=1 gbs=8 zero=3 precision=bf16 offload={offload}"
    return make_job(model="llama-2-7b", cluster=where or cluster(), stack=stack, plan=plan)


def seconds(a_job, name):
    """Seconds of the items of a name, alone, on the busiest stage."""
    priced = predict(a_job, load_book(a_job.cluster)).priced
    found = [item for item in priced.programs.items() if item.name == name]
    return sum(priced.seconds(item) for item in found)


@all_cases(
    ("where", "pinned", "rate"),
    [
        (cluster(), True, 25e9),  # PCIe 4.0
        (cluster(devices_per_link=2), True, 12.5e9),
        (cluster(bytes_per_s="80 GB/s"), True, 10e9),  # eight devices share the memory
        (cluster(), False, 8e9),
        (cluster(pageable_bytes_per_s="4 GB/s"), False, 4e9),
    ],
)
def test_a_device_has_its_share_of_link_and_memory(where, pinned, rate):
    assert device_rate(job(where=where).cluster, pinned) == pytest.approx(rate)


def test_compute_waits_for_copies_of_gradients_in_the_last_micro_batch_alone():
    def step_s(flush, sequences):
        offload = {"gradient_flush": flush, "gradient_copies": "pinned"}
        stack = {"base": "deepspeed-zero", "offload": offload, "gradients": {"overlap": False}}
        plan = f"dp=8 mbs=1 gbs={sequences} zero=3 recompute=full offload=optimizer:host"
        one = make_job(model="llama-2-7b", cluster=cluster(), stack=stack, plan=plan)
        return predict(one, load_book(one.cluster)).clean_step_time_s

    waits_s = [step_s("blocking", count) - step_s("overlapped", count) for count in (32, 64)]

    assert waits_s[0] > 0.1
    assert waits_s[1] == pytest.approx(waits_s[0], rel=1e-6)


@all_cases(
    ("tier", "nodes", "rates"),
    [
        ("nvme", 1, (2e9, 1e9)),
        ("file_system", 1, (3e9, 3e9)),  # a node reads and writes 24 GB/s at most
        ("file_system", 64, (800e9 / 512, 400e9 / 512)),
    ],
)
def test_devices_share_drives_and_file_systems(tier, nodes, rates):
    one = job().cluster
    groups = tuple(group.model_copy(update={"count": nodes}) for group in one.groups)

    assert storage_rates(one.model_copy(update={"groups": groups}), tier) == pytest.approx(rates)


def test_the_host_updates_28_bytes_a_parameter_at_the_rate_of_its_node():
    measured = cluster(optimizer_bytes_per_s="100 GB/s")

    assert seconds(job(where=measured), "optimizer.update_on_host") == pytest.approx(
        28
        * PARAMETERS
        / update_rate(HostMemory(capacity_bytes=1, bytes_per_s=1, optimizer_bytes_per_s=1e11))
    )


def test_a_stride_of_two_takes_what_its_two_ratios_say():
    whole, half = (seconds(job(each), "optimizer.update_on_host") for each in (ALL, f"{ALL}:stride2"))

    ratios = [shipped_levels()[f"interleaved_update[{part}]"].ratio for part in ("host", "device")]

    assert half / whole == pytest.approx(interleaved_ratio(2, *ratios))


def test_an_update_takes_as_long_as_its_slowest_memory():
    on_drives = seconds(job("optimizer:nvme"), "optimizer.update_on_host")
    shard = PARAMETERS / 8

    assert on_drives == pytest.approx(16 * shard / 2e9 + 12 * shard / 1e9)


def test_gradients_wait_for_copies_to_pageable_memory():
    stock = job(stack="deepspeed-zero")

    assert seconds(stock, "gradients.to_host") > 0
    (factor,) = [n for n in predict(stock, load_book(stock.cluster)).priced.factors if "pageable" in n]
    assert factor == "host_link_pageable[a100-sxm4-80gb]"


def test_copies_beside_an_update_cost_the_longer_of_the_two():
    """Megatron-Core copies in pieces: the host updates one while others travel, each way."""
    for host_rate in (1e9, 100e9, 1e15):
        where = cluster(optimizer_bytes_per_s=f"{host_rate} B/s")
        before, beside = (
            job(stack={"base": "generic", "offload": {"gradient_flush": flush}}, where=where)
            for flush in ("before_update", "beside_update")
        )
        names = ("gradients.to_host", "optimizer.update_on_host", "parameters.to_device")
        parts = [seconds(before, name) for name in names]

        assert [seconds(beside, name) for name in (names[0], names[2])] == [0.0, 0.0]
        assert seconds(beside, names[1]) == pytest.approx(max(parts))


def test_constants_are_dropped_with_all_others_and_leave_a_wide_factor():
    """Without levels, copies reach their whole link, and the host the bandwidth of its memory."""
    stock = job(stack={"base": "generic", "offload": {"pinned_fraction": None}})
    book = load_book(stock.cluster)
    fitted, bare = (predict(stock, each).priced for each in (book, replace(book, levels={})))
    items = {item.name: item for item in bare.programs.items()}
    copy, update = items["parameters.to_device"], items["optimizer.update_on_host"]

    assert bare.seconds(copy) == pytest.approx(copy.work.size_bytes.item() / 25e9)
    assert bare.seconds(update) == pytest.approx(28 * PARAMETERS / 400e9)
    for item, name in ((copy, STATE_COPIES), (update, HOST_UPDATES)):
        same = next(each for each in fitted.programs.items() if each.name == item.name)
        assert fitted.seconds(same) == pytest.approx(bare.seconds(item) * shipped_levels()[name].ratio)
        assert name in bare.of(item).wholly
        assert bare.factors[name].log_sigma_factor == LOG_SIGMAS[name]
        assert fitted.factors[name].log_sigma_factor < LOG_SIGMAS[name]
