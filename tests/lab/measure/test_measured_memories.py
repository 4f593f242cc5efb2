"""Memory outside the device: what is timed, what remains of a file, and the cluster that the rates give."""

import os
import sys
import time
from types import SimpleNamespace

import pytest
import yaml
from command_line import flopcast
from job_cases import read_job
from simulated import SimulatedBench

from flopcast.lab.measure.device import Place
from flopcast.lab.measure.sample_pack import Manifest
from flopcast.lab.measure.sampling_run import Unsupported
from flopcast.lab.measure.tier_run import TINY_TIERS, TierEffort, measure_memories, planned_memories
from flopcast.lab.measure.tier_samples import (
    COPIES,
    HOST_UPDATE,
    STORAGE,
    TIER_KINDS,
    TierSample,
    node_changes,
)
from flopcast.lab.samples import storage
from flopcast.lab.samples.packs import open_pack, read_pack
from flopcast.lab.samples.storage import measure_storage

LINK_BYTES_PER_S, PAGEABLE_BYTES_PER_S, UPDATE_S = 25e9, 5e9, 0.001


class Tensor:
    """Bytes on a simulated device, whose copies take the time of its link."""

    def __init__(self, bench, size, pinned=False):
        self.bench, self.size, self.pinned = bench, size, pinned

    def pin_memory(self):
        return Tensor(self.bench, self.size, pinned=True)

    def copy_(self, other, non_blocking):
        rate = LINK_BYTES_PER_S if self.pinned or other.pinned else PAGEABLE_BYTES_PER_S
        self.bench.run(self.size / rate)


def simulated_place(bench, device="cuda"):
    """A torch with the names that copies and the update use."""

    def step():
        bench.host_s += UPDATE_S

    torch = SimpleNamespace(
        uint8=1,
        float32=4,
        ones=lambda size, dtype, device="cpu": Tensor(bench, size),
        zeros=lambda size, dtype: Tensor(bench, size),
        nn=SimpleNamespace(Parameter=lambda tensor: tensor),
        optim=SimpleNamespace(AdamW=lambda weights, fused: SimpleNamespace(step=step)),
    )
    return Place(torch=torch, device=device)


def sample(kind, bytes_per_s):
    """A row of one second."""
    return TierSample(device="d", kind=kind, size_bytes=int(bytes_per_s), repetitions_us=(1e6,))


def test_copies_and_the_update_have_the_rates_of_their_links_and_of_28_bytes_a_parameter():
    bench = SimulatedBench(launch_s=0.0)

    found = {
        one.kind: one.bytes_per_s
        for one in measure_memories(simulated_place(bench), bench, "d", TINY_TIERS)
    }

    hot = 2.0  # the simulated clock falls to half while the link is busy: copies take up to twice as long
    assert set(found) == {*COPIES, HOST_UPDATE}
    for kind in COPIES:
        rate = LINK_BYTES_PER_S if kind.startswith("pinned") else PAGEABLE_BYTES_PER_S
        assert rate / hot <= found[kind] * 1.001 <= rate * 1.002
    assert found[HOST_UPDATE] == pytest.approx(28 * TINY_TIERS.parameters / UPDATE_S)


def test_without_a_gpu_only_the_update_is_measured_and_done_rows_are_left_out():
    bench = SimulatedBench()
    place = simulated_place(bench, "cpu")

    (update,) = measure_memories(place, bench, "cpu", TINY_TIERS)

    assert update.kind == HOST_UPDATE
    assert list(measure_memories(place, bench, "cpu", TINY_TIERS, {update.key})) == []


def test_a_torch_without_a_fused_update_is_told():
    bench = SimulatedBench()
    place = simulated_place(bench, "cpu")

    def refused(weights, fused):
        raise RuntimeError("fused=True requires a GPU")

    place.torch.optim.AdamW = refused

    (told,) = measure_memories(place, bench, "cpu", TINY_TIERS)

    assert isinstance(told, Unsupported)
    assert "requires a GPU" in told.why


def test_a_folder_is_written_and_read_and_nothing_remains_in_it(tmp_path):
    seen = []

    def clock():
        seen.append(list(tmp_path.iterdir()))
        return time.perf_counter()

    found = list(measure_storage(tmp_path, "d", TINY_TIERS, clock))

    if not hasattr(os, "posix_fadvise"):  # the read would come from the system's cache
        assert found.pop().why.endswith("cannot drop a file from its page cache")
    assert [one.kind for one in found] == list(STORAGE)[: len(found)]
    assert {one.size_bytes for one in found} == {TINY_TIERS.file_bytes}
    assert list(tmp_path.iterdir()) == []
    if sys.platform == "linux":  # files without names: a killed process leaves none
        assert not any(seen)
    keys = {one.key for one in found}
    assert len(found) < 2 or list(measure_storage(tmp_path, "d", TINY_TIERS, clock, keys)) == []


def test_an_interrupted_measurement_of_a_folder_leaves_no_file(tmp_path):
    calls = iter(range(3))

    def interrupted():
        if next(calls, None) is None:
            raise KeyboardInterrupt
        return time.perf_counter()

    with pytest.raises(KeyboardInterrupt):
        list(measure_storage(tmp_path, "d", TINY_TIERS, interrupted))

    assert list(tmp_path.iterdir()) == []


def test_at_most_a_tenth_of_the_free_space_is_written(tmp_path, monkeypatch):
    free_bytes = 100 * storage.BLOCK_BYTES
    monkeypatch.setattr(storage.shutil, "disk_usage", lambda _: SimpleNamespace(free=free_bytes))

    found = next(measure_storage(tmp_path, "d", TierEffort(), time.perf_counter))

    assert found.size_bytes <= free_bytes / 10


def test_a_full_drive_is_told_of_both_directions(tmp_path, monkeypatch):
    monkeypatch.setattr(storage.shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))

    told = list(measure_storage(tmp_path, "d", TINY_TIERS, time.perf_counter))

    assert [one.key.split("|")[1] for one in told] == list(STORAGE)
    assert all("a tenth of the 1000 free bytes" in one.why for one in told)


def test_a_pack_keeps_the_rows_and_refuses_broken_ones(tmp_path):
    writer = open_pack(tmp_path, Manifest(device="d", tool_version="1", started="now"))
    rows = [sample(kind, 1e9 * (place + 1)) for place, kind in enumerate(TIER_KINDS)]
    for row in rows:
        writer.add(row)
    writer.close({})
    with (tmp_path / "tiers.csv").open("a") as file:
        file.write("d,tape,,1,1,1\nd,host_update,,0,1,1\nd,host_update,,1,1,9\n")

    pack = read_pack(tmp_path)

    assert pack.tiers == tuple(rows)
    assert pack.manifest.counts["tiers.csv"] == len(rows)
    assert len(pack.problems) == 3
    again = open_pack(tmp_path, Manifest(device="d", tool_version="1", started="now"))
    assert again.done == {row.key for row in rows}


def test_the_changes_of_a_cluster_give_a_job_the_measured_rates():
    rates = dict(zip(TIER_KINDS, (24e9, 22e9, 6e9, 5e9, 80e9, 4e9, 6e9), strict=True))
    changes = node_changes([sample(kind, rate) for kind, rate in rates.items()], "a100-sxm4-80gb")
    job = {
        "model": "gpt3-1.3b",
        "cluster": {"base": "dgx-a100", "groups": {"0": {"node": changes}}},
        "stack": "generic",
        "batch": {"sequence_length": 2048},
        "plan": "dp=8 mbs=1 gbs=8 zero=3 offload=optimizer:nvme",
    }

    node = read_job(yaml.safe_dump(job)).cluster.node

    assert node.device.host_bytes_per_s == 22e9  # the slower direction
    assert (node.memory.pageable_bytes_per_s, node.memory.optimizer_bytes_per_s) == (5e9, 80e9)
    assert (node.nvme.write_bytes_per_s, node.nvme.read_bytes_per_s) == (4e9, 6e9)
    assert node.memory.capacity_bytes == 2e12  # of the base


def test_a_plan_lists_the_memories_with_their_seconds(tmp_path):
    ended = flopcast("measure", "--plan-only", "--quick", "--path", tmp_path)

    listed = [line.split()[-1] for line in ended.out.splitlines() if " memory " in line]
    assert listed == [kind for kind, _ in planned_memories(on_gpu=True, storage=True)] == list(TIER_KINDS)


def test_a_path_that_is_no_folder_is_told_before_anything_is_measured(tmp_path):
    ended = flopcast("measure", "--out", tmp_path / "pack", "--path", tmp_path / "missing")

    assert ended.code == 1
    assert "--path = " in ended.err
    assert not (tmp_path / "pack").exists()
